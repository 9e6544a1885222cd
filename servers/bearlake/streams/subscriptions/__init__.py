"""Subscriptions: consumers that share a partition, a durable cursor, and one dispatcher that knows who has what.

A protocol server attaches consumers and gets entries pushed, as far as permits go; it hands back acknowledgements. One server at a
time dispatches the durable subscriptions of a partition: it holds the lease `dispatch/<partition>`, and every write of a cursor carries
that lease. Non-durable subscriptions (readers) live in the memory of any server.

    protocol ── attach, flow, acknowledge, redeliver ──> Attachment ──> the subscription's machine ──> Consumer.deliver
                                                             └── cursor ──> saved in groups, fenced by the lease

Everything here is used from the event loop's thread only; what is not `async` does not wait.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from bearlake.metadata.model import PartitionKey, ServerRef
from bearlake.streams.subscriptions.model import (
    Closed,
    ConsumerSpec,
    ConsumerStats,
    Delivery,
    EntryAck,
    EntryTraits,
    SubscriptionStats,
)


class Consumer(Protocol):
    """A consumer as its protocol server serves it. Its methods are called from the event loop and return at once."""

    def deliver(self, deliveries: Sequence[Delivery]) -> int:
        """Send these entries, in order; returns how many messages they count against the permits (`Delivery.open_count` each, as a
        rule). Must not raise, nor call the attachment.
        """

    def is_ready(self) -> bool:
        """Whether more may be sent now. Whoever says no calls `Attachment.resume` when it changes."""

    def activity(self, is_active: bool) -> None:
        """Failover: this consumer is active from now on, or stands by. Called once after attaching, and at every change."""

    def end_of_topic(self) -> None:
        """All entries were delivered and acknowledged, and no more will ever come: the stream is terminated."""

    def closed(self, reason: Closed) -> None:
        """The attachment is over: nothing is delivered any more, and what is called on it has no effect. Not called after `detach`."""


class EntryReader(Protocol):
    """Reads what a dispatcher must know of an entry; belongs to the protocol that gave the entry its form."""

    def traits(self, batch: memoryview) -> EntryTraits:
        """Traits of a whole record batch. Must not raise: what it does not understand has none."""


class Attachment(Protocol):
    """A consumer attached to a subscription of one partition."""

    @property
    def mark_delete(self) -> int:
        """The subscription's cursor: all offsets below are acknowledged."""

    @property
    def is_active(self) -> bool:
        """Whether entries may come: False for a Failover consumer that stands by, and after the end."""

    def flow(self, permits: int) -> None:
        """Allow `permits` (>= 1) more messages. An entry is sent whole when at least one is allowed."""

    def resume(self) -> None:
        """The consumer is ready again."""

    def acknowledge(self, acks: Sequence[EntryAck]) -> None:
        """Acknowledge entries or parts of them, in any order; what is acknowledged or gone already has no effect.

        Raises:
            Overloaded: too many acknowledgements of entries that this server did not read wait; some of these were dropped.
            Unavailable: the consumer is closed, or nothing is read for it any more; some of these were dropped.
        """

    def acknowledge_through(self, ack: EntryAck) -> None:
        """Acknowledge everything before the entry, and of the entry itself what `ack` says; `ack.base_offset` may be any of its offsets
        if no bits are open. Raises `Invalid` in Shared and Key_Shared subscriptions, and as `acknowledge`.
        """

    def redeliver(self, base_offsets: Sequence[int]) -> None:
        """Negative acknowledgement: deliver these entries again, to anybody, with their count raised. Unknown ones have no effect.

        Exclusive and Failover: as `redeliver_all`.
        """

    def redeliver_all(self) -> None:
        """Deliver again whatever this consumer has not acknowledged. Exclusive and Failover: from the cursor on, counts unchanged."""

    async def flushed(self) -> None:
        """Return when all acknowledgements taken so far are saved (of a non-durable subscription: applied).

        Raises:
            Fenced: the partition was taken over before.
            Overloaded: the cursor has too many holes to be saved; what was acknowledged is known until the server stops.
            Unavailable: the store did not answer in time, or acknowledged entries cannot be looked up; they may be saved or not.
        """

    async def seek(self, offset: int) -> None:
        """Move the cursor: entries are delivered from `offset` on (inside an entry: that entry, with what lies before acknowledged).

        `EARLIEST` and `LATEST` are offsets too; others are brought into `[start, end]`. All consumers of the subscription, this
        one too, are told `closed(RESET)` before this returns; a non-durable subscription waits a minute for the first that attaches again.
        Raises as `flushed`.
        """

    async def seek_time(self, timestamp_ms: int) -> None:
        """`seek` to the first record at or after a time (ms since 1970); to the end if there is none. Raises as `flushed`."""

    async def unsubscribe(self) -> None:
        """Delete the subscription; this attachment is over without a call of `closed`.

        Raises:
            Busy: it has other consumers.
            Fenced, Unavailable: as `flushed`.
        """

    def detach(self) -> None:
        """The consumer has gone: what it did not acknowledge goes to the others or to whoever comes next. Idempotent."""

    def stats(self) -> ConsumerStats:
        """What is shown of this consumer."""


