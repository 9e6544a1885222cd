"""Look-ups: CONNECT, PARTITIONED_METADATA, LOOKUP, GET_TOPICS_OF_NAMESPACE.

A look-up returns the server that dispatches the topic's durable subscriptions, or should dispatch them; this can be any server.
"""

from bearlake import __version__
from bearlake.protocols.pulsar import commands, topic_lists
from bearlake.protocols.pulsar.connection import Connection
from bearlake.protocols.pulsar.errors import Refused
from bearlake.protocols.pulsar.proto.commands_pb2 import (
    CommandConnect,
    CommandConnected,
    CommandGetTopicsOfNamespace,
    CommandGetTopicsOfNamespaceResponse,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    FeatureFlags,
)
from bearlake.protocols.pulsar.topics import parse
from bearlake.streams.principal import Operation

PROTOCOL_VERSION = 21


def connect(connection: Connection, request: CommandConnect) -> None:
    """CONNECT: the first command of a connection, sent once."""
    if connection.session is None:
        _accept(connection, request)
    else:
        connection.session.connect(request, lambda: _accept(connection, request))


def _accept(connection: Connection, request: CommandConnect) -> None:
    """Answer CONNECT."""
    body = CommandConnected(
        server_version=f"Bearlake {__version__}",
        protocol_version=min(request.protocol_version, PROTOCOL_VERSION),
        max_message_size=connection.context.settings.message_bytes_max,
        feature_flags=FeatureFlags(
            supports_topic_watchers=True, supports_get_partitioned_metadata_without_auto_creation=True
        ),
    )
    connection.client_version = request.client_version
    connection.connected()
    connection.send(commands.frame("connected", body))


async def partitioned_metadata(connection: Connection, request: CommandPartitionedTopicMetadata) -> bytes:
    """Handle PARTITIONED_METADATA. Raises the error for the answer."""
    _check_original(connection, request)
    count = await connection.context.topics.partition_count(
        connection.who, request.topic, may_create=request.metadata_auto_creation_enabled
    )
    body = CommandPartitionedTopicMetadataResponse(
        request_id=request.request_id, partitions=count, response=CommandPartitionedTopicMetadataResponse.Success
    )
    return commands.frame("partitioned_metadata_response", body)


def _check_original(connection: Connection, request: CommandPartitionedTopicMetadata | CommandLookupTopic) -> None:
    """Raise `Denied` if a proxy asks for somebody else than the user of its connection."""
    if connection.session is not None:
        connection.session.check_original(request.original_principal)


def refuse_metadata(request: CommandPartitionedTopicMetadata, number: int, message: str) -> bytes:
    """The response to a failed PARTITIONED_METADATA."""
    body = CommandPartitionedTopicMetadataResponse(
        request_id=request.request_id,
        response=CommandPartitionedTopicMetadataResponse.Failed,
        error=number,  # type: ignore[arg-type]  # its number
        message=message,
    )
    return commands.frame("partitioned_metadata_response", body)


async def lookup(connection: Connection, request: CommandLookupTopic) -> bytes:
    """Handle LOOKUP. Raises the error for the answer."""
    _check_original(connection, request)
    context = connection.context
    name = parse(request.topic)
    topic = await context.topics.find(connection.who, request.topic, Operation.DESCRIBE)
    if topic is None and not context.settings.auto_create_streams:
        raise Refused("TopicNotFound", f"topic {name} does not exist")
    holder = await context.holder(topic.partition) if topic is not None else None
    endpoint, scheme = connection.endpoint_named(request.advertised_listener_name)
    server = context.server_for(str(name), endpoint, holder.node_id if holder is not None else None)
    if server is None:
        raise Refused("ServiceNotReady", f"no server has a listener {endpoint}")
    body = CommandLookupTopicResponse(
        request_id=request.request_id, response=CommandLookupTopicResponse.Connect, authoritative=True
    )
    url = f"{scheme}://{server.endpoints[endpoint]}"
    if scheme == "pulsar":
        body.broker_service_url = url
    else:
        body.broker_service_url_tls = url
    return commands.frame("lookup_response", body)


def refuse_lookup(request: CommandLookupTopic, number: int, message: str) -> bytes:
    """The response to a failed LOOKUP."""
    body = CommandLookupTopicResponse(
        request_id=request.request_id,
        response=CommandLookupTopicResponse.Failed,
        error=number,  # type: ignore[arg-type]  # its number
        message=message,
    )
    return commands.frame("lookup_response", body)


async def topics_of_namespace(connection: Connection, request: CommandGetTopicsOfNamespace) -> bytes:
    """GET_TOPICS_OF_NAMESPACE: return all topics; clients apply their patterns. Raises the error for the answer."""
    topics: list[str] = []
    if request.mode != CommandGetTopicsOfNamespace.NON_PERSISTENT:
        context, who = connection.context, connection.who
        async with context.streams.catalog.listing_partitions(who):
            topics = await context.topics.of_namespace(who, topic_lists.namespace(request.namespace))
    found = topic_lists.hash_of(topics)
    is_same = request.HasField("topics_hash") and request.topics_hash == found
    body = CommandGetTopicsOfNamespaceResponse(
        request_id=request.request_id,
        topics=[] if is_same else topics,
        filtered=False,
        topics_hash=found,
        changed=not is_same,
    )
    return commands.frame("get_topics_of_namespace_response", body)
