"""The commands of consumers: SUBSCRIBE, FLOW, ACK, REDELIVER, SEEK, UNSUBSCRIBE, CLOSE_CONSUMER, CONSUMER_STATS.

A consumer exists from the response to SUBSCRIBE until either side closes it. As in Pulsar, the server ignores FLOW, ACK and REDELIVER for
a closed or unknown consumer: the client may have sent them before it learned of the close. An ACK with a request id gets an error.
SUBSCRIBE needs the right to read the topic, and so does every later command that uses the consumer: rules may have changed since.
"""

import asyncio
from collections.abc import Sequence

from bearlake.errors import BearlakeError, Corrupt, Denied
from bearlake.protocols.pulsar import commands, message_ids
from bearlake.protocols.pulsar.connection import Connection
from bearlake.protocols.pulsar.consumers import Consumer
from bearlake.protocols.pulsar.context import PulsarContext
from bearlake.protocols.pulsar.errors import NO_TRANSACTIONS, Refused, count_error, error_of
from bearlake.protocols.pulsar.proto.commands_pb2 import (
    STICKY,
    CommandAck,
    CommandAckResponse,
    CommandCloseConsumer,
    CommandConsumerStats,
    CommandConsumerStatsResponse,
    CommandFlow,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandSubscribe,
    CommandUnsubscribe,
    MessageIdData,
)
from bearlake.protocols.pulsar.topics import Topic
from bearlake.streams.offsets import OffsetQuestion, OffsetSpec
from bearlake.streams.principal import Operation
from bearlake.streams.subscriptions import Attachment
from bearlake.streams.subscriptions.model import EARLIEST, LATEST, ConsumerSpec, SubscriptionType

_TIME_MAX = (1 << 63) - 1
_WORDS_PER_ID = 10
"""Words of `ack_set` (64 messages each) per message id, on average, that one command may have."""


def begin(connection: Connection, request: CommandSubscribe) -> bool:
    """Handle SUBSCRIBE before the next command is read: register the consumer, so that a close finds it. Raises the answer's error."""
    known = connection.consumers.get(request.consumer_id)
    if known is not None:
        if known.attachment is None:
            raise Refused("ServiceNotReady", "the consumer is being attached on this connection")
        connection.send(commands.success(request.request_id))  # a repeated request
        return False
    if connection.context.is_draining:
        raise Refused("ServiceNotReady", "this server is draining: look the topic up again")
    connection.check_room()
    context = connection.context
    connection.consumers[request.consumer_id] = Consumer(
        connection, request, context.streams, context.settings, context.opener
    )
    return True


async def subscribe(connection: Connection, request: CommandSubscribe) -> None:
    """Attach a registered consumer. Raises the error for the answer."""
    consumer = connection.consumers.get(request.consumer_id)
    if consumer is None or consumer.request is not request:
        raise Refused("ServiceNotReady", "the consumer was closed before it was attached")
    consumer.task = asyncio.current_task()
    context = connection.context
    try:
        topic = await context.topics.resolve(
            connection.who, request.topic, Operation.READ, may_create=request.force_topic_creation
        )
        schema = request.schema if request.HasField("schema") else None
        await context.schemas.for_consumer(connection.who, topic, schema)
        consumer.topic, consumer.partition = topic, topic.partition
        consumer.name = consumer.name or context.new_producer_name()
        spec = _spec(consumer, request, topic, await _position(context, request, topic))
        attachment = await context.subscriptions.attach(
            topic.partition, request.subscription, spec, consumer, context.entry_reader
        )
    except BaseException:
        if connection.consumers.get(consumer.id) is consumer:
            del connection.consumers[consumer.id]
        raise
    connection.send(commands.success(request.request_id))
    consumer.attached(attachment)


