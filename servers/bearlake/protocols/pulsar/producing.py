"""The commands of producers: PRODUCER, SEND, CLOSE_PRODUCER.

A producer is open once the server has reserved its name, has granted shared or exclusive access (`access.py`), and has read from the
metadata store what is stored under the name.
"""

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

from bearlake.errors import BearlakeError
from bearlake.kernel import SendEntry
from bearlake.metadata.model import NamedProducer
from bearlake.metadata.subscriptions import EARLIEST
from bearlake.protocols.pulsar import commands, renumbering
from bearlake.protocols.pulsar.connection import Connection
from bearlake.protocols.pulsar.entries import Prepared
from bearlake.protocols.pulsar.errors import Refused
from bearlake.protocols.pulsar.producers import Producer, State
from bearlake.protocols.pulsar.proto.commands_pb2 import (
    CommandCloseProducer,
    CommandProducer,
    CommandProducerSuccess,
    CommandSend,
    Shared,
)
from bearlake.streams.admission import Importing
from bearlake.streams.principal import Operation, Resource, require
from bearlake.streams.subscriptions.creating import create_cursor

DEDUPLICATION = "pulsar.deduplication"
"""The stream config for deduplication: whether messages that a producer sends again are stored once."""


def begin(connection: Connection, request: CommandProducer) -> bool:
    """Handle PRODUCER before the next command is read: register the producer, so that it can be closed. Raises the error for the answer."""
    known = connection.producers.get(request.producer_id)
    if known is not None:
        if known.state is not State.OPEN:
            raise Refused("ServiceNotReady", "the producer is being opened or closed on this connection")
        connection.send(_opened(known, request))  # a repeated request
        return False
    if connection.context.is_draining:
        raise Refused("ServiceNotReady", "this server is draining: look the topic up again")
    connection.check_room()
    connection.producers[request.producer_id] = Producer(connection, request, partial(_open_when_granted, connection))
    return True


async def open_producer(connection: Connection, request: CommandProducer) -> bytes:
    """Open a registered producer. For a producer that must wait, this is the first of two responses. Raises the error for the answer."""
    context = connection.context
    producer = connection.producers.get(request.producer_id)
    if producer is None or producer.request is not request:
        raise Refused("ServiceNotReady", "the producer was closed before it was open")
    try:
        topic = await context.topics.resolve(connection.who, request.topic, Operation.WRITE)
        _check_initial_subscription(connection, request, topic.view.name)
        if topic.view.stream.is_terminated:
            raise Refused("TopicTerminatedError", f"topic {topic.name} is terminated")
        if topic.view.rules.is_imported:  # an error for each message would make clients connect again and again
            raise Importing(topic.view.name)
        schema = request.schema if request.HasField("schema") else None
        producer.schema_version = await context.schemas.for_producer(connection.who, topic, schema)
        is_alone = request.producer_access_mode != Shared
        shared_epoch = None if is_alone else await context.access.share_elsewhere(topic.partition)
        _check_open(producer)
        # No await between here and the claim, so that no other task can interleave.
        producer.named(topic, request.producer_name or context.new_producer_name())
        if not is_alone:
            context.access.share(topic.partition)
        elif not context.access.claim(producer, request.producer_access_mode, context.others(producer)):
            return _waits(producer)
        await _open(connection, producer, shared_epoch)
    except BaseException:
        producer.abandoned()
        raise
    return _opened(producer, request)


