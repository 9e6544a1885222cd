"""Producers in SQLite: ids from one counter, names, and the partitions' epochs.

The ledger (`ledger.py`) knows what a producer has written; this module keeps what is not in the log. A raised epoch takes effect in every
process as soon as the transaction ends: each process reads `raised_count` before it decides anything (`catchup.py`).
"""

import sqlite3

from typing_extensions import override

from bearlake.errors import Conflict, Invalid, NotFound
from bearlake.metadata import epoch_rules
from bearlake.metadata.epoch_rules import PartitionEpoch
from bearlake.metadata.model import PRODUCER_NAME_BYTES_MAX, Lease, NamedProducer, PartitionKey
from bearlake.metadata.names import check_name
from bearlake.metadata.partition_state import PartitionState
from bearlake.metadata.producer_ids import ProducerIds
from bearlake.metadata.producers import HEAD_FIELDS
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.sqlite.log import SqliteLog
from bearlake.metadata.sqlite.servers import check_lease, lease_of, may_take


class SqliteProducerIds(ProducerIds):
    """`metadata.ProducerIds`."""

    def __init__(self, database: Database, log: SqliteLog) -> None:
        self._database = database
        self._log = log

    @override
    async def allocate(self, count: int) -> range:
        """Raises `Invalid` for a count below 1."""
        if count < 1:
            raise Invalid(f"cannot allocate {count} producer ids")
        return await self._database.run(self._allocate, count)

    @override
    async def named(self, partition: PartitionKey, name: str) -> NamedProducer:
        check_name("a producer's name", name, PRODUCER_NAME_BYTES_MAX)
        return await self._database.run(self._named, partition, name)

    @override
    async def raise_epoch(self, partition: PartitionKey, lease: Lease) -> int:
        return await self._database.run(self._raise_epoch, partition, lease)

    @override
    async def share_epoch(self, partition: PartitionKey, lease_name: str) -> int:
        return await self._database.run(self._share_epoch, partition, lease_name)

    @override
    async def advance_clock(self, seen: int) -> int:
        return await self._database.run(self._advance_clock, seen)

    @override
    async def expire(self, *, idle_ms: int, limit: int) -> int:
        """States of partitions whose newest entries are not rolled up yet are left for a later call."""
        await self._log.upkeep.roll_up()
        count, position = await self._database.run(self._log.upkeep.forget_producers, idle_ms, limit)
        self._log.notify(position)
        return count

    # Steps, on the writer's thread.

    def _allocate(self, count: int) -> range:
        with self._database.writing() as connection:
            return _next_ids(connection, count)

    def _advance_clock(self, seen: int) -> int:
        advance = "UPDATE store SET producer_minute = producer_minute + (producer_minute = ?) RETURNING producer_minute"
        with self._database.writing() as connection:
            (minute,) = connection.execute(advance, (seen,)).fetchone()
        return int(minute)

    def _named(self, partition: PartitionKey, name: str) -> NamedProducer:
        find = "SELECT producer_id, floor, asked_minute = producer_minute FROM producer_names, store WHERE partition = ? AND name = ?"
        with self._database.looking() as connection:  # the name usually exists: find it without the write lock
            row = connection.execute(find, (partition, name)).fetchone()
            if row is not None and row[2]:
                return _described(self._existing(partition), *row[:2])
        with self._database.writing() as connection:
            state = self._existing(partition)
            row = connection.execute(find, (partition, name)).fetchone()
            if row is None:
                (floor,) = connection.execute("SELECT named_floor FROM store").fetchone()
                row = (_next_ids(connection, 1).start, floor)
            connection.execute(
                "INSERT INTO producer_names (partition, name, producer_id, floor, asked_minute)"
                " SELECT ?, ?, ?, ?, producer_minute FROM store WHERE true"
                " ON CONFLICT (partition, name) DO UPDATE SET asked_minute = excluded.asked_minute",
                (partition, name, *row[:2]),
            )
            return _described(state, *row[:2])

    def _raise_epoch(self, partition: PartitionKey, lease: Lease) -> int:
        with self._database.writing() as connection:
            check_lease(connection, lease)
            self._existing(partition)
            return _store(connection, partition, epoch_rules.raised(_held(connection, partition)))

    def _share_epoch(self, partition: PartitionKey, lease_name: str) -> int:
        with (
            self._database.looking() as connection
        ):  # usually no producer was exclusive: find out without the write lock
            self._existing(partition)
            found = _held(connection, partition)
            if lease_of(connection, lease_name) is None and epoch_rules.shared(found) == found:
                return found.epoch
        with self._database.writing() as connection:
            self._existing(partition)
            held = lease_of(connection, lease_name)
            if held is not None and not may_take(connection, held.holder):
                raise Conflict(f"the lease {lease_name!r} is held by server {held.holder.node_id}")
            connection.execute("UPDATE leases SET node_id = NULL, server_epoch = NULL WHERE name = ?", (lease_name,))
            found = _held(connection, partition)
            after = epoch_rules.shared(found)
            return found.epoch if after == found else _store(connection, partition, after)

    def _existing(self, partition: PartitionKey) -> PartitionState:
        self._log.follower.catch_up()
        state = self._log.follower.ledger.existing(partition)
        if state is None:
            raise NotFound(f"there is no partition {partition}")
        return state


def _held(connection: sqlite3.Connection, partition: PartitionKey) -> PartitionEpoch:
    find = "SELECT epoch, is_exclusive FROM partition_epochs WHERE partition = ?"
    row = connection.execute(find, (partition,)).fetchone()
    return PartitionEpoch() if row is None else PartitionEpoch(row[0], bool(row[1]))


def _store(connection: sqlite3.Connection, partition: PartitionKey, after: PartitionEpoch) -> int:
    (number,) = connection.execute("UPDATE store SET raised_count = raised_count + 1 RETURNING raised_count").fetchone()
    connection.execute(
        "INSERT INTO partition_epochs VALUES (?1, ?2, ?3, ?4) ON CONFLICT (partition) DO UPDATE"
        " SET epoch = ?2, number = ?3, is_exclusive = ?4",
        (partition, after.epoch, number, after.is_exclusive),
    )
    return after.epoch


def _next_ids(connection: sqlite3.Connection, count: int) -> range:
    (end,) = connection.execute(
        "UPDATE store SET next_producer_id = next_producer_id + ? RETURNING next_producer_id", (count,)
    ).fetchone()
    return range(end - count, end)


def _described(state: PartitionState, producer_id: int, floor: int) -> NamedProducer:
    known = state.producers.get(producer_id)
    epoch, last = (-1, -1) if known is None else (known[0], known[HEAD_FIELDS + 1])
    return NamedProducer(producer_id, epoch, last, state.epoch, floor)
