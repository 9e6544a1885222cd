"""Turns a MERGE task of a stream with key compaction into the work items of a cleaning.

Whether a task cleans follows from the index, not from the task: a task whose inputs can be cleaned together (`key_compaction.py`) cleans
them. A merge of some dirty files in the middle of a partition cannot clean, and keeps all records. So does every merge while key compaction
is switched off (`compaction.key_compaction.is_enabled`).
"""

from collections.abc import Sequence

from bearlake.clock import Clock
from bearlake.compaction.aborted import aborted_ranges
from bearlake.compaction.cleaned_files import is_cleaned, is_only_in_log, item_prefix
from bearlake.compaction.commit import Work
from bearlake.compaction.key_compaction import CleaningPlan, cut, plan, slices_of
from bearlake.compaction.merge_inputs import Outdated
from bearlake.compaction.model import AbortedRange, Cleaning, WorkItem
from bearlake.compaction.quarantine import KEPT_PREFIX
from bearlake.compaction.settings import CompactionSettings
from bearlake.compaction.stream_index import read_index
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import OffsetRange
from bearlake.metadata.model import partition_index
from bearlake.streams import configs as stream_configs
from bearlake.streams.key_compaction_rules import KeyCompactionRules, key_compaction_rules
from bearlake.table import Tables


class CleaningItems:
    """Builds work items of cleanings."""

    def __init__(self, metadata: Metadata, tables: Tables, settings: CompactionSettings, clock: Clock) -> None:
        """`clock` is compared with the timestamps of records."""
        self._metadata = metadata
        self._tables = tables
        self._settings = settings
        self._clock = clock

    async def items(self, work: Work, prefix: str) -> list[WorkItem]:
        """Return the items if the task cleans, and set `slices`, `inputs` and `cleaning` of its work; else return none.

        `prefix` is `<location>/data/<task>-<epoch>`. The streams' configs are those of the claim: a change counts from the next task on.

        Raises:
            Outdated: the inputs can neither be cleaned together nor merged, because one of them was cleaned before.
            Unavailable: the store or the catalog did not answer.
        """
        rules = key_compaction_rules(work.stream.configs)
        inputs = set(work.task.inputs)
        if rules is not None and self._settings.key_compaction.is_enabled:
            now_ms = self._clock.now_ms()
            located, bounds = await read_index(work.stream, self._metadata)
            found = plan(
                located, bounds, rules, self._settings.key_compaction, now_ms=now_ms, may_take=inputs.__contains__
            )
            if inputs == {reference.key for reference in found.inputs} and found.dirty_bytes:
                aborted = await self._aborted(found)
                is_in_table = not rules.keeps_history and await self._is_in_table(work)
                return self._items(work, prefix, found, rules, now_ms, aborted, is_in_table=is_in_table)
        if any(map(is_only_in_log if rules is None else is_cleaned, inputs)):
            raise Outdated(f"task {work.task.id}: its files can no longer be cleaned together")
        return []

    async def _is_in_table(self, work: Work) -> bool:
        """Return whether all inputs are in the table. Rows that are only in the log stay there: the table might have them twice (I5).

        A file is only in the log by its name, or if it was written while the stream had no table, or because the table no longer has it.
        """
        inputs = work.task.inputs
        has_table = stream_configs.table_rules(work.stream.name, work.stream.configs).is_enabled
        if not has_table or any(map(is_only_in_log, inputs)):
            return False
        live = await self._tables.live_files(work.stream, inputs)
        return live is None or live.issuperset(inputs)

    async def _aborted(self, found: CleaningPlan) -> list[AbortedRange]:
        """Return the aborted transactions among the kept batches."""
        firsts = {located.slice.partition: located.slice.base_offset for located in reversed(found.kept)}
        ranges = [OffsetRange(partition, first, found.bounds[partition]) for partition, first in firsts.items()]
        aborted = await aborted_ranges(self._metadata, ranges) if ranges else {}
        return [item for items in aborted.values() for item in items]

    def _items(
        self,
        work: Work,
        prefix: str,
        found: CleaningPlan,
        rules: KeyCompactionRules,
        now_ms: int,
        aborted: Sequence[AbortedRange],
        *,
        is_in_table: bool,
    ) -> list[WorkItem]:
        work.cleaning = found
        work.inputs = list(found.inputs)
        work.slices = slices_of(found, found.inputs)
        cleaning = Cleaning(
            bounds={partition_index(partition): bound for partition, bound in found.bounds.items()},
            dirty=found.dirty,
            kept=found.kept,
            now_ms=now_ms,
            tombstone_keep_ms=rules.tombstone_keep_ms,
        )
        return [
            WorkItem(
                kind=work.task.kind,
                stream_id=work.stream.id,
                output_prefix=item_prefix(prefix, number, is_in_table=is_in_table),
                kept_prefix=KEPT_PREFIX,
                slices=slices_of(found, references),
                inputs=references,
                file_bytes_max=self._settings.merge.file_bytes,
                row_group_bytes=self._settings.worker.row_group_bytes,
                cleaning=cleaning,
                aborted=aborted,
            )
            for number, references in enumerate(cut(found, self._settings.key_compaction.item_bytes_max))
        ]
