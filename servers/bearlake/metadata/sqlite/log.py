"""The commit log in SQLite: commits, lookups, following.

Steps that use the ledger run on the writer's thread, each in one transaction that first catches up with other processes.
`follow` and `head` (`entries.py`) do not need the ledger and run on the reader's thread, in parallel with commits.
"""

import sqlite3
from collections.abc import Callable, Collection
from typing import TypeVar

from typing_extensions import override

from bearlake.clock import Clock
from bearlake.errors import NotFound, OutOfRange
from bearlake.metadata import BlockingCommit, CommitLog
from bearlake.metadata.compaction import OffsetRange, Swap
from bearlake.metadata.ledger import Ledger
from bearlake.metadata.model import (
    Entries,
    Located,
    LocatedSlice,
    ObjectCommit,
    ObjectCommitted,
    PartitionBounds,
    PartitionKey,
    PartitionUsage,
    ProducerState,
    Stream,
)
from bearlake.metadata.partition_state import PartitionState
from bearlake.metadata.sqlite import entries, lookup, transaction_rows
from bearlake.metadata.sqlite.blocking import CommitHere
from bearlake.metadata.sqlite.catchup import STREAM, TRIM, Follower, read_heads
from bearlake.metadata.sqlite.commits import Commits
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.sqlite.retention import require_version, retained_start
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.swap import IndexSwap, first_position, unrolled_position
from bearlake.metadata.sqlite.upkeep import Upkeep
from bearlake.metadata.sqlite.waiting import Waiting
from bearlake.metadata.transactions import last_stable_offset

Result = TypeVar("Result")

PARTITIONS_PER_STEP = 32
"""Partitions whose slices are read in one step (a few ms), for which a commit may have to wait."""


