"""Topics: list, create, add partitions, terminate, delete. `statistics.py` has their statistics.

Termination applies to all partitions of a topic and to all protocols (`StreamCatalog.terminate`).
"""

from aiohttp import web

from bearlake.protocols.pulsar.context import PulsarContext
from bearlake.protocols.pulsar.http import paths, statistics_responses
from bearlake.protocols.pulsar.http.name_lists import names_answer
from bearlake.protocols.pulsar.http.problems import Problem
from bearlake.protocols.pulsar.http.settings import PulsarHttpSettings
from bearlake.protocols.pulsar.topics import PARTITIONED, is_partitioned
from bearlake.serving.http.login import principal_of
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import Operation


class TopicRoutes:
    """Routes of persistent topics."""

    def __init__(self, context: PulsarContext, settings: PulsarHttpSettings) -> None:
        self._context = context
        self._settings = settings

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes."""
        namespace = "/admin/v2/persistent/{tenant}/{namespace}"
        router.add_get(namespace, self._list)
        router.add_get(f"{namespace}/partitioned", self._list_partitioned)
        for path in ("", "/partitioned"):
            router.add_get(f"/admin/v2/non-persistent/{{tenant}}/{{namespace}}{path}", self._list_none)
        topic = f"{namespace}/{{topic}}"
        router.add_put(topic, self._create)
        router.add_delete(topic, self._delete)
        router.add_get(f"{topic}/partitions", self._partition_count)
        router.add_put(f"{topic}/partitions", self._create_partitioned)
        router.add_post(f"{topic}/partitions", self._grow)
        router.add_delete(f"{topic}/partitions", self._delete_partitioned)
        router.add_post(f"{topic}/terminate", self._terminate)
        router.add_post(f"{topic}/terminate/partitions", self._terminate_partitioned)

    # -- lists ---------------------------------------------------------------------------------------------------

    async def _list(self, request: web.Request) -> web.Response:
        who, namespace = principal_of(request), paths.namespace_of(request)
        async with self._context.streams.catalog.listing_partitions(who):
            return await names_answer(await self._context.topics.of_namespace(who, namespace))

    async def _list_partitioned(self, request: web.Request) -> web.Response:
        who, namespace = principal_of(request), paths.namespace_of(request)
        async with self._context.streams.catalog.listing(who):
            seen = self._context.topics.seen_in(who, namespace)
            return await names_answer(sorted([str(name) async for name, view in seen if is_partitioned(view)]))

    async def _list_none(self, request: web.Request) -> web.Response:
        """Return no topics: all topics are persistent."""
        paths.namespace_of(request)
        return web.json_response([])

    async def _partition_count(self, request: web.Request) -> web.Response:
        may_create = paths.flag(request, "checkAllowAutoCreation")
        name = str(paths.name_of(request))
        count = await self._context.topics.partition_count(principal_of(request), name, may_create=may_create)
        return web.json_response({"partitions": count})

    # -- create, grow, terminate, delete -------------------------------------------------------------------------

    async def _create(self, request: web.Request) -> web.Response:
        await self._context.topics.create_new(principal_of(request), paths.name_of(request), 0)
        return web.Response(status=204)

    async def _create_partitioned(self, request: web.Request) -> web.Response:
        name, asked = paths.name_of(request), await paths.body_of(request)
        count = asked.get("partitions") if isinstance(asked, dict) else asked
        count = paths.partition_count_in(count, self._settings.topic_partitions_max)
        await self._context.topics.create_new(principal_of(request), name, count)
        return web.Response(status=204)

    async def _grow(self, request: web.Request) -> web.Response:
        topic = await paths.topic_of(self._context, request, Operation.ALTER)
        count = paths.partition_count_in(await paths.body_of(request), self._settings.topic_partitions_max)
        if not paths.names_whole(topic):
            raise Problem(409, f"Topic {topic.name} is not partitioned")
        if count < topic.view.partition_count:
            raise Problem(
                406,
                f"{count} partitions: expected at least {topic.view.partition_count}, the current count of topic {topic.name}",
            )
        if count > topic.view.partition_count:
            if topic.view.stream.configs.get(PARTITIONED) is None:
                await self._context.streams.change(
                    principal_of(request), topic.view.stream, lambda _: ({PARTITIONED: "true"}, ())
                )
            await self._context.streams.add_partitions(principal_of(request), topic.view.stream, count)
        return web.Response(status=204)

    async def _terminate(self, request: web.Request) -> web.Response:
        """Terminate a topic, so that it accepts no more messages; return the id of its last message."""
        topic = await paths.topic_of(self._context, request, Operation.ALTER)
        if topic.is_partitioned:
            raise Problem(405, f"{topic.name}: a partitioned topic can be terminated only as a whole")
        await self._context.streams.terminate(principal_of(request), topic.view.stream)
        return web.json_response(await statistics_responses.last_message(self._context, topic))

    async def _terminate_partitioned(self, request: web.Request) -> web.Response:
        """Terminate a partitioned topic; return the id of the last message of each partition."""
        topic = await paths.topic_of(self._context, request, Operation.ALTER)
        if not paths.names_whole(topic):
            raise Problem(405, f"{topic.name} is not a partitioned topic")
        await self._context.streams.terminate(principal_of(request), topic.view.stream)
        partitions = paths.topics_of(topic)
        return web.json_response(
            {
                str(partition.index): await statistics_responses.last_message(self._context, partition)
                for partition in partitions
            }
        )

    async def _delete(self, request: web.Request) -> web.Response:
        topic = await paths.topic_of(self._context, request, Operation.DELETE)
        if not paths.is_whole_topic(topic):
            raise Problem(409, f"{topic.name} is a partition: a topic can be deleted only with all its partitions")
        if paths.names_whole(topic):
            raise Problem(409, f"{topic.name} is a partitioned topic: delete it as a partitioned topic")
        return await self._remove(request, topic.view, is_forced=paths.flag(request, "force"))

    async def _delete_partitioned(self, request: web.Request) -> web.Response:
        topic = await paths.topic_of(self._context, request, Operation.DELETE)
        if not paths.names_whole(topic):
            raise Problem(404, f"Topic {topic.name} is not a partitioned topic")
        return await self._remove(request, topic.view, is_forced=paths.flag(request, "force"))

    async def _remove(self, request: web.Request, view: StreamView, *, is_forced: bool) -> web.Response:
        """Delete a stream; a stream with subscriptions only if forced."""
        if not is_forced:
            for partition in view.partitions():
                if await self._context.subscriptions.names(partition):
                    raise Problem(412, "Topic has subscriptions")
        await self._context.streams.delete(principal_of(request), view.stream)
        return web.Response(status=204)
