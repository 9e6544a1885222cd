"""Transactions in PostgreSQL. The rules are in `metadata/transaction_rules.py`; the steps are in `functions/`."""

from collections.abc import Collection, Mapping, Sequence

import asyncpg
from typing_extensions import override

from bearlake.metadata.model import CommittedOffset, Lease, PartitionKey
from bearlake.metadata.names import check_name
from bearlake.metadata.postgresql.calls import call
from bearlake.metadata.postgresql.database import Database
from bearlake.metadata.transactions import (
    TRANSACTIONAL_ID_BYTES_MAX,
    Aborted,
    Decide,
    Isolation,
    OpenOffset,
    Transaction,
    Transactions,
    TransactionState,
    change_in_two_steps,
    marker_producer,
)
from bearlake.records.markers import MARKER_BYTES

ISOLATION = """
select u.partition, h.position, g.starts[(u.partition & 31) + 1], g.ends[(u.partition & 31) + 1],
       bearlake.open_offset(u.partition), a.producer_ids, a.firsts, a.markers
  from bearlake.log_head h cross join unnest($1::bigint[]) u (partition)
  join bearlake.partition_group g on g.group_key = u.partition >> 5
  left join lateral (
      select array_agg(t.producer_id order by t.marker_offset) as producer_ids,
             array_agg(t.first_offset order by t.marker_offset) as firsts,
             array_agg(t.marker_offset order by t.marker_offset) as markers
        from bearlake.aborted_transaction t where t.partition = u.partition) a on true
 where g.starts[(u.partition & 31) + 1] is not null"""
_LISTED = """
select name, producer_id, epoch, state, timeout_ms, last_producer_id, last_epoch, started_ms, changed_ms, '{}'::bigint[] as partitions,
       '{}'::text[] as consumer_groups, version
  from bearlake.transactional_id where name > $1"""
LIST = f"{_LISTED} order by name limit $2"
LIST_ONGOING = f"{_LISTED} and started_ms >= 0 order by name limit $2"
"""A statement of its own: a condition with a parameter would not use the index of ongoing transactions."""
OPEN = """
select o.partition, o.producer_id, o.first_offset from bearlake.open_transaction o
 where ($1::bigint is null or o.producer_id = $1) and ($2::bigint is null or o.partition = $2) order by o.partition, o.producer_id"""