class SqliteLog(CommitLog):
    """`metadata.CommitLog`."""

    def __init__(self, database: Database, settings: SqliteSettings, clock: Clock) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._waiting = Waiting(
            database, poll_interval_ms=settings.poll_interval_ms, idle_ms=settings.poll_interval_idle_ms
        )
        self._follower: Follower
        self.upkeep: Upkeep
        self._commits: Commits

    @property
    def follower(self) -> Follower:
        """Keeps the ledger in step with the file; for steps on the writer's thread."""
        return self._follower

    def prepare(self) -> None:
        """Create the ledger; called on the writer's thread, once the database is open."""
        self._follower = Follower(self._database.writer, partition_count_max=self._settings.partition_count_cached_max)
        self.upkeep = Upkeep(self._database, self._settings, self._clock, self._follower)
        self._commits = Commits(self._database, self._settings, self._clock, self._follower, self.upkeep)

    @override
    async def commit(self, commit: ObjectCommit) -> ObjectCommitted:
        committed = await self._database.run(self._commits.commit, commit)
        self._waiting.notify(committed.position)
        return committed

    @override
    def blocking_commit(self) -> BlockingCommit | None:
        """Its commits and the steps of the writer's thread run one at a time."""
        return CommitHere(self._database, self._commits.commit, self._waiting) if self._database.is_shared else None

    @override
    async def follow(self, after: int, *, limit: int) -> Entries:
        return await self._database.run_read(entries.follow, self._database, after, limit)

    @override
    async def wait(self, after: int, *, wait_ms: int) -> None:
        """Commits of this process wake the waiter; for commits of other processes it polls every `poll_interval_ms`."""
        await self._waiting.wait(after, wait_ms)

    @override
    async def head(self) -> int:
        return await self._database.run_read(entries.head, self._database)

    @override
    async def bounds(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, PartitionBounds]:
        return await self._database.run(self._bounds, partitions)

    @override
    async def usage(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, PartitionUsage]:
        """A slice counts as a whole until the start offset has passed its end."""
        return await self._database.run(self._each, partitions, _usage)

    @override
    async def locate(self, partition: PartitionKey, offset: int, *, limit: int) -> Located:
        return await self._database.run(self._look, lookup.locate, partition, offset, limit)

    @override
    async def locate_timestamp(self, partition: PartitionKey, timestamp: int) -> Located:
        return await self._database.run(self._look, lookup.locate_timestamp, partition, timestamp)

    @override
    async def locate_max_timestamp(self, partition: PartitionKey) -> Located:
        return await self._database.run(self._look, lookup.locate_max_timestamp, partition)

    @override
    async def producers(self, partition: PartitionKey) -> list[ProducerState]:
        return await self._database.run(self._look, _producers, partition)

    @override
    async def trim(self, partition: PartitionKey, start: int) -> PartitionBounds:
        bounds, position = await self._database.run(self._trim, partition, start)
        self._waiting.notify(position)
        return bounds

    @override
    async def forbid(self, tokens: Collection[str]) -> set[str]:
        return await self._database.run(self._forbid, tokens)

    @override
    async def slices(self, ranges: Collection[OffsetRange], *, count_max: int | None = None) -> list[LocatedSlice]:
        """The result is true for each partition as of some moment, not for all partitions as of the same moment."""
        ordered = sorted(ranges)
        found: list[LocatedSlice] = []
        for at in range(0, len(ordered), PARTITIONS_PER_STEP):
            left = None if count_max is None else count_max - len(found)
            if left == 0:
                break
            found += await self._database.run(self._slices, ordered[at : at + PARTITIONS_PER_STEP], left)
        return found

    @override
    async def swap(self, swap: Swap) -> int:
        """Entries that the swap needs are rolled up first, one round at a time, so that commits can run in between."""
        while await self._database.run(self._is_unrolled, swap):
            await self.upkeep.roll_up()
        position = await self._database.run(self._swap, swap)
        self._waiting.notify(position)
        return position

    @override
    async def retain(
        self, stream: Stream, indexes: Collection[int], *, before_ms: int | None, size_max: int | None
    ) -> dict[PartitionKey, PartitionBounds]:
        """Uses one transaction for every 32 partitions."""
        ordered = sorted({stream.partition(index) for index in indexes})
        moved: dict[PartitionKey, PartitionBounds] = {}
        for at in range(0, len(ordered), PARTITIONS_PER_STEP):
            partitions = ordered[at : at + PARTITIONS_PER_STEP]
            bounds, position = await self._database.run(self._retain, stream, partitions, before_ms, size_max)
            moved |= bounds
            self._waiting.notify(position)
        return moved

    @override
    async def maintain(self, *, entry_count_min: int) -> int:
        return await self.upkeep.maintain(entry_count_min)

    def notify(self, position: int) -> None:
        """Wake waiting followers of this process: the log has reached `position` (for stream changes)."""
        self._waiting.notify(position)

    # Steps, on the writer's thread.

    def _trim(self, partition: PartitionKey, start: int) -> tuple[PartitionBounds, int]:
        with self._database.writing() as connection:
            heads = self._follower.catch_up()
            state = self._existing(partition)
            if start > state.end:
                raise OutOfRange(
                    f"start {start} of partition {partition} is past its end", start=state.start, end=state.end
                )
            if start <= state.start:
                return state.bounds(), 0
            self._append_trim(connection, heads.head + 1, partition, state, start)
            bounds = PartitionBounds(start, state.end, state.end)
        return bounds, heads.head + 1

    def _append_trim(
        self, connection: sqlite3.Connection, position: int, partition: PartitionKey, state: PartitionState, start: int
    ) -> None:
        # A segment may begin below the current start: offsets that were trimmed stay trimmed.
        size_before = max(state.size_before, lookup.size_before(connection, partition, state, start))
        connection.execute(
            "INSERT INTO log (position, kind, created_ms, partition, start_offset, size_before) VALUES (?, ?, ?, ?, ?, ?)",
            (position, TRIM, self._clock.now_ms(), partition, start, size_before),
        )

    def _retain(
        self, stream: Stream, partitions: Collection[PartitionKey], before_ms: int | None, size_max: int | None
    ) -> tuple[dict[PartitionKey, PartitionBounds], int]:
        oldest_ms = None if before_ms is None else self._clock.now_ms() - before_ms
        with (
            self._database.looking() as connection
        ):  # usually there is nothing to trim: find out without the write lock
            self._follower.catch_up()
            require_version(connection, stream)
            if not self._starts(connection, partitions, oldest_ms, size_max):
                return {}, 0
        moved = {}
        with self._database.writing() as connection:
            position = self._follower.catch_up().head
            require_version(connection, stream)  # I12: the stream may have changed in between
            for key, (state, start) in self._starts(connection, partitions, oldest_ms, size_max).items():
                position += 1
                self._append_trim(connection, position, key, state, start)
                moved[key] = PartitionBounds(start, state.end, state.end)
        return moved, position

    def _starts(
        self,
        connection: sqlite3.Connection,
        partitions: Collection[PartitionKey],
        oldest_ms: int | None,
        size_max: int | None,
    ) -> dict[PartitionKey, tuple[PartitionState, int]]:
        """Return the partitions to trim, with their state and new start."""
        starts = {}
        for key in partitions:
            state = self._follower.ledger.existing(key)
            if state is not None and state.start < state.end:
                start = retained_start(connection, key, state, oldest_ms=oldest_ms, size_max=size_max)
                if start > state.start:
                    starts[key] = (state, start)
        return starts

    def _slices(self, ranges: Collection[OffsetRange], count_max: int | None) -> list[LocatedSlice]:
        with self._database.looking() as connection:
            self._follower.catch_up()
            return lookup.between_all(connection, self._follower.ledger.existing, ranges, count_max)

    def _is_unrolled(self, swap: Swap) -> bool:
        with self._database.looking() as connection:
            self._follower.catch_up()
            ledger = self._follower.ledger
            return first_position(connection, swap) is None and unrolled_position(connection, ledger, swap) > 0

    def _swap(self, swap: Swap) -> int:
        with self._database.writing() as connection:
            position = self._follower.catch_up().head + 1
            first = first_position(connection, swap)
            if first is not None:
                return first
            IndexSwap(
                connection,
                self._follower.ledger,
                self._clock.now_ms(),
                position=position,
                slice_count_max=self._settings.page_slice_count_max,
            ).run(swap)
        self._follower.ledger.replay_swap(position)
        return position

    def append_stream_change(self, connection: sqlite3.Connection, number: int) -> int:
        """Within a transaction that changes stream `number`: write its log entry; returns the entry's position."""
        position = read_heads(connection).head + 1
        connection.execute(
            "INSERT INTO log (position, kind, created_ms, stream_number) VALUES (?, ?, ?, ?)",
            (position, STREAM, self._clock.now_ms(), number),
        )
        return position

    def _look(self, look: Callable[..., Result], partition: PartitionKey, *arguments: int) -> Result:
        with self._database.looking() as connection:
            self._follower.catch_up()
            return look(connection, self._follower.ledger, partition, self._existing(partition), *arguments)

    def _each(
        self, partitions: Collection[PartitionKey], describe: Callable[[PartitionState], Result]
    ) -> dict[PartitionKey, Result]:
        with self._database.looking():
            return self._each_here(partitions, describe)

    def _each_here(
        self, partitions: Collection[PartitionKey], describe: Callable[[PartitionState], Result]
    ) -> dict[PartitionKey, Result]:
        self._follower.catch_up()
        existing = self._follower.ledger.existing
        return {key: describe(state) for key in partitions if (state := existing(key)) is not None}

    def _bounds(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, PartitionBounds]:
        with self._database.looking() as connection:
            found = self._each_here(partitions, PartitionState.bounds)
            if transaction_rows.has_open(connection):
                for key, bounds in found.items():
                    open_offset = transaction_rows.open_offset(connection, key)
                    found[key] = bounds._replace(last_stable=last_stable_offset(bounds.start, bounds.end, open_offset))
            return found

    def _existing(self, partition: PartitionKey) -> PartitionState:
        state = self._follower.ledger.existing(partition)
        if state is None:
            raise NotFound(f"there is no partition {partition}")
        return state

    def _forbid(self, tokens: Collection[str]) -> set[str]:
        now_ms = self._clock.now_ms()
        with self._database.writing() as connection:
            for token in tokens:
                connection.execute(
                    "INSERT OR IGNORE INTO forbidden_tokens (token, forbidden_ms) SELECT ?1, ?2"
                    " WHERE NOT EXISTS (SELECT 1 FROM log WHERE token = ?1)"
                    " AND NOT EXISTS (SELECT 1 FROM objects WHERE key = ?1)"
                    " AND NOT EXISTS (SELECT 1 FROM task_objects WHERE key = ?1 AND task_id IS NOT NULL)",
                    (token, now_ms),
                )
            find = "SELECT 1 FROM forbidden_tokens WHERE token = ?"
            return {token for token in tokens if connection.execute(find, (token,)).fetchone()}


def _usage(state: PartitionState) -> PartitionUsage:
    return PartitionUsage(size_bytes=state.size - state.size_before, record_count=state.end - state.start)


def _producers(
    connection: sqlite3.Connection, ledger: Ledger, partition: PartitionKey, state: PartitionState
) -> list[ProducerState]:
    named = {
        row[0] for row in connection.execute("SELECT producer_id FROM producer_names WHERE partition = ?", (partition,))
    }
    return [producer for producer in ledger.producers(state) if producer.producer_id not in named]
