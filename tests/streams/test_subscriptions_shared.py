"""Shared and Key_Shared: the distribution of entries to consumers."""

from collections import Counter
from dataclasses import replace

import pytest

from bearlake.errors import Invalid
from bearlake.streams.subscriptions.model import SLOT_COUNT, EntryAck, Overlap, SubscriptionType
from bearlake.streams.subscriptions.slots import SplitSlots, StickySlots, murmur3_32, slot_of
from fixtures.subscription_machines import SETTINGS, FakeLog, feed, join, machine_of

SHARED, KEY_SHARED = SubscriptionType.SHARED, SubscriptionType.KEY_SHARED


def log_of(*keys: bytes) -> FakeLog:
    log = FakeLog()
    for key in keys:
        log.append(ordering_key=key)
    return log


def test_consumers_take_turns_in_bursts_that_get_shorter_when_little_is_left() -> None:
    log = log_of(*[b""] * 12)
    machine = machine_of(SHARED, log, settings=replace(SETTINGS, burst_entry_count_max=2))
    sinks = [join(machine, name, permits=100)[1] for name in "abc"]

    feed(machine, log, read_count=12)

    assert [sink.bases for sink in sinks] == [[0, 1, 6, 7, 10], [2, 3, 8, 11], [4, 5, 9]]


def test_few_entries_are_spread() -> None:
    log = log_of(b"", b"", b"")
    machine = machine_of(SHARED, log)
    sinks = [join(machine, name, permits=100)[1] for name in "abc"]

    feed(machine, log)

    assert [sink.bases for sink in sinks] == [[0], [1], [2]]


def test_a_smaller_priority_number_is_served_first() -> None:
    log = log_of(*[b""] * 6)
    machine = machine_of(SHARED, log)
    _, spare = join(machine, "spare", permits=100, priority=1)
    consumer, first = join(machine, "first", permits=2)
    feed(machine, log)
    assert (first.bases, spare.bases) == ([0, 1], [2, 3, 4, 5])

    for _ in range(2):
        log.append()
    machine.flow(consumer, 10)
    feed(machine, log)

    assert first.bases == [0, 1, 6, 7]


def test_redeliveries_precede_new_entries_and_count() -> None:
    log = log_of(b"", b"")
    machine = machine_of(SHARED, log)
    consumer, sink = join(machine, permits=2)
    feed(machine, log)
    log.append()

    machine.redeliver(consumer, [0, 7])
    machine.flow(consumer, 2)
    feed(machine, log)
    machine.redeliver_all(consumer)
    machine.flow(consumer, 10)
    feed(machine, log)

    told = [(delivery.base_offset, delivery.redelivery_count) for delivery in sink.deliveries]
    assert told == [(0, 0), (1, 0), (0, 1), (2, 0), (0, 2), (1, 1), (2, 1)]


def test_another_consumer_may_acknowledge_but_not_redeliver_what_somebody_has() -> None:
    log = log_of(b"", b"")
    machine = machine_of(SHARED, log)
    first_consumer, first = join(machine, "a", permits=10)
    feed(machine, log)
    second_consumer, second = join(machine, "b", permits=10)

    machine.redeliver(second_consumer, [0])
    machine.acknowledge(second_consumer, EntryAck(1))
    feed(machine, log)

    assert (first.bases, second.bases) == ([0, 1], [])
    assert (first_consumer.unacknowledged, first_consumer.acknowledged_count, second_consumer.acknowledged_count) == (
        1,
        0,
        1,
    )


def test_a_consumer_with_too_many_unacknowledged_messages_waits_for_half() -> None:
    log = log_of(*[b""] * 10)
    machine = machine_of(SHARED, log, settings=replace(SETTINGS, unacknowledged_per_consumer_max=4))
    consumer, sink = join(machine, permits=100)
    feed(machine, log)
    assert sink.bases == [0, 1, 2, 3]
    machine.acknowledge(consumer, EntryAck(0))
    feed(machine, log)
    assert len(sink.bases) == 4

    machine.acknowledge(consumer, EntryAck(1))
    feed(machine, log)

    assert sink.bases == [0, 1, 2, 3, 4, 5]


def test_chunks_of_a_message_stay_with_one_consumer() -> None:
    log = FakeLog()
    for number in range(6):
        log.append(chunk_of=b"big", is_last_chunk=number == 5)
        log.append()
    machine = machine_of(SHARED, log)
    sinks = [join(machine, name, permits=100)[1] for name in "abc"]

    feed(machine, log, read_count=20)

    chunks = [[base for base in sink.bases if base % 2 == 0] for sink in sinks]
    assert sorted(map(len, chunks)) == [0, 0, 6]
    assert sum(len(sink.bases) for sink in sinks) == 12


