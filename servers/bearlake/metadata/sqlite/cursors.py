"""Cursors of durable subscriptions in SQLite. Every move checks the lease in its transaction."""

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from typing_extensions import override

from bearlake.clock import Clock
from bearlake.errors import Conflict, Fenced, NotFound
from bearlake.metadata import cursor_rules
from bearlake.metadata.cursor_rules import Creation
from bearlake.metadata.model import Lease, PartitionKey, partition_key, stream_number
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.sqlite.log import SqliteLog
from bearlake.metadata.sqlite.servers import check_lease
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
EXISTS = "EXISTS (SELECT 1 FROM streams WHERE number = ? AND is_deleted = 0)"
FIND = f"SELECT {COLUMNS} FROM cursors WHERE partition = ? AND name = ? AND {EXISTS}"
LOAD = f"SELECT {COLUMNS} FROM cursors WHERE partition = ? AND {EXISTS} ORDER BY name"
LIST = (
    "SELECT partition, name, mark_delete, x'', properties, created_ms, revision, generation FROM cursors"
    f" WHERE (partition, name) > (?, ?) AND partition < ? AND {EXISTS} ORDER BY partition, name LIMIT ?"
)
FIND_PLACE = "SELECT generation, revision FROM cursors WHERE partition = ? AND name = ?"
MOVE = (
    "UPDATE cursors SET mark_delete = ?, acknowledged = ?, properties = coalesce(?, properties), revision = ?"
    " WHERE partition = ? AND name = ?"
)
COUNT = "INSERT INTO cursor_deletions VALUES (?, 1) ON CONFLICT DO UPDATE SET deletion_count = deletion_count + 1"


class Move(NamedTuple):
    """A packed update of one cursor."""

    name: str
    generation: int
    revision: int
    mark_delete: int
    acknowledged: bytes
    properties: str | None


class SqliteCursors(CursorStore):
    """`metadata.subscriptions.CursorStore`."""

    def __init__(self, database: Database, log: SqliteLog, clock: Clock) -> None:
        self._database = database
        self._log = log
        self._clock = clock

    @override
    async def create(
        self, partition: PartitionKey, name: str, *, mark_delete: int, properties: Mapping[str, str], after: int
    ) -> Cursor:
        check_cursor_name(name)
        return await self._database.run(self._create, partition, name, mark_delete, pack_properties(properties), after)

    @override
    async def deletion_count(self, partition: PartitionKey) -> int:
        return await self._database.run_read(self._deletion_count, partition)

    @override
    async def load(self, partition: PartitionKey) -> Sequence[Cursor]:
        return await self._database.run_read(self._rows, LOAD, partition, stream_number(partition))

    @override
    async def save(self, saves: Collection[CursorSave]) -> CursorsSaved:
        return await self._database.run(self._save, [(save.partition, save.lease, _moves(save)) for save in saves])

    @override
    async def delete(
        self, partition: PartitionKey, generations: Mapping[str, int], lease: Lease, *, after: int
    ) -> None:
        await self._database.run(self._delete, partition, dict(generations), lease, after)

    @override
    async def list(self, stream_number: int, *, after: CursorId | None = None, limit: int = 1000) -> Sequence[Cursor]:
        first = after or CursorId(partition_key(stream_number, 0), "")
        end = partition_key(stream_number + 1, 0)
        return await self._database.run_read(self._rows, LIST, *first, end, stream_number, limit)

    def _rows(self, find: str, *values: object) -> Sequence[Cursor]:
        with self._database.reading() as connection:
            return [_cursor(*row) for row in connection.execute(find, values)]

    # Steps, on the writer's thread.

    def _deletion_count(self, partition: PartitionKey) -> int:
        with self._database.reading() as connection:
            return _deletion_count(connection, partition)

    def _create(self, partition: PartitionKey, name: str, mark_delete: int, properties: str, after: int) -> Cursor:
        which = (partition, name, stream_number(partition))
        with self._database.writing() as connection:
            self._log.follower.catch_up()
            state = self._log.follower.ledger.existing(partition)
            if state is None:
                raise NotFound(f"there is no partition {partition}")
            row = connection.execute(FIND, which).fetchone()
            count = _deletion_count(connection, partition)
            decided = cursor_rules.creation(exists=row is not None, count=count, after=after)
            if decided is Creation.REFUSED:
                raise Conflict(f"subscriptions of partition {partition} were deleted concurrently")
            if decided is Creation.FOUND:
                connection.execute(COUNT, (partition,))
                return _cursor(*row)
            position = min(max(mark_delete, state.start), state.end)
            connection.execute(
                f"INSERT INTO cursors ({COLUMNS}) VALUES (?, ?, ?, x'', ?, ?, 0, ?)",
                (partition, name, position, properties, self._clock.now_ms(), count),
            )
            return _cursor(*connection.execute(FIND, which).fetchone())

    def _save(self, saves: Sequence[tuple[PartitionKey, Lease, Sequence[Move]]]) -> CursorsSaved:
        overtaken: set[PartitionKey] = set()
        unsaved: set[CursorId] = set()
        with self._database.writing() as connection:
            for partition, lease, moves in saves:
                if not _is_held(connection, lease):
                    overtaken.add(partition)
                    continue
                unsaved.update(
                    CursorId(partition, move.name) for move in moves if not _move(connection, partition, move)
                )
        return CursorsSaved(overtaken, unsaved)

    def _delete(self, partition: PartitionKey, generations: Mapping[str, int], lease: Lease, after: int) -> None:
        with self._database.writing() as connection:
            check_lease(connection, lease)
            if not cursor_rules.may_delete(count=_deletion_count(connection, partition), after=after):
                raise Conflict(f"subscriptions of partition {partition} were looked up or deleted concurrently")
            connection.execute(COUNT, (partition,))
            for name, named in generations.items():
                row = connection.execute(FIND_PLACE, (partition, name)).fetchone()
                if row is not None and cursor_rules.is_deleted(generation=row[0], named=named):
                    connection.execute("DELETE FROM cursors WHERE partition = ? AND name = ?", (partition, name))


