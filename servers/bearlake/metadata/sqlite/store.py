"""The SQLite backend as a whole: opens the file and has all interfaces of `metadata`."""

import base64
import random
import sqlite3
import uuid
from collections.abc import Callable
from pathlib import Path

from typing_extensions import override

from bearlake.clock import Clock
from bearlake.metadata import (
    CommitLog,
    GroupStore,
    Leases,
    Membership,
    Metadata,
    StreamCatalog,
)
from bearlake.metadata.access_rules import AccessRules
from bearlake.metadata.compaction import ObjectRegister, TaskQueue
from bearlake.metadata.defaults import DefaultsStore
from bearlake.metadata.producer_ids import ProducerIds
from bearlake.metadata.quotas import Quotas
from bearlake.metadata.schemas import SchemaStore
from bearlake.metadata.sqlite.access_rules import SqliteAccessRules
from bearlake.metadata.sqlite.cursors import SqliteCursors
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.sqlite.defaults import SqliteDefaults
from bearlake.metadata.sqlite.groups import SqliteGroups
from bearlake.metadata.sqlite.log import SqliteLog
from bearlake.metadata.sqlite.migrate import migrate
from bearlake.metadata.sqlite.objects import SqliteObjects
from bearlake.metadata.sqlite.producers import SqliteProducerIds
from bearlake.metadata.sqlite.quotas import SqliteQuotas
from bearlake.metadata.sqlite.schemas import SqliteSchemas
from bearlake.metadata.sqlite.servers import SqliteLeases, SqliteServers
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.streams import SqliteStreams
from bearlake.metadata.sqlite.table_columns import SqliteTableColumns
from bearlake.metadata.sqlite.tasks import SqliteTasks
from bearlake.metadata.sqlite.transactions import SqliteTransactions
from bearlake.metadata.sqlite.upgrade import upgrade
from bearlake.metadata.sqlite.users import SqliteUsers
from bearlake.metadata.subscriptions import CursorStore
from bearlake.metadata.table_columns import TableColumnsStore
from bearlake.metadata.transactions import Transactions
from bearlake.metadata.users import UserStore


class SqliteMetadata(Metadata):
    """`metadata.Metadata` in one SQLite file, or in memory (`path=None`). Made by `open_sqlite`."""

    def __init__(
        self, path: Path | None, settings: SqliteSettings, clock: Clock, new_uuid: Callable[[], uuid.UUID]
    ) -> None:
        self._database = Database(path, settings)
        self._busy_timeout_ms = settings.busy_timeout_ms
        self._clock = clock
        self._new_uuid = new_uuid
        self._log = SqliteLog(self._database, settings, clock)
        self.log: CommitLog = self._log
        self.streams: StreamCatalog = SqliteStreams(self._database, self._log, clock, new_uuid)
        self.servers: Membership = SqliteServers(self._database)
        self.leases: Leases = SqliteLeases(self._database)
        self.producers: ProducerIds = SqliteProducerIds(self._database, self._log)
        self.groups: GroupStore = SqliteGroups(self._database, clock)
        self.tasks: TaskQueue = SqliteTasks(self._database, self._log, clock)
        self.objects: ObjectRegister = SqliteObjects(self._database, clock)
        self.schemas: SchemaStore = SqliteSchemas(self._database)
        self.cursors: CursorStore = SqliteCursors(self._database, self._log, clock)
        self.defaults: DefaultsStore = SqliteDefaults(self._database)
        self.table_columns: TableColumnsStore = SqliteTableColumns(self._database)
        self.users: UserStore = SqliteUsers(self._database)
        self.access: AccessRules = SqliteAccessRules(self._database, self._log)
        self.quotas: Quotas = SqliteQuotas(self._database, self._log)
        self.transactions: Transactions = SqliteTransactions(self._database, self._log, clock)

    async def open(self) -> None:
        """Connect, bring the layout up to date, and create the cluster id if there is none.

        Raises:
            Unsupported: a newer program has used the store.
            Corrupt: the file is not a SQLite file, or is damaged.
            Unavailable: the file cannot be opened, or has an older layout while another process has it open.
        """
        await self._database.open(self._prepare, self._upgrade)
        await self._database.run(self._log.prepare)

    def _upgrade(self, path: str) -> None:
        upgrade(path, self._clock.now_ms(), wait_ms=self._busy_timeout_ms, randomness=random.Random())  # noqa: S311

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # An older program may have made the file after `_upgrade` found none, and may still have it open.
        migrate(connection, self._clock.now_ms(), is_alone=False)
        connection.execute(
            "INSERT OR IGNORE INTO store"
            " (id, cluster_id, rolled_position, truncated_position, forgotten_count, next_producer_id, last_epoch)"
            " VALUES (1, ?, 0, 0, 0, 0, 0)",
            (new_cluster_id(self._new_uuid),),
        )

    @override
    async def cluster_id(self) -> str:
        return await self._database.run_read(self._cluster_id)

    @override
    async def now_ms(self) -> int:
        return self._clock.now_ms()

    @override
    async def close(self) -> None:
        """Safe to repeat."""
        await self._database.close()

    def _cluster_id(self) -> str:
        with self._database.reading() as connection:
            cluster_id: str = connection.execute("SELECT cluster_id FROM store").fetchone()[0]
            return cluster_id


def new_cluster_id(new_uuid: Callable[[], uuid.UUID]) -> str:
    """Return 22 characters of URL-safe base64 that do not start with a dash (command lines would take a dash for an option)."""
    while True:
        text = base64.urlsafe_b64encode(new_uuid().bytes).decode("ascii").rstrip("=")
        if not text.startswith("-"):
            return text


async def open_sqlite(
    path: Path | None,
    settings: SqliteSettings,
    *,
    clock: Clock,
    new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
) -> SqliteMetadata:
    """Return an opened store; raises as `SqliteMetadata.open`."""
    metadata = SqliteMetadata(path, settings, clock, new_uuid)
    await metadata.open()
    return metadata
