"""Key compaction of data files: rewrites the item's files without the records that newer ones supersede.

A record stays if it is the newest of its key below its partition's bound. A tombstone (null value) also goes once it is
`delete.retention.ms` older than its first cleaning: that cleaning removed all older records of its key, so none can reappear. A record
without a key goes, too. Offsets, order, batches and timestamps of the records that stay do not change, so consumers see gaps.

Kept batches (`kept_batches.py`) cannot be rewritten. Tombstones above a kept batch with records therefore stay. Markers and batches of
aborted transactions have no records that anybody reads. All other transactional records are committed: the bound is below every open
transaction, and aborted records have no rows (`aborted.py`).
An input that was cleaned before stays as it is if all its records stay, unless it is small.
Source: Apache Kafka, `Cleaner.shouldRetainRecord`; KIP-534.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from typing_extensions import override

import bearlake.table.rows as table_rows
from bearlake import kernel
from bearlake.compaction.aborted import AbortedRanges
from bearlake.compaction.cleaned_files import FOOTER_NAME, StampBook, Stamps, is_cleaned, read_stamps, rounded_up
from bearlake.compaction.concurrency import run_all
from bearlake.compaction.model import Cleaning, ItemResult, WorkItem
from bearlake.compaction.output import Output, put_all
from bearlake.compaction.rewriting import Rewriting
from bearlake.compaction.row_passes import Group, Place, groups_of, read_pass, read_passes
from bearlake.compaction.segments import check_cover
from bearlake.compaction.superseded import superseded
from bearlake.compaction.survivors import Survivors
from bearlake.compaction.windows import read_window, windows
from bearlake.compaction.workbench import Workbench
from bearlake.metadata.model import LocatedSlice, ObjectRef, Slice, partition_index
from bearlake.objects import ObjectStore
from bearlake.records.batch import is_control
from bearlake.table.footer import Footer
from bearlake.table.key_chunk import Mask
from bearlake.table.reader import DataFileReader, DataFileSettings
from bearlake.table.rows import Key, Keys
from bearlake.table.typed_rows import merged_columns
from bearlake.table.writer import Rows


async def clean(item: WorkItem, cleaning: Cleaning, store: ObjectStore, workbench: Workbench) -> ItemResult:
    """Clean the item's data files, with the contract of `compaction.task.run`."""
    footers = await _footers({*item.inputs, *cleaning.dirty}, store)
    dirty = [group for reference in cleaning.dirty for group in groups_of(reference, footers[reference])]
    groups = [group for reference in item.inputs for group in groups_of(reference, footers[reference])]
    rule = _Rule(
        cleaning,
        await superseded(groups, dirty, cleaning.bounds, store, workbench),
        {reference.key: read_stamps(footers[reference].text(FOOTER_NAME.encode())) for reference in item.inputs},
        await _kept_from(cleaning.kept, AbortedRanges(item.aborted), store, workbench),
    )
    unchanged = {reference.key for reference in item.inputs if rule.is_unchanged(reference, item.file_bytes_max)}
    rewritten = [footers[reference].typed for reference in item.inputs if reference.key not in unchanged]
    columns = merged_columns([typed.columns for typed in rewritten if typed is not None])
    cleaner = _Cleaner(item, Output(item.output_prefix, workbench.random_bits, columns), rule, unchanged)
    rest = [group for group in groups if group.object.key not in unchanged]
    for pass_ in await read_passes(rest, workbench.limits.merge_bytes, store, workbench) if rest else ():
        pieces = await read_pass(pass_, store, workbench, columns, rule.select)
        await put_all(cleaner.feed(pieces), store, workbench)
        del pieces
    await put_all(cleaner.finish(), store, workbench)
    row_count = sum(footers[reference].metadata.num_rows for reference in item.inputs if reference.key not in unchanged)
    return cleaner.result(row_count)


async def _footers(references: Collection[ObjectRef], store: ObjectStore) -> dict[ObjectRef, Footer]:
    reader = DataFileReader(store, DataFileSettings(thread_count=0))
    ordered = sorted(references)
    return dict(zip(ordered, await run_all([reader.footer(reference) for reference in ordered]), strict=True))


async def _kept_from(
    kept: Sequence[LocatedSlice], aborted: AbortedRanges, store: ObjectStore, workbench: Workbench
) -> dict[int, int]:
    """Return, by partition index, the first offset of a kept batch with records: neither a control batch nor an aborted one."""
    first: dict[int, int] = {}
    limits = workbench.limits
    for window in windows(kept, limits.window_bytes):
        for located, view in await read_window(window, store, limits.read_concurrent_count):
            partition, offset = located.slice.partition, located.slice.base_offset
            index = partition_index(partition)
            for _, _, header in kernel.batches(view, 0, len(view)):
                if not (is_control(header.attributes) or aborted.has(partition, header, offset)):
                    first[index] = min(offset, first.get(index, offset))
                offset += header.last_offset_delta + 1
    return first


