"""Routes under /consumers: each consumer instance lives on one server, and other servers forward its requests (`forwarding.py`).

| path | |
|---|---|
| `POST /consumers/{group}` | create |
| `HEAD …/instances/{instance}` | check existence |
| `DELETE …/instances/{instance}` | leave the group |
| `GET, POST, DELETE …/subscription` | topics or a pattern, shared within the group |
| `GET, POST …/assignments` | partitions, assigned without the group |
| `GET …/records` | the next records |
| `GET, POST …/offsets` | committed offsets |
| `POST …/positions`, `…/positions/beginning`, `…/positions/end` | seek |
"""

import json
from collections.abc import Iterable

from aiohttp import web
from typing_extensions import override

from bearlake.metadata.model import CommittedOffset
from bearlake.metadata.quotas import QuotaKey
from bearlake.protocols.rest import bodies, problems, reading
from bearlake.protocols.rest.embedded import Embedded
from bearlake.protocols.rest.problems import V2_TYPE, Problem
from bearlake.protocols.rest.proxy import addresses, assignor, consumer_requests, formats, placement
from bearlake.protocols.rest.proxy.consumed import first_offsets, render
from bearlake.protocols.rest.proxy.consumer import Consumer
from bearlake.protocols.rest.proxy.consumers import Consumers
from bearlake.protocols.rest.proxy.forwarding import Forwarding
from bearlake.protocols.rest.proxy.patterns import Pattern
from bearlake.protocols.rest.proxy.topic_routes import answer, find
from bearlake.protocols.rest.settings import RestSettings
from bearlake.serving.http.limits import changes, own_time
from bearlake.serving.http.login import principal_of
from bearlake.serving.listener import Listener
from bearlake.serving.live_servers import LiveServers
from bearlake.streams.offsets import OffsetSpec
from bearlake.streams.principal import Operation, Principal, Resource, require
from bearlake.streams.service import Streams
from bearlake.streams.turns import in_turns

_INSTANCE = "/consumers/{group}/instances/{instance}"
_NAME_LENGTH_MAX = 249