class PostgresqlTransactions(Transactions):
    """`metadata.transactions.Transactions`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def get(self, transactional_id: str) -> Transaction | None:
        """Not as a read: only the answers of a session are certain to be on the synchronous standby (`sessions.py`)."""
        row = await self._database.row("select * from bearlake.transactional_id where name = $1", transactional_id)
        return None if row is None else _transaction(row)

    @override
    async def owners(self, producer_ids: Collection[int]) -> dict[int, str]:
        rows = await self._database.rows(
            "select producer_id, name from bearlake.transactional_id where producer_id = any ($1)",
            list(producer_ids),
            is_read=True,
        )
        return {row[0]: row[1] for row in rows}

    @override
    async def change(self, transactional_id: str, decide: Decide) -> Transaction | None:
        """Two round trips: the row may change in between, and then its version has."""
        check_name("a transactional id", transactional_id, TRANSACTIONAL_ID_BYTES_MAX)
        return await change_in_two_steps(
            self,
            transactional_id,
            decide,
            lambda held, after, is_commit: self._end(held, after, held.version, is_commit=is_commit),
        )

    @override
    async def put(self, after: Transaction, version: int) -> Transaction:
        check_name("a transactional id", after.transactional_id, TRANSACTIONAL_ID_BYTES_MAX)
        return await self._stored(*call("put_transaction", **_whole(after, version)))

    @override
    async def put_offsets(
        self,
        after: Transaction,
        version: int,
        group: str,
        offsets: Mapping[PartitionKey, CommittedOffset],
        lease: Lease,
    ) -> Transaction:
        return await self._stored(
            *call(
                "put_pending_offsets",
                **_whole(after, version),
                lease=lease.name,
                lease_epoch=lease.epoch,
                node_id=lease.holder.node_id,
                server_epoch=lease.holder.epoch,
                group=group,
                offset_partitions=list(offsets),
                offsets=[found.offset for found in offsets.values()],
                leader_epochs=[found.leader_epoch for found in offsets.values()],
                metadata=[found.metadata for found in offsets.values()],
            )
        )

    @override
    async def end(self, after: Transaction, version: int, *, is_commit: bool) -> Transaction:
        return await self._end(await self.get(after.transactional_id), after, version, is_commit=is_commit)

    async def _end(
        self, before: Transaction | None, after: Transaction, version: int, *, is_commit: bool
    ) -> Transaction:
        """`before`: the row as it was read; if it was not of version `version`, the function refuses."""
        return await self._stored(
            *call(
                "end_transaction",
                **_fields(after, version),
                is_commit=is_commit,
                marker_epoch=after.epoch if before is None else marker_producer(before, after)[1],
                marker_bytes=MARKER_BYTES,
            )
        )

    @override
    async def forget(self, transactional_id: str, version: int) -> None:
        await self._database.rows(
            "delete from bearlake.transactional_id where name = $1 and version = $2 and started_ms < 0",
            transactional_id,
            version,
        )

    @override
    async def open_offsets(
        self, *, producer_id: int | None = None, partition: PartitionKey | None = None
    ) -> Sequence[OpenOffset]:
        rows = await self._database.rows(OPEN, producer_id, partition, is_read=True)
        return [OpenOffset(PartitionKey(row[0]), row[1], row[2]) for row in rows]

    @override
    async def isolation(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, Isolation]:
        rows = await self._database.rows(ISOLATION, list(partitions), is_read=True)
        return {
            PartitionKey(partition): Isolation(
                position=position,
                start=start,
                end=end,
                open_offset=open_offset,
                aborted=[Aborted(*found) for found in zip(ids or (), firsts or (), markers or (), strict=True)],
            )
            for partition, position, start, end, open_offset, ids, firsts, markers in rows
        }

    @override
    async def pending(self, group: str) -> set[PartitionKey]:
        rows = await self._database.rows(
            "select distinct partition from bearlake.pending_offset where name = $1", group, is_read=True
        )
        return {PartitionKey(row[0]) for row in rows}

    @override
    async def list(self, *, after: str = "", limit: int = 1000, is_ongoing: bool = False) -> Sequence[Transaction]:
        rows = await self._database.rows(LIST_ONGOING if is_ongoing else LIST, after, limit, is_read=True)
        return [_transaction(row) for row in rows]

    async def _stored(self, statement: str, *values: object) -> Transaction:
        row = await self._database.row(statement, *values)
        assert row is not None
        return _transaction(row)


def _fields(after: Transaction, version: int) -> dict[str, object]:
    return {
        "name": after.transactional_id,
        "version": version,
        "producer_id": after.producer_id,
        "epoch": after.epoch,
        "state": int(after.state),
        "timeout_ms": after.timeout_ms,
        "last_producer_id": after.last_producer_id,
        "last_epoch": after.last_epoch,
    }


def _whole(after: Transaction, version: int) -> dict[str, object]:
    return {
        **_fields(after, version),
        "started_ms": after.started_ms,
        "partitions": sorted(after.partitions),
        "groups": sorted(after.groups),
    }


def _transaction(row: asyncpg.Record) -> Transaction:
    return Transaction(
        transactional_id=row["name"],
        producer_id=row["producer_id"],
        epoch=row["epoch"],
        state=TransactionState(row["state"]),
        timeout_ms=row["timeout_ms"],
        last_producer_id=row["last_producer_id"],
        last_epoch=row["last_epoch"],
        started_ms=row["started_ms"],
        changed_ms=row["changed_ms"],
        partitions=frozenset(map(PartitionKey, row["partitions"])),
        groups=frozenset(row["consumer_groups"]),
        version=row["version"],
    )