class Subscriptions(Protocol):
    """All subscriptions, as one server sees them. The caller has asked for authorization.

    Methods that change a durable subscription take the partition over if nobody live has it, and raise `NotHolder` when another
    server has; `NotFound` when there is no such partition or subscription; `Fenced`, `Overloaded` and `Unavailable` as usual.
    """

    async def drain(self) -> None:
        """Give everything up: what is acknowledged is saved, leases are free, then consumers are told `closed(MOVED)`. Repeatable.

        From then on whatever would need a lease is `NotHolder`.
        """

    async def attach(
        self, partition: PartitionKey, subscription: str, spec: ConsumerSpec, consumer: Consumer, reader: EntryReader
    ) -> Attachment:
        """Attach a consumer; the subscription is created if it does not exist. Nothing is delivered before `Attachment.flow`.

        `reader` is the one of the subscription's first consumer while it has any.

        Raises:
            Busy, Overlap: its consumers forbid it.
            NotHolder: another server dispatches this partition (durable subscriptions only).
            NotFound: no such partition.
            Invalid: the spec contradicts itself.
            Overloaded: this server has too many consumers or subscriptions, or the subscription too many consumers.
            Fenced: this server lost its registration.
            Unavailable: the store did not answer.
        """

    async def holder(self, partition: PartitionKey) -> ServerRef | None:
        """The live server that dispatches the partition now, as of the store; None when nobody does. Raises `Unavailable`."""

    async def names(self, partition: PartitionKey) -> list[str]:
        """Names of the durable subscriptions, sorted; on any server."""

    async def stats(self, partition: PartitionKey) -> list[SubscriptionStats]:
        """All durable subscriptions of the partition and this server's non-durable ones, by name. Takes nothing over.

        Raises `NotHolder` when another server dispatches the partition: it alone knows the consumers.
        """

    async def create(
        self, partition: PartitionKey, subscription: str, position: int, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create a durable subscription without consumers. Raises `AlreadyExists`."""

    async def delete(self, partition: PartitionKey, subscription: str, *, is_forced: bool = False) -> None:
        """Delete a durable subscription; its consumers are told `closed(UNSUBSCRIBED)` if `is_forced`, else it is `Busy` with any."""

    async def seek(self, partition: PartitionKey, subscription: str, offset: int) -> None:
        """`Attachment.seek` for a subscription that may have no consumers."""

    async def seek_time(self, partition: PartitionKey, subscription: str, timestamp_ms: int) -> None:
        """`Attachment.seek_time` for a subscription that may have no consumers."""

    async def skip(self, partition: PartitionKey, subscription: str, count: int) -> None:
        """Acknowledge the first `count` (>= 1) offsets that are not acknowledged; consumers stay attached."""

    async def expire(self, partition: PartitionKey, subscription: str, before_ms: int) -> None:
        """Acknowledge all that lies before the first record of `before_ms` (ms since 1970) or later; consumers stay attached."""