class _Rule:
    """Decides which rows stay."""

    def __init__(
        self,
        cleaning: Cleaning,
        gone: Mapping[Place, Mask],
        stamps: Mapping[str, Stamps],
        kept_from: Mapping[int, int],
    ) -> None:
        """`gone`: superseded rows by row group. `stamps`: by file. `kept_from`: as `_kept_from` returns."""
        self._cleaning = cleaning
        self._gone = gone
        self._gone_files = {key for key, _ in gone}
        self._stamps = stamps
        self._book = StampBook(*stamps.values())
        self._kept_from = kept_from
        self._new_stamp_ms = rounded_up(cleaning.now_ms, cleaning.tombstone_keep_ms)

    def is_unchanged(self, reference: ObjectRef, file_bytes_max: int) -> bool:
        """Return whether a file stays as it is."""
        key = reference.key
        if not is_cleaned(key) or key in self._gone_files or reference.size * 2 < file_bytes_max:
            return False
        return not any(
            self._is_over(partition, stamp.first, stamp.cleaned_ms)
            for partition, ranges in self._stamps[key].items()
            for stamp in ranges
        )

    def select(self, group: Group, rows: Rows) -> Rows:
        """Return the rows of a row group that stay."""
        gone = self._gone.get(group.place)
        if gone is not None:
            rows = table_rows.without(rows, gone)
        if not self._stamps[group.object.key]:
            return rows
        expired = [at for at, partition, offset in table_rows.tombstones(rows) if self._is_expired(partition, offset)]
        return table_rows.without_places(rows, expired) if expired else rows

    def stamps_of(self, rows: Rows, book: StampBook) -> None:
        """Add the stamps of the tombstones among written rows to `book`."""
        for _, partition, offset in table_rows.tombstones(rows):
            stamp_ms = self._book.find(partition, offset)
            book.add(partition, offset, self._new_stamp_ms if stamp_ms is None else stamp_ms)

    def _is_expired(self, partition: int, offset: int) -> bool:
        stamp_ms = self._book.find(partition, offset)
        return stamp_ms is not None and self._is_over(partition, offset, stamp_ms)

    def _is_over(self, partition: int, offset: int, cleaned_ms: int) -> bool:
        is_due = cleaned_ms + self._cleaning.tombstone_keep_ms <= self._cleaning.now_ms
        return is_due and offset < self._kept_from.get(partition, offset + 1)


class _Cleaner(Rewriting):
    """Writes the rows that stay."""

    def __init__(self, item: WorkItem, output: Output, rule: _Rule, unchanged: Collection[str]) -> None:
        super().__init__(item, output)
        self._rule = rule
        self._unchanged = unchanged
        self._segments = [located.slice for located in item.slices if located.object_key not in unchanged]
        self._survivors = Survivors(self._segments)
        self._book = StampBook()

    def result(self, row_count: int) -> ItemResult:
        """Return the result; `row_count` rows were read. Asserts that it names exactly the offsets of the rewritten files."""
        segments = self._survivors.segments(len(self.files))
        rowless = self._survivors.rowless()
        check_cover(self._segments, [piece for pieces in [*segments, rowless] for piece in pieces])
        written = sum(file.file.row_count for file in self.files)
        assert written <= row_count, f"wrote {written} of {row_count} rows"
        return ItemResult(
            files=[
                replace(file, swap=replace(file.swap, slices=pieces))
                for file, pieces in zip(self.files, segments, strict=True)
            ],
            kept_objects=[],
            row_count=written,
            read_bytes=sum(reference.size for reference in self._item.inputs),
            record_bytes=self.record_bytes,
            written_bytes=sum(file.file.size for file in self.files),
            kept_counts={},
            unchanged=sorted(self._unchanged),
            rowless=rowless,
            dropped_count=row_count - written,
        )

    @override
    def _add_group(self, rows: Rows, keys: Keys, position: int) -> None:
        self._survivors.add_group(rows, keys, len(self.files), position)
        self._rule.stamps_of(rows, self._book)

    @override
    def _end_file(self, next_key: Key | None) -> tuple[Sequence[Slice], Mapping[str, str]]:
        book, self._book = self._book, StampBook()
        return (), book.encoded()