def test_chunks_wait_for_their_consumer_and_others_do_not() -> None:
    log = FakeLog()
    log.append(chunk_of=b"big", is_last_chunk=False)
    machine = machine_of(SHARED, log)
    consumer, first = join(machine, "a", permits=1)
    feed(machine, log)
    _, second = join(machine, "b", permits=10)
    log.append(chunk_of=b"big")
    log.append()
    feed(machine, log)
    assert (first.bases, second.bases) == ([0], [2])

    machine.flow(consumer, 1)
    feed(machine, log)

    assert first.bases == [0, 1]


def test_cumulative_acknowledgement_is_invalid_where_entries_are_shared() -> None:
    log = log_of(b"")
    machine = machine_of(SHARED, log)
    consumer, _ = join(machine, permits=1)
    feed(machine, log)

    with pytest.raises(Invalid):
        machine.acknowledge(consumer, EntryAck(0), is_through=True)


def test_an_entry_that_is_not_ready_is_not_delivered_to_a_consumer_that_takes_no_more() -> None:
    log = log_of(b"", b"")
    machine = machine_of(SHARED, log)
    _, stuck = join(machine, "a", permits=10)
    stuck.is_stuck = True
    _, other = join(machine, "b", permits=10)

    feed(machine, log)

    assert (stuck.bases, other.bases) == ([], [0, 1])


# -- Key_Shared --------------------------------------------------------------------------------------------------


def keys_of(machine_sink_log: FakeLog, bases: list[int]) -> list[bytes]:
    return [machine_sink_log.at(base).traits.ordering_key for base in bases]


def test_a_key_stays_with_one_consumer_and_keys_are_spread() -> None:
    log = log_of(*[b"key-%d" % (number % 40) for number in range(400)])
    machine = machine_of(KEY_SHARED, log)
    sinks = [join(machine, name, permits=1_000)[1] for name in "abcd"]

    feed(machine, log, read_count=50)

    owners = Counter(key for sink in sinks for key in set(keys_of(log, sink.bases)))
    assert set(owners.values()) == {1}
    assert len(owners) == 40
    assert all(sink.bases for sink in sinks)
    assert all(sink.bases == sorted(sink.bases) for sink in sinks)


def test_a_key_that_moves_waits_until_its_former_consumer_has_acknowledged() -> None:
    log = log_of(*[b"key-%d" % (number % 40) for number in range(40)])
    machine = machine_of(KEY_SHARED, log)
    consumer, first = join(machine, "a", permits=1_000)
    feed(machine, log)
    _, second = join(machine, "b", permits=1_000)
    for number in range(40):
        log.append(ordering_key=b"key-%d" % number)

    feed(machine, log)
    assert second.bases == []
    moved = 80 - len(first.bases)
    assert 5 < moved < 35

    for base in range(40):
        machine.acknowledge(consumer, EntryAck(base))
        feed(machine, log)

    assert len(second.bases) == moved
    assert set(keys_of(log, second.bases)).isdisjoint(keys_of(log, first.bases[40:]))


def test_entries_that_wait_for_their_keys_consumer_precede_entries_that_were_read_later() -> None:
    log = log_of(b"k", b"k", b"k")
    machine = machine_of(KEY_SHARED, log, settings=replace(SETTINGS, held_entry_count_max=1))
    consumer, sink = join(machine, permits=1)
    feed(machine, log)
    machine.redeliver(consumer, [0])

    machine.flow(consumer, 10)
    feed(machine, log)

    assert sink.bases == [0, 0, 1, 2]