def _deletion_count(connection: sqlite3.Connection, partition: PartitionKey) -> int:
    find = "SELECT deletion_count FROM cursor_deletions WHERE partition = ?"
    row = connection.execute(find, (partition,)).fetchone()
    return 0 if row is None else int(row[0])


def _moves(save: CursorSave) -> list[Move]:
    return [
        Move(
            name,
            generation,
            revision,
            mark_delete,
            check_ranges(acknowledged),
            None if properties is None else pack_properties(properties),
        )
        for name, mark_delete, acknowledged, revision, properties, generation in save.updates
    ]


def _move(connection: sqlite3.Connection, partition: PartitionKey, move: Move) -> bool:
    """Move a cursor if allowed; returns whether the store has the content of the update."""
    row = connection.execute(FIND_PLACE, (partition, move.name)).fetchone()
    if row is None:
        return False
    generation, revision = row
    if cursor_rules.may_save(generation=generation, revision=revision, named=move.generation, new=move.revision):
        values = (move.mark_delete, move.acknowledged, move.properties, move.revision)
        connection.execute(MOVE, (*values, partition, move.name))
        revision = move.revision
    return cursor_rules.is_saved(generation=generation, revision=revision, named=move.generation, new=move.revision)


def _is_held(connection: sqlite3.Connection, lease: Lease) -> bool:
    try:
        check_lease(connection, lease)
    except Fenced:
        return False
    return True


def _cursor(
    partition: PartitionKey,
    name: str,
    mark_delete: int,
    ranges: bytes,
    properties: str,
    created_ms: int,
    revision: int,
    generation: int,
) -> Cursor:
    return Cursor(
        partition=partition,
        name=name,
        mark_delete=mark_delete,
        acknowledged=ranges,
        properties=json.loads(properties),
        created_ms=created_ms,
        revision=revision,
        generation=generation,
    )
