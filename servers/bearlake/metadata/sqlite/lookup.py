"""Lookups in a partition: first the index of rolled-up slices, then the later log entries.

Both are read in one snapshot, so nothing is missed. While a round of roll-up is under way, the index may have slices of later log
entries too: what the index returned is left out of the log. Only the log entries that touched the partition are read:
the ledger remembers their positions (`PartitionState.tail`).
"""

import sqlite3
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from itertools import islice, takewhile

from bearlake.metadata.compaction import OffsetRange
from bearlake.metadata.ledger import Ledger
from bearlake.metadata.model import Located, LocatedSlice, PartitionKey
from bearlake.metadata.packing import slices_of
from bearlake.metadata.partition_state import PartitionState
from bearlake.metadata.sqlite import index


def locate(
    connection: sqlite3.Connection, ledger: Ledger, key: PartitionKey, state: PartitionState, offset: int, limit: int
) -> Located:
    """Return at most `limit` slices, from the one that holds `offset` (or the first after it)."""
    offset = max(offset, state.start)
    found = index.with_objects(connection, list(islice(index.slices_from(connection, key, offset), limit)))
    if len(found) < limit:
        found += islice(unrolled_from(connection, key, state, _end(found, offset)), limit - len(found))
    return Located(slices=found, bounds=state.bounds(), position=ledger.applied)


def between(
    connection: sqlite3.Connection,
    key: PartitionKey,
    state: PartitionState,
    start: int,
    end: int,
    count_max: int | None = None,
) -> list[LocatedSlice]:
    """Return the slices that overlap `[start, end)`, except those wholly below the partition's start. `count_max`: at least as many of the
    first ones, if there are so many; None: all."""
    start = max(start, state.start)
    if start >= end:
        return []
    found = index.slices_between(connection, key, start, end, count_max)
    if count_max is not None and len(found) >= count_max:
        return found
    unrolled = unrolled_from(connection, key, state, _end(found, start))
    return found + list(takewhile(lambda located: located.slice.base_offset < end, unrolled))


def between_all(
    connection: sqlite3.Connection,
    existing: Callable[[PartitionKey], PartitionState | None],
    ranges: Collection[OffsetRange],
    count_max: int | None,
) -> list[LocatedSlice]:
    """Return the slices of all ranges whose partitions exist, as `between`; at most `count_max`."""
    found = (
        located
        for partition, start, end in ranges
        if (state := existing(partition)) is not None
        for located in between(connection, partition, state, start, end, count_max)
    )
    return list(islice(found, count_max))


def locate_timestamp(
    connection: sqlite3.Connection, ledger: Ledger, key: PartitionKey, state: PartitionState, timestamp: int
) -> Located:
    """Return the first slice whose newest timestamp is >= `timestamp`."""
    rolled = index.slices_with_timestamp(connection, key, state.start, timestamp)
    found = index.with_objects(connection, list(islice(rolled, 1)))
    if not found:
        unrolled = unrolled_from(connection, key, state, state.start)
        found = list(islice((located for located in unrolled if located.slice.max_timestamp >= timestamp), 1))
    return Located(slices=found, bounds=state.bounds(), position=ledger.applied)


def locate_max_timestamp(
    connection: sqlite3.Connection, ledger: Ledger, key: PartitionKey, state: PartitionState
) -> Located:
    """Return the first slice with the largest timestamp of the partition."""
    known = [index.max_timestamp(connection, key, state.start)]
    known += [located.slice.max_timestamp for located in unrolled_from(connection, key, state, state.start)]
    timestamps = [timestamp for timestamp in known if timestamp is not None]
    if not timestamps:
        return Located(slices=[], bounds=state.bounds(), position=ledger.applied)
    return locate_timestamp(connection, ledger, key, state, max(timestamps))


def size_before(connection: sqlite3.Connection, key: PartitionKey, state: PartitionState, offset: int) -> int:
    """Return the bytes of the partition below the slice that holds `offset` (start <= offset <= end)."""
    if offset == state.end:
        return state.size
    for found in index.slices_from(connection, key, offset):
        return found.size_before
    return state.size - sum(located.slice.length for located in unrolled_from(connection, key, state, offset))


def unrolled_from(
    connection: sqlite3.Connection, key: PartitionKey, state: PartitionState, offset: int
) -> Iterator[LocatedSlice]:
    """Return slices of entries that are not rolled up and whose end is > `offset`, in offset order."""
    tail = state.tail
    first = max(0, bisect_right(range(len(tail) // 2), offset, key=lambda at: tail[2 * at]) - 1)
    for position in tail[2 * first + 1 :: 2]:
        token, size, blob = connection.execute(
            "SELECT token, object_size, slices FROM log WHERE position = ?", (position,)
        ).fetchone()
        yield from (LocatedSlice(slice_, token, size) for slice_ in slices_of(blob, key) if slice_.end_offset > offset)


def _end(found: list[LocatedSlice], offset: int) -> int:
    return found[-1].slice.end_offset if found else offset