async def _position(context: PulsarContext, request: CommandSubscribe, topic: Topic) -> int:
    """The start position of a subscription that does not exist yet."""
    if request.start_message_rollback_duration_sec:
        since_ms = context.streams.clock.now_ms() - request.start_message_rollback_duration_sec * 1000
        # The end as of now, not LATEST: a message may arrive before the subscription exists.
        times = max(0, since_ms), int(OffsetSpec.LATEST)
        found, end = await context.streams.offsets([OffsetQuestion(topic.partition, time) for time in times])
        error = found.error or end.error
        if error is not None:
            raise error
        return found.offset if found.offset >= 0 else end.offset
    if request.HasField("start_message_id"):
        return message_ids.start_offset(request.start_message_id, topic.partition, is_whole=True)
    return EARLIEST if request.initial_position == CommandSubscribe.Earliest else LATEST


def _spec(consumer: Consumer, request: CommandSubscribe, topic: Topic, position: int) -> ConsumerSpec:
    shared = request.key_shared_meta
    is_sticky = shared.key_shared_mode == STICKY and consumer.type is SubscriptionType.KEY_SHARED
    if is_sticky and not shared.hash_ranges:
        raise Refused("ConsumerAssignError", "a sticky consumer needs ranges of hashes")
    return ConsumerSpec(
        type=consumer.type,
        name=consumer.name,
        is_durable=request.durable,
        position=position,
        priority=request.priority_level,
        partition_index=topic.index if topic.is_partitioned else -1,
        sticky_ranges=[(hash_range.start, hash_range.end + 1) for hash_range in shared.hash_ranges]
        if is_sticky
        else (),
        is_out_of_order_allowed=shared.allow_out_of_order_delivery,
        subscription_properties={pair.key: pair.value for pair in request.subscription_properties},
        metadata={pair.key: pair.value for pair in request.metadata},
        origin={
            "address": consumer.connection.peer,
            "connectedSince": consumer.since.isoformat(timespec="milliseconds"),
            "clientVersion": consumer.connection.client_version,
        },
    )


def flow(connection: Connection, request: CommandFlow) -> None:
    """Handle FLOW."""
    consumer = connection.consumers.get(request.consumer_id)
    if consumer is None or consumer.attachment is None or not request.message_permits:
        return
    if consumer.may_read():
        consumer.attachment.flow(request.message_permits)


def acknowledge(connection: Connection, request: CommandAck) -> None:
    """Handle ACK. If it has a request id, the server answers once the acknowledgements are saved. Raises `Corrupt`: it has too many ids."""
    _check_count(connection, request.message_id)
    consumer = connection.consumers.get(request.consumer_id)
    if request.txnid_least_bits or request.txnid_most_bits:
        _acknowledged(connection, request, Refused("NotAllowedError", NO_TRANSACTIONS))
    elif consumer is None or consumer.attachment is None:
        _acknowledged(
            connection, request, Refused("ConsumerNotFound", "the consumer is closed: nothing was acknowledged")
        )
    elif not consumer.may_read():
        _acknowledged(connection, request, _denied(consumer))
    else:
        try:
            consumer.acknowledge(request.message_id, is_cumulative=request.ack_type == CommandAck.Cumulative)
        except BearlakeError as error:
            _acknowledged(connection, request, error)
            return
        if request.HasField("request_id"):
            connection.start(_acknowledge_when_saved(connection, request, consumer.attachment))


def _check_count(connection: Connection, ids: Sequence[MessageIdData]) -> None:
    limit = connection.context.settings.message_ids_max
    if len(ids) > limit or sum(len(message_id.ack_set) for message_id in ids) > _WORDS_PER_ID * limit:
        raise Corrupt(f"{len(ids)} message ids in one command: expected at most {limit}")


async def _acknowledge_when_saved(connection: Connection, request: CommandAck, attachment: Attachment) -> None:
    try:
        await attachment.flushed()
    except BearlakeError as error:
        _acknowledged(connection, request, error)
    else:
        _acknowledged(connection, request, None)


def _acknowledged(connection: Connection, request: CommandAck, error: BearlakeError | None) -> None:
    if not request.HasField("request_id"):
        return
    body = CommandAckResponse(
        consumer_id=request.consumer_id,
        request_id=request.request_id,
        txnid_least_bits=request.txnid_least_bits or None,
        txnid_most_bits=request.txnid_most_bits or None,
    )
    if error is not None:
        number = error_of(error)
        count_error(number)
        body.error = number  # type: ignore[assignment]  # its number
        body.message = str(error)
    connection.send(commands.frame("ack_response", body))


