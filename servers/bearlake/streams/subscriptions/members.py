"""What a dispatcher knows of each consumer, and of each entry it reads."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from bearlake.streams.subscriptions.model import ConsumerSpec, ConsumerStats, Delivery
from bearlake.telemetry import metrics

if TYPE_CHECKING:
    from bearlake.streams.subscriptions import Consumer


_FIRST = metrics.SUBSCRIPTION_MESSAGES.labels("first")
_AGAIN = metrics.SUBSCRIPTION_MESSAGES.labels("again")


class StoredEntry(NamedTuple):
    """A record batch as it was read: offsets `[base, end)`. Without records for consumers (a control batch, a gap) `batch` is None."""

    base: int
    end: int
    batch: memoryview | None


class Member:
    """A consumer of a subscription, for the dispatcher."""

    __slots__ = (
        "acknowledged_count",
        "delivered_bytes",
        "delivered_message_count",
        "has_dropped",
        "has_flowed",
        "is_blocked",
        "is_ready",
        "permits",
        "redelivered_message_count",
        "sink",
        "spec",
        "told_active",
        "told_end",
        "unacknowledged",
    )

    def __init__(self, spec: ConsumerSpec, sink: "Consumer") -> None:
        self.spec = spec
        self.sink = sink
        self.permits = 0
        self.has_flowed = False
        self.has_dropped = False
        """Whether an acknowledgement of it was taken and then dropped, because nothing is read for the subscription any more."""
        self.is_ready = True
        """What the sink said in this round."""
        self.unacknowledged = 0
        """Offsets that it has and did not acknowledge (Shared, Key_Shared)."""
        self.is_blocked = False
        """Too many of them; until half are gone."""
        self.told_active: bool | None = None
        self.told_end = False
        self.delivered_message_count = self.delivered_bytes = 0
        self.redelivered_message_count = self.acknowledged_count = 0

    @property
    def can_take(self) -> bool:
        """Whether it may get an entry now."""
        return self.permits > 0 and self.is_ready and not self.is_blocked

    def allow(self, permits: int) -> None:
        """More permits."""
        self.permits += permits
        self.has_flowed = True

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Hand the entries to the consumer. Their open offsets were taken from the permits before; what it counts decides."""
        expected = again = 0
        for delivery in deliveries:
            expected += delivery.open_count
            if delivery.redelivery_count:
                again += delivery.open_count
        count = self.sink.deliver(deliveries)
        self.permits += expected - count
        self.delivered_message_count += count
        self.delivered_bytes += sum([len(delivery.batch) for delivery in deliveries])
        self.redelivered_message_count += again
        _AGAIN.value += again
        _FIRST.value += expected - again

    def stats(self, *, is_active: bool, slot_ranges: Sequence[tuple[int, int]] = ()) -> ConsumerStats:
        """What is shown of it."""
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
