"""Quotas in SQLite. A change and its POLICY entry in the log are one transaction."""

from collections.abc import Sequence

from typing_extensions import override

from bearlake.errors import Conflict
from bearlake.metadata.model import NO_STREAM
from bearlake.metadata.quotas import (
    QuotaChange,
    Quotas,
    QuotaSet,
    check_quota_changes,
    check_quota_count,
    quota_row,
    quotas_of,
)
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.sqlite.log import SqliteLog


class SqliteQuotas(Quotas):
    """`metadata.quotas.Quotas`."""

    def __init__(self, database: Database, log: SqliteLog) -> None:
        self._database = database
        self._log = log

    @override
    async def revision(self) -> int:
        return await self._database.run_read(self._revision)

    @override
    async def read(self) -> QuotaSet:
        return await self._database.run_read(self._read)

    @override
    async def change(self, changes: Sequence[QuotaChange], *, revision: int) -> int:
        check_quota_changes(changes)
        position = await self._database.run(self._change, tuple(changes), revision)
        self._log.notify(position)
        return revision + 1

    def _revision(self) -> int:
        with self._database.reading() as connection:
            (revision,) = connection.execute("SELECT revision FROM quota_state").fetchone()
        return int(revision)

    def _read(self) -> QuotaSet:
        with self._database.reading() as connection:
            (revision,) = connection.execute("SELECT revision FROM quota_state").fetchone()
            rows = connection.execute("SELECT user, client_id, address, key, value FROM quotas").fetchall()
        return QuotaSet(revision, quotas_of(rows))

    def _change(self, changes: Sequence[QuotaChange], revision: int) -> int:
        with self._database.writing() as connection:
            (present,) = connection.execute("SELECT revision FROM quota_state").fetchone()
            if present != revision:
                raise Conflict(f"the quotas have revision {present}, not {revision}")
            connection.executemany(
                "DELETE FROM quotas WHERE (user, client_id, address, key) = (?, ?, ?, ?)",
                [quota_row(change.entity, change.key) for change in changes],
            )
            connection.executemany(
                "INSERT INTO quotas (user, client_id, address, key, value) VALUES (?, ?, ?, ?, ?)",
                [(*quota_row(entity, key), value) for entity, key, value in changes if value is not None],
            )
            (count,) = connection.execute("SELECT count(*) FROM quotas").fetchone()
            check_quota_count(count)
            connection.execute("UPDATE quota_state SET revision = ?", (revision + 1,))
            return self._log.append_stream_change(connection, NO_STREAM)
