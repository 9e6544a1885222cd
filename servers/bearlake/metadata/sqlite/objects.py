"""The register of objects in SQLite: a row per object that is rolled up or was swapped in, counted while index rows name it.

A row outlives its bytes: the store must answer with the outcomes of its commit for a while, and a still later repeat of the commit must
not pass for a new commit (`SqliteSettings.token_result_keep_ms`, `deleted_keep_ms`).
"""

from collections.abc import Collection, Sequence

from typing_extensions import override

from bearlake.clock import Clock
from bearlake.metadata.compaction import DataFileEntry, ObjectRegister, UnusedObject
from bearlake.metadata.model import ObjectKind, ObjectRef
from bearlake.metadata.packing import unpack_slices
from bearlake.metadata.sqlite import task_objects
from bearlake.metadata.sqlite.database import Database


class SqliteObjects(ObjectRegister):
    """`metadata.ObjectRegister`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    @override
    async def unused(
        self, kind: ObjectKind, *, unused_ms: int, after: str = "", limit: int = 1000
    ) -> Sequence[UnusedObject]:
        return await self._database.run_read(self._unused, kind, unused_ms, after, limit)

    @override
    async def deleted(self, keys: Collection[str]) -> None:
        await self._database.run(self._deleted, keys)

    @override
    async def forbid(self, keys: Collection[str]) -> set[str]:
        return await self._database.run(self._forbid, keys)

    @override
    async def data_files(self, stream_number: int, *, after: int = 0, limit: int = 1000) -> Sequence[DataFileEntry]:
        """Segments are listed as they were swapped in, including those that were trimmed since."""
        return await self._database.run_read(self._data_files, stream_number, after, limit)

    def _unused(self, kind: ObjectKind, unused_ms: int, after: str, limit: int) -> Sequence[UnusedObject]:
        now_ms = self._clock.now_ms()
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT key, size, stream_number, unused_ms FROM objects INDEXED BY objects_unused"
                " WHERE kind = ? AND unused_ms IS NOT NULL AND deleted_ms IS NULL AND key > ? AND unused_ms <= ?"
                " ORDER BY key LIMIT ?",
                (kind, after, now_ms - unused_ms, limit),
            ).fetchall()
        return [
            UnusedObject(object=ObjectRef(key, size, kind), stream_number=number, unused_ms=now_ms - since_ms)
            for key, size, number, since_ms in rows
        ]

    def _deleted(self, keys: Collection[str]) -> None:
        now_ms = self._clock.now_ms()
        with self._database.writing() as connection:
            connection.executemany(
                "UPDATE objects SET deleted_ms = ?, segments = NULL"
                " WHERE key = ? AND unused_ms IS NOT NULL AND deleted_ms IS NULL",
                [(now_ms, key) for key in keys],
            )

    def _forbid(self, keys: Collection[str]) -> set[str]:
        with self._database.writing() as connection:
            return task_objects.forbid(connection, keys)

    def _data_files(self, stream_number: int, after: int, limit: int) -> Sequence[DataFileEntry]:
        find = (
            "SELECT key, size, kind, swap_position, segments FROM objects INDEXED BY objects_data_files"
            " WHERE stream_number = ? AND kind = 1 AND unused_ms IS NULL AND swap_position"
        )
        with self._database.reading() as connection:
            rows = connection.execute(
                f"{find} > ? ORDER BY swap_position, key LIMIT ?", (stream_number, after, limit)
            ).fetchall()
            if rows and len(rows) == limit:  # files of one swap are listed together
                last = rows[-1]
                rows += connection.execute(
                    f"{find} = ? AND key > ? ORDER BY key", (stream_number, last[3], last[0])
                ).fetchall()
        return [
            DataFileEntry(
                object=ObjectRef(key, size, ObjectKind(kind)), segments=unpack_slices(segments), position=position
            )
            for key, size, kind, position, segments in rows
        ]
