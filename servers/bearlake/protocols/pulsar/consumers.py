"""One consumer of a client, between its connection and its subscription: MESSAGE, ACTIVE_CONSUMER_CHANGE, CLOSE_CONSUMER, acknowledgements.

`streams/subscriptions/` implements subscriptions; this module translates between its calls and Pulsar's commands. `subscribing.py`
executes the commands that clients send.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Protocol

from bearlake import kernel
from bearlake.errors import BearlakeError
from bearlake.metadata.model import PartitionKey, partition_index, stream_number
from bearlake.protocols.pulsar import commands, entries, framing, message_ids
from bearlake.protocols.pulsar.proto.commands_pb2 import (
    BaseCommand,
    CommandActiveConsumerChange,
    CommandConsumerStatsResponse,
    CommandMessage,
    CommandReachedEndOfTopic,
    CommandSubscribe,
    MessageIdData,
)
from bearlake.protocols.pulsar.settings import PulsarSettings
from bearlake.protocols.pulsar.throttling import Throttling
from bearlake.protocols.pulsar.topics import Topic
from bearlake.streams.principal import Operation, Principal
from bearlake.streams.service import Streams
from bearlake.streams.subscriptions import Attachment
from bearlake.streams.subscriptions.model import Closed, Delivery, EntryAck, SubscriptionType
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

_MESSAGE = commands.NUMBERS["message"]
_ENTRY_MAX = (1 << 63) - 1
_JOINED_BYTES = 64 * 1024
"""Messages are joined up to this size (bytes). Larger buffers cost more, because the allocator returns them to the operating system."""


class Client(Protocol):
    """The client of a consumer: its connection."""

    consumers: "dict[int, Consumer]"
    who: Principal
    throttling: Throttling

    @property
    def peer(self) -> str:
        """`host:port` of the client."""

    @property
    def client_version(self) -> str:
        """`client_version` of the client's CONNECT."""

    @property
    def is_open(self) -> bool:
        """Whether frames can still be sent to the client."""

    @property
    def is_write_paused(self) -> bool:
        """Whether the client does not read what was sent."""

    def send(self, frame: bytes) -> None:
        """Send a frame."""

    def url_elsewhere(self, topic: str) -> str | None:
        """The URL of the server that takes over a topic's clients; None without another server."""


