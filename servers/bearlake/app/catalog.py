"""The role of `bearlake serve catalog`, also used by `bearlake up`: the Iceberg REST catalog over the catalog of the tables.

The table libraries take about a second to load, so they are loaded by the first request that needs them; with foreign roots, at the start.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from typing_extensions import override

from bearlake.app.role import OpenListener, Parts, Role
from bearlake.errors import Unavailable
from bearlake.objects.open import open_store
from bearlake.protocols.rest.iceberg.access import TableAccess
from bearlake.protocols.rest.iceberg.columns import ColumnReservations
from bearlake.protocols.rest.iceberg.routes import CatalogRoutes
from bearlake.protocols.rest.iceberg.server import CatalogServer
from bearlake.serving.listener import Listener
from bearlake.serving.tasks import Tasks
from bearlake.settings.document import Settings
from bearlake.telemetry.object_calls import ObjectCalls

if TYPE_CHECKING:
    from bearlake.table.warehouse.service import Warehouse


class CatalogRole(Role):
    """A `Role`."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._server: CatalogServer

    @override
    def bind(self, settings: Settings, open_listener: OpenListener) -> Mapping[str, str]:
        self._listeners = [open_listener(settings.listeners.catalog, "catalog")]
        return dict(listener.endpoint("catalog") for listener in self._listeners)

    @override
    def build(self, parts: Parts) -> None:
        settings, streams = parts.settings, parts.streams()
        if roots := settings.catalog.warehouse.foreign_roots:
            from bearlake.table.warehouse.roots import check_roots

            check_roots(roots, *filter(None, (settings.object_store.url, settings.tables.location_url)))
        opening = _Opening(parts)
        parts.closing.push_async_callback(opening.close)
        access = TableAccess(streams.catalog, streams.authorizer)
        columns = ColumnReservations(parts.metadata.table_columns)
        name, bytes_max = settings.tables.catalog_name, settings.catalog.request_bytes_max
        routes = CatalogRoutes(opening.tables, access, columns, name, bytes_max)
        login = parts.http_login(settings.listeners.catalog)
        self._server = CatalogServer(routes, settings.catalog, self._listeners, login=login, quotas=streams.quotas)
        parts.closing.push_async_callback(self._server.close)

    @override
    async def start(self, tasks: Tasks) -> Mapping[str, str]:
        await self._server.start()
        return self._server.endpoints

    @override
    async def drain(self, deadline_ms: int) -> None:
        await self._server.drain(deadline_ms)


class _Opening:
    """Opens the tables with the first request."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lock = asyncio.Lock()
        self._warehouse: Warehouse | None = None
        self._closing = AsyncExitStack()

    async def tables(self) -> "Warehouse":
        """Return the tables. Raises `Unavailable`: their libraries are not installed."""
        async with self._lock:
            if self._warehouse is None:
                self._warehouse = await self._open()
            return self._warehouse

    async def close(self) -> None:
        """Close the tables, if they are open."""
        await self._closing.aclose()

    async def _open(self) -> "Warehouse":
        try:
            await asyncio.to_thread(_load_libraries)
        except ImportError as error:
            raise Unavailable("the libraries of tables are not installed: pip install 'bearlake[table]'") from error
        from bearlake.table.iceberg import open_tables
        from bearlake.table.warehouse.service import Warehouse

        settings = self._parts.settings
        roots = {}
        for url in settings.catalog.warehouse.foreign_roots:
            roots[url] = open_store(url, settings.object_store, recorder=ObjectCalls())
            self._closing.push_async_callback(roots[url].close)
        tables = open_tables(settings.tables, self._parts.store, settings.object_store.url)
        self._closing.push_async_callback(tables.close)
        for url, store in roots.items():
            tables.add_root(store, url)
        return Warehouse(tables, settings.catalog.warehouse)


def _load_libraries() -> None:
    import bearlake.table.warehouse.service  # noqa: F401
