"""The stream catalog in SQLite. A change and its STREAM entry in the log are one transaction."""

import json
import sqlite3
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence

from typing_extensions import override

from bearlake.clock import Clock
from bearlake.errors import AlreadyExists, Conflict, Invalid, NotFound
from bearlake.metadata import StreamCatalog
from bearlake.metadata.model import PARTITION_COUNT_MAX, Stream, StreamSpec
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.sqlite.log import SqliteLog

COLUMNS = "name, id, number, partition_count, configs, created_ms, is_deleted, is_terminated, version"
NUMBERS_PER_QUERY = 500


class SqliteStreams(StreamCatalog):
    """`metadata.StreamCatalog`."""

    def __init__(self, database: Database, log: SqliteLog, clock: Clock, new_uuid: Callable[[], uuid.UUID]) -> None:
        self._database = database
        self._log = log
        self._clock = clock
        self._new_uuid = new_uuid

    @override
    async def create(self, spec: StreamSpec) -> Stream:
        """Also raises `Invalid` if the partition count is not in 1 … 2**20."""
        return self._changed(await self._database.run(self._create, spec))

    @override
    async def newest(self, name: str) -> int:
        return await self._database.run_read(self._newest, name)

    @override
    async def get(self, name: str) -> Stream:
        return await self._database.run_read(self._get, name)

    @override
    async def list(self, *, prefix: str = "", after: str = "", limit: int = 1000) -> Sequence[Stream]:
        return await self._database.run_read(self._list, prefix, after, limit)

    @override
    async def alter(
        self, number: int, *, set_configs: Mapping[str, str], unset_configs: Collection[str], version: int
    ) -> Stream:
        return self._changed(await self._database.run(self._alter, number, set_configs, unset_configs, version))

    @override
    async def add_partitions(self, number: int, partition_count: int) -> Stream:
        return self._changed(await self._database.run(self._add_partitions, number, partition_count))

    @override
    async def terminate(self, number: int) -> Stream:
        return self._changed(await self._database.run(self._terminate, number))

    @override
    async def delete(self, number: int, *, version: int | None = None) -> Stream:
        return self._changed(await self._database.run(self._delete, number, version))

    @override
    async def by_numbers(self, numbers: Collection[int]) -> Sequence[Stream]:
        return await self._database.run_read(self._by_numbers, sorted(set(numbers)))

    @override
    async def incarnations(self, *, after: int = 0, limit: int = 1000) -> Sequence[Stream]:
        return await self._database.run_read(self._incarnations, after, limit)

    def _changed(self, stream: Stream) -> Stream:
        self._log.notify(stream.version)
        return stream

    def _create(self, spec: StreamSpec) -> Stream:
        check_partition_count(spec.partition_count)
        with self._database.writing() as connection:
            if connection.execute("SELECT 1 FROM streams WHERE name = ? AND is_deleted = 0", (spec.name,)).fetchone():
                raise AlreadyExists(f"stream {spec.name!r} already exists")
            if newest(connection, spec.name) != spec.after:
                raise Conflict(f"stream {spec.name!r} was created and deleted concurrently")
            number = connection.execute(
                "INSERT INTO streams (id, name, partition_count, configs, created_ms, is_deleted, version, former_producer_id)"
                " SELECT ?1, ?2, ?3, ?4, ?5, 0, 0, CASE WHEN ?6 > 0 THEN next_producer_id - 1 ELSE -1 END FROM store",
                (
                    self._new_uuid().bytes,
                    spec.name,
                    spec.partition_count,
                    dumped(spec.configs),
                    self._clock.now_ms(),
                    spec.after,
                ),
            ).lastrowid
            assert number is not None
            return self._write(connection, number)

    def _alter(
        self, number: int, set_configs: Mapping[str, str], unset_configs: Collection[str], version: int
    ) -> Stream:
        with self._database.writing() as connection:
            stream = _find_version(connection, number, version)
            configs = {key: value for key, value in stream.configs.items() if key not in unset_configs} | dict(
                set_configs
            )
            connection.execute("UPDATE streams SET configs = ? WHERE number = ?", (dumped(configs), stream.number))
            return self._write(connection, stream.number)

    def _add_partitions(self, number: int, partition_count: int) -> Stream:
        check_partition_count(partition_count)
        with self._database.writing() as connection:
            stream = _find_version(connection, number, None)
            if stream.is_terminated:
                raise Invalid(f"stream {stream.name!r} is terminated; partitions cannot be added")
            if partition_count <= stream.partition_count:
                raise Invalid(
                    f"stream {stream.name!r} has {stream.partition_count} partitions; the count can only grow, not become {partition_count}"
                )
            connection.execute(
                "UPDATE streams SET partition_count = ? WHERE number = ?", (partition_count, stream.number)
            )
            return self._write(connection, stream.number)

    def _terminate(self, number: int) -> Stream:
        with self._database.writing() as connection:
            stream = _find_version(connection, number, None)
            if stream.is_terminated:
                return stream
            connection.execute("UPDATE streams SET is_terminated = 1 WHERE number = ?", (stream.number,))
            return self._write(connection, stream.number)

    def _delete(self, number: int, version: int | None) -> Stream:
        with self._database.writing() as connection:
            stream = _find_version(connection, number, version)
            connection.execute("UPDATE streams SET is_deleted = 1 WHERE number = ?", (stream.number,))
            return self._write(connection, stream.number)

    def _write(self, connection: sqlite3.Connection, number: int) -> Stream:
        position = self._log.append_stream_change(connection, number)
        row = connection.execute(
            f"UPDATE streams SET version = ? WHERE number = ? RETURNING {COLUMNS}", (position, number)
        ).fetchone()
        return loaded(row)

    def _newest(self, name: str) -> int:
        with self._database.reading() as connection:
            return newest(connection, name)

    def _get(self, name: str) -> Stream:
        with self._database.reading() as connection:
            return find(connection, name)

    def _list(self, prefix: str, after: str, limit: int) -> Sequence[Stream]:
        above, lowest = (">", after) if after >= prefix and after else (">=", prefix)
        with self._database.reading() as connection:
            rows = connection.execute(  # one lower bound: with two, SQLite would scan from the smaller one
                f"SELECT {COLUMNS} FROM streams WHERE is_deleted = 0 AND name {above} ? AND name < ? ORDER BY name LIMIT ?",
                (lowest, prefix + "\U0010ffff", limit),
            ).fetchall()
        return [loaded(row) for row in rows]

    def _by_numbers(self, numbers: Sequence[int]) -> Sequence[Stream]:
        streams: list[Stream] = []
        with self._database.reading() as connection:
            for at in range(0, len(numbers), NUMBERS_PER_QUERY):
                page = numbers[at : at + NUMBERS_PER_QUERY]
                placeholders = ", ".join("?" * len(page))
                rows = connection.execute(
                    f"SELECT {COLUMNS} FROM streams WHERE number IN ({placeholders}) ORDER BY number", page
                )
                streams += [loaded(row) for row in rows]
        return streams

    def _incarnations(self, after: int, limit: int) -> Sequence[Stream]:
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT {COLUMNS} FROM streams WHERE number > ? ORDER BY number LIMIT ?", (after, limit)
            ).fetchall()
        return [loaded(row) for row in rows]