class Consumer:
    """A consumer of one connection; implements `streams.subscriptions.Consumer`."""

    def __init__(
        self, connection: Client, request: CommandSubscribe, streams: Streams, settings: PulsarSettings
    ) -> None:
        self.connection = connection
        self.request = request
        self.id = request.consumer_id
        self.name = request.consumer_name
        self.subscription = request.subscription
        self.is_durable = request.durable
        self.type = SubscriptionType(CommandSubscribe.SubType.Name(request.sub_type))
        self.topic: Topic
        self.partition: PartitionKey
        self.attachment: Attachment | None = None
        """None while the consumer is being attached."""
        self.since = datetime.now(UTC)
        self.task: asyncio.Task[None] | None = None
        """The task that attaches the consumer."""
        self._epoch = request.consumer_epoch if request.HasField("consumer_epoch") else None
        self._streams = streams
        self._settings = settings
        self._is_over = False

    # -- called by the subscription ------------------------------------------------------------------------------

    def deliver(self, deliveries: Sequence[Delivery]) -> int:
        """Send the messages to the client; returns their number."""
        partition = self.partition
        index = partition_index(partition) if self.topic.is_partitioned else -1
        names = (self.id, stream_number(partition), index, self._epoch)
        limit = framing.entry_bytes_max(self._settings.message_bytes_max)
        at = count = 0
        while at < len(deliveries):
            frames, message_count, end = kernel.encode_messages(deliveries, at, *names, limit, _JOINED_BYTES)
            if end > at:
                self.connection.send(frames)
                at, count = end, count + message_count
            else:
                count += self._deliver_one(deliveries[at], limit)
                at += 1
        self.connection.throttling.delivered(deliveries)
        return count

    def _deliver_one(self, delivery: Delivery, limit: int) -> int:
        """Deliver an entry that the kernel does not encode; returns its number of messages."""
        try:
            entry = entries.from_batch(
                delivery.batch,
                delivery.base_offset,
                message_bytes_max=limit,
                uncompressed_bytes_max=self._settings.uncompressed_bytes_max,
            )
        except BearlakeError as error:
            self._skip(delivery, error)
            return 0
        if not entry.message_count:
            self._skip(delivery, None)
            return 0
        self.connection.send(framing.message_frame(self._message(delivery, entry.is_batch), entry.headers_and_payload))
        return entry.message_count - (delivery.record_count - delivery.open_count)

    def is_ready(self) -> bool:
        """Whether the connection is open and accepts more bytes, the client may still read, and it owes nothing."""
        connection = self.connection
        if not self.may_read() or not connection.is_open or connection.is_write_paused:
            return False
        return connection.throttling.may_deliver()

    def activity(self, is_active: bool) -> None:
        """Tell a consumer of a Failover subscription whether it is the active one."""
        if self.type is SubscriptionType.FAILOVER:
            body = CommandActiveConsumerChange(consumer_id=self.id, is_active=is_active)
            self.connection.send(commands.frame("active_consumer_change", body))

    def end_of_topic(self) -> None:
        """Tell the client that it has reached the end of a terminated topic."""
        self.connection.send(commands.frame("reached_end_of_topic", CommandReachedEndOfTopic(consumer_id=self.id)))

    def closed(self, reason: Closed) -> None:
        """Close the consumer. The client subscribes again; after a move, at the server that the command names."""
        connection = self.connection
        url = connection.url_elsewhere(str(self.topic.name)) if reason is Closed.MOVED else None
        self._end()
        metrics.PULSAR_CONSUMERS_CLOSED.labels(reason.value).inc()
        connection.send(commands.close_consumer(self.id, url))

    # -- called by commands --------------------------------------------------------------------------------------

    def attached(self, attachment: Attachment) -> None:
        """Called after the client received the answer that the consumer is attached; deliveries start with `flow`."""
        self.attachment = attachment

    def may_read(self) -> bool:
        """Whether the client may still read the topic. If not, it loses this consumer, after the answer to its command."""
        if self._streams.may(self.connection.who, Operation.READ, self.topic.view.name):
            return True
        asyncio.get_running_loop().call_soon(self._deny)
        return False

    def acknowledge(self, ids: Sequence[MessageIdData], *, is_cumulative: bool) -> None:
        """Acknowledge entries, or messages in entries. Ignores ids of other incarnations and ids that name no entry.

        Raises the errors of `Attachment.acknowledge` and `acknowledge_through`.
        """
        attachment, ledger = self.attachment, stream_number(self.partition)
        if attachment is None:
            return
        acks = [
            EntryAck(message_id.entry_id, message_ids.bits(message_id.ack_set) if message_id.ack_set else 0)
            for message_id in ids
            if message_id.ledger_id == ledger and message_id.entry_id <= _ENTRY_MAX
        ]
        if not is_cumulative:
            attachment.acknowledge(acks)
            return
        for ack in acks:
            attachment.acknowledge_through(ack)

    def redeliver(self, ids: Sequence[MessageIdData], epoch: int | None) -> None:
        """Deliver these entries again; without ids, all unacknowledged entries. Later messages contain `epoch`."""
        if self.attachment is None:
            return
        if epoch is not None:
            self._epoch = epoch
        if ids:
            ledger = stream_number(self.partition)
            self.attachment.redeliver(
                [
                    message_id.entry_id
                    for message_id in ids
                    if message_id.ledger_id == ledger and message_id.entry_id <= _ENTRY_MAX
                ]
            )
        else:
            self.attachment.redeliver_all()

    def resume(self) -> None:
        """Continue deliveries: the client reads again."""
        if self.attachment is not None:
            self.attachment.resume()

    def close(self) -> None:
        """The client closes the consumer: its unacknowledged messages go to other consumers."""
        if self.attachment is not None:
            self.attachment.detach()
        elif self.task is not None:
            self.task.cancel()
        self._end()

    def disconnected(self) -> None:
        """The connection is lost."""
        self.close()

    def move(self) -> None:
        """Drain: move the client of a reader to another server."""
        if self.attachment is not None and not self._is_over:
            self.attachment.detach()
            self.closed(Closed.MOVED)

    def _deny(self) -> None:
        """Close the consumer: its client subscribes again, and learns that it may not."""
        if self.attachment is not None and not self._is_over:
            self.attachment.detach()
            self.closed(Closed.DENIED)

    def stats(self, request_id: int) -> CommandConsumerStatsResponse:
        """The response to CONSUMER_STATS. Rates are 0; metrics provide counts and rates over time."""
        assert self.attachment is not None
        found = self.attachment.stats()
        return CommandConsumerStatsResponse(
            request_id=request_id,
            consumer_name=found.name,
            available_permits=max(0, found.permits),
            unacked_messages=found.unacknowledged_count,
            blocked_consumer_on_unacked_msgs=found.is_blocked,
            address=self.connection.peer,
            connected_since=self.since.isoformat(timespec="milliseconds"),
            type=self.type.value,
        )

    # -- inside --------------------------------------------------------------------------------------------------

    def _message(self, delivery: Delivery, is_batch: bool) -> BaseCommand:
        body = CommandMessage(
            consumer_id=self.id,
            message_id=message_ids.entry_id(
                self.partition, delivery.base_offset, is_partitioned=self.topic.is_partitioned
            ),
            redelivery_count=delivery.redelivery_count or None,
            consumer_epoch=self._epoch,
        )
        if delivery.acknowledged and is_batch:
            body.ack_set.extend(message_ids.words(delivery.record_count, delivery.acknowledged, delivery.base_offset))
        return BaseCommand(type=_MESSAGE, message=body)

    def _skip(self, delivery: Delivery, error: BearlakeError | None) -> None:
        """Skip an entry without messages or an unreadable entry, so that it does not block later entries."""
        if error is not None:
            metrics.PULSAR_UNREADABLE_ENTRIES.inc()
            log.error(
                "cannot read an entry",
                extra={"partition": self.partition, "offset": delivery.base_offset, "error": error},
            )
        asyncio.get_running_loop().call_soon(self._acknowledge_skipped, delivery.base_offset)

    def _acknowledge_skipped(self, base_offset: int) -> None:
        if self.attachment is not None:
            with suppress(BearlakeError):  # the entry is delivered again, and skipped again
                self.attachment.acknowledge([EntryAck(base_offset)])

    def _end(self) -> None:
        self._is_over = True
        if self.connection.consumers.get(self.id) is self:
            del self.connection.consumers[self.id]
