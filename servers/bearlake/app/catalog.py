"""The role of `bearlake serve catalog`, also used by `bearlake up`: the Iceberg REST catalog over the catalog of the tables.

The table libraries take about a second to load, so they are loaded by the first request that needs them; with foreign roots, at the start.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from typing_extensions import override

from bearlake.app.role import OpenListener, Parts, Role
from bearlake.clock import SystemClock
from bearlake.errors import Invalid, Unavailable
from bearlake.live.sweep import sweep_again_and_again
from bearlake.objects import ObjectStore
from bearlake.objects.open import open_store
from bearlake.objects.sts import Sts
from bearlake.owned_tasks import Tasks
from bearlake.protocols.rest.iceberg.access import TableAccess
from bearlake.protocols.rest.iceberg.columns import ColumnReservations
from bearlake.protocols.rest.iceberg.declared import DeclaredStreams
from bearlake.protocols.rest.iceberg.live_routes import LiveRoutes
from bearlake.protocols.rest.iceberg.planned_routes import PlannedRoutes
from bearlake.protocols.rest.iceberg.routes import CatalogRoutes
from bearlake.protocols.rest.iceberg.server import CatalogServer
from bearlake.protocols.rest.iceberg.sql import SqlRoutes, SqlRunner
from bearlake.protocols.rest.iceberg.vending import Vending
from bearlake.serving.listener import Listener
from bearlake.settings.document import Settings
from bearlake.streams.schemas.confined.pool import Pool
from bearlake.telemetry.object_calls import ObjectCalls

if TYPE_CHECKING:
    from bearlake.app.sql import ProcessRunner
    from bearlake.live.catalog import LiveCatalog
    from bearlake.live.declared import DeclaredTables
    from bearlake.live.planned import PlannedCatalog
    from bearlake.table.warehouse.service import Warehouse


class CatalogRole(Role):
    """A `Role`."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._server: CatalogServer
        self._store: ObjectStore
        self._settings: Settings
        self._statements: ProcessRunner | None = None

    @override
    def bind(self, settings: Settings, open_listener: OpenListener) -> Mapping[str, str]:
        self._listeners = [open_listener(settings.listeners.catalog, "catalog")]
        return dict(listener.endpoint("catalog") for listener in self._listeners)

    @override
    def build(self, parts: Parts) -> None:
        settings, streams = parts.settings, parts.streams()
        self._settings, self._store = settings, parts.store
        if roots := settings.catalog.warehouse.foreign_roots:
            from bearlake.table.warehouse.roots import check_roots

            check_roots(roots, *filter(None, (settings.object_store.url, settings.tables.location_url)))
        opening = _Opening(parts)
        parts.closing.push_async_callback(opening.close)
        access = TableAccess(streams.catalog, streams.authorizer)
        columns = ColumnReservations(parts.metadata.table_columns)
        vending = self._vending(parts)
        declared = DeclaredStreams(opening.tables, opening.declared, streams, parts.metadata.table_columns)
        routes = CatalogRoutes(
            opening.tables, access, columns, settings.tables.catalog_name, settings.catalog, vending, declared
        )
        login = parts.http_login(settings.listeners.catalog)
        live = LiveRoutes(opening.tables, opening.views, access, vending)
        planned = PlannedRoutes(opening.tables, opening.plans, access, settings.catalog, vending)
        parts.closing.push_async_callback(self._end_statements)
        sql = SqlRoutes(self._sql_runner, access, settings.catalog.sql, streams.quotas)
        self._server = CatalogServer(
            routes,
            settings.catalog,
            self._listeners,
            live=live,
            planned=planned,
            sql=sql,
            login=login,
            quotas=streams.quotas,
        )
        parts.closing.push_async_callback(self._server.close)

    def _vending(self, parts: Parts) -> Vending | None:
        """Return what gives clients keys. Raises `Invalid`: the settings do not fit."""
        settings = parts.settings
        role, store = settings.catalog.credentials, settings.object_store
        if role.role_arn is None:
            return None
        if not store.url.startswith("s3://"):
            raise Invalid("catalog.credentials.role_arn: the object store is not in S3")
        if find_spec("botocore") is None:
            raise Invalid("catalog.credentials.role_arn needs botocore: pip install 'bearlake[vending]'")
        sts = Sts(role, store.cloud)
        parts.closing.callback(sts.close)
        return Vending(sts, role, store.cloud, store.url, SystemClock())

    async def _sql_runner(self) -> SqlRunner:
        """Return what runs statements. Raises `Unavailable`: the engine is not installed."""
        if find_spec("duckdb") is None:
            raise Unavailable("the SQL engine is not installed: pip install 'bearlake[sql]'")
        if self._statements is None:
            from bearlake.app.sql import ProcessRunner

            self._statements = ProcessRunner(self._settings)
        return self._statements

    async def _end_statements(self) -> None:
        if self._statements is not None:
            await self._statements.close()

    @override
    async def start(self, tasks: Tasks) -> Mapping[str, str]:
        await self._server.start()
        tasks.own("live", sweep_again_and_again(self._store, self._settings.live, SystemClock()))
        return self._server.endpoints

    @override
    async def drain(self, deadline_ms: int) -> None:
        await self._server.drain(deadline_ms)


