"""Subscriptions of topics: list, create, delete, skip, expire, reset.

A request for a partitioned topic applies to all its partitions, except skips by number and resets to an id. Only the server that
dispatches a partition changes its durable subscriptions. Other servers redirect a request for one partition (`guard.py`), and forward a
request for a partitioned topic to those servers, partition by partition (`peers.py`).
"""

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from bearlake.errors import AlreadyExists, NotFound
from bearlake.metadata.model import PartitionKey
from bearlake.protocols.pulsar.context import PulsarContext
from bearlake.protocols.pulsar.http import paths
from bearlake.protocols.pulsar.http.peers import Peers
from bearlake.protocols.pulsar.http.problems import Problem
from bearlake.protocols.pulsar.topics import Topic
from bearlake.serving.http.login import principal_of
from bearlake.streams.audit import AuditedChange
from bearlake.streams.principal import Operation
from bearlake.streams.subscriptions.model import LATEST, NotHolder

_AGE_S_MAX = 100 * 366 * 86_400


class SubscriptionRoutes:
    """Routes of the subscriptions of persistent topics."""

    def __init__(self, context: PulsarContext, peers: Peers) -> None:
        self._context = context
        self._peers = peers
        self._subscriptions = context.subscriptions

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes."""
        topic = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
        router.add_get(f"{topic}/subscriptions", self._list)
        subscription = f"{topic}/subscription/{{subscription}}"
        router.add_put(subscription, self._create)
        router.add_delete(subscription, self._delete)
        router.add_post(f"{subscription}/skip/{{count}}", self._skip)
        router.add_post(f"{subscription}/skip_all", self._skip_all)
        router.add_post(f"{subscription}/expireMessages/{{age_s}}", self._expire)
        router.add_post(f"{topic}/all_subscription/expireMessages/{{age_s}}", self._expire)
        router.add_post(f"{subscription}/resetcursor", self._reset)
        router.add_post(f"{subscription}/resetcursor/{{timestamp}}", self._reset_to_time)

    async def _list(self, request: web.Request) -> web.Response:
        found: set[str] = set()
        for partition in paths.partitions_of(await paths.topic_of(self._context, request, Operation.DESCRIBE)):
            found.update(await self._subscriptions.names(partition))
        return web.json_response(sorted(found))

    async def _create(self, request: web.Request) -> web.Response:
        """Create a subscription in the partitions without it. The body is a message id, `earliest` or `latest`."""
        asked = await paths.body_of(request)
        properties = _properties(asked)
        name = request.match_info["subscription"]

        async def create(partition: PartitionKey) -> None:
            offset, _ = paths.position_in(asked, partition)
            await self._subscriptions.create(partition, name, offset, properties)

        with self._audited(request, Operation.CREATE, "create"):
            count = await self._each(request, create, ignored_status=409)
        if not count:
            raise Problem(409, "Subscription already exists for topic")
        return web.Response(status=204)

    async def _delete(self, request: web.Request) -> web.Response:
        """Delete a subscription; a subscription with consumers only if forced."""
        name, has_deleted = request.match_info["subscription"], False

        async def delete(partition: PartitionKey) -> None:
            nonlocal has_deleted
            if name in await self._subscriptions.names(partition):
                has_deleted = True
                await self._subscriptions.delete(partition, name, is_forced=paths.flag(request, "force"))

        with self._audited(request, Operation.DELETE, "delete"):
            await self._each(request, delete)
        if not has_deleted:
            raise NotFound(f"Subscription {name} not found")
        return web.Response(status=204)

    async def _skip(self, request: web.Request) -> web.Response:
        topic = await paths.topic_of(self._context, request, Operation.READ)
        count = paths.number_in(request, "count")
        with self._audited(request, Operation.READ, f"skip {count}"):
            await self._subscriptions.skip(paths.one_partition(topic), request.match_info["subscription"], count)
        return web.Response(status=204)

    async def _skip_all(self, request: web.Request) -> web.Response:
        name = request.match_info["subscription"]
        with self._audited(request, Operation.READ, "skip all"):
            await self._each(request, lambda partition: self._subscriptions.seek(partition, name, LATEST))
        return web.Response(status=204)

    async def _expire(self, request: web.Request) -> web.Response:
        """Acknowledge messages older than `age_s` seconds, for one subscription or for all."""
        before_ms = self._context.streams.clock.now_ms() - 1000 * paths.number_in(request, "age_s", _AGE_S_MAX)
        name = request.match_info.get("subscription")

        async def expire(partition: PartitionKey) -> None:
            for subscription in await self._subscriptions.names(partition) if name is None else [name]:
                await self._subscriptions.expire(partition, subscription, before_ms)

        with self._audited(request, Operation.READ, f"expire before {before_ms}"):
            await self._each(request, expire)
        return web.Response(status=204)

    async def _reset(self, request: web.Request) -> web.Response:
        topic = await paths.topic_of(self._context, request, Operation.READ)
        partition = paths.one_partition(topic)
        offset, is_excluded = paths.position_in(await paths.body_of(request), partition)
        start = offset + 1 if is_excluded and offset >= 0 else offset
        with self._audited(request, Operation.READ, f"reset to {start}"):
            await self._subscriptions.seek(partition, request.match_info["subscription"], start)
        return web.Response(status=204)

    async def _reset_to_time(self, request: web.Request) -> web.Response:
        timestamp_ms, name = paths.number_in(request, "timestamp"), request.match_info["subscription"]
        with self._audited(request, Operation.READ, f"reset to time {timestamp_ms}"):
            await self._each(request, lambda partition: self._subscriptions.seek_time(partition, name, timestamp_ms))
        return web.Response(status=204)

    def _audited(self, request: web.Request, operation: Operation, detail: str) -> AuditedChange:
        """Note a change in the audit log."""
        path = [request.match_info[part] for part in ("tenant", "namespace", "topic")]
        name = f"{'/'.join(path)}:{request.match_info.get('subscription', '*')}"
        return self._context.streams.audit.change(principal_of(request), operation, "Subscription", name, detail)

    async def _each(
        self,
        request: web.Request,
        change: Callable[[PartitionKey], Awaitable[None]],
        *,
        ignored_status: int | None = None,
    ) -> int:
        """Change the partitions that the path refers to; returns how many were changed. For a partitioned topic, skips partitions with
        `AlreadyExists` or with the status `ignored_status` of another server. Raises `NotHolder` for one partition of another server."""
        topic = await paths.topic_of(self._context, request, Operation.READ)
        if not paths.names_whole(topic):
            await change(topic.partition)
            return 1
        body = await request.read()
        count = 0
        for part in paths.topics_of(topic):
            try:
                await self._change(request, part, change, body)
                count += 1
            except AlreadyExists:
                continue
            except Problem as problem:
                if problem.status != ignored_status:
                    raise
        return count

    async def _change(
        self, request: web.Request, part: Topic, change: Callable[[PartitionKey], Awaitable[None]], body: bytes
    ) -> None:
        """Change one partition, here or at the server that dispatches it."""
        try:
            await change(part.partition)
        except NotHolder as error:
            path = paths.path_of(part.name) + paths.below_topic(request)
            await self._peers.send(principal_of(request), error, request.method, path, body)


def _properties(asked: object) -> Mapping[str, str]:
    found = asked.get("properties") if isinstance(asked, dict) else None
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise Problem(400, "expected properties as an object of strings")
    return found
