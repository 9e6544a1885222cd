"""Random events, on all four types, against a model: a set of acknowledged offsets, and the holder of each entry."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from bearlake.streams.subscriptions.consumers import AttachedConsumer
from bearlake.streams.subscriptions.dispatcher import Dispatcher, acknowledged_spans
from bearlake.streams.subscriptions.model import Delivery, EntryAck, SubscriptionType
from bearlake.streams.subscriptions.single import SingleActive
from fixtures.subscription_machines import SETTINGS, FakeConsumer, FakeLog, feed, join, machine_of

SMALL = replace(
    SETTINGS,
    burst_entry_count_max=3,
    unacknowledged_per_consumer_max=12,
    unacknowledged_per_subscription_max=25,
    range_count_max=6,
    held_entry_count_max=5,
    delayed_entry_count_max=4,
    known_entry_count_max=1_000,
)
SHARED_TYPES = (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)

appended = st.tuples(
    st.integers(1, 4), st.sampled_from([b"", b"a", b"b", b"c", b"d"]), st.sampled_from([0, 0, 0, 1, 2]), st.booleans()
)
events = st.one_of(
    st.tuples(st.just("append"), st.lists(appended, min_size=1, max_size=6)),
    st.tuples(st.just("join"), st.integers(0, 1)),
    st.tuples(st.just("leave"), st.integers(0, 3)),
    st.tuples(st.just("flow"), st.integers(0, 3), st.integers(1, 9)),
    st.tuples(st.just("stick"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("ack"), st.integers(0, 3), st.integers(0, 30), st.integers(0, 15)),
    st.tuples(st.just("redeliver"), st.integers(0, 3), st.integers(0, 30)),
    st.tuples(st.just("redeliver all"), st.integers(0, 3)),
    st.tuples(st.just("trim"), st.integers(0, 20)),
    st.tuples(st.just("time")),
)


class Checked(FakeConsumer):
    """A consumer that shares the run's model, and checks each delivery against it."""

    def __init__(self, run: "Run") -> None:
        super().__init__()
        self.run = run
        self.has: dict[int, Delivery] = {}
        self.permits = 0

    def deliver(self, deliveries: list[Delivery]) -> int:  # type: ignore[override]
        for delivery in deliveries:
            self.run.check(self, delivery)
            self.has[delivery.base_offset] = delivery
            self.permits -= delivery.open_count
        return super().deliver(deliveries)


