"""Routes for clusters, brokers, topics and partitions: get, list, create, grow, delete."""

from aiohttp import web

from bearlake.errors import AlreadyExists, Denied, Invalid
from bearlake.metadata.model import PartitionKey, Server
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.v3 import models
from bearlake.protocols.rest.v3.resources import (
    CLUSTER,
    CLUSTERS,
    Site,
    answer,
    body,
    find,
    index_of,
    items,
    long_answer,
)
from bearlake.serving import routing
from bearlake.serving.http.login import principal_of
from bearlake.serving.live_servers import LiveServers
from bearlake.streams.catalog import StreamView
from bearlake.streams.internal_topics import InternalTopic, is_reserved
from bearlake.streams.principal import Operation
from bearlake.streams.service import Streams
from bearlake.streams.turns import in_turns

_TOPIC = CLUSTER + "/topics/{topic}"


class TopicRoutes:
    """Handlers of clusters, brokers, topics and partitions."""

    def __init__(self, streams: Streams, servers: LiveServers, settings: RestSettings) -> None:
        self._streams = streams
        self._servers = servers
        self._settings = settings

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        router.add_get(CLUSTERS, self.clusters)
        router.add_get(CLUSTER, self.cluster)
        router.add_get(f"{CLUSTER}/brokers", self.brokers)
        router.add_get(f"{CLUSTER}/brokers/{{broker}}", self.broker)
        router.add_get(f"{CLUSTER}/topics", self.topics)
        router.add_post(f"{CLUSTER}/topics", self.create)
        router.add_get(_TOPIC, self.topic)
        router.add_patch(_TOPIC, self.grow)
        router.add_delete(_TOPIC, self.delete)
        router.add_get(f"{_TOPIC}/partitions", self.partitions)
        router.add_get(f"{_TOPIC}/partitions/{{partition}}", self.partition)

    async def clusters(self, request: web.Request) -> web.Response:
        """List the clusters: only this one."""
        site = Site(request, self._servers)
        listing = site.listing("KafkaClusterList", "", [self._cluster(site)])
        metadata = {"self": f"{request.scheme}://{request.host}{CLUSTERS}", "next": None}
        return answer({**listing, "metadata": metadata})

    async def cluster(self, request: web.Request) -> web.Response:
        """Get the cluster."""
        return answer(self._cluster(Site(request, self._servers)))

    async def brokers(self, request: web.Request) -> web.Response:
        """List the live servers."""
        site = Site(request, self._servers)
        shown = [_broker(site, server) for server in self._servers.live()]
        return answer(site.listing("KafkaBrokerList", "/brokers", shown))

    async def broker(self, request: web.Request) -> web.Response:
        """Get a live server."""
        site, node_id = Site(request, self._servers), request.match_info["broker"]
        for server in self._servers.live():
            if str(server.ref.node_id) == node_id:
                return answer(_broker(site, server))
        raise Problem(404, 404, f"Broker {node_id[:20]} cannot be found.")

    async def topics(self, request: web.Request) -> web.Response:
        """List the topics."""
        site, catalog = Site(request, self._servers), self._streams.catalog
        who, shown = principal_of(request), list[bytes]()
        async with catalog.listing(who):
            async for part in in_turns(catalog.names()):
                seen = [name for name in part if self._streams.sees(who, Operation.DESCRIBE, name)]
                shown.append(items(_topic(site, view) for name in seen if (view := catalog.peek(name)) is not None))
            return long_answer(site.listing("KafkaTopicList", "/topics", []), shown)

    async def create(self, request: web.Request) -> web.Response:
        """Create a topic; with `validate_only`, only check the request."""
        site = Site(request, self._servers)
        asked = await body(request, models.NEW_TOPIC, self._settings)
        name = asked.topic_name
        partition_count = asked.partitions_count or self._settings.default_partition_count
        configs = {config.name: str(config.value) for config in asked.configs or () if config.value is not None}
        try:
            if asked.validate_only:
                if not self._streams.may_create(principal_of(request), name):
                    raise Denied(f"{principal_of(request)} may not Create Topic {name!r}")
                if is_reserved(self._streams.catalog, name):
                    raise InternalTopic(name)
                self._streams.catalog.check_new(name, partition_count, configs)
                if self._streams.catalog.peek(name) is not None:
                    raise AlreadyExists(name)
                return answer(_shown(site, name, partition_count))
            view = await self._streams.create(principal_of(request), name, partition_count, configs)
        except AlreadyExists as error:
            raise Problem(400, 40002, f"Topic '{name}' already exists.") from error
        except Invalid as error:
            raise Problem(400, 40002, str(error)) from error
        return answer(_topic(site, view), 201)

    async def topic(self, request: web.Request) -> web.Response:
        """Get a topic."""
        site = Site(request, self._servers)
        return answer(_topic(site, await find(self._streams, request, Operation.DESCRIBE)))

    async def grow(self, request: web.Request) -> web.Response:
        """Add partitions to a topic."""
        site = Site(request, self._servers)
        asked = await body(request, models.GROWTH, self._settings)
        name = (await find(self._streams, request, Operation.DESCRIBE)).name
        who = principal_of(request)
        try:
            view = await self._streams.resolve(who, Operation.ALTER, name)
            grown = await self._streams.add_partitions(who, view.stream, asked.partitions_count)
        except Invalid as error:
            raise Problem(400, 40002, str(error)) from error
        return answer(_topic(site, grown))

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a topic."""
        Site(request, self._servers)
        name = (await find(self._streams, request, Operation.DESCRIBE)).name
        who = principal_of(request)
        view = await self._streams.resolve(who, Operation.DELETE, name)
        await self._streams.delete(who, view.stream)
        return web.Response(status=204)

    async def partitions(self, request: web.Request) -> web.Response:
        """List a topic's partitions."""
        site = Site(request, self._servers)
        view = await find(self._streams, request, Operation.DESCRIBE)
        shown = [self._partition(site, view, index) for index in range(view.partition_count)]
        return answer(site.listing("KafkaPartitionList", f"/topics/{view.name}/partitions", shown))

    async def partition(self, request: web.Request) -> web.Response:
        """Get a partition."""
        site = Site(request, self._servers)
        view = await find(self._streams, request, Operation.DESCRIBE)
        return answer(self._partition(site, view, index_of(request, view)))

    def _cluster(self, site: Site) -> dict[str, object]:
        links = {name: site.related(f"/{name}") for name in ("brokers", "topics")}
        links["consumer_groups"] = site.related("/consumer-groups")
        links["controller"] = site.related(f"/brokers/{self._servers.live()[0].ref.node_id}")
        return site.resource("KafkaCluster", "", "", links)

    def _partition(self, site: Site, view: StreamView, index: int) -> dict[str, object]:
        leader = self._leader(view.partition(index))
        return site.resource(
            "KafkaPartition",
            f"/topics/{view.name}/partitions/{index}",
            f"/topic={view.name}/partition={index}",
            {
                "topic_name": view.name,
                "partition_id": index,
                "leader": site.related(f"/brokers/{leader}"),
            },
        )

    def _leader(self, partition: PartitionKey) -> int:
        live = list(self._servers.live())
        return routing.choose(partition, routing.candidates(live, "rest") or live).ref.node_id


def _topic(site: Site, view: StreamView) -> dict[str, object]:
    return _shown(site, view.name, view.partition_count)


def _shown(site: Site, name: str, partition_count: int) -> dict[str, object]:
    path = f"/topics/{name}"
    return site.resource(
        "KafkaTopic",
        path,
        f"/topic={name}",
        {
            "topic_name": name,
            "is_internal": False,
            "replication_factor": 1,
            "partitions_count": partition_count,
            "partitions": site.related(f"{path}/partitions"),
            "configs": site.related(f"{path}/configs"),
            "authorized_operations": [],
        },
    )


def _broker(site: Site, server: Server) -> dict[str, object]:
    addresses = [address for name, address in server.endpoints.items() if name != "admin"]
    host, _, port = next(iter(addresses), ":0").rpartition(":")
    node = server.ref.node_id
    fields = {"broker_id": node, "host": host, "port": int(port), "rack": server.zone}
    return site.resource("KafkaBroker", f"/brokers/{node}", f"/broker={node}", fields)