def redeliver(connection: Connection, request: CommandRedeliverUnacknowledgedMessages) -> None:
    """Handle REDELIVER_UNACKNOWLEDGED_MESSAGES. Raises `Corrupt`: it has too many ids."""
    _check_count(connection, request.message_ids)
    consumer = connection.consumers.get(request.consumer_id)
    if consumer is not None and consumer.attachment is not None and consumer.may_read():
        epoch = request.consumer_epoch if request.HasField("consumer_epoch") else None
        consumer.redeliver(request.message_ids, epoch)


async def seek(connection: Connection, request: CommandSeek) -> bytes:
    """Handle SEEK: close the subscription's consumers, then answer; the clients then attach again. Raises the error for the answer."""
    consumer = attached(connection, request.consumer_id)
    assert consumer.attachment is not None
    if request.HasField("message_id"):
        offset = message_ids.start_offset(request.message_id, consumer.partition)
        await consumer.attachment.seek(offset)
    elif request.HasField("message_publish_time"):
        await consumer.attachment.seek_time(min(request.message_publish_time, _TIME_MAX))
    else:
        raise Refused("NotAllowedError", "SEEK needs a message id or a time")
    return commands.success(request.request_id)


async def unsubscribe(connection: Connection, request: CommandUnsubscribe) -> bytes:
    """Handle UNSUBSCRIBE: delete the subscription; with `force` even if other consumers use it. Raises the error for the answer."""
    consumer = attached(connection, request.consumer_id)
    assert consumer.attachment is not None
    name = f"{consumer.topic.name}:{consumer.subscription}"
    audit = connection.context.streams.audit
    with audit.change(connection.who, Operation.DELETE, "Subscription", name, "unsubscribe"):
        if request.force:
            subscriptions = connection.context.subscriptions
            await subscriptions.delete(consumer.partition, consumer.subscription, is_forced=True)
        else:
            await consumer.attachment.unsubscribe()
    consumer.close()
    return commands.success(request.request_id)


def close(connection: Connection, request: CommandCloseConsumer) -> None:
    """Handle CLOSE_CONSUMER."""
    consumer = connection.consumers.get(request.consumer_id)
    if consumer is not None:
        consumer.close()
    connection.send(commands.success(request.request_id))


async def stats(connection: Connection, request: CommandConsumerStats) -> bytes:
    """Handle CONSUMER_STATS. Raises the error for the answer."""
    consumer = attached(connection, request.consumer_id)
    body = consumer.stats(request.request_id)
    body.msg_backlog = await _backlog_count(connection.context, consumer)
    return commands.frame("consumer_stats_response", body)


async def _backlog_count(context: PulsarContext, consumer: Consumer) -> int:
    if consumer.is_durable:
        found = await context.subscriptions.stats(consumer.partition)
        return next(
            (subscription.backlog_count for subscription in found if subscription.name == consumer.subscription), 0
        )
    bounds = (await context.streams.bounds([consumer.partition])).get(consumer.partition)
    if bounds is None or consumer.attachment is None:
        return 0
    return max(0, bounds.last_stable - consumer.attachment.mark_delete)


def refuse_stats(request: CommandConsumerStats, number: int, message: str) -> bytes:
    """The response to a failed CONSUMER_STATS."""
    body = CommandConsumerStatsResponse(
        request_id=request.request_id,
        error_code=number,  # type: ignore[arg-type]  # its number
        error_message=message,
    )
    return commands.frame("consumer_stats_response", body)


def attached(connection: Connection, consumer_id: int) -> Consumer:
    """The consumer that a request uses. Raises `Refused` (ConsumerNotFound); `Denied`: the client may no longer read the topic."""
    consumer = connection.consumers.get(consumer_id)
    if consumer is None or consumer.attachment is None:
        raise Refused("ConsumerNotFound", f"the connection has no consumer {consumer_id}")
    if not consumer.may_read():
        raise _denied(consumer)
    return consumer


def _denied(consumer: Consumer) -> Denied:
    return Denied(f"{consumer.connection.who} may not {Operation.READ.value} topic {consumer.topic.name}")
