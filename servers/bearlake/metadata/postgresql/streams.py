"""Streams in PostgreSQL. Each change writes its STREAM entry in the same transaction; a stream's version is that entry's position."""

import json
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence

import asyncpg
from typing_extensions import override

from bearlake.errors import Invalid, NotFound
from bearlake.metadata import StreamCatalog
from bearlake.metadata.model import PARTITION_COUNT_MAX, Stream, StreamSpec
from bearlake.metadata.postgresql.database import Database
from bearlake.metadata.postgresql.watch import Watch

COLUMNS = "number, name, id, partition_count, configs, created_ms, deleted_ms, is_terminated, version"
HOLD = "bearlake.hold_stream(p_number => $1, p_version => $2)"
"""The name of the incarnation $1, which is locked; $2: the version that it must have, null: any."""


class PostgresqlStreams(StreamCatalog):
    """`metadata.StreamCatalog`."""

    def __init__(self, database: Database, watch: Watch, new_uuid: Callable[[], uuid.UUID]) -> None:
        self._database = database
        self._watch = watch
        self._new_uuid = new_uuid

    @override
    async def create(self, spec: StreamSpec) -> Stream:
        """Raises `Invalid` for an impossible partition count."""
        _check_partition_count(spec.partition_count)
        return await self._changed(
            "bearlake.create_stream_after(p_name => $1, p_after => $2, p_id => $3, p_partition_count => $4, p_configs => $5)",
            spec.name,
            spec.after,
            self._new_uuid(),
            spec.partition_count,
            _dumped(spec.configs),
        )

    @override
    async def newest(self, name: str) -> int:
        number: int = await self._database.value(
            "select coalesce(max(number), 0) from bearlake.stream where name = $1", name, is_read=True
        )
        return number

    @override
    async def get(self, name: str) -> Stream:
        rows = await self._database.rows(
            f"select {COLUMNS} from bearlake.stream where name = $1 and deleted_ms is null", name, is_read=True
        )
        if not rows:
            raise NotFound(f"there is no stream {name!r}")
        return _stream(rows[0])

    @override
    async def list(self, *, prefix: str = "", after: str = "", limit: int = 1000) -> Sequence[Stream]:
        """Names sort by code point."""
        rows = await self._database.rows(
            f"select {COLUMNS} from bearlake.stream where deleted_ms is null and name > $1 and name >= $2"
            " and starts_with(name, $2) order by name limit $3",
            after,
            prefix,
            limit,
            is_read=True,
        )
        return [_stream(row) for row in rows]

    @override
    async def alter(
        self, number: int, *, set_configs: Mapping[str, str], unset_configs: Collection[str], version: int
    ) -> Stream:
        """A key that is both unset and set is set."""
        return await self._changed(
            f"bearlake.alter_stream(p_name => {HOLD}, p_set => $3, p_unset => $4)",
            number,
            version,
            _dumped(set_configs),
            list(unset_configs),
        )

    @override
    async def add_partitions(self, number: int, partition_count: int) -> Stream:
        _check_partition_count(partition_count)
        return await self._changed(
            f"bearlake.add_partitions(p_name => {HOLD}, p_partition_count => $3)", number, None, partition_count
        )

    @override
    async def terminate(self, number: int) -> Stream:
        return await self._changed(f"bearlake.terminate_stream(p_name => {HOLD})", number, None, is_repeatable=True)

    @override
    async def delete(self, number: int, *, version: int | None = None) -> Stream:
        return await self._changed(f"bearlake.delete_stream(p_name => {HOLD})", number, version)

    @override
    async def by_numbers(self, numbers: Collection[int]) -> Sequence[Stream]:
        rows = await self._database.rows(
            f"select {COLUMNS} from bearlake.stream where number = any ($1) order by number",
            list(numbers),
            is_read=True,
        )
        return [_stream(row) for row in rows]

    @override
    async def incarnations(self, *, after: int = 0, limit: int = 1000) -> Sequence[Stream]:
        rows = await self._database.rows(
            f"select {COLUMNS} from bearlake.stream where number > $1 order by number limit $2",
            after,
            limit,
            is_read=True,
        )
        return [_stream(row) for row in rows]

    async def _changed(self, call: str, *values: object, is_repeatable: bool = False) -> Stream:
        # Most calls are not repeatable: a second creation finds the name taken, a second deletion finds nothing.
        row = await self._database.row(f"select {COLUMNS} from {call}", *values, is_repeatable=is_repeatable)
        assert row is not None
        return self._saw(_stream(row))

    def _saw(self, stream: Stream) -> Stream:
        self._watch.saw(stream.version)
        return stream


def _check_partition_count(partition_count: int) -> None:
    if not 1 <= partition_count <= PARTITION_COUNT_MAX:
        raise Invalid(f"a stream cannot have {partition_count} partitions, only 1 to {PARTITION_COUNT_MAX}")


def _dumped(configs: Mapping[str, str]) -> str:
    return json.dumps(dict(configs), ensure_ascii=False)


def _stream(row: asyncpg.Record) -> Stream:
    return Stream(
        name=row["name"],
        id=uuid.UUID(bytes=row["id"].bytes),
        number=row["number"],
        partition_count=row["partition_count"],
        configs=json.loads(row["configs"]),
        created_ms=row["created_ms"],
        is_deleted=row["deleted_ms"] is not None,
        is_terminated=row["is_terminated"],
        version=row["version"],
    )
