"""The backlog of compaction: partitions whose end is past their compacted offset.

Idle partitions cost nothing. Rolled-up partitions come from a partial index; the others come from the ledger's list of partitions
that entries after the checkpoint have changed. Work is done in pages, so that no commit waits long for it. Ages need a read of each
partition's oldest slice, so they are read on the reader's thread.
"""

import heapq
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from bearlake.clock import Clock
from bearlake.metadata.compaction import PartitionBacklog, StreamBacklog
from bearlake.metadata.model import PartitionKey, stream_number
from bearlake.metadata.packing import SLICE_WIDTH, unpack_rows
from bearlake.metadata.partition_state import PartitionState
from bearlake.metadata.sqlite import index
from bearlake.metadata.sqlite.catchup import COMMIT, read_heads
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.sqlite.log import SqliteLog

PAGE_PARTITION_COUNT = 2_000
"""Partitions read in one step, about 10 ms."""

EXACT_AGE_COUNT = 32

FIND_ROWS = (
    "SELECT partition, start, end, size, size_before, compacted, size_compacted FROM partitions INDEXED BY partitions_uncompacted"
    " WHERE compacted < end AND start < end AND partition > ? ORDER BY partition LIMIT ?"
)


class Pending(NamedTuple):
    """A partition with uncompacted offsets `[start, end)`, and their bytes."""

    partition: PartitionKey
    start: int
    end: int
    size_bytes: int


class Backlog:
    """The parts of `TaskQueue` that report the backlog."""

    def __init__(self, database: Database, log: SqliteLog, clock: Clock) -> None:
        self._database = database
        self._log = log
        self._clock = clock

    async def uncompacted(self, after: PartitionKey, limit: int) -> list[PartitionBacklog]:
        """Return at most `limit` partitions after `after` that have records to compact."""
        found: list[Pending] = []
        last: PartitionKey | None = after
        while last is not None and len(found) < limit:
            page, last = await self._database.run(self._page, last, min(limit - len(found), PAGE_PARTITION_COUNT))
            found += page
        ages = await self._ages(found)
        return [PartitionBacklog(*pending, age_ms) for pending, age_ms in zip(found, ages, strict=True)]

    async def by_stream(self) -> list[StreamBacklog]:
        """Return the backlog of each stream."""
        totals: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        largest: defaultdict[int, list[tuple[int, Pending]]] = defaultdict(list)
        for pending in await self._all():
            number = stream_number(pending.partition)
            total = totals[number]
            total[0] += pending.size_bytes
            total[1] += pending.end - pending.start
            total[2] += 1
            if len(largest[number]) < EXACT_AGE_COUNT:
                heapq.heappush(largest[number], (pending.size_bytes, pending))
            else:
                heapq.heappushpop(largest[number], (pending.size_bytes, pending))
        ages: defaultdict[int, int] = defaultdict(int)
        looked = [pending for heap in largest.values() for _, pending in heap]
        for pending, age_ms in zip(looked, await self._ages(looked), strict=True):
            number = stream_number(pending.partition)
            ages[number] = max(ages[number], age_ms)
        return [
            StreamBacklog(
                stream_number=number, size_bytes=size, record_count=records, partition_count=count, age_ms=ages[number]
            )
            for number, (size, records, count) in sorted(totals.items())
        ]

    async def _all(self) -> list[Pending]:
        """Return the whole backlog: first what entries after the checkpoint changed, then the rest of the checkpoint."""
        changed = await self._database.run(self._changed)
        known = set(changed)
        found: list[Pending] = []
        for at in range(0, len(changed), PAGE_PARTITION_COUNT):
            found += await self._database.run(self._read, changed[at : at + PAGE_PARTITION_COUNT], {})
        after: PartitionKey | None = PartitionKey(-1)
        while after is not None:
            page, after = await self._database.run(self._rolled_page, after, known)
            found += page
        return found

    async def _ages(self, found: Sequence[Pending]) -> list[int]:
        ages: list[int] = []
        for at in range(0, len(found), PAGE_PARTITION_COUNT):
            ages += await self._database.run_read(self._read_ages, found[at : at + PAGE_PARTITION_COUNT])
        return ages

    def _page(self, after: PartitionKey, limit: int) -> tuple[list[Pending], PartitionKey | None]:
        """Return the pending ones of the next `limit` candidates after `after`, and where to continue (None: at the end)."""
        with self._database.looking() as connection:
            self._log.follower.catch_up()
            rows = {row[0]: row for row in connection.execute(FIND_ROWS, (after, limit))}
            changed = {key for key in self._log.follower.ledger.unrolled if key > after}
        keys = heapq.nsmallest(limit, rows.keys() | changed) if changed else list(rows)
        return self._read(keys, rows), keys[-1] if len(keys) == limit else None

    def _changed(self) -> list[PartitionKey]:
        with self._database.looking():
            self._log.follower.catch_up()
            return list(self._log.follower.ledger.unrolled)

    def _rolled_page(self, after: PartitionKey, known: Set[PartitionKey]) -> tuple[list[Pending], PartitionKey | None]:
        with self._database.looking() as connection:
            rows = {row[0]: row for row in connection.execute(FIND_ROWS, (after, PAGE_PARTITION_COUNT))}
        last = max(rows) if len(rows) == PAGE_PARTITION_COUNT else None
        return self._read([key for key in rows if key not in known], rows), last

    def _read(self, keys: Sequence[PartitionKey], rows: Mapping[PartitionKey, tuple[int, ...]]) -> list[Pending]:
        """Return those of `keys` that are pending; `rows` are the rows of table `partitions` that were already read."""
        found = []
        with self._database.looking() as connection:
            self._log.follower.catch_up()
            ledger = self._log.follower.ledger
            for key in keys:
                stream = ledger.stream(stream_number(key))
                if stream is not None and not stream.is_deleted:
                    pending = _pending(connection, key, rows.get(key), ledger.unrolled.get(key))
                    if pending.start < pending.end:
                        found.append(pending)
        return found

    def _read_ages(self, found: Sequence[Pending]) -> list[int]:
        now_ms = self._clock.now_ms()
        committed: dict[int, int] = {}
        with self._database.reading() as connection:
            oldest = [_indexed_ms(connection, pending, committed) for pending in found]
            starts = {pending.partition: pending.start for pending, ms in zip(found, oldest, strict=True) if ms is None}
            logged = _logged_ms(connection, starts) if starts else {}
        gone = now_ms  # compacted or deleted since the page was read
        return [
            max(0, now_ms - (logged.get(pending.partition, gone) if ms is None else ms))
            for pending, ms in zip(found, oldest, strict=True)
        ]


