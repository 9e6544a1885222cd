"""The commit log in SQLite: commits, look-ups, following.

Steps that use the ledger run on the writer's thread, each in one transaction that starts by catching up with other processes;
`follow` and `head` need no ledger and run on the reader's thread, beside a commit.
"""

import sqlite3
from collections.abc import Callable, Collection
from typing import TypeVar

from bearlake.clock import Clock
from bearlake.errors import NotFound, OutOfRange
from bearlake.metadata.ledger import Ledger, PartitionState
from bearlake.metadata.model import (
    Entries,
    Entry,
    EntryKind,
    Located,
    ObjectCommit,
    ObjectCommitted,
    PartitionBounds,
    PartitionKey,
    PartitionUsage,
    ProducerState,
)
from bearlake.metadata.packing import unpack_slices
from bearlake.metadata.sqlite import lookup
from bearlake.metadata.sqlite.catchup import COMMIT, STREAM, TRIM, Follower, read_heads
from bearlake.metadata.sqlite.commit import check_server, first_result, write_commit
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.sqlite.rollup import RollUp, forget_results, sweep, truncate
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.waiting import Waiting

Result = TypeVar("Result")


class SqliteLog:
    """`metadata.CommitLog`."""

    def __init__(self, database: Database, settings: SqliteSettings, clock: Clock) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._waiting = Waiting(database, poll_interval_ms=settings.poll_interval_ms)
        self._follower: Follower

    def prepare(self) -> None:
        """Make the ledger; on the writer's thread, once the database is open."""
        self._follower = Follower(self._database.writer, partition_count_max=self._settings.partition_count_cached_max)

    async def commit(self, commit: ObjectCommit) -> ObjectCommitted:
        """See `CommitLog.commit`. When nothing was accepted nothing is remembered: a repeat is judged afresh."""
        committed = await self._database.run(self._commit, commit)
        self._waiting.notify(committed.position)
        return committed

    async def follow(self, after: int, *, limit: int) -> Entries:
        """See `CommitLog.follow`."""
        return await self._database.run_read(self._follow, after, limit)

    async def wait(self, after: int, *, wait_ms: int) -> None:
        """See `CommitLog.wait`: woken by commits of this process, and by looking every `poll_interval_ms` for those of others."""
        await self._waiting.wait(after, wait_ms)

    async def head(self) -> int:
        """See `CommitLog.head`."""
        return await self._database.run_read(self._head)

    async def bounds(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, PartitionBounds]:
        """See `CommitLog.bounds`."""
        return await self._database.run(self._each, partitions, PartitionState.bounds)

    async def usage(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, PartitionUsage]:
        """See `CommitLog.usage`. A slice counts as a whole until the start has passed its end."""
        return await self._database.run(self._each, partitions, _usage)

    async def locate(self, partition: PartitionKey, offset: int, *, limit: int) -> Located:
        """See `CommitLog.locate`."""
        return await self._database.run(self._look, lookup.locate, partition, offset, limit)

    async def locate_timestamp(self, partition: PartitionKey, timestamp: int) -> Located:
        """See `CommitLog.locate_timestamp`."""
        return await self._database.run(self._look, lookup.locate_timestamp, partition, timestamp)

    async def locate_max_timestamp(self, partition: PartitionKey) -> Located:
        """See `CommitLog.locate_max_timestamp`."""
        return await self._database.run(self._look, lookup.locate_max_timestamp, partition)

    async def producers(self, partition: PartitionKey) -> list[ProducerState]:
        """See `CommitLog.producers`."""
        return await self._database.run(self._look, _producers, partition)

    async def trim(self, partition: PartitionKey, start: int) -> PartitionBounds:
        """See `CommitLog.trim`."""
        bounds, position = await self._database.run(self._trim, partition, start)
        self._waiting.notify(position)
        return bounds

    async def forbid(self, tokens: Collection[str]) -> set[str]:
        """See `CommitLog.forbid`."""
        return await self._database.run(self._forbid, tokens)

    async def maintain(self, *, entry_count_min: int) -> int:
        """See `CommitLog.maintain`."""
        return await self._database.run(self._maintain, entry_count_min)

    def notify(self, position: int) -> None:
        """Tell waiting followers of this process that the log has reached `position` (stream changes do)."""
        self._waiting.notify(position)

    # Steps, on the writer's thread.

    def _commit(self, commit: ObjectCommit) -> ObjectCommitted:
        ledger = self._follower.ledger
        if ledger.applied - ledger.rolled >= self._settings.unrolled_entry_count_max:
            self._roll_up_some()
        with self._database.writing() as connection:
            heads = self._follower.catch_up()
            first = first_result(connection, commit)
            if first is not None:
                return first
            check_server(connection, commit.server)
            now_ms = self._clock.now_ms()
            decision = ledger.decide(commit.batches, now_ms)
            if not decision.slices:
                return ObjectCommitted(position=0, outcomes=decision.outcomes, slices=())
            position = heads.head + 1
            write_commit(connection, position, now_ms, commit, decision)
        ledger.adopt(decision, position)
        return ObjectCommitted(position=position, outcomes=decision.outcomes, slices=decision.slices)

    def _trim(self, partition: PartitionKey, start: int) -> tuple[PartitionBounds, int]:
        with self._database.writing() as connection:
            heads = self._follower.catch_up()
            state = self._existing(partition)
            if start > state.end:
                raise OutOfRange(
                    f"start {start} of partition {partition} is behind its end", start=state.start, end=state.end
                )
            if start <= state.start:
                return state.bounds(), 0
            connection.execute(
                "INSERT INTO log (position, kind, created_ms, partition, start_offset, size_before) VALUES (?, ?, ?, ?, ?, ?)",
                (
                    heads.head + 1,
                    TRIM,
                    self._clock.now_ms(),
                    partition,
                    start,
                    lookup.size_before(connection, partition, state, start),
                ),
            )
            bounds = PartitionBounds(start, state.end, state.end)
        return bounds, heads.head + 1

    def append_stream_change(self, connection: sqlite3.Connection, number: int) -> int:
        """Within a transaction that changes stream `number`: write the log's entry for it; returns its position."""
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
            self._follower.catch_up()
            existing = self._follower.ledger.existing
            return {key: describe(state) for key in partitions if (state := existing(key)) is not None}

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
                    "INSERT OR IGNORE INTO forbidden_tokens SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM log WHERE token = ?1)"
                    " AND NOT EXISTS (SELECT 1 FROM objects WHERE key = ?1)",
                    (token, now_ms),
                )
            find = "SELECT 1 FROM forbidden_tokens WHERE token = ?"
            return {token for token in tokens if connection.execute(find, (token,)).fetchone()}

    def _maintain(self, entry_count_min: int) -> int:
        count = self._roll_up_some()
        settings = self._settings
        with self._database.writing() as connection:
            heads = read_heads(connection)
            truncate(
                connection,
                min(heads.rolled, heads.head - entry_count_min),
                heads.truncated,
                2 * settings.roll_entry_count_max,
            )
            sweep(connection, settings.sweep_page_count_max)
            forget_results(
                connection, self._clock.now_ms() - settings.token_result_keep_ms, 2 * settings.roll_entry_count_max
            )
            connection.execute(
                "DELETE FROM forbidden_tokens WHERE forbidden_ms < ?",
                (self._clock.now_ms() - settings.forbidden_keep_ms,),
            )
        return count

    def _roll_up_some(self) -> int:
        with self._database.writing() as connection:
            heads = self._follower.catch_up()
            rolled = RollUp(connection, self._follower.ledger, self._settings).run(heads.rolled, heads.head)
        self._follower.ledger.rolled_up(rolled)
        return rolled - heads.rolled

    def forget_producers(self, idle_ms: int, limit: int) -> int:
        """Step of `ProducerIds.expire`: forget producer states that the checkpoint has and that idled for `idle_ms`."""
        self._roll_up_some()
        before_ms = self._clock.now_ms() - idle_ms
        with self._database.writing() as connection:
            self._follower.catch_up()
            unrolled = self._follower.ledger.unrolled
            idle = connection.execute(
                "SELECT partition, producer_id FROM partition_producers WHERE last_ms <= ? ORDER BY last_ms LIMIT ?",
                (before_ms, limit),
            ).fetchall()
            idle = [row for row in idle if row[0] not in unrolled]
            connection.executemany("DELETE FROM partition_producers WHERE partition = ? AND producer_id = ?", idle)
            if idle:
                connection.execute("UPDATE store SET forgotten_count = forgotten_count + 1")
        return len(idle)

    # Steps, on the reader's thread.

    def _follow(self, after: int, limit: int) -> Entries:
        with self._database.reading() as connection:
            heads = read_heads(connection)
            if after < heads.truncated:
                raise OutOfRange(
                    f"log entries up to {heads.truncated} are truncated", start=heads.truncated, end=heads.head
                )
            rows = connection.execute(
                "SELECT position, kind, token, object_size, slices, partition, start_offset, stream_number FROM log"
                " WHERE position > ? ORDER BY position LIMIT ?",
                (after, limit),
            ).fetchall()
        return Entries(entries=[_entry(*row) for row in rows], head=heads.head)

    def _head(self) -> int:
        with self._database.reading() as connection:
            return read_heads(connection).head


def _entry(
    position: int, kind: int, token: str, size: int, slices: bytes, partition: PartitionKey, start: int, number: int
) -> Entry:
    if kind == COMMIT:
        return Entry(
            position=position, kind=EntryKind.COMMIT, object_key=token, object_size=size, slices=unpack_slices(slices)
        )
    if kind == TRIM:
        return Entry(position=position, kind=EntryKind.TRIM, partition=partition, start_offset=start)
    return Entry(position=position, kind=EntryKind.STREAM, stream_number=number)


def _usage(state: PartitionState) -> PartitionUsage:
    return PartitionUsage(size_bytes=state.size - state.size_before, record_count=state.end - state.start)


def _producers(_: sqlite3.Connection, ledger: Ledger, __: PartitionKey, state: PartitionState) -> list[ProducerState]:
    return ledger.producers(state)
