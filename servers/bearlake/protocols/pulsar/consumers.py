"""One consumer of a client, between its connection and its subscription: MESSAGE, ACTIVE_CONSUMER_CHANGE, CLOSE_CONSUMER, acknowledgements.

`streams/subscriptions/` implements subscriptions; this module translates between its calls and Pulsar's commands. `subscribing.py`
executes the commands that clients send.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol

from bearlake.metadata.model import PartitionKey, stream_number
from bearlake.protocols.pulsar import commands, message_ids
from bearlake.protocols.pulsar.delivering import Delivering, Outlet
from bearlake.protocols.pulsar.opening import Opener
from bearlake.protocols.pulsar.proto.commands_pb2 import (
    CommandActiveConsumerChange,
    CommandConsumerStatsResponse,
    CommandReachedEndOfTopic,
    CommandSubscribe,
    MessageIdData,
)
from bearlake.protocols.pulsar.settings import PulsarSettings
from bearlake.protocols.pulsar.topics import Topic
from bearlake.streams.principal import Operation, Principal
from bearlake.streams.quotas.lines import Waiter
from bearlake.streams.service import Streams
from bearlake.streams.subscriptions import Attachment
from bearlake.streams.subscriptions.model import Closed, Delivery, EntryAck, SubscriptionType
from bearlake.telemetry import metrics

_ENTRY_MAX = (1 << 63) - 1


class Client(Outlet, Protocol):
    """The client of a consumer: its connection."""

    consumers: "dict[int, Consumer]"
    who: Principal

    @property
    def peer(self) -> str:
        """`host:port` of the client."""

    @property
    def client_version(self) -> str:
        """`client_version` of the client's CONNECT."""

    @property
    def is_open(self) -> bool:
        """Whether frames can still be sent to the client."""

    def url_elsewhere(self, topic: str) -> str | None:
        """The URL of the server that takes over a topic's clients; None without another server."""


class Consumer:
    """A consumer of one connection; implements `streams.subscriptions.Consumer`."""

    def __init__(
        self,
        connection: Client,
        request: CommandSubscribe,
        streams: Streams,
        settings: PulsarSettings,
        opener: Opener,
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
        self._streams = streams
        epoch = request.consumer_epoch if request.HasField("consumer_epoch") else None
        self._delivering = Delivering(self, opener, settings.message_bytes_max, epoch)
        self._is_over = False
        self._waiter = Waiter(self.resume)

    # -- called by the subscription ------------------------------------------------------------------------------

    def deliver(self, deliveries: Sequence[Delivery]) -> int:
        """Send the messages to the client; returns their number."""
        return self._delivering.deliver(deliveries)

    def is_ready(self) -> bool:
        """Whether the connection is open and accepts more bytes, the client may still read, owes nothing, and was sent all deliveries."""
        connection = self.connection
        if self._delivering.is_busy or not self.may_read() or not connection.is_open or connection.is_write_paused:
            return False
        return connection.throttling.may_deliver(self._waiter)

    def activity(self, is_active: bool) -> None:
        """Tell a consumer of a Failover subscription whether it is the active one."""
        if self.type is SubscriptionType.FAILOVER:
            body = CommandActiveConsumerChange(consumer_id=self.id, is_active=is_active)
            self._delivering.send(commands.frame("active_consumer_change", body))

    def end_of_topic(self) -> None:
        """Tell the client that it has reached the end of a terminated topic."""
        self._delivering.send(commands.frame("reached_end_of_topic", CommandReachedEndOfTopic(consumer_id=self.id)))

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
            self._delivering.epoch = epoch
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
        self._delivering.go_on()
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

    def _end(self) -> None:
        self._is_over = True
        self._waiter.leave()
        self._delivering.stop()
        if self.connection.consumers.get(self.id) is self:
            del self.connection.consumers[self.id]
