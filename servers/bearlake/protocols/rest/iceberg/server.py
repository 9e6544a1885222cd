"""The Iceberg REST catalog as a service: its HTTP application on one or more listeners, and its drain.

To drain, the server keeps accepting while every answer closes its connection, so that clients connect elsewhere and no request fails.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from bearlake.protocols.rest.iceberg import operations
from bearlake.protocols.rest.iceberg.guard import CatalogGuard
from bearlake.protocols.rest.iceberg.live_routes import LiveRoutes
from bearlake.protocols.rest.iceberg.planned_routes import PlannedRoutes
from bearlake.protocols.rest.iceberg.routes import CatalogRoutes
from bearlake.protocols.rest.iceberg.settings import CatalogSettings
from bearlake.protocols.rest.iceberg.sql import SqlRoutes
from bearlake.serving.draining import until
from bearlake.serving.http.login import HttpListenerLogin
from bearlake.serving.http.openapi.routes import DocumentRoutes
from bearlake.serving.http.site import HttpSite
from bearlake.serving.listener import Listener
from bearlake.streams.quotas.control import QuotaControl
from bearlake.telemetry import catalog_metrics as metrics

log = logging.getLogger(__name__)


class CatalogServer:
    """A `serving.Service`."""

    name = "catalog"

    def __init__(
        self,
        routes: CatalogRoutes,
        settings: CatalogSettings,
        listeners: Sequence[Listener],
        *,
        live: LiveRoutes | None = None,
        planned: PlannedRoutes | None = None,
        sql: SqlRoutes | None = None,
        login: HttpListenerLogin | None = None,
        quotas: QuotaControl | None = None,
    ) -> None:
        """`live`: the warehouse of live views; `planned`: the one of planned scans; None: there is none.
        `sql`: what runs statements; None: nothing
        does. `login`: how clients log in; None: they need not. `quotas`: how much
        they may use; None: they have no quotas.

        `listeners` (at least one) are already bound; the server takes ownership of them."""
        self._routes = routes
        self._live = live
        self._planned = planned
        self._sql = sql
        self._settings = settings
        self._guard = CatalogGuard(settings, login)
        if quotas is not None:
            self._guard.limit_by(quotas)
        self._site = HttpSite(self.name, listeners, self._guard, idle_ms=settings.idle_ms, auto_decompress=False)
        metrics.CATALOG_CONNECTIONS.set_function(lambda: self._site.connection_count)

    @property
    def endpoints(self) -> Mapping[str, str]:
        """Advertised `host:port` by listener."""
        return self._site.endpoints

    async def start(self) -> None:
        """Accept connections when this returns."""
        app = self._guard.application()
        self._routes.add_to(app.router)
        if self._live is not None:
            self._live.add_to(app.router)
        if self._planned is not None:
            self._planned.add_to(app.router)
        if self._sql is not None:
            self._sql.add_to(app.router)
        DocumentRoutes(operations.DESCRIPTION).add_to(app)
        await self._site.start(app)

    async def drain(self, deadline_ms: int) -> None:
        """Drain as the module docstring describes; return within `deadline_ms`."""
        self._guard.draining.set()
        loop = asyncio.get_running_loop()
        idle_until = loop.time() + min(self._settings.drain_idle_ms, deadline_ms / 2) / 1000
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                await until(
                    lambda: (
                        not self._guard.open_count and (not self._site.connection_count or loop.time() >= idle_until)
                    )
                )
        except TimeoutError:
            log.warning("draining exceeded its deadline", extra={"requests": self._guard.open_count})

    async def close(self) -> None:
        """Close listeners and connections; open requests get one second to finish. Idempotent, and safe without `start`."""
        await self._site.close()
