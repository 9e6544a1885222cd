"""Metadata routes: GET /topics, /topics/{topic}, …/partitions, …/partitions/{partition}, …/offsets, /brokers.

Every server accepts every partition. All servers report the same server as a partition's leader and only in-sync replica.
"""

import json
from typing import Any

from aiohttp import web

from bearlake.errors import NotFound
from bearlake.metadata.model import Server
from bearlake.protocols.rest import problems
from bearlake.protocols.rest.problems import V2_TYPE
from bearlake.protocols.rest.proxy.produce_routes import parse_index
from bearlake.serving import routing
from bearlake.serving.http.login import principal_of
from bearlake.serving.live_servers import LiveServers
from bearlake.streams import configs as stream_configs
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import Operation, Principal
from bearlake.streams.service import Streams
from bearlake.streams.turns import in_turns


class TopicRoutes:
    """Handlers for metadata."""

    def __init__(self, streams: Streams, servers: LiveServers) -> None:
        self._streams = streams
        self._servers = servers

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        router.add_get("/topics", self.names)
        router.add_get("/topics/{topic}", self.describe)
        router.add_get("/topics/{topic}/partitions", self.partitions)
        router.add_get("/topics/{topic}/partitions/{partition}", self.partition)
        router.add_get("/topics/{topic}/partitions/{partition}/offsets", self.offsets)
        router.add_get("/brokers", self.brokers)

    async def names(self, request: web.Request) -> web.Response:
        """List the topics."""
        who = principal_of(request)
        found: list[str] = []
        async with self._streams.catalog.listing(who):
            async for part in in_turns(self._streams.catalog.names()):
                found += [name for name in part if self._streams.sees(who, Operation.DESCRIBE, name)]
            return answer(found)

    async def describe(self, request: web.Request) -> web.Response:
        """Get a topic with its configs and partitions."""
        view = await self._view(request)
        own = view.stream.configs
        configs = {config.name: stream_configs.value(own, config.name) for config in stream_configs.ALL}
        return answer({"name": view.name, "configs": configs, "partitions": self._partitions(view)})

    async def partitions(self, request: web.Request) -> web.Response:
        """List a topic's partitions."""
        return answer(self._partitions(await self._view(request)))

    async def partition(self, request: web.Request) -> web.Response:
        """Get a partition."""
        view = await self._view(request)
        return answer(self._partitions(view)[_index(request, view)])

    async def offsets(self, request: web.Request) -> web.Response:
        """Get the current start and end offsets of a partition, as readers of committed records see them."""
        view = await self._view(request)
        key = view.partition(_index(request, view))
        bounds = (await self._streams.bounds([key])).get(key)
        if bounds is None:
            raise problems.topic_not_found(view.name)
        return answer({"beginning_offset": bounds.start, "end_offset": bounds.last_stable})

    async def brokers(self, request: web.Request) -> web.Response:
        """List the node ids of the live servers."""
        return answer({"brokers": [server.ref.node_id for server in self._servers.live()]})

    async def _view(self, request: web.Request) -> StreamView:
        return await find(self._streams, principal_of(request), request.match_info["topic"], Operation.DESCRIBE)

    def _partitions(self, view: StreamView) -> list[dict[str, Any]]:
        servers = _servers(self._servers)
        shown = []
        for index, key in enumerate(view.partitions()):
            leader = routing.choose(key, servers).ref.node_id
            replica = {"broker": leader, "leader": True, "in_sync": True}
            shown.append({"partition": index, "leader": leader, "replicas": [replica]})
        return shown


async def find(streams: Streams, who: Principal, name: str, operation: Operation) -> StreamView:
    """Return a stream. Raises `Problem` (40401) if the stream does not exist or the caller may not see it."""
    try:
        view = await streams.catalog.find(name)
    except NotFound as error:
        raise problems.topic_not_found(name) from error
    if not streams.may(who, operation, name):
        raise problems.topic_not_found(name)
    return view


def answer(value: object, status: int = 200) -> web.Response:
    """Build a JSON answer of the v2 API."""
    return web.Response(status=status, body=json.dumps(value).encode(), content_type=V2_TYPE)


def _servers(servers: LiveServers) -> list[Server]:
    live = list(servers.live())
    return routing.candidates(live, "rest") or live


def _index(request: web.Request, view: StreamView) -> int:
    index = parse_index(request.match_info["partition"])
    if index >= view.partition_count:
        raise problems.partition_not_found(view.name, index)
    return index
