"""MERGE items: combine small data files into large ones, sorted by (partition, offset), with the same batches.

All rows of the inputs are moved, including rows that the index no longer names, because the table keeps them. Memory is bounded: the
merge first reads the keys of the inputs (two columns, delta-coded), then the rows in passes. Each pass holds the rows of one key range
from all inputs. A single pass is enough for inputs that fit into `merge_bytes`. With several passes, a row group that spans several
ranges is read once per range.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import bearlake.table.rows as table_rows
from bearlake.compaction.concurrency import run_all
from bearlake.compaction.model import ItemResult, WorkItem, WrittenFile
from bearlake.compaction.moving import Moving
from bearlake.compaction.output import Output, Upload, put_all
from bearlake.compaction.segments import check_cover
from bearlake.compaction.workbench import Workbench
from bearlake.errors import Corrupt, OutOfRange
from bearlake.metadata.model import ObjectRef
from bearlake.objects import ByteRange, ObjectStore
from bearlake.table.footer import Footer
from bearlake.table.reader import DataFileReader, DataFileSettings
from bearlake.table.rows import Key, Keys
from bearlake.table.sparse import SparseFile
from bearlake.table.writer import Rows


class _Group(NamedTuple):
    """A row group of an input."""

    object: ObjectRef
    footer: Footer
    number: int

    @property
    def range(self) -> ByteRange:
        found = self.footer.groups[self.number]
        return ByteRange(found.start, found.end)


class _Part(NamedTuple):
    """The rows of one partition in a row group: first and last key, approximate size in bytes, and the row group."""

    first: Key
    last: Key
    size: int
    group: int


@dataclass(frozen=True, slots=True)
class _Pass:
    """Keys `[low, high)` and the row groups that contain some of them."""

    low: Key
    high: Key | None
    groups: Sequence[_Group]


async def merge(item: WorkItem, store: ObjectStore, workbench: Workbench) -> ItemResult:
    """Merge the task's data files into larger ones, with the contract of `compaction.task.run`."""
    reader = DataFileReader(store, DataFileSettings(thread_count=0))
    footers = await run_all([reader.footer(reference) for reference in item.inputs])
    groups = [
        _Group(reference, footer, number)
        for reference, footer in zip(item.inputs, footers, strict=True)
        for number in range(len(footer.groups))
    ]
    parts = [part for at, group in enumerate(groups) for part in await _parts_of(at, group, store, workbench)]
    merger = _Merger(item, Output(item.output_prefix, workbench.random_bits))
    for pass_ in _passes(groups, parts, workbench.limits.merge_bytes):
        pieces = await _read_pass(pass_, store, workbench)
        await put_all(merger.feed(pieces), store, workbench)
        del pieces
    await put_all(merger.finish(), store, workbench)
    return merger.result(sum(footer.metadata.num_rows for footer in footers))


async def _parts_of(at: int, group: _Group, store: ObjectStore, workbench: Workbench) -> list[_Part]:
    found = group.footer.groups[group.number]
    if found.is_of_one_partition:
        index = found.partition_min
        return [_Part((index, found.offset_min), (index, found.offset_max), found.size_bytes, at)]
    file = await _load(group, group.footer.time_ranges(group.number), store)
    keys = await workbench.compute(partial(table_rows.read_keys, file, group.footer, group.number))
    row_bytes = found.size_bytes / len(keys)
    return [
        _Part((run.partition, run.first), (run.partition, run.last), int((run.end - run.start) * row_bytes), at)
        for run in keys.runs()
    ]


def _passes(groups: Sequence[_Group], parts: Sequence[_Part], bytes_max: int) -> Iterator[_Pass]:
    """Split the keys where parts begin, so that a pass has about `bytes_max` bytes of rows, and at least one part."""
    cuts: list[Key] = []
    size = 0
    for part in sorted(parts):
        if not cuts or (size + part.size > bytes_max and part.first != cuts[-1]):
            cuts.append(part.first)
            size = 0
        size += part.size
    for low, high in pairwise([*cuts, None]):
        assert low is not None
        places = {part.group for part in parts if part.last >= low and (high is None or part.first < high)}
        yield _Pass(low, high, [groups[at] for at in sorted(places)])


async def _read_pass(pass_: _Pass, store: ObjectStore, workbench: Workbench) -> list[tuple[Key, Rows]]:
    """Read the rows of the pass, in pieces; reads a few row groups at a time."""
    pieces: list[tuple[Key, Rows]] = []
    for start in range(0, len(pass_.groups), workbench.limits.read_concurrent_count):
        groups = pass_.groups[start : start + workbench.limits.read_concurrent_count]
        files = await run_all([_load(group, [group.range], store) for group in groups])
        for group, file in zip(groups, files, strict=True):
            pieces += await workbench.compute(partial(_cut, file, group, pass_.low, pass_.high))
    return pieces


def _cut(file: SparseFile, group: _Group, low: Key, high: Key | None) -> list[tuple[Key, Rows]]:
    try:
        return list(table_rows.cut(table_rows.read_rows(file, group.footer, group.number), low, high))
    except Corrupt as error:
        raise Corrupt(f"{group.object.key}: {error}") from error


async def _load(group: _Group, ranges: Sequence[ByteRange], store: ObjectStore) -> SparseFile:
    try:
        return SparseFile(group.object.size, ranges, await store.read(group.object.key, ranges))
    except OutOfRange as error:
        raise Corrupt(f"data file {group.object.key} is shorter than its committed size") from error


class _Merger:
    """Writes the rows of successive passes into files."""

    def __init__(self, item: WorkItem, output: Output) -> None:
        self._item = item
        self._output = output
        self._moving = Moving([located.slice for located in item.slices])
        self._carried: list[Rows] = []
        self._files: list[WrittenFile] = []
        self._record_bytes = 0

    def feed(self, pieces: Sequence[tuple[Key, Rows]]) -> Iterator[Upload]:
        """Add rows whose keys are after all rows fed before."""
        rows = table_rows.in_order(pieces)
        self._record_bytes += rows.nbytes
        *full, rest = table_rows.groups([*self._carried, rows], self._item.row_group_bytes)
        for group in full:
            yield from self._write(group)
        self._carried = [table_rows.compact(rest)]

    def finish(self) -> Iterator[Upload]:
        """Yield the remaining objects."""
        for group in self._carried:
            yield from self._write(group)
        if self._output.row_count:
            yield self._finish_file(None)

    def result(self, row_count: int) -> ItemResult:
        """Return the result. Asserts that it has `row_count` rows and names exactly the offsets that the inputs did."""
        written = sum(file.file.row_count for file in self._files)
        assert written == row_count, f"wrote {written} of {row_count} rows"
        made = [piece for file in self._files for piece in file.swap.slices]
        check_cover([located.slice for located in self._item.slices], made)
        return ItemResult(
            files=self._files,
            kept_objects=[],
            row_count=written,
            read_bytes=sum(reference.size for reference in self._item.inputs),
            record_bytes=self._record_bytes,
            written_bytes=sum(file.file.size for file in self._files),
            kept_counts={},
        )

    def _write(self, group: Rows) -> Iterator[Upload]:
        rows = table_rows.compact(group)
        keys = Keys(rows)
        if self._output.size_bytes >= self._item.file_bytes_max:
            yield self._finish_file(keys.key(0))
        self._moving.add_group(keys, self._output.row_count)
        self._output.write(rows)

    def _finish_file(self, next_key: Key | None) -> Upload:
        written, upload = self._output.finish(self._moving.end_file(next_key))
        self._files.append(written)
        return upload
