"""The register of objects in PostgreSQL: which objects the index names, and which it has stopped naming.

A row outlives its object's bytes (`PostgresqlSettings.forbidden_keep_ms`): a late repeat of a commit must not pass for a new commit.
"""

from collections.abc import Collection, Sequence

import asyncpg
from typing_extensions import override

from bearlake.metadata.compaction import DataFileEntry, ObjectRegister, UnusedObject
from bearlake.metadata.model import ObjectKind, ObjectRef, Slice
from bearlake.metadata.postgresql.calls import call
from bearlake.metadata.postgresql.database import Database

UNUSED = """
select o.key, o.size, o.stream_number, n.now - o.unused_ms as since_ms
  from bearlake.object o cross join (select bearlake.now_ms() as now) n
 where o.kind = $1 and o.key > $2 and o.unused_ms is not null and o.deleted_ms is null and o.unused_ms <= n.now - $3::bigint
 order by o.key limit $4"""
DATA_FILES = """
with first as (
    select d.swap_position from bearlake.data_file d join bearlake.object o on o.number = d.number and o.number <> -1
     where d.stream_number = $1 and d.swap_position > $2 and o.unused_ms is null
     order by d.swap_position, d.key limit $3
)
select d.*, o.size
  from bearlake.data_file d join bearlake.object o on o.number = d.number and o.number <> -1
 where d.stream_number = $1 and d.swap_position > $2 and d.swap_position <= (select max(f.swap_position) from first f)
   and o.unused_ms is null
 order by d.swap_position, d.key"""


class PostgresqlObjects(ObjectRegister):
    """`metadata.ObjectRegister`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def unused(
        self, kind: ObjectKind, *, unused_ms: int, after: str = "", limit: int = 1000
    ) -> Sequence[UnusedObject]:
        """Keys sort by code point."""
        rows = await self._database.rows(UNUSED, int(kind), after, unused_ms, limit, is_read=True)
        return [
            UnusedObject(object=ObjectRef(key, size, kind), stream_number=number, unused_ms=since_ms)
            for key, size, number, since_ms in rows
        ]

    @override
    async def deleted(self, keys: Collection[str]) -> None:
        await self._database.rows(*call("delete_objects", keys=list(keys)))

    @override
    async def forbid(self, keys: Collection[str]) -> set[str]:
        rows = await self._database.rows(*call("forbid_objects", keys=list(keys)))
        return {row[0] for row in rows}

    @override
    async def data_files(self, stream_number: int, *, after: int = 0, limit: int = 1000) -> Sequence[DataFileEntry]:
        """Segments are listed as they were swapped in, including those that were trimmed since."""
        rows = await self._database.rows(DATA_FILES, stream_number, after, limit, is_read=True)
        return [_data_file(row) for row in rows]


def _data_file(row: asyncpg.Record) -> DataFileEntry:
    segments = zip(
        row["partitions"],
        row["base_offsets"],
        row["record_counts"],
        row["positions"],
        row["lengths"],
        row["timestamps"],
        strict=True,
    )
    return DataFileEntry(
        object=ObjectRef(row["key"], row["size"], ObjectKind.PARQUET),
        segments=[Slice._make(values) for values in segments],
        position=row["swap_position"],
    )
