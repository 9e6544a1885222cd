"""Reads the rows of data files in order of key, with bounded memory: merging and cleaning rewrite files with it.

The keys are split into passes. Each pass holds the rows of one key range from all inputs, about `bytes_max` bytes. A row group that spans
several ranges is read once per range.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import bearlake.table.rows as table_rows
from bearlake.compaction.concurrency import run_all
from bearlake.compaction.workbench import Workbench
from bearlake.errors import Corrupt
from bearlake.metadata.model import ObjectRef
from bearlake.objects import ByteRange, ObjectStore
from bearlake.table.footer import Footer
from bearlake.table.reader import read_ranges
from bearlake.table.rows import Key
from bearlake.table.sparse import SparseFile
from bearlake.table.value_plan import FileColumns
from bearlake.table.writer import Rows


class Group(NamedTuple):
    """A row group of an input."""

    object: ObjectRef
    footer: Footer
    number: int

    @property
    def range(self) -> ByteRange:
        """Its bytes in the file."""
        found = self.footer.groups[self.number]
        return ByteRange(found.start, found.end)

    @property
    def place(self) -> "Place":
        """Identifies the row group."""
        return self.object.key, self.number


Place: TypeAlias = tuple[str, int]
"""A row group: its file's key and its number."""
Select: TypeAlias = Callable[[Group, Rows], Rows]
"""Returns the rows of a row group that are to be read, in the same order."""
Pieces: TypeAlias = list[tuple[Key, Rows]]
"""Tables of one partition each, with the first key."""


class Part(NamedTuple):
    """The rows of one partition in a row group: first and last key, approximate size in bytes, and the row group's index."""

    first: Key
    last: Key
    size: int
    group: int


@dataclass(frozen=True, slots=True)
class Pass:
    """Keys `[low, high)` and the row groups that contain some of them."""

    low: Key
    high: Key | None
    groups: Sequence[Group]


def groups_of(reference: ObjectRef, footer: Footer) -> list[Group]:
    """Return the row groups of a file."""
    return [Group(reference, footer, number) for number in range(len(footer.groups))]


async def read_passes(
    groups: Sequence[Group],
    bytes_max: int,
    store: ObjectStore,
    workbench: Workbench,
    columns: FileColumns | None = None,
) -> list[Pass]:
    """Return the passes over the row groups; reads the keys of row groups that have several partitions.

    `columns`: the typed columns of the rows that are read. Rows of a file without them take their memory all the same.
    """
    null_bytes = 0 if columns is None else columns.null_bytes
    parts = [
        part for at, group in enumerate(groups) for part in await _parts_of(at, group, null_bytes, store, workbench)
    ]
    return list(_passes(groups, parts, bytes_max))


async def read_pass(
    pass_: Pass,
    store: ObjectStore,
    workbench: Workbench,
    columns: FileColumns | None = None,
    select: Select | None = None,
) -> Pieces:
    """Read the rows of the pass, in pieces; reads a few row groups at a time. `columns`: their typed columns, if any.

    Raises `Corrupt`, `NotFound`, `Unavailable`.
    """
    pieces: Pieces = []
    for start in range(0, len(pass_.groups), workbench.limits.read_concurrent_count):
        groups = pass_.groups[start : start + workbench.limits.read_concurrent_count]
        files = await run_all([load(group, [group.range], store) for group in groups])
        for group, file in zip(groups, files, strict=True):
            pieces += await workbench.compute(partial(_cut, file, group, pass_, columns, select))
    return pieces


async def load(group: Group, ranges: Sequence[ByteRange], store: ObjectStore) -> SparseFile:
    """Read byte ranges of the row group's file. Raises `Corrupt`, `NotFound`, `Unavailable`."""
    return SparseFile(group.object.size, ranges, await read_ranges(store, group.object, ranges))


async def _parts_of(at: int, group: Group, null_bytes: int, store: ObjectStore, workbench: Workbench) -> list[Part]:
    found = group.footer.groups[group.number]
    size = max(found.size_bytes, null_bytes * (found.row_end - found.row_start))
    if found.is_of_one_partition:
        index = found.partition_min
        return [Part((index, found.offset_min), (index, found.offset_max), size, at)]
    file = await load(group, group.footer.time_ranges(group.number), store)
    keys = await workbench.compute(partial(table_rows.read_keys, file, group.footer, group.number))
    row_bytes = size / len(keys)
    return [
        Part((run.partition, run.first), (run.partition, run.last), int((run.end - run.start) * row_bytes), at)
        for run in keys.runs()
    ]


def _passes(groups: Sequence[Group], parts: Sequence[Part], bytes_max: int) -> Iterator[Pass]:
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
        yield Pass(low, high, [groups[at] for at in sorted(places)])


def _cut(file: SparseFile, group: Group, pass_: Pass, columns: FileColumns | None, select: Select | None) -> Pieces:
    try:
        rows = table_rows.read_rows(file, group.footer, group.number, columns)
        return list(table_rows.cut(select(group, rows) if select else rows, pass_.low, pass_.high))
    except Corrupt as error:
        raise Corrupt(f"{group.object.key}: {error}") from error
