"""Exclusive and Failover: one active consumer gets all entries in order.

Failover ranks consumers by (priority, name); n consumers have the first priority:

| event | active before | active after | effect |
|---|---|---|---|
| the first consumer attaches | - | the first | it reads from the cursor |
| a higher-ranked consumer attaches | A | the new one | hand-over: no delivery until all of A's entries are acknowledged, or `handover_ms` |
| another consumer attaches or detaches | A | A | |
| the active one detaches | A | the next one | A's unacknowledged entries are read again, at once |
| the active one detaches during a hand-over from B | A | B, if it ranks next | B continues where it was |
| the former one detaches during a hand-over | A | A | its unacknowledged entries are read again, at once |

If clients see a partitioned stream, the consumer with rank i modulo n is active for partition i, so that consumers share the partitions.

Source: Apache Pulsar, "Failover"; activeConsumerFailoverDelayTimeMillis.
"""

from collections import deque
from collections.abc import Sequence

from typing_extensions import override

from bearlake.streams.subscriptions.consumers import AttachedConsumer, StoredEntry
from bearlake.streams.subscriptions.cursor import AckCursor
from bearlake.streams.subscriptions.dispatcher import Dispatcher, Read, Want
from bearlake.streams.subscriptions.extents import Extents
from bearlake.streams.subscriptions.model import Busy, Delivery, EntryAck, SubscriptionType
from bearlake.streams.subscriptions.settings import SubscriptionSettings


