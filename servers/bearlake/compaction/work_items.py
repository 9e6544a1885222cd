"""Splits a claimed task into work items, from the index as it is now."""

from collections.abc import Sequence

from bearlake.compaction.aborted import aborted_ranges, of_slices
from bearlake.compaction.cleaning_items import CleaningItems
from bearlake.compaction.commit import Committer, Work
from bearlake.compaction.items import cut
from bearlake.compaction.merge_inputs import read_inputs
from bearlake.compaction.model import AbortedRange, WorkItem
from bearlake.compaction.quarantine import KEPT_PREFIX
from bearlake.compaction.settings import CompactionSettings
from bearlake.compaction.value_schemas import ValueSchemas
from bearlake.errors import Conflict
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import TaskKind
from bearlake.metadata.model import LocatedSlice, ObjectKind, PartitionKey
from bearlake.table.value_plan import ValuePlan


class WorkItems:
    """Makes the items of one worker's tasks."""

    def __init__(
        self,
        metadata: Metadata,
        committer: Committer,
        cleanings: CleaningItems,
        values: ValueSchemas,
        settings: CompactionSettings,
    ) -> None:
        self._metadata = metadata
        self._committer = committer
        self._cleanings = cleanings
        self._values = values
        self._worker = settings.worker
        self._file_bytes = settings.merge.file_bytes

    async def of(self, work: Work) -> list[WorkItem]:
        """Build a task's work items from the current index. Sets what they read, and the columns that the table needs.

        Raises:
            Conflict: another worker has swapped its offsets, or a merge that is no longer possible.
            Any error of `ValueSchemas.plan`.
            Unavailable: a store did not answer.
        """
        task = work.task
        prefix = f"{await self._committer.location(work.stream)}/data/{task.id:016x}-{task.epoch}"
        aborted: dict[PartitionKey, list[AbortedRange]] = {}
        values: ValuePlan | None = None
        if task.kind is TaskKind.MERGE:
            cleaning = await self._cleanings.items(work, prefix)
            if cleaning:
                return cleaning
            await read_inputs(work, self._metadata)
            groups: Sequence[Sequence[LocatedSlice]] = [work.slices]
        else:
            # Before the slices: a trim between the reads may remove what was aborted, and the batches with it.
            aborted = await aborted_ranges(self._metadata, task.ranges)
            work.slices = await self._metadata.log.slices(task.ranges)
            if any(found.kind is not ObjectKind.WAL for found in work.slices):  # this worker was paused for long
                raise Conflict(f"task {task.id}: another worker has already swapped its offsets")
            groups = cut(work.slices, self._worker.item_bytes_max)
            values = await self._values.plan(
                work.stream
            )  # after the slices, so that it knows the schemas of their records
            work.columns = None if values is None else values.columns.book
        return [
            WorkItem(
                kind=task.kind,
                stream_id=work.stream.id,
                output_prefix=f"{prefix}-{number}",
                kept_prefix=KEPT_PREFIX,
                slices=group,
                inputs=work.inputs,
                file_bytes_max=self._file_bytes,
                row_group_bytes=self._worker.row_group_bytes,
                aborted=of_slices(aborted, group),
                values=values,
            )
            for number, group in enumerate(groups)
        ]