class Run:
    """A dispatcher, its log, and the model."""

    def __init__(self, type_: SubscriptionType) -> None:
        self.log = FakeLog()
        self.machine: Dispatcher = machine_of(type_, self.log, settings=SMALL)
        self.consumers: list[tuple[AttachedConsumer, Checked]] = []
        self.acknowledged: set[int] = set()
        self.trimmed = 0
        """The log was trimmed below this offset."""
        self.has_nacked = False
        self.now_ms = 0
        self.joined = 0

    # -- the model -----------------------------------------------------------------------------------------------

    def check(self, who: Checked, delivery: Delivery) -> None:
        """Check that each delivery is allowed."""
        base, end = delivery.base_offset, delivery.base_offset + delivery.record_count
        entry = self.log.at(base)
        known = {offset for span in delivery.acknowledged for offset in range(*span)}
        assert known == self.acknowledged & set(range(base, end)), "acknowledged offsets are reported in the delivery"
        assert len(known) < delivery.record_count, "nothing acknowledged is delivered again"
        assert not entry.is_void
        assert who.permits > 0, "no delivery without permits"
        assert not who.is_stuck
        if self.machine.type not in SHARED_TYPES:
            return
        assert entry.traits.deliver_at_ms <= self.now_ms, "no delivery before its time"
        assert not any(base in other.has for _, other in self.consumers), "an entry is with one consumer at a time"
        if self.machine.type is SubscriptionType.KEY_SHARED and entry.traits.ordering_key:
            for earlier in self.log.entries:
                is_same = earlier.traits.ordering_key == entry.traits.ordering_key and not earlier.is_void
                if is_same and not set(range(earlier.base, earlier.end)) <= self.acknowledged:
                    holders = [other for _, other in self.consumers if earlier.base in other.has]
                    assert all(other is who for other in holders), "a key's entries are with one consumer at a time"
                    is_delayed = earlier.traits.deliver_at_ms > 0 or entry.traits.deliver_at_ms > 0
                    if earlier.base < base and not self.has_nacked and not is_delayed:
                        assert holders, "entries of a key are in order"

    def acknowledge(self, base: int, end: int, open_bits: int) -> None:
        for span in acknowledged_spans(base, end, open_bits):
            self.acknowledged |= set(range(*span))
        if self.acknowledged >= set(range(base, end)):
            for _, consumer in self.consumers:
                consumer.has.pop(base, None)

    def check_cursor(self) -> None:
        void = {offset for entry in self.log.entries if entry.is_void for offset in range(entry.base, entry.end)}
        mark = self.machine.cursor.mark_delete
        above = {offset for span in self.machine.cursor.ranges for offset in range(*span)}
        assert set(range(mark)) | above <= self.acknowledged | void, "only acknowledged offsets count as acknowledged"
        assert self.acknowledged <= set(range(mark)) | above, "whatever was acknowledged is"
        if self.machine.type in SHARED_TYPES:
            for attached, consumer in self.consumers:
                open_count = sum(
                    len(set(range(base, base + has.record_count)) - self.acknowledged)
                    for base, has in consumer.has.items()
                )
                assert attached.unacknowledged == open_count
            assert self.machine.unacknowledged <= SMALL.unacknowledged_per_subscription_max + 3
            assert self.machine.delayed_count <= SMALL.delayed_entry_count_max + 3

    # -- events --------------------------------------------------------------------------------------------------

    def happen(self, event: tuple) -> None:  # type: ignore[type-arg]
        kind, *details = event
        if kind == "append":
            for count, key, delay, is_void in details[0]:
                self.log.append(
                    count,
                    is_void=is_void and delay == 1,
                    ordering_key=key,
                    deliver_at_ms=self.now_ms + delay if delay else 0,
                )
        elif kind == "join":
            self.join(details[0])
        elif kind == "trim":
            self.trim(details[0])
        elif kind == "time":
            self.now_ms += 1
        elif self.consumers:
            self.happen_to(kind, *self.consumers[details[0] % len(self.consumers)], *details[1:])
        self.feed()

    def feed(self) -> None:
        if isinstance(self.machine, SingleActive):
            self.machine.end_handover()
        feed(self.machine, self.log, now_ms=self.now_ms)
        self.check_cursor()

    def join(self, priority: int) -> None:
        if self.machine.type is SubscriptionType.EXCLUSIVE and self.consumers:
            return
        self.joined += 1
        consumer = Checked(self)
        attached, _ = join(self.machine, f"consumer-{self.joined}", sink=consumer, priority=priority)
        self.consumers.append((attached, consumer))

    def trim(self, count: int) -> None:
        start = self.trimmed = min(self.machine.cursor.mark_delete + count, self.log.end)
        self.acknowledged |= set(range(start))
        for _, consumer in self.consumers:
            consumer.has = {
                base: has
                for base, has in consumer.has.items()
                if not set(range(base, base + has.record_count)) <= self.acknowledged
            }
        self.machine.cursor.acknowledge_before(start)
        self.machine.moved()

    def happen_to(self, kind: str, attached: AttachedConsumer, consumer: Checked, *details: int) -> None:
        if kind == "leave":
            self.consumers.remove((attached, consumer))
            self.machine.remove(attached)
        elif kind == "flow":
            consumer.permits += details[0]
            self.machine.flow(attached, details[0])
        elif kind == "stick":
            consumer.is_stuck = bool(details[0])
        elif kind == "redeliver all":
            self.has_nacked = True
            consumer.has.clear()
            self.machine.redeliver_all(attached)
        elif consumer.deliveries:
            delivery = consumer.deliveries[details[0] % len(consumer.deliveries)]
            if kind == "redeliver":
                self.has_nacked = True
                if self.machine.type in SHARED_TYPES:
                    consumer.has.pop(delivery.base_offset, None)
                self.machine.redeliver(attached, [delivery.base_offset])
            else:
                open_bits = details[1] & (1 << delivery.record_count) - 1
                is_known = self.machine.acknowledge(attached, EntryAck(delivery.base_offset, open_bits))
                assert (
                    is_known or delivery.base_offset + delivery.record_count <= self.trimmed
                )  # a look-up that finds nothing does no harm
                self.acknowledge(delivery.base_offset, delivery.base_offset + delivery.record_count, open_bits)

    def finish(self) -> None:
        """Let all consumers work and acknowledge everything: nothing must remain."""
        self.now_ms += 10
        self.join(0)
        for _ in range(1_000):
            for attached, consumer in self.consumers:
                consumer.is_stuck = False
                consumer.permits += 5
                self.machine.flow(attached, 5)
            self.feed()
            for attached, consumer in self.consumers:
                for delivery in consumer.deliveries:
                    base, end = delivery.base_offset, delivery.base_offset + delivery.record_count
                    self.machine.acknowledge(attached, EntryAck(base))
                    self.acknowledge(base, end, 0)
            self.check_cursor()
            if self.machine.cursor.mark_delete == self.log.end:
                return
        raise AssertionError(f"{self.machine.cursor.mark_delete} of {self.log.end}: something is never delivered")


@given(st.sampled_from(list(SubscriptionType)), st.lists(events, max_size=40))
@settings(max_examples=400, deadline=None)
def test_any_mix_of_events_loses_nothing_and_delivers_nothing_to_two_consumers_at_once(
    type_: SubscriptionType,
    happened: list[tuple],  # type: ignore[type-arg]
) -> None:
    run = Run(type_)
    run.join(0)
    for event in happened:
        run.happen(event)
    run.finish()
