"""The start of partitions by rule: whole slices or segments are dropped from the front, by age or by size."""

import sqlite3
from collections.abc import Iterator

from bearlake.errors import Conflict, NotFound
from bearlake.metadata.model import PartitionKey, Slice, Stream
from bearlake.metadata.partition_state import PartitionState
from bearlake.metadata.sqlite import index, lookup


def require_version(connection: sqlite3.Connection, stream: Stream) -> None:
    """Raise `Conflict` if the stream has another version by now, `NotFound` if it is deleted."""
    row = connection.execute(
        "SELECT version FROM streams WHERE number = ? AND is_deleted = 0", (stream.number,)
    ).fetchone()
    if row is None:
        raise NotFound(f"stream {stream.name!r} is deleted")
    if row[0] != stream.version:
        raise Conflict(f"stream {stream.name!r} has changed: it has version {row[0]}, not {stream.version}")


def retained_start(
    connection: sqlite3.Connection,
    key: PartitionKey,
    state: PartitionState,
    *,
    oldest_ms: int | None,
    size_max: int | None,
) -> int:
    """Return the partition's start after retention by age and by size; never below the current start.

    A slice is dropped if its newest timestamp is older, or if more than `size_max` bytes remain without it. The first slice that is
    kept ends the search. None: no such rule.
    """
    size = state.size - state.size_before
    start = state.start
    if oldest_ms is None and (size_max is None or size <= size_max):
        return start
    for slice_ in _slices(connection, key, state):
        is_old = oldest_ms is not None and slice_.max_timestamp < oldest_ms
        is_surplus = size_max is not None and size - slice_.length > size_max
        if not is_old and not is_surplus:
            break
        start = slice_.end_offset
        size -= slice_.length
    return start


def _slices(connection: sqlite3.Connection, key: PartitionKey, state: PartitionState) -> Iterator[Slice]:
    offset = state.start
    for found in index.slices_from(connection, key, offset):
        offset = found.slice.end_offset
        yield found.slice
    for located in lookup.unrolled_from(connection, key, state, offset):
        yield located.slice
