"""All routes of the v3 API."""

import asyncio

from aiohttp import web

from bearlake.protocols.rest.embedded import Embedded
from bearlake.protocols.rest.produce import Writing
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.v3.config_routes import ConfigRoutes
from bearlake.protocols.rest.v3.group_routes import GroupRoutes
from bearlake.protocols.rest.v3.read_routes import ReadRoutes
from bearlake.protocols.rest.v3.record_routes import RecordRoutes
from bearlake.protocols.rest.v3.reset_routes import ResetRoutes
from bearlake.protocols.rest.v3.share_routes import ShareGroupRoutes
from bearlake.protocols.rest.v3.subscription_reset import SubscriptionResetRoutes
from bearlake.protocols.rest.v3.subscription_routes import SubscriptionRoutes
from bearlake.protocols.rest.v3.topic_routes import TopicRoutes
from bearlake.serving.live_servers import LiveServers
from bearlake.streams.service import Streams
from bearlake.streams.shares import ShareReach


class V3Routes:
    """The v3 API."""

    def __init__(
        self,
        streams: Streams,
        servers: LiveServers,
        settings: RestSettings,
        writing: Writing,
        embedded: Embedded,
        draining: asyncio.Event,
        share_reach: ShareReach | None = None,
    ) -> None:
        """`draining` ends requests that wait for records. `share_reach` as in `ShareGroupRoutes`."""
        self._routes = (
            TopicRoutes(streams, servers, settings),
            ConfigRoutes(streams, servers, settings),
            RecordRoutes(streams, servers, settings, writing, embedded),
            ReadRoutes(streams, servers, settings, embedded, draining),
            GroupRoutes(streams, servers),
            ResetRoutes(streams, servers, settings),
            ShareGroupRoutes(streams, servers, settings, share_reach),
            SubscriptionRoutes(streams, servers),
            SubscriptionResetRoutes(streams, servers, settings, share_reach),
        )

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        for routes in self._routes:
            routes.add_to(router)
