"""Consumer groups in SQLite: the coordinator's snapshot and the committed offsets. Every write checks the lease in its transaction."""

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence

from typing_extensions import override

from bearlake.clock import Clock
from bearlake.errors import NotFound
from bearlake.metadata import GroupStore
from bearlake.metadata.model import CommittedOffset, GroupListing, GroupSnapshot, Lease, PartitionKey
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.sqlite.servers import check_lease

OFFSET_TABLES = ("group_offsets", "pending_offsets")
"""Committed offsets, and those of open transactions."""


class SqliteGroups(GroupStore):
    """`metadata.GroupStore`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    @override
    async def load(self, group: str) -> GroupSnapshot | None:
        return await self._database.run_read(self._load, group)

    @override
    async def save(self, snapshot: GroupSnapshot, lease: Lease) -> None:
        await self._database.run(self._save, snapshot, lease)

    @override
    async def commit_offsets(self, group: str, offsets: Mapping[PartitionKey, CommittedOffset], lease: Lease) -> None:
        """`committed_ms` is the store's time of this call; the given values are ignored."""
        await self._database.run(self._commit_offsets, group, offsets, lease)

    @override
    async def offsets(
        self, group: str, partitions: Collection[PartitionKey] | None = None
    ) -> dict[PartitionKey, CommittedOffset]:
        return await self._database.run_read(self._offsets, group, partitions)

    @override
    async def delete_offsets(self, group: str, partitions: Collection[PartitionKey], lease: Lease) -> None:
        await self._database.run(self._delete_offsets, group, partitions, lease)

    @override
    async def delete(self, group: str, lease: Lease) -> None:
        await self._database.run(self._delete, group, lease)

    @override
    async def list(self, *, after: str = "", limit: int = 1000) -> Sequence[GroupListing]:
        return await self._database.run_read(self._list, after, limit)

    def _load(self, group: str) -> GroupSnapshot | None:
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT protocol_type, state FROM group_snapshots WHERE name = ?", (group,)
            ).fetchone()
        return None if row is None else GroupSnapshot(group=group, protocol_type=row[0], state=row[1])

    def _save(self, snapshot: GroupSnapshot, lease: Lease) -> None:
        with self._database.writing() as connection:
            check_lease(connection, lease)
            connection.execute(
                "INSERT INTO group_snapshots VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE"
                " SET protocol_type = excluded.protocol_type, state = excluded.state",
                (snapshot.group, snapshot.protocol_type, snapshot.state),
            )

    def _commit_offsets(self, group: str, offsets: Mapping[PartitionKey, CommittedOffset], lease: Lease) -> None:
        now_ms = self._clock.now_ms()
        with self._database.writing() as connection:
            check_lease(connection, lease)
            _delete_rows(connection, "pending_offsets", group, offsets)
            connection.executemany(
                "INSERT INTO group_offsets VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name, partition) DO UPDATE"
                " SET next_offset = excluded.next_offset, leader_epoch = excluded.leader_epoch, metadata = excluded.metadata,"
                " committed_ms = excluded.committed_ms",
                [
                    (group, key, committed.offset, committed.leader_epoch, committed.metadata, now_ms)
                    for key, committed in offsets.items()
                ],
            )

    def _offsets(self, group: str, partitions: Collection[PartitionKey] | None) -> dict[PartitionKey, CommittedOffset]:
        columns = "partition, next_offset, leader_epoch, metadata, committed_ms"
        with self._database.reading() as connection:
            if partitions is None:
                rows = connection.execute(f"SELECT {columns} FROM group_offsets WHERE name = ?", (group,)).fetchall()
            else:
                find = f"SELECT {columns} FROM group_offsets WHERE name = ? AND partition = ?"
                found = (connection.execute(find, (group, key)).fetchone() for key in partitions)
                rows = [row for row in found if row is not None]
        return {
            key: CommittedOffset(offset=offset, leader_epoch=epoch, metadata=text, committed_ms=committed_ms)
            for key, offset, epoch, text, committed_ms in rows
        }

    def _delete_offsets(self, group: str, partitions: Collection[PartitionKey], lease: Lease) -> None:
        with self._database.writing() as connection:
            check_lease(connection, lease)
            for table in OFFSET_TABLES:
                _delete_rows(connection, table, group, partitions)

    def _delete(self, group: str, lease: Lease) -> None:
        with self._database.writing() as connection:
            check_lease(connection, lease)
            tables = ("group_snapshots", *OFFSET_TABLES)
            counts = [connection.execute(f"DELETE FROM {table} WHERE name = ?", (group,)).rowcount for table in tables]
            if sum(counts) == 0:
                raise NotFound(f"there is no group {group!r}")

    def _list(self, after: str, limit: int) -> Sequence[GroupListing]:
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT name, max(protocol_type) FROM ("
                "SELECT * FROM (SELECT name, protocol_type FROM group_snapshots WHERE name > ?1 ORDER BY name LIMIT ?2) UNION ALL "
                "SELECT * FROM (SELECT DISTINCT name, '' FROM group_offsets WHERE name > ?1 ORDER BY name LIMIT ?2)"
                ") GROUP BY name ORDER BY name LIMIT ?2",
                (after, limit),
            ).fetchall()
        return [GroupListing(group=name, protocol_type=protocol_type) for name, protocol_type in rows]


def _delete_rows(connection: sqlite3.Connection, table: str, group: str, partitions: Iterable[PartitionKey]) -> None:
    connection.executemany(
        f"DELETE FROM {table} WHERE name = ? AND partition = ?", [(group, key) for key in partitions]
    )
