"""The HTTP server next to the protocol server: look-ups and the admin API on one listener.

It shares the protocol server's context. While it drains, each response closes its connection, so that clients switch to other servers;
requests in progress are finished.
"""

import asyncio
import logging
from collections.abc import Mapping

from aiohttp import web

from bearlake.protocols.pulsar.context import PulsarContext
from bearlake.protocols.pulsar.http.cluster import ClusterRoutes
from bearlake.protocols.pulsar.http.guard import PulsarHttpGuard
from bearlake.protocols.pulsar.http.lookups import LookupRoutes
from bearlake.protocols.pulsar.http.peeking import PeekRoutes
from bearlake.protocols.pulsar.http.peers import Peers
from bearlake.protocols.pulsar.http.permissions import PermissionRoutes
from bearlake.protocols.pulsar.http.policies import PolicyRoutes
from bearlake.protocols.pulsar.http.schemas import SchemaRoutes
from bearlake.protocols.pulsar.http.settings import PulsarHttpSettings
from bearlake.protocols.pulsar.http.statistics import StatisticsRoutes
from bearlake.protocols.pulsar.http.subscriptions import SubscriptionRoutes
from bearlake.protocols.pulsar.http.topics import TopicRoutes
from bearlake.serving.draining import until
from bearlake.serving.http.login import HttpListenerLogin
from bearlake.serving.http.site import HttpSite
from bearlake.serving.listener import Listener
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)


class PulsarHttpServer:
    """A `serving.Service` that speaks Pulsar's HTTP API."""

    name = "pulsar_http"

    def __init__(
        self,
        context: PulsarContext,
        settings: PulsarHttpSettings,
        listener: Listener,
        login: HttpListenerLogin | None = None,
    ) -> None:
        """`login`: how clients log in; None: they need not.

        `listener` is already bound; this server owns and closes it. `context` is the protocol server's."""
        self._settings = settings
        self._guard = PulsarHttpGuard(context, settings, login)
        self._guard.limit_by(context.streams.quotas)
        self._site = HttpSite(self.name, [listener], self._guard, idle_ms=settings.idle_ms, handler_cancellation=True)
        metrics.PULSAR_HTTP_CONNECTIONS.set_function(lambda: self._site.connection_count)
        scheme = "http" if listener.tls is None else "https"
        self._peers = Peers(context, scheme, timeout_ms=settings.request_timeout_ms // 2, login=login)
        self._routes = (
            LookupRoutes(context),
            ClusterRoutes(context),
            TopicRoutes(context, settings),
            StatisticsRoutes(context, self._peers),
            SubscriptionRoutes(context, self._peers),
            PermissionRoutes(context),
            PolicyRoutes(context),  # after routes of single policies: it refuses all others
            PeekRoutes(context),
            SchemaRoutes(context),
        )

    @property
    def endpoints(self) -> Mapping[str, str]:
        """The advertised `host:port` of the listener."""
        return self._site.endpoints

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add all routes."""
        for routes in self._routes:
            routes.add_to(router)

    async def start(self) -> None:
        """Accept connections when this returns."""
        app = self._guard.application(request_bytes_max=self._settings.request_bytes_max)
        self.add_to(app.router)
        self._peers.open()
        await self._site.start(app)

    async def drain(self, deadline_ms: int) -> None:
        """Drain as described in the module docstring; returns within `deadline_ms`."""
        await self._site.stop_accepting()
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                await until(lambda: not self._guard.open_count)
        except TimeoutError:
            log.warning("draining exceeded its deadline", extra={"requests": self._guard.open_count})

    async def close(self) -> None:
        """Close the listener and connections; requests in progress get one second to finish."""
        await self._site.close()
        await self._peers.close()
