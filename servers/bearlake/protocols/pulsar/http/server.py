"""The HTTP server beside the protocol's: look-ups and the admin API on one listener.

It shares the protocol server's context. To drain, answers close their connections, so that clients go elsewhere; what is under way is
finished.
"""

import asyncio
import logging
from collections.abc import Mapping

from aiohttp import web

from bearlake.protocols.pulsar.context import PulsarContext
from bearlake.protocols.pulsar.http.cluster import ClusterRoutes
from bearlake.protocols.pulsar.http.guard import Guard
from bearlake.protocols.pulsar.http.lookups import LookupRoutes
from bearlake.protocols.pulsar.http.peeking import PeekRoutes
from bearlake.protocols.pulsar.http.peers import Peers
from bearlake.protocols.pulsar.http.policies import PolicyRoutes
from bearlake.protocols.pulsar.http.schemas import SchemaRoutes
from bearlake.protocols.pulsar.http.settings import PulsarHttpSettings
from bearlake.protocols.pulsar.http.statistics import StatisticsRoutes
from bearlake.protocols.pulsar.http.subscriptions import SubscriptionRoutes
from bearlake.protocols.pulsar.http.topics import TopicRoutes
from bearlake.serving.listener import Listener
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

DRAIN_POLL_MS = 20


class PulsarHttpServer:
    """A `serving.Service` that speaks Pulsar's HTTP API."""

    name = "pulsar_http"

    def __init__(self, context: PulsarContext, settings: PulsarHttpSettings, listener: Listener) -> None:
        """`listener` is bound already and belongs to this server from now on; `context` is the protocol server's."""
        self._listener = listener
        self._settings = settings
        self._guard = Guard(context, settings, lambda: self.connection_count)
        self._runner: web.AppRunner | None = None
        self._site: web.SockSite | None = None
        scheme = "http" if listener.tls is None else "https"
        self._peers = Peers(context, scheme, timeout_ms=settings.request_timeout_ms // 2)
        self._routes = (
            LookupRoutes(context),
            ClusterRoutes(context),
            TopicRoutes(context, settings),
            StatisticsRoutes(context, self._peers),
            SubscriptionRoutes(context, self._peers),
            PolicyRoutes(context),
            PeekRoutes(context),
            SchemaRoutes(context),
        )
        metrics.PULSAR_HTTP_OPEN_REQUESTS.set_function(lambda: self._guard.open_count)
        metrics.PULSAR_HTTP_OPEN_REQUESTS_MAX.set(settings.request_count_max)

    @property
    def endpoints(self) -> Mapping[str, str]:
        """Advertised `host:port` of the listener."""
        return dict([self._listener.endpoint(self.name)])

    @property
    def connection_count(self) -> int:
        """Open connections."""
        server = self._runner.server if self._runner is not None else None
        return len(server.connections) if server is not None else 0

    async def start(self) -> None:
        """Accept connections when this returns."""
        app = web.Application(middlewares=[self._guard.handle], client_max_size=self._settings.request_bytes_max)
        for routes in self._routes:
            routes.add_to(app.router)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=self._settings.idle_ms / 1000,
            shutdown_timeout=1,
        )
        await self._runner.setup()
        self._peers.open()
        self._site = web.SockSite(self._runner, self._listener.socket, ssl_context=self._listener.tls)
        await self._site.start()

    async def drain(self, deadline_ms: int) -> None:
        """See the module's docstring; returns within `deadline_ms`."""
        if self._site is not None:
            await self._site.stop()
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                while self._guard.open_count:  # noqa: ASYNC110 - it is so at the end of many requests
                    await asyncio.sleep(DRAIN_POLL_MS / 1000)
        except TimeoutError:
            log.warning("draining took too long", extra={"requests": self._guard.open_count})

    async def close(self) -> None:
        """Close the listener and connections; requests under way get a second to end."""
        if self._runner is not None:
            await self._runner.cleanup()
        await self._peers.close()
        self._listener.socket.close()
