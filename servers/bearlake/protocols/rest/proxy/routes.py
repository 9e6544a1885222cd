"""All routes of the v2 API."""

from aiohttp import web

from bearlake.protocols.rest.embedded import Embedded
from bearlake.protocols.rest.produce import Writing
from bearlake.protocols.rest.proxy.consumer_routes import ConsumerRoutes
from bearlake.protocols.rest.proxy.consumers import Consumers
from bearlake.protocols.rest.proxy.forwarding import Forwarding
from bearlake.protocols.rest.proxy.produce_routes import ProduceRoutes
from bearlake.protocols.rest.proxy.topic_routes import TopicRoutes
from bearlake.protocols.rest.settings import RestSettings
from bearlake.serving.http.login import HttpListenerLogin
from bearlake.serving.listener import Listener
from bearlake.serving.live_servers import LiveServers
from bearlake.streams.service import Streams


class ProxyRoutes:
    """The v2 API."""

    def __init__(
        self,
        streams: Streams,
        servers: LiveServers,
        settings: RestSettings,
        writing: Writing,
        embedded: Embedded,
        listener: Listener,
        login: HttpListenerLogin | None,
    ) -> None:
        """`login`: how clients log in; None: they need not. Servers reach each other through `listener`."""
        self.consumers = Consumers(streams, settings)
        self._forwarding = Forwarding(servers, settings, listener, self.consumers, login)
        self._routes = (
            ProduceRoutes(streams, settings, writing, embedded),
            TopicRoutes(streams, servers),
            ConsumerRoutes(streams, servers, settings, listener, self.consumers, self._forwarding, embedded),
        )

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        for routes in self._routes:
            routes.add_to(router)

    async def close(self) -> None:
        """Close connections to other servers. All requests must have ended."""
        await self._forwarding.close()
