"""Subscriptions: consumers that share a partition, a durable cursor, and one dispatcher that tracks which consumer has which entry.

A protocol server attaches consumers and passes on their acknowledgements; the dispatcher pushes entries while consumers have permits. One
server at a time dispatches the durable subscriptions of a partition: it holds the lease `dispatch/<partition>`, and every write of a cursor
carries that lease. Non-durable subscriptions (readers) exist only in the memory of one server, which can be any server.

    protocol ── attach, flow, acknowledge, redeliver ──> Attachment ──> the subscription's machine ──> Consumer.deliver
                                                             └── cursor ──> saved in groups, fenced by the lease

Use everything here from the event loop's thread only. Methods that are not `async` never wait.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from bearlake.metadata.model import PartitionKey, ServerRef
from bearlake.streams.subscriptions.cleaned_batches import Part
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
    """A consumer, implemented by its protocol server. The event loop calls these methods; they return at once."""

    def deliver(self, deliveries: Sequence[Delivery]) -> int:
        """Send these entries, in order; returns how many permits they use (usually `Delivery.open_count` each).

        A consumer that sends some of them later counts `open_count` for them, is not ready until they are sent, and corrects the count
        with `Attachment.give_back`. Must not raise or call the attachment.
        """

    def is_ready(self) -> bool:
        """Whether the consumer can take more entries now. After False, it calls `Attachment.resume` when it can."""

    def activity(self, is_active: bool) -> None:
        """Failover: this consumer becomes active or standby. Called once after attaching, and at every change."""

    def end_of_topic(self) -> None:
        """The stream is terminated, and all its entries are delivered and acknowledged."""

    def closed(self, reason: Closed) -> None:
        """The attachment has ended: no more deliveries come, and calls on it have no effect. Not called after `detach`."""


class EntryReader(Protocol):
    """Extracts from an entry what the dispatcher must know; implemented by the protocol whose format the entry has."""

    def traits(self, batch: memoryview) -> EntryTraits | None:
        """Return the traits of a whole record batch; empty traits for an unknown format. Must not raise.

        None: that is too much work for this turn of the event loop; call `read`.
        """

    async def read(self, batch: memoryview) -> EntryTraits:
        """Return the traits, however much work it is; other tasks run meanwhile. Must not raise."""

    async def split(self, batch: memoryview, base: int, end: int, start: int) -> Sequence[Part]:
        """Return what is left of a batch of which records were removed, as `cleaned_batches.split` does. Raises `Corrupt`, `TooLarge`."""


class Attachment(Protocol):
    """A consumer attached to a subscription of one partition."""

    @property
    def mark_delete(self) -> int:
        """The subscription's mark-delete offset: all smaller offsets are acknowledged."""

    @property
    def is_active(self) -> bool:
        """Whether the consumer may get entries: False for a standby Failover consumer and after the attachment has ended."""

    def flow(self, permits: int) -> None:
        """Grant `permits` (>= 1) more messages. The dispatcher sends whole entries while at least one permit is left."""

    def give_back(self, permits: int) -> None:
        """Return permits that `Consumer.deliver` counted as used but were not; a negative number: more were used than it counted."""

    def resume(self) -> None:
        """Report that the consumer is ready again."""

    def acknowledge(self, acks: Sequence[EntryAck]) -> None:
        """Acknowledge entries or parts of entries, in any order; no-op for offsets that are acknowledged or trimmed already.

        Raises:
            Overloaded: too many acknowledgements are waiting for reads of their entries; some of `acks` were dropped.
            Unavailable: the consumer is closed, or its subscription no longer reads; some of `acks` were dropped.
        """

    def acknowledge_through(self, ack: EntryAck) -> None:
        """Acknowledge all earlier entries, and the entry itself according to `ack`.

        If no bits are open, `ack.base_offset` may be any offset of the entry. Raises `Invalid` in Shared and Key_Shared subscriptions, and
        as `acknowledge`.
        """

    def redeliver(self, base_offsets: Sequence[int]) -> None:
        """Negative acknowledgement: redeliver these entries to any consumer, with a higher redelivery count. Ignores unknown entries.

        Exclusive and Failover: as `redeliver_all`.
        """

    def redeliver_all(self) -> None:
        """Redeliver all entries that this consumer has not acknowledged. Exclusive and Failover: from the cursor on, same counts."""

    async def flushed(self) -> None:
        """Return when all acknowledgements accepted so far are saved (non-durable subscription: applied).

        Raises:
            Fenced: another server took the partition over before the save.
            Overloaded: the cursor has too many holes to be saved; the server keeps the acknowledgements in memory until it stops.
            Unavailable: the store did not answer in time, or acknowledged entries cannot be looked up; they may or may not be saved.
        """

    async def seek(self, offset: int) -> None:
        """Move the cursor so that delivery continues at `offset`. Inside an entry: at that entry, with its earlier offsets acknowledged.

        Accepts `EARLIEST` and `LATEST`; clamps other offsets to `[start, end]`. Calls `closed(RESET)` on all consumers of the subscription,
        including this one, before it returns. A non-durable subscription then waits a minute for a consumer to attach again.
        Raises as `flushed`.
        """

    async def seek_time(self, timestamp_ms: int) -> None:
        """`seek` to the first record at or after a time (ms since 1970); to the end if there is none. Raises as `flushed`."""

    async def unsubscribe(self) -> None:
        """Delete the subscription; this attachment ends without a call of `closed`.

        Raises:
            Busy: the subscription has other consumers.
            Fenced, Unavailable: as `flushed`.
        """

    def detach(self) -> None:
        """Remove the consumer; its unacknowledged entries go to other consumers, or to the next one that attaches. Idempotent."""

    def stats(self) -> ConsumerStats:
        """Return the consumer's statistics."""


