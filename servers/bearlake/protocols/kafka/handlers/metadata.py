"""Metadata, DescribeCluster, DescribeTopicPartitions: the live servers, and the "leader" of each partition.

Every server serves every partition. The "leader" of a partition is therefore a server near the client, chosen by rendezvous hashing
over the live servers of the client's zone. This spreads partitions evenly and sends all readers of a partition to the same cache. The
client's zone comes from its client id (`zone_id=…`), because `client.rack` reaches the server too late.

Source: KIP-516 (topic ids), KIP-700 (DescribeCluster), KIP-966 (DescribeTopicPartitions).
"""

import asyncio
import re
from bisect import bisect_left
from collections.abc import Sequence

from bearlake.errors import AlreadyExists, BearlakeError, Invalid, NotFound, Overloaded, Unavailable
from bearlake.metadata.model import Server
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka.codec import UUID_ZERO
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers.absence import Absence
from bearlake.protocols.kafka.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from bearlake.protocols.kafka.rendered import AT_ONCE_MAX, Rendered, render
from bearlake.protocols.kafka.rights import NO_OPERATIONS, cluster_operations, topic_operations
from bearlake.records.batch import NO_LEADER_EPOCH
from bearlake.serving import routing
from bearlake.streams import internal_topics
from bearlake.streams.catalog import StreamView, check_name
from bearlake.streams.principal import Operation
from bearlake.streams.turns import Turns, in_turns

ENDPOINT_TYPE_BROKERS = 1
_IDS_FROM = 12
"""The first version in which a topic may be named by its id only, as in Kafka: responses of versions 10 and 11 must have a name."""
_AT_ONCE = 16
_PAGE_COUNT_MAX = 2_000
"""Partitions of one answer to DescribeTopicPartitions, as in Kafka by default."""


async def handle(context: KafkaContext, caller: Caller, request: MetadataRequest) -> Rendered:
    """The servers, and the partitions of the requested topics (of all topics if the request names none)."""
    topics = request.topics
    if topics is None or (caller.version == 0 and not topics):
        state = (context.topics.version, context.servers.version, context.streams.access.revision)
        zone = zone_of(caller.client_id, context.settings.zone_client_id_keys)
        asked = (request.include_topic_authorized_operations, request.include_cluster_authorized_operations)
        key = (caller.version, caller.listener, caller.who, caller.who.host, zone, asked)
        return await context.renderings.get(state, key, lambda: _render_all(context, caller, request))
    # As in Kafka: a name that is repeated must not repeat its partitions.
    unique: dict[str | bytes, MetadataRequest.Topic] = {}
    async for part in in_turns(topics):
        unique |= {_key_of(topic): topic for topic in part}
    found = await _find_all(context, caller, request, list(unique.values()))
    described: list[tuple[StreamView | ErrorCode, MetadataRequest.Topic | None]] = []
    async for named in in_turns(list(unique)):
        described += [(found[key], unique[key]) for key in named]
    size = _size_of(described)
    if size <= AT_ONCE_MAX:
        return await _render(context, caller, request, described)
    async with context.streams.catalog.listing(caller.who, size):  # a name of a few bytes may have 10,000 partitions
        return await _render(context, caller, request, described)


def _name_of(topic: MetadataRequest.Topic) -> str | None:
    """The name that is asked for; None if the topic is asked for by its id, beside which Java's consumers send an empty name."""
    return topic.name if topic.topic_id == UUID_ZERO else None


def _key_of(topic: MetadataRequest.Topic) -> str | bytes:
    name = _name_of(topic)
    return topic.topic_id if name is None else name


async def _render_all(context: KafkaContext, caller: Caller, request: MetadataRequest) -> Rendered:
    known = context.topics
    seen: list[tuple[StreamView, None]] = []
    async with context.streams.catalog.listing_partitions(caller.who):
        async for part in in_turns(known.names()):
            for name in part:
                view = known.peek(name)
                if view is not None and context.streams.sees(caller.who, Operation.DESCRIBE, name):
                    seen.append((view, None))
        return await _render(context, caller, request, seen)


