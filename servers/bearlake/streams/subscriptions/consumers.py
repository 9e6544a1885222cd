"""The dispatcher's view of a consumer (`AttachedConsumer`) and of an entry that was read (`StoredEntry`)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from bearlake.streams.subscriptions.model import ConsumerSpec, ConsumerStats, Delivery, EntryTraits
from bearlake.telemetry import metrics

if TYPE_CHECKING:
    from bearlake.streams.subscriptions import Consumer


_FIRST = metrics.SUBSCRIPTION_MESSAGES.labels("first")
_AGAIN = metrics.SUBSCRIPTION_MESSAGES.labels("again")


class StoredEntry(NamedTuple):
    """A record batch that was read: offsets `[base, end)`. `batch` is None without records for consumers (control batch, gap).

    `traits` is None if they were not read, because the dispatcher does not need them.
    """

    base: int
    end: int
    batch: memoryview | None
    traits: EntryTraits | None = None


class AttachedConsumer:
    """A consumer of a subscription, for the dispatcher."""

    __slots__ = (
        "acknowledged_count",
        "delivered_bytes",
        "delivered_message_count",
        "has_dropped",
        "has_flowed",
        "is_blocked",
        "is_ready",
        "notified_active",
        "notified_end",
        "permits",
        "redelivered_message_count",
        "sink",
        "spec",
        "unacknowledged",
    )

    def __init__(self, spec: ConsumerSpec, sink: "Consumer") -> None:
        self.spec = spec
        self.sink = sink
        self.permits = 0
        self.has_flowed = False
        self.has_dropped = False
        """Whether an accepted acknowledgement of this consumer was dropped because its subscription stopped reading."""
        self.is_ready = True
        """The sink's readiness in this round."""
        self.unacknowledged = 0
        """Offsets delivered to this consumer and not acknowledged (Shared, Key_Shared)."""
        self.is_blocked = False
        """Whether too many offsets are unacknowledged; stays True until half of the limit is acknowledged."""
        self.notified_active: bool | None = None
        self.notified_end = False
        self.delivered_message_count = self.delivered_bytes = 0
        self.redelivered_message_count = self.acknowledged_count = 0

    @property
    def can_take(self) -> bool:
        """Whether the consumer may get an entry now."""
        return self.permits > 0 and self.is_ready and not self.is_blocked

    def allow(self, permits: int) -> None:
        """Grant more permits."""
        self.permits += permits
        self.has_flowed = True

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Pass the entries to the consumer.

        The caller has already deducted their open offsets from the permits; this corrects the permits to the consumer's count.
        """
        expected = again = 0
        for delivery in deliveries:
            expected += delivery.open_count
            if delivery.redelivery_count:
                again += delivery.open_count
        count = self.sink.deliver(deliveries)
        self.permits += expected - count
        self.delivered_message_count += count
        size = sum([len(delivery.batch) for delivery in deliveries])
        self.delivered_bytes += size
        metrics.FETCH_BYTES.value += size
        self.redelivered_message_count += again
        _AGAIN.value += again
        _FIRST.value += expected - again

    def give_back(self, permits: int) -> None:
        """Correct what `deliver` counted: the consumer used so many permits fewer (negative: more)."""
        self.permits += permits
        self.delivered_message_count -= permits

    def stats(self, *, is_active: bool, slot_ranges: Sequence[tuple[int, int]] = ()) -> ConsumerStats:
        """Return the consumer's statistics."""
        return ConsumerStats(
            name=self.spec.name,
            priority=self.spec.priority,
            is_active=is_active,
            permits=self.permits,
            unacknowledged_count=self.unacknowledged,
            is_blocked=self.is_blocked,
            delivered_message_count=self.delivered_message_count,
            delivered_bytes=self.delivered_bytes,
            redelivered_message_count=self.redelivered_message_count,
            acknowledged_count=self.acknowledged_count,
            slot_ranges=slot_ranges,
            metadata=self.spec.metadata,
            origin=self.spec.origin,
        )