class _Opened(NamedTuple):
    """What the routes use."""

    warehouse: "Warehouse"
    live: "LiveCatalog"
    plans: "PlannedCatalog"
    declared: "DeclaredTables"


class _Opening:
    """Opens the tables with the first request."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._closing = AsyncExitStack()
        self._lock = asyncio.Lock()
        self._found: _Opened | None = None

    async def tables(self) -> "Warehouse":
        """Return the tables. Raises `Unavailable`: their libraries are not installed."""
        return (await self._open()).warehouse

    async def views(self) -> "LiveCatalog":
        """Return the live views. Raises `Unavailable`, as `tables`."""
        return (await self._open()).live

    async def plans(self) -> "PlannedCatalog":
        """Return the planned scans. Raises `Unavailable`, as `tables`."""
        return (await self._open()).plans

    async def declared(self) -> "DeclaredTables":
        """Return what gives tables their declared columns. Raises `Unavailable`, as `tables`."""
        return (await self._open()).declared

    async def close(self) -> None:
        """Close the tables, if they are open."""
        await self._closing.aclose()

    async def _open(self) -> _Opened:
        async with self._lock:
            if self._found is None:
                self._found = await self._open_now()
            return self._found

    async def _open_now(self) -> _Opened:
        try:
            await asyncio.to_thread(_load_libraries)
        except ImportError as error:
            raise Unavailable("the libraries of tables are not installed: pip install 'bearlake[table]'") from error
        from bearlake.compaction.value_schemas import ValueSchemas
        from bearlake.live.catalog import LiveCatalog
        from bearlake.live.declared import DeclaredTables
        from bearlake.live.planned import PlannedCatalog
        from bearlake.table.iceberg import open_tables
        from bearlake.table.warehouse.service import Warehouse

        settings, store, closing = self._parts.settings, self._parts.store, self._closing
        roots = {}
        for url in settings.catalog.warehouse.foreign_roots:
            roots[url] = open_store(url, settings.object_store, recorder=ObjectCalls())
            closing.push_async_callback(roots[url].close)
        tables = open_tables(settings.tables, store, settings.object_store.url)
        closing.push_async_callback(tables.close)
        for url, root in roots.items():
            tables.add_root(root, url)
        compiler = Pool(settings.schemas)  # starts a process when a schema has to be compiled
        closing.callback(compiler.close)
        columns = settings.compaction.columns
        live = LiveCatalog(self._parts.metadata, store, tables, columns, settings.live, SystemClock(), compiler)
        closing.push_async_callback(live.close)
        plans = PlannedCatalog(live, tables, store, settings.live, SystemClock())
        values = ValueSchemas(self._parts.metadata, tables, columns, compiler)
        warehouse = Warehouse(tables, settings.catalog.warehouse)
        declared = DeclaredTables(self._parts.metadata, tables, values, warehouse)
        return _Opened(warehouse, live, plans, declared)


def _load_libraries() -> None:
    import bearlake.live.planned
    import bearlake.table.warehouse.service  # noqa: F401