def test_a_slow_consumer_does_not_hold_up_others_until_enough_wait() -> None:
    log = FakeLog()
    machine = machine_of(KEY_SHARED, log, settings=replace(SETTINGS, held_entry_count_max=5))
    slow, sleepy = join(machine, "slow", permits=1, sticky_ranges=[(0, SLOT_COUNT // 2)])
    _, quick = join(machine, "quick", permits=1_000, sticky_ranges=[(SLOT_COUNT // 2, SLOT_COUNT)])
    low = next(key for key in map(str.encode, map(str, range(99))) if slot_of(key) < SLOT_COUNT // 2)
    high = next(key for key in map(str.encode, map(str, range(99))) if slot_of(key) >= SLOT_COUNT // 2)
    for number in range(40):
        log.append(ordering_key=low if number % 2 else high)

    feed(machine, log)
    assert (len(sleepy.bases), len(quick.bases)) == (1, 7)
    assert machine.again_count == 5
    machine.flow(slow, 100)
    feed(machine, log)

    assert sleepy.bases == list(range(1, 40, 2))
    assert quick.bases == list(range(0, 40, 2))


def test_entries_of_a_leaving_consumer_go_to_others_in_order_with_their_counts() -> None:
    log = log_of(*[b"a", b"b", b"c"] * 4)
    machine = machine_of(KEY_SHARED, log)
    consumer, _ = join(machine, "one", permits=1_000)
    feed(machine, log)
    _, heir = join(machine, "heir", permits=1_000)

    machine.remove(consumer)
    feed(machine, log)

    for key in (b"a", b"b", b"c"):
        bases = [base for base in heir.bases if log.at(base).traits.ordering_key == key]
        assert bases == sorted(bases)
    assert sorted(heir.bases) == list(range(12))
    assert {delivery.redelivery_count for delivery in heir.deliveries} == {1}


def test_where_order_is_given_up_a_moved_key_does_not_wait() -> None:
    log = log_of(*[b"key-%d" % number for number in range(40)])
    machine = machine_of(KEY_SHARED, log)
    join(machine, "a", permits=1_000, is_out_of_order_allowed=True)
    feed(machine, log)
    _, second = join(machine, "b", permits=1_000, is_out_of_order_allowed=True)
    for number in range(40):
        log.append(ordering_key=b"key-%d" % number)

    feed(machine, log)

    assert second.bases
    with pytest.raises(Overlap):
        join(machine, "c")


def test_slots_without_an_owner_are_not_assigned() -> None:
    log = log_of(*[b"key-%d" % number for number in range(40)])
    machine = machine_of(KEY_SHARED, log)
    _, sink = join(machine, "a", permits=1_000, sticky_ranges=[(0, 30_000)])

    feed(machine, log)

    assert {slot_of(key) < 30_000 for key in keys_of(log, sink.bases)} == {True}
    assert len(sink.bases) == sum(slot_of(b"key-%d" % number) < 30_000 for number in range(40))


@pytest.mark.parametrize(
    "ranges", [[(0, 10)], [(5, 6)], [(9, 20)], [(20, 40), (0, 3)]], ids=["same", "inside", "border", "second"]
)
def test_sticky_ranges_that_somebody_has_are_refused(ranges: list[tuple[int, int]]) -> None:
    slots: StickySlots[str] = StickySlots()
    slots.add("one", "one", [(0, 10)])

    with pytest.raises(Overlap):
        slots.add("two", "two", ranges)

    assert slots.ranges("two") == []
    slots.add("two", "two", [(10, 20)])
    assert [slots.owner(slot) for slot in (0, 9, 10, 19, 20)] == ["one", "one", "two", "two", None]


@pytest.mark.parametrize("ranges", [[(5, 5)], [(-1, 3)], [(0, SLOT_COUNT + 1)], [(0, 10), (9, 12)]])
def test_malformed_sticky_ranges_are_invalid(ranges: list[tuple[int, int]]) -> None:
    with pytest.raises(Invalid):
        StickySlots[str]().add("one", "one", ranges)


def test_sticky_and_splitting_consumers_do_not_mix() -> None:
    with pytest.raises(Overlap):
        SplitSlots[str]().add("one", "one", [(0, 1)])
    with pytest.raises(Overlap):
        StickySlots[str]().add("one", "one", [])


def test_a_consumer_that_joins_or_leaves_moves_only_its_own_slots() -> None:
    slots: SplitSlots[str] = SplitSlots()
    for who in ("a", "b", "c", "c again"):
        slots.add(who, who[0])
    before = [slots.owner(slot) for slot in range(SLOT_COUNT)]

    slots.add("d", "d")
    after = [slots.owner(slot) for slot in range(SLOT_COUNT)]
    slots.remove("d")

    assert {new for old, new in zip(before, after, strict=True) if old != new} == {"d"}
    assert [slots.owner(slot) for slot in range(SLOT_COUNT)] == before
    shares = Counter(before)
    assert all(SLOT_COUNT / 4 * 0.6 < share < SLOT_COUNT / 4 * 1.4 for share in shares.values()), shares
    for who in shares:
        assert sum(end - start for start, end in slots.ranges(str(who))) == shares[who]


@pytest.mark.parametrize(
    ("key", "expected"),
    [(b"", 0), (b"a", 0x3C2569B2), (b"abc", 0xB3DD93FA), (b"hello", 0x248BFA47), (b"hello, world", 0x149BBB7F)],
)
def test_murmur3_is_the_published_one(key: bytes, expected: int) -> None:
    assert murmur3_32(key) == expected
