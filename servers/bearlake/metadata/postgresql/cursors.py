"""Cursors of durable subscriptions in PostgreSQL. Every move checks its lease in its transaction."""

import json
from collections.abc import Collection, Mapping, Sequence

import asyncpg
from typing_extensions import override

from bearlake.metadata.model import Lease, PartitionKey, partition_key
from bearlake.metadata.postgresql.calls import call, of_lease
from bearlake.metadata.postgresql.database import Database
from bearlake.metadata.subscriptions import (
    Cursor,
    CursorId,
    CursorSave,
    CursorsSaved,
    CursorStore,
    check_cursor_name,
    check_ranges,
    pack_properties,
)

COLUMNS = "partition, name, mark_delete, acknowledged, properties, created_ms, revision, generation"
LISTED = f"""
select {COLUMNS.replace("acknowledged", "''::bytea as acknowledged")}
  from bearlake.subscription_cursor c
 where (c.partition, c.name) > ($1, $2) and c.partition < $3
   and exists (select from bearlake.partition_group g where g.group_key = c.partition >> 5)
 order by c.partition, c.name limit $4"""


class PostgresqlCursors(CursorStore):
    """`metadata.subscriptions.CursorStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def create(
        self, partition: PartitionKey, name: str, *, mark_delete: int, properties: Mapping[str, str], after: int
    ) -> Cursor:
        check_cursor_name(name)
        row = await self._database.row(
            *call(
                "create_cursor_as_of",
                COLUMNS,
                partition=partition,
                name=name,
                mark_delete=mark_delete,
                properties=pack_properties(properties),
                after=after,
            )
        )
        assert row is not None
        return _cursor(row)

    @override
    async def deletion_count(self, partition: PartitionKey) -> int:
        row = await self._database.row(
            "select deletion_count from bearlake.partition_epoch where partition = $1", partition, is_read=True
        )
        return 0 if row is None else int(row[0])

    @override
    async def load(self, partition: PartitionKey) -> Sequence[Cursor]:
        rows = await self._database.rows(*call("cursors_of", COLUMNS, partition=partition), is_read=True)
        return [_cursor(row) for row in rows]

    @override
    async def save(self, saves: Collection[CursorSave]) -> CursorsSaved:
        updates = [(number, update) for number, save in enumerate(saves, 1) for update in save.updates]
        rows = await self._database.rows(
            *call(
                "save_cursors_as_of",
                "partition, name",
                partitions=[save.partition for save in saves],
                leases=[save.lease.name for save in saves],
                epochs=[save.lease.epoch for save in saves],
                node_ids=[save.lease.holder.node_id for save in saves],
                server_epochs=[save.lease.holder.epoch for save in saves],
                saves=[number for number, _ in updates],
                names=[update.name for _, update in updates],
                generations=[update.generation for _, update in updates],
                marks=[update.mark_delete for _, update in updates],
                acknowledged=[check_ranges(update.acknowledged) for _, update in updates],
                revisions=[update.revision for _, update in updates],
                properties=[
                    None if update.properties is None else pack_properties(update.properties) for _, update in updates
                ],
            )
        )
        return CursorsSaved(
            {partition for partition, name in rows if name is None},
            {CursorId(partition, name) for partition, name in rows if name is not None},
        )

    @override
    async def delete(
        self, partition: PartitionKey, generations: Mapping[str, int], lease: Lease, *, after: int
    ) -> None:
        await self._database.rows(
            *call(
                "delete_cursors_as_of",
                **of_lease(lease),
                partition=partition,
                names=list(generations),
                generations=list(generations.values()),
                after=after,
            )
        )

    @override
    async def list(self, stream_number: int, *, after: CursorId | None = None, limit: int = 1000) -> Sequence[Cursor]:
        first = after or CursorId(partition_key(stream_number, 0), "")
        rows = await self._database.rows(LISTED, *first, partition_key(stream_number + 1, 0), limit, is_read=True)
        return [_cursor(row) for row in rows]


def _cursor(row: asyncpg.Record) -> Cursor:
    partition, name, mark_delete, acknowledged, properties, created_ms, revision, generation = row
    return Cursor(
        partition=partition,
        name=name,
        mark_delete=mark_delete,
        acknowledged=acknowledged,
        properties=json.loads(properties),
        created_ms=created_ms,
        revision=revision,
        generation=generation,
    )