async def _render(
    context: KafkaContext,
    caller: Caller,
    request: MetadataRequest,
    described: Sequence[tuple[StreamView | ErrorCode, MetadataRequest.Topic | None]],
) -> Rendered:
    """Encode the response; in a thread if it has many partitions."""
    servers = candidates(context, caller)
    brokers = _response(context, caller, request, [])

    def response() -> MetadataResponse:
        brokers.topics = [_describe(context, caller, found, topic, servers, request) for found, topic in described]
        return brokers

    return await render(context.workers, codec.ApiKey.METADATA, caller.version, _size_of(described), response)


def _size_of(described: Sequence[tuple[StreamView | ErrorCode, MetadataRequest.Topic | None]]) -> int:
    """Streams and partitions of a response."""
    return sum(1 + (found.partition_count if isinstance(found, StreamView) else 0) for found, _ in described)


def _response(
    context: KafkaContext, caller: Caller, request: MetadataRequest, topics: list[MetadataResponse.Topic]
) -> MetadataResponse:
    everybody = all_of(context, caller)
    return MetadataResponse(
        brokers=[_broker(server, caller) for server in everybody],
        cluster_id=context.servers.cluster_id,
        controller_id=controller(context, everybody),
        topics=topics,
        cluster_authorized_operations=cluster_operations(context, caller)
        if request.include_cluster_authorized_operations
        else NO_OPERATIONS,
    )


async def _find_all(
    context: KafkaContext, caller: Caller, request: MetadataRequest, topics: Sequence[MetadataRequest.Topic]
) -> dict[str | bytes, StreamView | ErrorCode]:
    """The requested streams by name or id, or their error codes; looks up at most `_AT_ONCE` names in the store at once."""
    found: dict[str | bytes, StreamView | ErrorCode] = {}
    turns = Turns()
    absence = Absence(context.topics)
    for topic in topics:
        if turns.is_over():
            await asyncio.sleep(0)
        if _name_of(topic) is not None:
            continue
        if caller.version < _IDS_FROM:
            found[topic.topic_id] = ErrorCode.INVALID_REQUEST
        else:
            named = await absence.by_id(topic.topic_id)
            if isinstance(named, StreamView) and not context.streams.may(caller.who, Operation.DESCRIBE, named.name):
                named = ErrorCode.UNKNOWN_TOPIC_ID
            found[topic.topic_id] = ErrorCode.LEADER_NOT_AVAILABLE if named is ErrorCode.KAFKA_STORAGE_ERROR else named
    may_create = context.settings.auto_create_streams and request.allow_auto_topic_creation
    unknown: list[str] = []
    async for part in in_turns(topics):
        for name in [name for topic in part if (name := _name_of(topic)) is not None]:
            if context.topics.peek(name) is not None:
                found[name] = await find_or_create(context, caller, name, may_create)
            else:
                unknown.append(name)
    created_max = context.settings.auto_create_count_max
    for start in range(0, len(unknown), _AT_ONCE):
        chunk = unknown[start : start + _AT_ONCE]
        may_create = may_create and start < created_max
        answers = await asyncio.gather(*(find_or_create(context, caller, name, may_create) for name in chunk))
        found.update(zip(chunk, answers, strict=True))
    return found


def _describe(
    context: KafkaContext,
    caller: Caller,
    view: StreamView | ErrorCode,
    topic: MetadataRequest.Topic | None,
    servers: Sequence[Server],
    request: MetadataRequest,
) -> MetadataResponse.Topic:
    if isinstance(view, ErrorCode):
        assert topic is not None
        name = _name_of(topic)
        shown = name if caller.version >= _IDS_FROM else topic.name or ""
        return MetadataResponse.Topic(error_code=view, name=shown, topic_id=topic.topic_id)
    operations = (
        topic_operations(context, caller, view.name) if request.include_topic_authorized_operations else NO_OPERATIONS
    )
    return _topic(view, servers, operations)