def read_compacted(connection: sqlite3.Connection, partition: PartitionKey) -> int:
    """Return the partition's compacted offset, 0 if nothing is compacted yet."""
    row = connection.execute("SELECT compacted FROM partitions WHERE partition = ?", (partition,)).fetchone()
    return row[0] if row else 0


def _pending(
    connection: sqlite3.Connection, key: PartitionKey, row: tuple[int, ...] | None, state: PartitionState | None
) -> Pending:
    if row is None:
        row = connection.execute(
            "SELECT partition, start, end, size, size_before, compacted, size_compacted FROM partitions WHERE partition = ?",
            (key,),
        ).fetchone() or (key, 0, 0, 0, 0, 0, 0)
    _, start, end, size, size_before, compacted, size_compacted = row
    if state is not None:
        start, end, size, size_before = state.start, state.end, state.size, state.size_before
    return Pending(key, max(compacted, start), end, size - max(size_compacted, size_before))


def _indexed_ms(connection: sqlite3.Connection, pending: Pending, committed: dict[int, int]) -> int | None:
    """Return when the slice of the first pending offset was committed, if it is rolled up; `committed` caches objects."""
    first = next(index.slices_from(connection, pending.partition, pending.start), None)
    if first is None:
        return None
    if first.position not in committed:
        (committed[first.position],) = connection.execute(
            "SELECT committed_ms FROM objects WHERE position = ?", (first.position,)
        ).fetchone()
    return committed[first.position]


def _logged_ms(connection: sqlite3.Connection, starts: dict[PartitionKey, int]) -> dict[int, int]:
    """Return the same for slices that are not rolled up: one pass over the entries after the checkpoint."""
    found: dict[int, int] = {}
    for created_ms, blob in connection.execute(
        "SELECT created_ms, slices FROM log WHERE position > ? AND kind = ? ORDER BY position",
        (read_heads(connection).rolled, COMMIT),
    ):
        for row in unpack_rows(blob, SLICE_WIDTH):
            partition = row[0]
            if partition not in found and row[1] + row[2] > starts.get(PartitionKey(partition), sys.maxsize):
                found[partition] = created_ms
    return found
