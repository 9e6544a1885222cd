"""The REST server: its HTTP application on one or more listeners, and its drain.

To drain, the server keeps accepting for a moment while every answer closes its connection, so that clients connect to other servers.
It ends long polls and event streams at a position from which clients continue, and tells clients of its consumer instances to create
them again. Then it stops accepting and waits for open requests. No request fails because of the drain.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from bearlake.owned_tasks import Tasks
from bearlake.protocols.rest import operations
from bearlake.protocols.rest.embedded import Embedded
from bearlake.protocols.rest.guard import RestGuard
from bearlake.protocols.rest.produce import Writing
from bearlake.protocols.rest.proxy.routes import ProxyRoutes
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.tailing.routes import TailingRoutes
from bearlake.protocols.rest.v3.routes import V3Routes
from bearlake.serving.draining import until
from bearlake.serving.http.login import HttpListenerLogin
from bearlake.serving.http.openapi.routes import DocumentRoutes
from bearlake.serving.http.site import HttpSite
from bearlake.serving.listener import Listener
from bearlake.serving.live_servers import LiveServers
from bearlake.streams.schemas.service import Schemas
from bearlake.streams.service import Streams
from bearlake.streams.shares import ShareReach
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)


class RestServer:
    """A `serving.Service` for HTTP."""

    name = "rest"

    def __init__(
        self,
        streams: Streams,
        schemas: Schemas,
        servers: LiveServers,
        settings: RestSettings,
        listeners: Sequence[Listener],
        login: HttpListenerLogin | None = None,
        share_reach: ShareReach | None = None,
    ) -> None:
        """`login`: how clients log in; None: they need not. `share_reach`: as in `V3Routes`.

        `listeners` (at least one) are already bound; the server takes ownership of them. The caller keeps `streams` and `schemas`."""
        self.settings = settings
        self._guard = RestGuard(settings, login)
        self._guard.limit_by(streams.quotas)
        self._site = HttpSite(
            self.name,
            listeners,
            self._guard,
            idle_ms=settings.idle_ms,
            auto_decompress=False,
            handler_cancellation=True,
        )
        writing = Writing(streams, settings.request_timeout_ms // 2)
        embedded = Embedded(schemas)
        self._proxy = ProxyRoutes(streams, servers, settings, writing, embedded, listeners[0], login)
        self._v3 = V3Routes(streams, servers, settings, writing, embedded, self._guard.draining, share_reach)
        self._tailing = TailingRoutes(streams, settings, writing, self._guard.draining)
        metrics.REST_CONNECTIONS.set_function(lambda: self.connection_count)
        metrics.REST_CONNECTIONS_MAX.set(settings.connection_count_max)

    @property
    def endpoints(self) -> Mapping[str, str]:
        """Advertised `host:port` by listener."""
        return self._site.endpoints

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return self._site.connection_count

    @property
    def open_count(self) -> int:
        """Number of open requests."""
        return self._guard.open_count

    async def start(self) -> None:
        """Accept connections when this returns."""
        app = self._guard.application()
        self._proxy.add_to(app.router)
        self._v3.add_to(app.router)
        self._tailing.add_to(app.router)
        DocumentRoutes(operations.DESCRIPTION).add_to(app)
        await self._site.start(app)

    async def run(self) -> None:
        """Keep consumer instances alive, end idle instances, and delete expired streams. Ends only by cancellation."""
        async with Tasks() as tasks:
            tasks.own("REST consumers", self._proxy.consumers.run())
            tasks.own("delete expired streams", self._tailing.lifetimes.run())
            await tasks.run()

    async def drain(self, deadline_ms: int) -> None:
        """Drain as the module docstring describes; return within `deadline_ms`."""
        loop = asyncio.get_running_loop()
        self._guard.draining.set()
        self._proxy.consumers.begin_drain()
        idle_until = loop.time() + min(self.settings.drain_idle_ms, deadline_ms / 2) / 1000
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                await until(lambda: not self._is_in_use() or loop.time() >= idle_until)
                await self._proxy.consumers.drain()
                await self._site.stop_accepting()
                await until(lambda: not self._guard.open_count)
        except TimeoutError:
            log.warning("draining exceeded its deadline", extra={"requests": self._guard.open_count})

    def _is_in_use(self) -> bool:
        """Return whether clients may still send requests: over an open connection, or to a consumer instance with their positions."""
        return bool(self._guard.open_count or self.connection_count or self._proxy.consumers.count)

    async def close(self) -> None:
        """Close listeners and connections; open requests get one second to finish."""
        self._guard.draining.set()
        await self._proxy.consumers.close()
        await self._site.close()
        await self._proxy.close()