class SingleActive(Dispatcher):
    """A dispatcher with one active consumer. The caller times `handover_ms` and calls `end_handover`."""

    def __init__(self, type_: SubscriptionType, cursor: AckCursor, settings: SubscriptionSettings) -> None:
        super().__init__(type_, cursor, settings)
        self.active: AttachedConsumer | None = None
        self.is_handing_over = False
        """Whether the active consumer waits for acknowledgements of its predecessor."""
        self._former: AttachedConsumer | None = None
        """The active consumer before the last hand-over began."""
        self._ready: deque[StoredEntry] = deque()
        self._extents = Extents(settings.known_entry_count_max)

    @override
    def add(self, consumer: AttachedConsumer) -> None:
        if self.type is SubscriptionType.EXCLUSIVE and self.consumers:
            raise Busy("Exclusive consumer is already connected")
        self.consumers.append(consumer)
        self._choose()

    @override
    def remove(self, consumer: AttachedConsumer) -> None:
        self.consumers.remove(consumer)
        if consumer is not self.active:
            self._choose()
            if consumer is self._former:
                self.end_handover()
            return
        self.active = None
        is_back = self.is_handing_over  # if the former consumer becomes active again, it continues where it was
        self._choose()
        if not is_back or self.active is not self._former:
            self._rewind()
        self.is_handing_over = False

    def _choose(self) -> None:
        ranked = sorted(self.consumers, key=lambda consumer: (consumer.spec.priority, consumer.spec.name))
        first = [consumer for consumer in ranked if consumer.spec.priority == ranked[0].spec.priority]
        index = max(0, first[0].spec.partition_index) % len(first) if first else 0
        chosen = first[index] if first else None
        if chosen is self.active:
            return
        before, self.active = self.active, chosen
        if before is not None and not self.is_handing_over:
            if self._ready:
                self.read_offset = self._ready[0].base
                self._ready.clear()
            self.is_handing_over = True
            self._former = before
            self._end_handover_if_acknowledged()

    def end_handover(self) -> None:
        """End the hand-over after `handover_ms`: deliver the predecessor's unacknowledged entries to the active consumer."""
        if self.is_handing_over:
            self.is_handing_over = False
            self._rewind()

    def _end_handover_if_acknowledged(self) -> None:
        """End a hand-over once all delivered entries are acknowledged."""
        if self.is_handing_over and not self.cursor.open_count(self.cursor.mark_delete, self.read_offset):
            self.end_handover()

    def _rewind(self) -> None:
        self._ready.clear()
        self.read_offset = self.cursor.mark_delete

    @override
    def is_active(self, consumer: AttachedConsumer) -> bool:
        return consumer is self.active

    @override
    def want(self) -> Want:
        active = self.active
        if active is None or self._ready or self.is_handing_over or not active.can_take:
            return None
        return Read(self.read_offset) if self.may_read_on else None

    @override
    def offer(self, entries: Sequence[StoredEntry], now_ms: int) -> None:
        for entry in entries:
            self._extents.add(entry.base, entry.end)
            self.read_offset = entry.end
            if entry.batch is None:
                self.cursor.acknowledge(entry.base, entry.end)
            elif self.cursor.open_count(entry.base, entry.end):
                self._ready.append(entry)

    def offer_again(self, entries: Sequence[StoredEntry]) -> None:
        """Never called: this dispatcher returns no `ReadAgain`."""

    @override
    def dispatch(self, now_ms: int) -> None:
        self._notice_readiness()
        if self.type is SubscriptionType.FAILOVER:
            self._notify_active()
        active = self.active
        if active is None or self.is_handing_over:
            return
        deliveries = []
        while self._ready and active.can_take:
            base, end, batch, _ = self._ready.popleft()
            assert batch is not None
            open_count = self.cursor.open_count(base, end)
            if open_count:
                known = self.cursor.within(base, end) if open_count < end - base else ()
                active.permits -= open_count
                deliveries.append(Delivery(base, end - base, batch, 0, known))
        if deliveries:
            active.deliver(deliveries)

    def _notify_active(self) -> None:
        for consumer in self.consumers:
            is_active = consumer is self.active
            if consumer.has_flowed and consumer.notified_active is not is_active:
                consumer.notified_active = is_active
                consumer.sink.activity(is_active)

    @override
    def acknowledge(self, consumer: AttachedConsumer, ack: EntryAck, *, is_through: bool = False) -> bool:
        extent = self._extents.find(ack.base_offset)
        if extent is None:
            # Offsets below the mark-delete offset are acknowledged, but the entry may extend beyond it: its end decides.
            return self._extents.ends_by(ack.base_offset, self.cursor.mark_delete)
        self.acknowledge_read(consumer, ack, *extent, is_through=is_through)
        return True

    @override
    def acknowledge_run(self, consumer: AttachedConsumer, acks: Sequence[EntryAck], start: int) -> int:
        count, end = self._extents.run(acks, start)
        if count:
            consumer.acknowledged_count += self.cursor.acknowledge(acks[start].base_offset, end)
            self._acknowledged()
        return count

    @override
    def acknowledge_read(
        self, consumer: AttachedConsumer, ack: EntryAck, base: int, end: int, *, is_through: bool = False
    ) -> None:
        count = self.cursor.acknowledge_before(base) if is_through else 0
        if ack.base_offset == base or (is_through and not ack.open_bits):
            count += self._apply(base, end, ack.open_bits)
        consumer.acknowledged_count += count
        self._acknowledged()

    def _acknowledged(self) -> None:
        self._extents.forget_before(self.cursor.mark_delete)
        self._end_handover_if_acknowledged()

    def redeliver(self, consumer: AttachedConsumer, bases: Sequence[int]) -> None:
        """As `redeliver_all`, to keep the order."""
        self.redeliver_all(consumer)

    @override
    def redeliver_all(self, consumer: AttachedConsumer) -> None:
        if consumer is self.active and not self.is_handing_over:
            self._rewind()

    @override
    def moved(self) -> None:
        mark_delete = self.cursor.mark_delete
        while self._ready and self._ready[0].end <= mark_delete:
            self._ready.popleft()
        self.read_offset = max(self.read_offset, mark_delete)
        self._acknowledged()

    @property
    @override
    def has_given(self) -> bool:
        end = self._ready[0].base if self._ready else self.read_offset
        return self.cursor.open_count(self.cursor.mark_delete, end) > 0