async def find_or_create(context: KafkaContext, caller: Caller, name: str, may_create: bool) -> StreamView | ErrorCode:
    """The stream or internal topic of that name, created if missing and `may_create`; else the error code."""
    streams = context.streams
    try:
        check_name(name)
    except Invalid:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if not streams.may(caller.who, Operation.DESCRIBE, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    try:
        return await context.topics.find(name)
    except NotFound:
        if not may_create or name in internal_topics.NEVER_CREATED:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except (Unavailable, Overloaded):
        return ErrorCode.LEADER_NOT_AVAILABLE
    if not streams.may_create(caller.who, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    try:
        return await streams.create(caller.who, name, context.settings.default_partition_count, {})
    except AlreadyExists:
        return await _created_elsewhere(context, name)
    except Invalid:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    except BearlakeError:
        return ErrorCode.LEADER_NOT_AVAILABLE


async def _created_elsewhere(context: KafkaContext, name: str) -> StreamView | ErrorCode:
    try:
        return await context.streams.catalog.find(name)
    except BearlakeError:
        return ErrorCode.LEADER_NOT_AVAILABLE


def _topic(view: StreamView, servers: Sequence[Server], operations: int) -> MetadataResponse.Topic:
    partitions = []
    for index in range(view.partition_count):
        leader = routing.choose(view.first_key | index, servers).ref.node_id
        partitions.append(
            MetadataResponse.Partition(
                partition_index=index,
                leader_id=leader,
                leader_epoch=NO_LEADER_EPOCH,
                replica_nodes=[leader],
                isr_nodes=[leader],
                offline_replicas=[],
            )
        )
    return MetadataResponse.Topic(
        name=view.name,
        topic_id=view.id_bytes,
        is_internal=internal_topics.is_internal(view),
        partitions=partitions,
        topic_authorized_operations=operations,
    )


def controller(context: KafkaContext, servers: Sequence[Server]) -> int:
    """The server for administrative requests, which every server can handle: this server, unless it drains and is not listed."""
    own = context.node_id
    return own if any(server.ref.node_id == own for server in servers) else servers[0].ref.node_id


def _broker(server: Server, caller: Caller) -> MetadataResponse.Broker:
    host, port = address(server, caller.listener)
    return MetadataResponse.Broker(node_id=server.ref.node_id, host=host, port=port, rack=server.zone)


# -- servers -------------------------------------------------------------------------------------------------------


def candidates(context: KafkaContext, caller: Caller) -> list[Server]:
    """The servers that this client may use: reachable through its listener, and in its zone if that has servers."""
    zone = zone_of(caller.client_id, context.settings.zone_client_id_keys)
    return routing.candidates(context.servers.live(), caller.listener, zone)


def all_of(context: KafkaContext, caller: Caller) -> list[Server]:
    """All servers that have the client's listener and do not drain; if all drain, the draining servers."""
    return routing.candidates(context.servers.live(), caller.listener)


def address(server: Server, listener: str) -> tuple[str, int]:
    """The advertised host and port of a server's listener."""
    host, _, port = server.endpoints[listener].rpartition(":")
    return host.strip("[]"), int(port)


def zone_of(client_id: str | None, keys: Sequence[str]) -> str | None:
    """The zone that a client id names (`…zone_id=eu-1a…`), or None."""
    if client_id and "=" in client_id:
        for key in keys:
            match = re.search(rf"(?:^|[,;:\s]){re.escape(key)}=([^,;:\s]+)", client_id)
            if match:
                return match[1]
    return None


async def describe_cluster(
    context: KafkaContext, caller: Caller, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """The live servers and the cluster id."""
    if request.endpoint_type != ENDPOINT_TYPE_BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            error_message="there are no controller endpoints: request broker endpoints",
        )
    brokers = []
    everybody = all_of(context, caller)
    for server in everybody:
        host, port = address(server, caller.listener)
        brokers.append(
            DescribeClusterResponse.Broker(broker_id=server.ref.node_id, host=host, port=port, rack=server.zone)
        )
    return DescribeClusterResponse(
        cluster_id=context.servers.cluster_id,
        controller_id=controller(context, everybody),
        brokers=brokers,
        cluster_authorized_operations=cluster_operations(context, caller)
        if request.include_cluster_authorized_operations
        else NO_OPERATIONS,
    )


async def describe_topic_partitions(
    context: KafkaContext, caller: Caller, request: DescribeTopicPartitionsRequest
) -> Rendered:
    """Partitions of the requested streams, by name; at most `response_partition_limit`, with a cursor for the rest."""
    room = min(max(request.response_partition_limit, 1), _PAGE_COUNT_MAX)
    async with context.streams.catalog.listing(caller.who, room):
        page = await _partitions_page(context, caller, request, room)
        size = sum(1 + len(topic.partitions) for topic in page.topics)
        return await render(context.workers, codec.ApiKey.DESCRIBE_TOPIC_PARTITIONS, caller.version, size, lambda: page)


async def _partitions_page(
    context: KafkaContext, caller: Caller, request: DescribeTopicPartitionsRequest, room: int
) -> DescribeTopicPartitionsResponse:
    servers = candidates(context, caller)
    names: Sequence[str] = sorted({topic.name for topic in request.topics}) or context.topics.names()
    start, first_index = 0, 0
    if request.cursor is not None:
        start = bisect_left(names, request.cursor.topic_name)
        if start < len(names) and names[start] == request.cursor.topic_name:
            first_index = max(request.cursor.partition_index, 0)
    topics: list[DescribeTopicPartitionsResponse.Topic] = []
    async for part in in_turns(range(start, len(names))):  # ends with the page, so a page needs no list of all names
        for name in map(names.__getitem__, part):
            if not request.topics and not context.streams.sees(caller.who, Operation.DESCRIBE, name):
                first_index = 0
                continue
            if room == 0:
                return _cut(topics, name, 0)
            found = await find_or_create(context, caller, name, may_create=False)
            first, first_index = first_index, 0
            if isinstance(found, ErrorCode):
                if request.topics:  # a list of all streams omits those that are gone
                    topics.append(_absent(name, found))
                continue
            first = min(first, found.partition_count)
            end = min(found.partition_count, first + room)
            topics.append(_page(found, servers, first, end, topic_operations(context, caller, name)))
            room -= end - first
            if end < found.partition_count:
                return _cut(topics, name, end)
    return DescribeTopicPartitionsResponse(topics=topics)


def _cut(
    topics: list[DescribeTopicPartitionsResponse.Topic], name: str, partition_index: int
) -> DescribeTopicPartitionsResponse:
    """A page that ends here."""
    cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=partition_index)
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)


def _absent(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponse.Topic:
    return DescribeTopicPartitionsResponse.Topic(error_code=code, name=name, topic_id=UUID_ZERO, partitions=[])


def _page(
    view: StreamView, servers: Sequence[Server], start: int, end: int, operations: int
) -> DescribeTopicPartitionsResponse.Topic:
    partitions = []
    for index in range(start, end):
        leader = routing.choose(view.first_key | index, servers).ref.node_id
        partitions.append(
            DescribeTopicPartitionsResponse.Partition(
                partition_index=index,
                leader_id=leader,
                leader_epoch=NO_LEADER_EPOCH,
                replica_nodes=[leader],
                isr_nodes=[leader],
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=[],
            )
        )
    return DescribeTopicPartitionsResponse.Topic(
        name=view.name,
        topic_id=view.id_bytes,
        is_internal=internal_topics.is_internal(view),
        partitions=partitions,
        topic_authorized_operations=operations,
    )
