"""Upkeep of the log: rounds of rolling up and then sweeping, in bounded transactions between which commits run."""

import sqlite3

from bearlake.clock import Clock
from bearlake.metadata.model import PartitionKey, stream_number
from bearlake.metadata.producers import newest_idle_minute
from bearlake.metadata.sqlite import entries
from bearlake.metadata.sqlite.catchup import STREAM, Follower, Heads, read_heads
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.sqlite.rollup import Round
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.sweep import forget_objects, forget_results, forget_tokens, sweep, truncate


class Upkeep:
    """The work of `maintain`, and its parts that other operations need first."""

    def __init__(self, database: Database, settings: SqliteSettings, clock: Clock, follower: Follower) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._follower = follower

    async def maintain(self, entry_count_min: int) -> int:
        """Roll up and truncate the log, in the short transactions that `CommitLog.maintain` promises; returns the number of entries."""
        head, total = await self._database.run_read(entries.head, self._database), 0
        while True:
            count, rolled = await self.roll_up()
            await self._database.run(self._clean, entry_count_min)
            total += count
            if not count or rolled >= head:
                return total

    async def roll_up(self) -> tuple[int, int]:
        """Run one round, in steps between which commits can run; returns how many entries it rolled up, and the position after that.

        The round ends without effect (0 entries) once another one has moved the position meanwhile.
        """
        round_ = await self._database.run_read(self._begin)
        while await self._database.run_read(self._read, round_):
            pass
        if round_.end == round_.start:
            return 0, round_.end
        while await self._database.run(self._write, round_):
            pass
        return (round_.end - round_.start if round_.is_done else 0), round_.end

    def roll_up_here(self) -> None:
        """Run one round in one step, on the writer's thread."""
        with self._database.writing() as connection:
            rolled = self._round(connection, self._follower.catch_up())
        self._follower.ledger.rolled_up(rolled)

    def forget_producers(self, idle_ms: int, limit: int) -> tuple[int, int]:
        """Step of `ProducerIds.expire`: delete producer states in the checkpoint that were idle for `idle_ms`, and their names.

        Rolls up in the same transaction: between two transactions, another process could write to the partitions every time.
        Returns the number of states or of other names, whichever is larger, and the position of the log entry (0: none).
        """
        now_ms, position = self._clock.now_ms(), 0
        with self._database.writing() as connection:
            (minute,) = connection.execute("SELECT producer_minute FROM store").fetchone()
            newest = newest_idle_minute(minute, idle_ms)
            heads = self._follower.catch_up()
            rolled = self._round(connection, heads)
            unrolled = {key for key, state in self._follower.ledger.unrolled.items() if state.changed > rolled}
            idle = connection.execute(
                "SELECT partition, producer_id FROM partition_producers p WHERE used_minute <= ?1 AND NOT EXISTS (SELECT 1"
                " FROM producer_names n WHERE n.partition = p.partition AND n.producer_id = p.producer_id AND n.asked_minute > ?1)"
                " ORDER BY used_minute LIMIT ?2",
                (newest, limit),
            ).fetchall()
            idle = [row for row in idle if row[0] not in unrolled]
            unused = connection.execute(
                "SELECT partition, producer_id FROM producer_names n WHERE asked_minute <= ?1 AND NOT EXISTS (SELECT 1"
                " FROM partition_producers p WHERE p.partition = n.partition AND p.producer_id = n.producer_id)"
                " ORDER BY asked_minute LIMIT ?2",
                (newest, limit),
            ).fetchall()
            unused = [row for row in unused if row[0] not in unrolled]
            if idle:
                position = heads.head + 1
                _raise_floors(connection, idle, position, now_ms)
            connection.executemany("DELETE FROM partition_producers WHERE partition = ? AND producer_id = ?", idle)
            connection.executemany(
                "DELETE FROM producer_names WHERE partition = ? AND producer_id = ?", [*idle, *unused]
            )
            if idle or unused:  # every process that decided by an old state, name or floor must decide again
                connection.execute("UPDATE store SET forgotten_count = forgotten_count + 1")
        self._follower.ledger.rolled_up(rolled)
        return max(len(idle), len(unused)), position

    def _round(self, connection: sqlite3.Connection, heads: Heads) -> int:
        """Run one round within the caller's transaction; returns the new rolled-up position."""
        round_ = Round(heads.rolled, heads.head, self._settings)
        while round_.read(connection):
            pass
        while round_.write(connection, self._follower.ledger):
            pass
        return round_.end

    # Steps of a round, the first two on the reader's thread.

    def _begin(self) -> Round:
        with self._database.reading() as connection:
            heads = read_heads(connection)
        return Round(heads.rolled, heads.head, self._settings)

    def _read(self, round_: Round) -> bool:
        with self._database.reading() as connection:
            return round_.read(connection)

    def _write(self, round_: Round) -> bool:
        with self._database.writing() as connection:
            if self._follower.catch_up().rolled != round_.start:
                return False
            is_more = round_.write(connection, self._follower.ledger)
        if not is_more:
            self._follower.ledger.rolled_up(round_.end)
        return is_more

    def _clean(self, entry_count_min: int) -> None:
        """Delete what is no longer needed: old entries and results, and what `sweep.py` finds."""
        settings, now_ms = self._settings, self._clock.now_ms()
        with self._database.writing() as connection:
            heads = read_heads(connection)
            truncate(
                connection,
                min(heads.rolled, heads.head - entry_count_min),
                heads.truncated,
                2 * settings.roll_entry_count_max,
            )
            sweep(connection, settings.sweep_page_count_max, now_ms)
            forget_results(connection, now_ms - settings.token_result_keep_ms, 2 * settings.roll_entry_count_max)
            forget_objects(connection, now_ms - settings.deleted_keep_ms, 2 * settings.roll_entry_count_max)
            forget_tokens(connection, now_ms - settings.forbidden_keep_ms, 2 * settings.roll_entry_count_max)


def _idempotent(connection: sqlite3.Connection, forgotten: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return those that have no name."""
    find = "SELECT 1 FROM producer_names WHERE partition = ? AND producer_id = ?"
    return [row for row in forgotten if connection.execute(find, row).fetchone() is None]


def _raise_floors(connection: sqlite3.Connection, forgotten: list[tuple[int, int]], position: int, now_ms: int) -> None:
    """Store which producers may have lost a state, and when, as a log entry, so that all servers see it."""
    connection.execute(
        "INSERT INTO log (position, kind, created_ms, stream_number) VALUES (?, ?, ?, ?)",
        (position, STREAM, now_ms, stream_number(PartitionKey(forgotten[0][0]))),
    )
    idempotent = _idempotent(connection, forgotten)
    if idempotent:
        connection.execute(
            "UPDATE store SET expired_producer_id = max(expired_producer_id, ?), position_floor = ?",
            (max(producer_id for _, producer_id in idempotent), position),
        )
    if len(idempotent) < len(forgotten):
        connection.execute("UPDATE store SET named_floor = ?", (position,))
