"""Topics: create, grow, delete, list, statistics, the last message."""

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from bearlake.metadata.model import PartitionKey, stream_number
from bearlake.protocols.pulsar import message_ids, names, positions
from bearlake.protocols.pulsar.broker import Broker
from bearlake.protocols.pulsar.http import paths
from bearlake.protocols.pulsar.http.problems import Problem
from bearlake.protocols.pulsar.http.settings import PulsarHttpSettings
from bearlake.protocols.pulsar.topics import PARTITIONED, is_partitioned
from bearlake.streams.principal import ANONYMOUS, Operation
from bearlake.streams.subscriptions.model import SubscriptionStats


class TopicRoutes:
    """Routes of persistent topics."""

    def __init__(self, broker: Broker, settings: PulsarHttpSettings) -> None:
        self._broker = broker
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
        router.add_get(f"{topic}/stats", self._stats)
        router.add_get(f"{topic}/internalStats", self._internal_stats)
        router.add_get(f"{topic}/lastMessageId", self._last_message_id)

    # -- lists ---------------------------------------------------------------------------------------------------

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response(self._broker.topics.of_namespace(ANONYMOUS, paths.namespace_of(request)))

    async def _list_partitioned(self, request: web.Request) -> web.Response:
        namespace, streams = paths.namespace_of(request), self._broker.streams
        found = []
        for view in streams.catalog.views():
            name = names.topic_of(view.name)
            if name is None or name.namespace != namespace or not is_partitioned(view):
                continue
            if streams.may(ANONYMOUS, Operation.DESCRIBE, view.name):
                found.append(str(name))
        return web.json_response(sorted(found))

    async def _list_none(self, request: web.Request) -> web.Response:
        """Topics that are not persistent: there are none."""
        paths.namespace_of(request)
        return web.json_response([])

    # -- create, grow, delete ------------------------------------------------------------------------------------

    async def _create(self, request: web.Request) -> web.Response:
        name = paths.name_of(request)
        if await self._broker.topics.find(str(name)) is not None:
            raise Problem(409, f"This topic already exists: {name}")
        await self._broker.topics.create(ANONYMOUS, name, 0)
        return web.Response(status=204)

    async def _create_partitioned(self, request: web.Request) -> web.Response:
        name, asked = paths.name_of(request), await paths.body_of(request)
        count = asked.get("partitions") if isinstance(asked, dict) else asked
        count = paths.partition_count_in(count, self._settings.topic_partitions_max)
        if await self._broker.topics.find(str(name)) is not None:
            raise Problem(409, f"This topic already exists: {name}")
        await self._broker.topics.create(ANONYMOUS, name, count)
        return web.Response(status=204)

    async def _grow(self, request: web.Request) -> web.Response:
        topic = await paths.topic_of(self._broker, request, Operation.ALTER)
        count = paths.partition_count_in(await paths.body_of(request), self._settings.topic_partitions_max)
        if not paths.names_whole(topic):
            raise Problem(409, f"Topic {topic.name} is not partitioned")
        if count < topic.view.partition_count:
            raise Problem(406, f"{count} partitions: topic {topic.name} has {topic.view.partition_count}")
        if count > topic.view.partition_count:
            if topic.view.stream.configs.get(PARTITIONED) is None:
                await self._broker.streams.alter(ANONYMOUS, topic.view.name, {PARTITIONED: "true"}, ())
            await self._broker.streams.add_partitions(ANONYMOUS, topic.view.name, count)
        return web.Response(status=204)

    async def _delete(self, request: web.Request) -> web.Response:
        topic = await paths.topic_of(self._broker, request, Operation.DELETE)
        if not paths.is_whole_topic(topic):
            raise Problem(409, f"{topic.name} is a partition: a topic is deleted with all its partitions")
        if paths.names_whole(topic):
            raise Problem(409, f"{topic.name} is a partitioned topic, to be deleted as such")
        return await self._remove(topic.view.name, topic.view.partitions(), is_forced=paths.flag(request, "force"))

    async def _delete_partitioned(self, request: web.Request) -> web.Response:
        topic = await paths.topic_of(self._broker, request, Operation.DELETE)
        if not paths.names_whole(topic):
            raise Problem(404, f"Topic {topic.name} is not a partitioned topic")
        return await self._remove(topic.view.name, topic.view.partitions(), is_forced=paths.flag(request, "force"))

    async def _remove(self, stream: str, partitions: list[PartitionKey], *, is_forced: bool) -> web.Response:
        """Delete a stream; unless forced, not one with subscriptions."""
        if not is_forced:
            for partition in partitions:
                if await self._broker.subscriptions.names(partition):
                    raise Problem(412, "Topic has subscriptions")
        await self._broker.streams.delete(ANONYMOUS, stream)
        return web.Response(status=204)

    # -- what is there -------------------------------------------------------------------------------------------

    async def _partition_count(self, request: web.Request) -> web.Response:
        may_create = paths.flag(request, "checkAllowAutoCreation")
        name = str(paths.name_of(request))
        count = await self._broker.topics.partition_count(ANONYMOUS, name, may_create=may_create)
        return web.json_response({"partitions": count})

    async def _stats(self, request: web.Request) -> web.Response:
        topic = await paths.topic_of(self._broker, request, Operation.DESCRIBE)
        return web.json_response(await self._stats_of(paths.one_partition(topic)))

    async def _stats_of(self, partition: PartitionKey) -> dict[str, Any]:
        found = await self._broker.subscriptions.stats(partition)
        return {"subscriptions": {one.name: _shown(one) for one in found}, "ownerBroker": self._own_address()}

    async def _internal_stats(self, request: web.Request) -> web.Response:
        """The partition as one ledger; entries are counted by their messages, since entry ids are offsets."""
        topic = await paths.topic_of(self._broker, request, Operation.DESCRIBE)
        partition = paths.one_partition(topic)
        subscriptions = await self._broker.subscriptions.stats(partition)
        bounds = (await self._broker.streams.bounds([partition]))[partition]
        ledger, count = stream_number(partition), bounds.end - bounds.start
        cursors = {
            one.name: {
                "markDeletePosition": f"{ledger}:{one.mark_delete - 1}",
                "readPosition": f"{ledger}:{one.read_offset}",
                "numberOfEntriesSinceFirstNotAckedMessage": bounds.end - one.mark_delete,
            }
            for one in subscriptions
            if one.is_durable
        }
        answer = {
            "entriesAddedCounter": bounds.end,
            "numberOfEntries": count,
            "lastConfirmedEntry": f"{ledger}:{bounds.end - 1}",
            "state": "LedgerOpened",
            "ledgers": [{"ledgerId": ledger, "entries": count}],
            "cursors": cursors,
        }
        return web.json_response(answer)

    async def _last_message_id(self, request: web.Request) -> web.Response:
        topic = await paths.topic_of(self._broker, request, Operation.READ)
        partition = paths.one_partition(topic)
        last = await positions.find_last(self._broker.streams, partition)
        entry = -1 if last.entry_id == message_ids.NONE else last.entry_id
        answer = {
            "ledgerId": last.ledger_id,
            "entryId": entry,
            "partitionIndex": topic.index if topic.is_partitioned else -1,
        }
        if last.batch_index >= 0:
            answer["batchIndex"] = last.batch_index
        return web.json_response(answer)

    def _own_address(self) -> str:
        members = self._broker.members
        own = next((one for one in members.live() if one.ref.node_id == members.node_id), None)
        return "" if own is None else own.endpoints.get("pulsar_http", "")


def _shown(stats: SubscriptionStats) -> Mapping[str, Any]:
    """A subscription's statistics by Pulsar's names; rates are not measured, and left out."""
    return {
        "type": stats.type.value if stats.type is not None else "None",
        "durable": stats.is_durable,
        "msgBacklog": stats.backlog_count,
        "unackedMessages": stats.unacknowledged_count,
        "msgDelayed": stats.delayed_count,
        "nonContiguousDeletedMessagesRanges": stats.range_count,
        "subscriptionProperties": dict(stats.properties),
        "activeConsumerName": next((one.name for one in stats.consumers if one.is_active), None),
        "consumers": [
            {
                "consumerName": one.name,
                "availablePermits": one.permits,
                "unackedMessages": one.unacknowledged_count,
                "blockedConsumerOnUnackedMsgs": one.is_blocked,
                "msgOutCounter": one.delivered_message_count,
                "bytesOutCounter": one.delivered_bytes,
                "metadata": dict(one.metadata),
            }
            for one in stats.consumers
        ],
    }