class Subscriptions(Protocol):
    """All subscriptions, as one server sees them. The caller must check authorization first.

    Methods that change a durable subscription take the partition over if no live server holds it. They raise `NotHolder` if another server
    holds it, `NotFound` if there is no such partition or subscription, and `Fenced`, `Overloaded` and `Unavailable` as usual.
    """

    async def drain(self) -> None:
        """Save all acknowledgements, release all leases, then call `closed(MOVED)` on the consumers. Idempotent.

        From then on, calls that need a lease raise `NotHolder`.
        """

    async def attach(
        self, partition: PartitionKey, subscription: str, spec: ConsumerSpec, consumer: Consumer, reader: EntryReader
    ) -> Attachment:
        """Attach a consumer; creates the subscription if needed. Delivery starts after `Attachment.flow`.

        The subscription uses the `reader` of its first consumer as long as it has consumers.

        Raises:
            Busy, Overlap: the attached consumers exclude this one.
            NotHolder: another server dispatches this partition (durable subscriptions only).
            NotFound: no such partition.
            Invalid: the spec contradicts itself.
            Overloaded: this server has too many consumers or subscriptions, or the subscription too many consumers.
            Fenced: this server lost its registration.
            Unavailable: the store did not answer.
        """

    async def holder(self, partition: PartitionKey) -> ServerRef | None:
        """Read from the store which live server dispatches the partition; None if there is none. Raises `Unavailable`."""

    async def names(self, partition: PartitionKey) -> list[str]:
        """Return the names of the durable subscriptions, sorted; works on any server."""

    async def stats(self, partition: PartitionKey) -> list[SubscriptionStats]:
        """Return statistics of the partition's durable subscriptions and this server's non-durable ones, by name. Takes no lease.

        Raises `NotHolder` if another server dispatches the partition: only that server knows the consumers.
        """

    async def create(
        self, partition: PartitionKey, subscription: str, position: int, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create a durable subscription without consumers. Raises `AlreadyExists`."""

    async def merge(
        self,
        partition: PartitionKey,
        subscription: str,
        mark_delete: int,
        acknowledged: Sequence[tuple[int, int]],
        properties: Mapping[str, str],
    ) -> None:
        """Acknowledge all offsets below `mark_delete`, and the ranges `[start, end)`, in addition to what is acknowledged already.

        Creates the subscription, with these properties, if there is none. Raises `Busy` if it has consumers; as `Attachment.flushed`.
        """

    async def release(self, partition: PartitionKey) -> None:
        """Let other servers dispatch the partition, if this one does and has no consumers there; all cursors are saved before."""

    async def delete(self, partition: PartitionKey, subscription: str, *, is_forced: bool = False) -> None:
        """Delete a durable subscription. With consumers: raises `Busy`, or closes them (`UNSUBSCRIBED`) if `is_forced`."""

    async def seek(self, partition: PartitionKey, subscription: str, offset: int) -> None:
        """`Attachment.seek` for a subscription that may have no consumers."""

    async def seek_time(self, partition: PartitionKey, subscription: str, timestamp_ms: int) -> None:
        """`Attachment.seek_time` for a subscription that may have no consumers."""

    async def skip(self, partition: PartitionKey, subscription: str, count: int) -> None:
        """Acknowledge the first `count` (>= 1) unacknowledged offsets; consumers stay attached."""

    async def expire(self, partition: PartitionKey, subscription: str, before_ms: int) -> None:
        """Acknowledge all offsets before the first record at or after `before_ms` (ms since 1970); consumers stay attached."""
