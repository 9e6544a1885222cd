"""MERGE items: combine small data files into large ones, sorted by (partition, offset), with the same batches.

All rows of the inputs are moved, including rows that the index no longer names, because the table keeps them. Memory is bounded
(`compaction/row_passes.py`). A single pass is enough for inputs that fit into `merge_bytes`.
"""

from collections.abc import Sequence

from typing_extensions import override

from bearlake.compaction.concurrency import run_all
from bearlake.compaction.model import ItemResult, WorkItem
from bearlake.compaction.moving import Moving
from bearlake.compaction.output import Output, put_all
from bearlake.compaction.rewriting import Rewriting
from bearlake.compaction.row_passes import groups_of, read_pass, read_passes
from bearlake.compaction.segments import check_cover
from bearlake.compaction.workbench import Workbench
from bearlake.metadata.model import Slice
from bearlake.objects import ObjectStore
from bearlake.table.reader import DataFileReader, DataFileSettings
from bearlake.table.rows import Key, Keys
from bearlake.table.typed_rows import merged_columns
from bearlake.table.writer import Rows


async def merge(item: WorkItem, store: ObjectStore, workbench: Workbench) -> ItemResult:
    """Merge the task's data files into larger ones, with the contract of `compaction.task.run`."""
    reader = DataFileReader(store, DataFileSettings(thread_count=0))
    footers = await run_all([reader.footer(reference) for reference in item.inputs])
    groups = [group for pair in zip(item.inputs, footers, strict=True) for group in groups_of(*pair)]
    columns = merged_columns([footer.typed.columns for footer in footers if footer.typed is not None])
    merger = _Merger(item, Output(item.output_prefix, workbench.random_bits, columns))
    for pass_ in await read_passes(groups, workbench.limits.merge_bytes, store, workbench):
        pieces = await read_pass(pass_, store, workbench, columns)
        await put_all(merger.feed(pieces), store, workbench)
        del pieces
    await put_all(merger.finish(), store, workbench)
    return merger.result(sum(footer.metadata.num_rows for footer in footers))


class _Merger(Rewriting):
    """Keeps all rows; their segments move with them."""

    def __init__(self, item: WorkItem, output: Output) -> None:
        super().__init__(item, output)
        self._moving = Moving([located.slice for located in item.slices])

    def result(self, row_count: int) -> ItemResult:
        """Return the result. Asserts that it has `row_count` rows and names exactly the offsets that the inputs did."""
        written = sum(file.file.row_count for file in self.files)
        assert written == row_count, f"wrote {written} of {row_count} rows"
        made = [piece for file in self.files for piece in file.swap.slices]
        check_cover([located.slice for located in self._item.slices], made)
        return ItemResult(
            files=self.files,
            kept_objects=[],
            row_count=written,
            read_bytes=sum(reference.size for reference in self._item.inputs),
            record_bytes=self.record_bytes,
            written_bytes=sum(file.file.size for file in self.files),
            kept_counts={},
        )

    @override
    def _add_group(self, rows: Rows, keys: Keys, position: int) -> None:
        self._moving.add_group(keys, position)

    @override
    def _end_file(self, next_key: Key | None) -> tuple[Sequence[Slice], None]:
        return self._moving.end_file(next_key), None
