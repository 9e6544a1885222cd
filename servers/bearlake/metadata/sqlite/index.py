"""The index of rolled-up slices: pages of slices per partition, and the objects that they name.

A page is a row with the partition, the offsets `[base_offset, end_offset)`, the newest timestamp, the bytes of the partition below it
and its packed slices (`packing.PAGE_WIDTH`). A lookup descends to the page that holds the offset and continues from there.
"""

import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

from bearlake.metadata.model import LocatedSlice, ObjectKind, PartitionKey, Slice
from bearlake.metadata.packing import PAGE_WIDTH, unpack_rows

FROM_OFFSET = (
    "partition = ?1 AND end_offset > ?2 AND base_offset >="
    " coalesce((SELECT max(base_offset) FROM index_pages WHERE partition = ?1 AND base_offset <= ?2), 0)"
)
"""Pages from the one that holds offset ?2, or the first after it."""


class IndexedSlice(NamedTuple):
    """A slice with its object's number (log position of its commit, or negative), and the bytes of the partition below it."""

    slice: Slice
    position: int
    size_before: int


def slices_from(connection: sqlite3.Connection, partition: PartitionKey, offset: int) -> Iterator[IndexedSlice]:
    """Yield rolled-up slices whose end is > `offset`, in offset order; reads pages lazily."""
    pages = connection.execute(
        f"SELECT size_before, slices FROM index_pages WHERE {FROM_OFFSET} ORDER BY base_offset", (partition, offset)
    )
    for size_before, blob in pages:
        yield from _of_page(partition, offset, size_before, blob)


def slices_with_timestamp(
    connection: sqlite3.Connection, partition: PartitionKey, start: int, timestamp: int
) -> Iterator[IndexedSlice]:
    """Yield rolled-up slices after `start` whose newest timestamp is >= `timestamp`, in offset order."""
    pages = connection.execute(
        f"SELECT size_before, slices FROM index_pages WHERE {FROM_OFFSET} AND max_timestamp >= ?3 ORDER BY base_offset",
        (partition, start, timestamp),
    )
    for size_before, blob in pages:
        yield from (
            found for found in _of_page(partition, start, size_before, blob) if found.slice.max_timestamp >= timestamp
        )


def max_timestamp(connection: sqlite3.Connection, partition: PartitionKey, start: int) -> int | None:
    """Return the newest timestamp of the rolled-up slices after `start`, None if there are none."""
    first = next(slices_from(connection, partition, start), None)
    if first is None:
        return None
    (later,) = connection.execute(
        "SELECT max(max_timestamp) FROM index_pages WHERE partition = ? AND base_offset > ?",
        (partition, first.slice.base_offset),
    ).fetchone()
    of_page = connection.execute(
        f"SELECT size_before, slices FROM index_pages WHERE {FROM_OFFSET} ORDER BY base_offset LIMIT 1",
        (partition, start),
    ).fetchone()
    newest = max(found.slice.max_timestamp for found in _of_page(partition, start, *of_page))
    return newest if later is None else max(newest, later)


def slices_between(
    connection: sqlite3.Connection, partition: PartitionKey, start: int, end: int, count_max: int | None = None
) -> list[LocatedSlice]:
    """Return rolled-up slices that overlap `[start, end)`, with their objects, in offset order: all, or the first pages of them with at
    least `count_max`."""
    objects = Objects(connection)
    found = []
    new = tuple.__new__  # a third of the cost of calling the class: a task has 100,000 slices
    for (blob,) in connection.execute(
        f"SELECT slices FROM index_pages WHERE {FROM_OFFSET} AND base_offset < ?3 ORDER BY base_offset",
        (partition, start, end),
    ):
        for base, count, at, length, timestamp, position in unpack_rows(blob, PAGE_WIDTH):
            if base < end and base + count > start:
                slice_ = new(Slice, (partition, base, count, at, length, timestamp))
                found.append(new(LocatedSlice, (slice_, *objects[position])))
        if count_max is not None and len(found) >= count_max:
            break
    return found


def with_objects(connection: sqlite3.Connection, found: list[IndexedSlice]) -> list[LocatedSlice]:
    """Return the slices with their objects' keys, sizes and kinds."""
    objects = Objects(connection)
    return [LocatedSlice(slice_, *objects[position]) for slice_, position, _ in found]


class Objects(dict[int, tuple[str, int, ObjectKind]]):
    """Key, size and kind of objects by number; each is read once."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        self._connection = connection

    def __missing__(self, number: int) -> tuple[str, int, ObjectKind]:
        key, size, kind = self._connection.execute(
            "SELECT key, size, kind FROM objects WHERE position = ?", (number,)
        ).fetchone()
        self[number] = found = (key, size, ObjectKind(kind))
        return found


def _of_page(partition: PartitionKey, offset: int, size_before: int, blob: bytes) -> Iterator[IndexedSlice]:
    for base, count, at, length, timestamp, position in unpack_rows(blob, PAGE_WIDTH):
        if base + count > offset:
            yield IndexedSlice(Slice(partition, base, count, at, length, timestamp), position, size_before)
        size_before += length