async def _open(connection: Connection, producer: Producer, shared_epoch: int | None) -> None:
    """Read the producer's state from the metadata store and open it.

    `shared_epoch` is the partition's epoch for a shared producer; None for an exclusive producer. Raises the error for the answer.
    """
    context, request = connection.context, producer.request
    topic_epoch: int | None = None
    if shared_epoch is None:
        known_epoch = request.topic_epoch if request.HasField("topic_epoch") else None
        topic_epoch = await context.access.enter(producer, known_epoch)
    stored: NamedProducer | None = None
    is_deduplicated = producer.topic.view.stream.configs.get(DEDUPLICATION, "true").lower() == "true"
    # An exclusive producer always needs a stored name: commits fence it by that name.
    if is_deduplicated or topic_epoch is not None:
        name = producer.stored_name if is_deduplicated else producer.fenced_name
        stored = await context.streams.metadata.producers.named(producer.partition, name)
        context.streams.seen.advance(stored.floor)
    if request.initial_subscription_name:
        cursors = context.streams.metadata.cursors
        await create_cursor(cursors, producer.partition, request.initial_subscription_name, EARLIEST, {})
    _check_open(producer)
    # Use this epoch, not the one stored with the name: if the epoch was raised since, this producer must be fenced.
    epoch = topic_epoch if shared_epoch is None else shared_epoch
    if stored is not None and epoch is not None:
        stored = stored._replace(partition_epoch=epoch)
    producer.opened(stored, topic_epoch, is_deduplicated=is_deduplicated)


async def _open_when_granted(connection: Connection, producer: Producer) -> None:
    """Open a producer that waited for exclusive access. Its client may have lost its rights since."""
    request, stream = producer.request, producer.topic.view.name
    try:
        require(connection.context.streams.authorizer, connection.who, Operation.WRITE, Resource.STREAM, stream)
        _check_initial_subscription(connection, request, stream)
        await _open(connection, producer, None)
    except BearlakeError as error:
        producer.abandoned()
        connection.refuse(request.request_id, error)
    else:
        connection.send(_opened(producer, request))


def _check_initial_subscription(connection: Connection, request: CommandProducer, stream: str) -> None:
    """Raise `Denied` if the producer creates a subscription that its client may not read: as in Pulsar, only readers create them."""
    if request.initial_subscription_name:
        require(connection.context.streams.authorizer, connection.who, Operation.READ, Resource.STREAM, stream)


def _check_open(producer: Producer) -> None:
    """Raise `Refused` if the producer was closed while it was being opened."""
    if producer.state is State.CLOSED:
        raise Refused("ServiceNotReady", "the producer was closed before it was open")


def send(connection: Connection, command: CommandSend, message: memoryview, prepared: Prepared | None) -> None:
    """Handle SEND; `prepared` is the converted message, or None.

    Drops a SEND to a producer that is no longer open: its client learns of the close.
    """
    producer = connection.producers.get(command.producer_id)
    if producer is not None and producer.state is State.OPEN:
        producer.take(command, message, prepared)


def send_parsed(connection: Connection, parsed: Sequence[SendEntry]) -> None:
    """Handle SENDs that the kernel has parsed, in order."""
    for producer_id, entries in groupby(parsed, itemgetter(0)):
        producer = connection.producers.get(producer_id)
        if producer is not None and producer.state is State.OPEN:
            producer.take_parsed(list(entries))


def close(connection: Connection, request: CommandCloseProducer) -> None:
    """Handle CLOSE_PRODUCER."""
    producer = connection.producers.get(request.producer_id)
    if producer is None or producer.state is State.OPENING:
        if producer is not None:
            producer.abandoned()
        connection.send(commands.success(request.request_id))
    else:
        producer.close(request.request_id)


def _opened(producer: Producer, request: CommandProducer) -> bytes:
    client_version = producer.connection.client_version
    last_sequence_id, topic_epoch = producer.last_sequence_id, producer.topic_epoch
    if producer.is_deduplicated:
        last_sequence_id = renumbering.returned_sequence_id(client_version, request, last_sequence_id)
        if topic_epoch is None and renumbering.renumbers(client_version):
            topic_epoch = renumbering.OPENED
    body = CommandProducerSuccess(
        request_id=request.request_id,
        producer_name=producer.name,
        last_sequence_id=last_sequence_id,
        schema_version=producer.schema_version,
        topic_epoch=topic_epoch,
        producer_ready=True,
    )
    return commands.frame("producer_success", body)


def _waits(producer: Producer) -> bytes:
    body = CommandProducerSuccess(
        request_id=producer.request.request_id,
        producer_name=producer.name,
        last_sequence_id=-1,
        schema_version=producer.schema_version,
        producer_ready=False,
    )
    return commands.frame("producer_success", body)