def check_partition_count(partition_count: int) -> None:
    """Raise `Invalid` unless a stream can have that many partitions."""
    if not 1 <= partition_count <= PARTITION_COUNT_MAX:
        raise Invalid(f"partition count {partition_count}: expected 1 to {PARTITION_COUNT_MAX}")


def find(connection: sqlite3.Connection, name: str) -> Stream:
    """Return the active stream of that name. Raises `NotFound`."""
    row = connection.execute(f"SELECT {COLUMNS} FROM streams WHERE name = ? AND is_deleted = 0", (name,)).fetchone()
    if row is None:
        raise NotFound(f"there is no stream {name!r}")
    return loaded(row)


def newest(connection: sqlite3.Connection, name: str) -> int:
    """Return the number of the newest incarnation of that name, 0 if there is none."""
    number: int
    (number,) = connection.execute("SELECT coalesce(max(number), 0) FROM streams WHERE name = ?", (name,)).fetchone()
    return number


def _find_version(connection: sqlite3.Connection, number: int, version: int | None) -> Stream:
    """Return the active stream with that number. Raises `NotFound`; `Conflict` unless it has that version (None: any)."""
    row = connection.execute(f"SELECT {COLUMNS} FROM streams WHERE number = ? AND is_deleted = 0", (number,)).fetchone()
    if row is None:
        raise NotFound(f"there is no stream with number {number}, or it is deleted")
    stream = loaded(row)
    if version is not None and stream.version != version:
        raise Conflict(f"stream {stream.name!r} has changed: it has version {stream.version}, not {version}")
    return stream


def dumped(configs: Mapping[str, str]) -> str:
    """Return configs as JSON with sorted keys."""
    return json.dumps(dict(configs), sort_keys=True, ensure_ascii=False)


def loaded(row: tuple[str, bytes, int, int, str, int, int, int, int]) -> Stream:
    """Return a row of `COLUMNS` as a stream."""
    name, stream_id, number, partition_count, configs, created_ms, is_deleted, is_terminated, version = row
    return Stream(
        name=name,
        id=uuid.UUID(bytes=stream_id),
        number=number,
        partition_count=partition_count,
        configs=json.loads(configs),
        created_ms=created_ms,
        is_deleted=bool(is_deleted),
        is_terminated=bool(is_terminated),
        version=version,
    )