class ConsumerRoutes:
    """Handlers of consumer instances."""

    def __init__(
        self,
        streams: Streams,
        servers: LiveServers,
        settings: RestSettings,
        listener: Listener,
        consumers: Consumers,
        forwarding: Forwarding,
        embedded: Embedded,
    ) -> None:
        """Clients that do not name the server's address receive the address of `listener`."""
        self._streams = streams
        self._servers = servers
        self._settings = settings
        self._listener = listener
        self._consumers = consumers
        self._forwarding = forwarding
        self._embedded = embedded

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        router.add_post("/consumers/{group}", self.create)
        anywhere = self._forwarding.anywhere
        router.add_head(_INSTANCE, anywhere(self.exists))
        router.add_delete(_INSTANCE, anywhere(self.delete))
        router.add_get(f"{_INSTANCE}/subscription", anywhere(self.subscription))
        router.add_post(f"{_INSTANCE}/subscription", anywhere(self.subscribe))
        router.add_delete(f"{_INSTANCE}/subscription", anywhere(self.unsubscribe))
        router.add_get(f"{_INSTANCE}/assignments", anywhere(self.assignments))
        router.add_post(f"{_INSTANCE}/assignments", anywhere(self.assign))
        router.add_get(f"{_INSTANCE}/records", anywhere(self.records))
        router.add_get(f"{_INSTANCE}/offsets", anywhere(self.committed))
        router.add_post(f"{_INSTANCE}/offsets", anywhere(self.commit))
        router.add_post(f"{_INSTANCE}/positions", anywhere(self.seek))
        router.add_post(f"{_INSTANCE}/positions/beginning", anywhere(self.seek_to_start))
        router.add_post(f"{_INSTANCE}/positions/end", anywhere(self.seek_to_end))

    async def create(self, request: web.Request) -> web.Response:
        """Create a consumer instance; without a name, the server generates one."""
        group = request.match_info["group"]
        self._require_group(request)
        octets = await self._octets(request)
        if len(group) > _NAME_LENGTH_MAX:
            raise Problem(422, 42204, f"Invalid consumer configuration: a group has at most {_NAME_LENGTH_MAX} letters")
        own_name = placement.new_name(self._servers.node_id)
        config = await consumer_requests.config(octets, group, own_name, self._settings)
        is_named = config.name != own_name
        made = await self._forwarding.create(request, octets, (group, config.name), is_named=is_named)
        if made is not None:
            return made
        self._consumers.create(principal_of(request), config, request.remote or "")
        scheme, host = addresses.of_client(request, self._listener.address)
        path = request.rel_url.raw_path.rstrip("/")
        base_uri = f"{scheme}://{host}{path}/instances/{config.name}"
        return answer({"instance_id": config.name, "base_uri": base_uri})

    async def exists(self, request: web.Request) -> web.Response:
        """Check whether an instance exists; does not count as use of the instance."""
        self._require_group(request)
        if not self._consumers.has(principal_of(request), request.match_info["group"], request.match_info["instance"]):
            raise problems.consumer_not_found()
        return _done()

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a consumer instance."""
        self._require_group(request)
        await self._consumers.delete(principal_of(request), request.match_info["group"], request.match_info["instance"])
        return _done()

    async def subscription(self, request: web.Request) -> web.Response:
        """Get the instance's subscription."""
        return answer({"topics": await self._consumer(request).topics()})

    async def subscribe(self, request: web.Request) -> web.Response:
        """Change the subscription."""
        consumer, body = self._consumer(request), await self._octets(request)
        topics, pattern = await consumer_requests.subscription(body, self._settings)
        who = principal_of(request)
        async for part in in_turns(topics):
            for topic in part:
                require(self._streams.authorizer, who, Operation.READ, Resource.STREAM, topic)
        if pattern is not None:
            pattern = _Readable(self._streams, who, pattern)
        async with consumer.exclusive():
            await consumer.subscribe(topics, pattern)
        return _done()

    async def unsubscribe(self, request: web.Request) -> web.Response:
        """End the subscription."""
        consumer = self._consumer(request)
        async with consumer.exclusive():
            await consumer.unsubscribe()
        return _done()

    async def assignments(self, request: web.Request) -> web.Response:
        """List the partitions that the instance reads."""
        assigned = await assignor.ordered(self._consumer(request).assigned)
        shown = [_places(part) async for part in in_turns(assigned)]
        return web.Response(body=b'{"partitions": [' + b", ".join(shown) + b"]}", content_type=V2_TYPE)

    async def assign(self, request: web.Request) -> web.Response:
        """Assign partitions without the group."""
        consumer, body = self._consumer(request), await self._octets(request)
        partitions = await consumer_requests.partitions(body, self._settings)
        async for part in in_turns(partitions):
            for topic, index in part:
                (await find(self._streams, principal_of(request), topic, Operation.READ)).partition(index)
        async with consumer.exclusive():
            consumer.assign(partitions)
        return _done()

    @changes  # it moves the instance's position
    @own_time
    async def records(self, request: web.Request) -> web.Response:
        """Get the next records; an empty list after the wait set by the client or its config."""
        consumer = self._consumer(request)
        form = formats.negotiate(request, consumer.config.format)
        wait_ms, bytes_max = consumer_requests.limits(request, consumer.config, self._settings)
        if not consumer.is_subscribed and not consumer.assigned:
            raise Problem(409, 409, "Consumer is not subscribed to any topics or assigned any partitions")
        who = principal_of(request)
        self._streams.quotas.require(who, QuotaKey.CONSUMER_BYTE_RATE)
        async with consumer.exclusive():
            found = await consumer.records(wait_ms, bytes_max)
            try:
                await self._require_topics(request, consumer.assigned)  # the access rules may have changed
                answered = await render(self._embedded, who, form, found)
                body = b"[%b]" % b", ".join(answered.records)
                if answered.records:
                    self._charge(who, len(body))
            except BaseException:
                consumer.move(first_offsets(found))  # the client did not get these records
                raise
            consumer.move(answered.positions)
            if answered.problem is not None and not answered.records:
                raise answered.problem
        served = found[: len(answered.records)]
        reading.count_served([(consumed.record.key, consumed.record.value) for consumed in served])
        return web.Response(body=body, content_type=form.content_type)

    def _charge(self, who: Principal, size: int) -> None:
        """Raises `Throttled` if other requests have used up the client's quota meanwhile."""
        self._streams.quotas.require(who, QuotaKey.CONSUMER_BYTE_RATE)
        self._streams.quotas.charge(who, QuotaKey.CONSUMER_BYTE_RATE, size)

    async def committed(self, request: web.Request) -> web.Response:
        """Get committed offsets of partitions; -1 where there is none."""
        consumer, body = self._consumer(request), await self._octets(request)
        partitions = await consumer_requests.partitions(body, self._settings)
        await self._require_topics(request, partitions, Operation.DESCRIBE)
        found = await consumer.committed(partitions)
        nothing = CommittedOffset(offset=-1)
        shown = [
            {
                "topic": topic,
                "partition": index,
                "offset": (value := found.get((topic, index), nothing)).offset,
                "metadata": value.metadata,
            }
            for topic, index in partitions
        ]
        return answer({"offsets": shown})

    async def commit(self, request: web.Request) -> web.Response:
        """Commit offsets: those of the last records read, as named in the body; without a body, all returned records."""
        consumer, body = self._consumer(request), await self._octets(request)
        metadata_bytes_max = self._streams.groups.settings.offset_metadata_bytes_max
        offsets = await consumer_requests.commits(body, metadata_bytes_max, self._settings)
        await self._require_topics(request, consumer.assigned if offsets is None else offsets)
        async with consumer.exclusive():
            await consumer.commit(offsets)
        return answer({})

    async def seek(self, request: web.Request) -> web.Response:
        """Move to the given offsets."""
        consumer, body = self._consumer(request), await self._octets(request)
        asked = await consumer_requests.offsets(body, self._settings)
        positions = {(position.topic, position.partition): position.offset for position in asked}
        async with consumer.exclusive():
            await consumer.seek(positions)
        return _done()

    async def seek_to_start(self, request: web.Request) -> web.Response:
        """Move to the first available offsets."""
        return await self._seek_to(request, OffsetSpec.EARLIEST)

    async def seek_to_end(self, request: web.Request) -> web.Response:
        """Move to the end offsets."""
        return await self._seek_to(request, OffsetSpec.LATEST)

    async def _seek_to(self, request: web.Request, spec: OffsetSpec) -> web.Response:
        consumer, body = self._consumer(request), await self._octets(request)
        partitions = await consumer_requests.partitions(body, self._settings)
        async with consumer.exclusive():
            await consumer.seek_to(partitions, spec)
        return _done()

    # -- internal ------------------------------------------------------------------------------------------------

    def _require_group(self, request: web.Request) -> None:
        """Raise `Denied` unless the caller may read with the path's group."""
        group = request.match_info["group"]
        require(self._streams.authorizer, principal_of(request), Operation.READ, Resource.GROUP, group)

    async def _require_topics(
        self, request: web.Request, partitions: Iterable[tuple[str, int]], operation: Operation = Operation.READ
    ) -> None:
        """Raise `Denied` unless the caller may do `operation` to the topics of all these partitions."""
        who = principal_of(request)
        async for part in in_turns(list({topic for topic, _ in partitions})):
            for topic in part:
                require(self._streams.authorizer, who, operation, Resource.STREAM, topic)

    def _consumer(self, request: web.Request) -> Consumer:
        self._require_group(request)
        return self._consumers.find(principal_of(request), request.match_info["group"], request.match_info["instance"])

    async def _octets(self, request: web.Request) -> bytes:
        if request.can_read_body:
            formats.check_v2(request)
        return await bodies.read(request, self._settings.request_bytes_max)


def _done() -> web.Response:
    return web.Response(status=204)


def _places(partitions: Iterable[assignor.Partition]) -> bytes:
    """Encode partitions as items of a JSON list."""
    return ", ".join([json.dumps({"topic": topic, "partition": index}) for topic, index in partitions]).encode()


class _Readable(Pattern):
    """A topic pattern limited to topics that the caller may read."""

    def __init__(self, streams: Streams, who: Principal, pattern: Pattern) -> None:
        self._streams = streams
        self._who = who
        self._pattern = pattern

    @override
    def fullmatch(self, text: str) -> object | None:
        may = self._streams.sees(self._who, Operation.READ, text)
        return self._pattern.fullmatch(text) if may else None
