"""The REST server: its HTTP application on one or more listeners, and its drain.

To drain, it keeps accepting for a moment while every answer closes its connection (clients then connect elsewhere), ends long-polls and
event streams at a place where their clients go on, tells consumer instances to be made anew, stops accepting, and waits for what is
under way: no request that was sent fails.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from aiohttp import web

from bearlake.protocols.rest.embedded import Embedded
from bearlake.protocols.rest.guard import Guard
from bearlake.protocols.rest.openapi import operations
from bearlake.protocols.rest.openapi.routes import DocumentRoutes
from bearlake.protocols.rest.produce import Writing
from bearlake.protocols.rest.proxy.routes import ProxyRoutes
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.tailing.routes import TailingRoutes
from bearlake.protocols.rest.v3.routes import V3Routes
from bearlake.serving.listener import Listener
from bearlake.serving.live_servers import LiveServers
from bearlake.streams.schemas.service import Schemas
from bearlake.streams.service import Streams
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

DRAIN_POLL_MS = 20


class RestServer:
    """A `serving.Service` that speaks HTTP."""

    name = "rest"

    def __init__(
        self,
        streams: Streams,
        schemas: Schemas,
        servers: LiveServers,
        settings: RestSettings,
        listeners: Sequence[Listener],
    ) -> None:
        """`listeners` (at least one) are bound already; they belong to the server then, `streams` and `schemas` to the caller."""
        self.settings = settings
        self._listeners = list(listeners)
        self._guard = Guard(settings, lambda: self.connection_count)
        self._runner: web.AppRunner | None = None
        self._sites: list[web.SockSite] = []
        writing = Writing(streams, settings.request_timeout_ms // 2)
        embedded = Embedded(schemas)
        self._proxy = ProxyRoutes(streams, servers, settings, writing, embedded, listeners[0])
        self._v3 = V3Routes(streams, servers, settings, writing, embedded)
        self._tailing = TailingRoutes(streams, settings, writing, self._guard.draining)
        metrics.REST_OPEN_REQUESTS.set_function(lambda: self._guard.open_count)
        metrics.REST_OPEN_REQUESTS_MAX.set(settings.request_count_max)
        metrics.REST_CONNECTIONS.set_function(lambda: self.connection_count)
        metrics.REST_CONNECTIONS_MAX.set(settings.connection_count_max)

    @property
    def endpoints(self) -> Mapping[str, str]:
        """Advertised `host:port` by listener."""
        return dict(listener.endpoint(self.name) for listener in self._listeners)

    @property
    def connection_count(self) -> int:
        """Open connections."""
        server = self._runner.server if self._runner is not None else None
        return len(server.connections) if server is not None else 0

    @property
    def open_count(self) -> int:
        """Requests under way."""
        return self._guard.open_count

    async def start(self) -> None:
        """Accept connections when this returns."""
        app = web.Application(middlewares=[self._guard.handle])
        app.on_response_prepare.append(self._guard.prepare)
        self._proxy.add_to(app.router)
        self._v3.add_to(app.router)
        self._tailing.add_to(app.router)
        DocumentRoutes(operations.DESCRIPTION).add_to(app)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            auto_decompress=False,
            handler_cancellation=True,
            keepalive_timeout=self.settings.idle_ms / 1000,
            shutdown_timeout=1,
        )
        await self._runner.setup()
        for listener in self._listeners:
            site = web.SockSite(self._runner, listener.socket, ssl_context=listener.tls)
            await site.start()
            self._sites.append(site)

    async def run(self) -> None:
        """Keep consumer instances alive and forget those that idle, delete expired streams; ends only by cancellation."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._proxy.consumers.run(), name="REST consumers")
            group.create_task(self._tailing.lifetimes.run(), name="delete expired streams")

    async def drain(self, deadline_ms: int) -> None:
        """See the module's docstring; returns within `deadline_ms`."""
        loop = asyncio.get_running_loop()
        self._guard.draining.set()
        self._proxy.consumers.begin_drain()
        idle_until = loop.time() + min(self.settings.drain_idle_ms, deadline_ms / 2) / 1000
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                while self._is_in_use() and loop.time() < idle_until:  # noqa: ASYNC110
                    await asyncio.sleep(DRAIN_POLL_MS / 1000)
                await self._proxy.consumers.drain()
                for site in self._sites:
                    await site.stop()
                while self._guard.open_count:  # noqa: ASYNC110
                    await asyncio.sleep(DRAIN_POLL_MS / 1000)
        except TimeoutError:
            log.warning("draining took too long", extra={"requests": self._guard.open_count})

    def _is_in_use(self) -> bool:
        """Whether clients may still come: over a connection that they have, or to an instance that knows their positions."""
        return bool(self._guard.open_count or self.connection_count or self._proxy.consumers.count)

    async def close(self) -> None:
        """Close listeners and connections; requests under way get a second to end."""
        self._guard.draining.set()
        await self._proxy.consumers.close()
        if self._runner is not None:
            await self._runner.cleanup()
        await self._proxy.close()
        for listener in self._listeners:
            listener.socket.close()
