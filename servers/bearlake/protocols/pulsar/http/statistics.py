"""Statistics of topics: stats, internal stats (by ledger), and the last message.

Only the server that dispatches a partition knows the consumers of its durable subscriptions. A request for one partition is redirected to
that server (`guard.py`). For a partitioned topic this server asks the other servers (`peers.py`), as Pulsar's brokers do.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from bearlake.protocols.pulsar.context import PulsarContext
from bearlake.protocols.pulsar.http import paths, statistics_responses
from bearlake.protocols.pulsar.http.peers import Peers
from bearlake.protocols.pulsar.http.problems import Problem
from bearlake.protocols.pulsar.topics import Topic
from bearlake.serving.http.login import principal_of
from bearlake.serving.live_servers import own_server
from bearlake.streams.principal import Operation, Principal
from bearlake.streams.subscriptions.model import NotHolder


class StatisticsRoutes:
    """Routes of the statistics of persistent topics."""

    def __init__(self, context: PulsarContext, peers: Peers) -> None:
        self._context = context
        self._peers = peers

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes."""
        topic = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
        router.add_get(f"{topic}/stats", self._stats)
        router.add_get(f"{topic}/internalStats", self._internal_stats)
        router.add_get(f"{topic}/partitioned-stats", self._partitioned_stats)
        router.add_get(f"{topic}/partitioned-internalStats", self._partitioned_internal_stats)
        router.add_get(f"{topic}/lastMessageId", self._last_message_id)

    async def _stats(self, request: web.Request) -> web.Response:
        return web.json_response(await self._stats_of(await self._topic(request)))

    async def _internal_stats(self, request: web.Request) -> web.Response:
        return web.json_response(await self._internal_stats_of(await self._topic(request)))

    async def _partitioned_stats(self, request: web.Request) -> web.Response:
        """Return the total of all partitions, and the statistics of each partition unless `perPartition=false`."""
        topic = await self._partitioned_topic(request)
        found = await self._each(principal_of(request), topic, "stats", self._stats_of)
        answer = statistics_responses.summed(found.values())
        is_by_partition = request.query.get("perPartition", "true").lower() == "true"
        answer["metadata"] = {"partitions": topic.view.partition_count}
        answer["partitions"] = found if is_by_partition else {}
        return web.json_response(answer)

    async def _partitioned_internal_stats(self, request: web.Request) -> web.Response:
        topic = await self._partitioned_topic(request)
        found = await self._each(principal_of(request), topic, "internalStats", self._internal_stats_of)
        return web.json_response({"metadata": {"partitions": topic.view.partition_count}, "partitions": found})

    async def _last_message_id(self, request: web.Request) -> web.Response:
        topic = await paths.topic_of(self._context, request, Operation.READ)
        paths.one_partition(topic)
        return web.json_response(await statistics_responses.last_message(self._context, topic))

    # -- inside --------------------------------------------------------------------------------------------------

    async def _topic(self, request: web.Request) -> Topic:
        topic = await paths.topic_of(self._context, request, Operation.DESCRIBE)
        paths.one_partition(topic)
        return topic

    async def _partitioned_topic(self, request: web.Request) -> Topic:
        topic = await paths.topic_of(self._context, request, Operation.DESCRIBE)
        if not paths.names_whole(topic):
            raise Problem(404, f"Topic {topic.name} is not a partitioned topic")
        return topic

    async def _each(
        self, who: Principal, topic: Topic, what: str, of_partition: Callable[[Topic], Awaitable[dict[str, Any]]]
    ) -> dict[str, dict[str, Any]]:
        """The statistics of each partition by name; asks another server if that server dispatches the partition."""
        found = {}
        for part in paths.topics_of(topic):
            try:
                found[str(part.name)] = await of_partition(part)
            except NotHolder as error:
                found[str(part.name)] = await self._peers.get(who, error, f"{paths.path_of(part.name)}/{what}")
        return found

    async def _stats_of(self, topic: Topic) -> dict[str, Any]:
        context, partition = self._context, topic.partition
        found = await context.subscriptions.stats(partition)
        bounds = await paths.bounds_of(context, partition)
        usage = (await context.streams.metadata.log.usage([partition]))[partition]
        return statistics_responses.topic_stats(
            topic, bounds, usage, context.producers_of(partition), found, self._own_address()
        )

    async def _internal_stats_of(self, topic: Topic) -> dict[str, Any]:
        found = await self._context.subscriptions.stats(topic.partition)
        bounds = await paths.bounds_of(self._context, topic.partition)
        return statistics_responses.internal_stats(
            topic.partition, bounds, found, is_terminated=topic.view.stream.is_terminated
        )

    def _own_address(self) -> str:
        own = own_server(self._context.servers)
        return "" if own is None else own.endpoints.get("pulsar_http", "")
