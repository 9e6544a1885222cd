"""The PostgreSQL backend as a whole: opens the database, brings its layout up to date, and has all interfaces of `metadata`."""

import base64
import uuid
from collections.abc import Callable
from dataclasses import replace

from typing_extensions import override

from bearlake.errors import Invalid
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
from bearlake.metadata.postgresql.access_rules import PostgresqlAccessRules
from bearlake.metadata.postgresql.calls import call
from bearlake.metadata.postgresql.cursors import PostgresqlCursors
from bearlake.metadata.postgresql.database import Database, split_url
from bearlake.metadata.postgresql.defaults import PostgresqlDefaults
from bearlake.metadata.postgresql.groups import PostgresqlGroups
from bearlake.metadata.postgresql.layout import Layout, available
from bearlake.metadata.postgresql.log import PostgresqlLog
from bearlake.metadata.postgresql.migrate import migrate
from bearlake.metadata.postgresql.objects import PostgresqlObjects
from bearlake.metadata.postgresql.producers import PostgresqlProducerIds
from bearlake.metadata.postgresql.quotas import PostgresqlQuotas
from bearlake.metadata.postgresql.schemas import PostgresqlSchemas
from bearlake.metadata.postgresql.servers import PostgresqlLeases, PostgresqlServers
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.metadata.postgresql.streams import PostgresqlStreams
from bearlake.metadata.postgresql.table_columns import PostgresqlTableColumns
from bearlake.metadata.postgresql.tasks import PostgresqlTasks
from bearlake.metadata.postgresql.transactions import PostgresqlTransactions
from bearlake.metadata.postgresql.users import PostgresqlUsers
from bearlake.metadata.postgresql.watch import Watch
from bearlake.metadata.producer_ids import ProducerIds
from bearlake.metadata.quotas import Quotas
from bearlake.metadata.schemas import SchemaStore
from bearlake.metadata.subscriptions import CursorStore
from bearlake.metadata.table_columns import TableColumnsStore
from bearlake.metadata.transactions import Transactions
from bearlake.metadata.users import UserStore

DURABLE = ("on", "remote_apply")
"""Levels of `synchronous_commit` at which a commit is on the disk of the synchronous standby, if there is one. `begin_session` has the same
list, and fixes the level of its connection."""


class PostgresqlMetadata(Metadata):
    """`metadata.Metadata` in one schema of a PostgreSQL database. Made by `open_postgresql`."""

    def __init__(self, url: str, settings: PostgresqlSettings, new_uuid: Callable[[], uuid.UUID]) -> None:
        self._database = Database(url, settings)
        self._new_uuid = new_uuid
        self._watch = Watch(self._database)
        self.log: CommitLog = PostgresqlLog(self._database, self._watch)
        self.streams: StreamCatalog = PostgresqlStreams(self._database, self._watch, new_uuid)
        self.servers: Membership = PostgresqlServers(self._database)
        self.leases: Leases = PostgresqlLeases(self._database)
        self.producers: ProducerIds = PostgresqlProducerIds(self._database)
        self.groups: GroupStore = PostgresqlGroups(self._database)
        self.tasks: TaskQueue = PostgresqlTasks(self._database)
        self.objects: ObjectRegister = PostgresqlObjects(self._database)
        self.schemas: SchemaStore = PostgresqlSchemas(self._database)
        self.cursors: CursorStore = PostgresqlCursors(self._database)
        self.defaults: DefaultsStore = PostgresqlDefaults(self._database)
        self.table_columns: TableColumnsStore = PostgresqlTableColumns(self._database)
        self.users: UserStore = PostgresqlUsers(self._database)
        self.access: AccessRules = PostgresqlAccessRules(self._database, self._watch)
        self.quotas: Quotas = PostgresqlQuotas(self._database, self._watch)
        self.transactions: Transactions = PostgresqlTransactions(self._database)

    async def open(self, layout: Layout) -> None:
        """Connect, bring the layout up to date, and create the cluster id if there is none. Raises as `open_postgresql`."""
        await migrate(self._database, layout)
        try:
            await self._database.open()
            level = await self._database.value("select current_setting('synchronous_commit')", is_read=True)
            if level not in DURABLE:
                raise Invalid(
                    f"the metadata store runs with synchronous_commit = {level} and would lose acknowledged records in a crash or at a"
                    f" fail-over: set it to one of {', '.join(DURABLE)} for this user or database, or add ?synchronous_commit=on to the URL"
                )
            if await self._database.row("select from bearlake.cluster", is_read=True) is None:
                await self._database.rows(
                    "insert into bearlake.cluster (id) values ($1) on conflict do nothing",
                    _new_cluster_id(self._new_uuid),
                )
        except BaseException:
            await self.close()
            raise

    @override
    async def cluster_id(self) -> str:
        cluster_id: str = await self._database.value("select id from bearlake.cluster", is_read=True)
        return cluster_id

    @override
    async def now_ms(self) -> int:
        now_ms: int = await self._database.value(*call("now_ms"), is_read=True)
        return now_ms

    @override
    async def close(self) -> None:
        """Safe to repeat."""
        await self._watch.close()
        await self._database.close()


def _new_cluster_id(new_uuid: Callable[[], uuid.UUID]) -> str:
    """Return 22 characters of URL-safe base64 that do not start with a dash (command lines would take a dash for an option)."""
    while True:
        text = base64.urlsafe_b64encode(new_uuid().bytes).decode("ascii").rstrip("=")
        if not text.startswith("-"):
            return text


async def open_postgresql(
    url: str,
    settings: PostgresqlSettings | None = None,
    *,
    new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
    layout: Layout | None = None,
) -> PostgresqlMetadata:
    """Return an opened store in the database that the URL names.

    `url` is a libpq URL (`postgresql://user:password@host:port/database?sslmode=verify-full&sslrootcert=…`), also with several hosts
    (`host:port,host:port`); `?schema=name` chooses the schema; other parameters are passed on to PostgreSQL. `layout`: that of this
    program (default).

    Raises:
        Invalid: not a PostgreSQL URL, or the database would not keep commits durably.
        Denied: the database refuses this user, who must be allowed to create the schema, or own it.
        NotFound: the database does not exist.
        Unsupported: a newer program has used the store, or its layout is too old to be upgraded.
        Unavailable: the database does not answer.
    """
    settings = settings or PostgresqlSettings()
    driver_url, schema = split_url(url, settings.schema)
    metadata = PostgresqlMetadata(driver_url, replace(settings, schema=schema), new_uuid)
    await metadata.open(layout or available())
    return metadata
