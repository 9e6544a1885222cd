"""Exclusive and Failover: the table of `single.py`, row by row."""

from dataclasses import replace
from random import Random

import pytest

from bearlake.streams.subscriptions.model import Busy, EntryAck, SubscriptionType
from bearlake.streams.subscriptions.single import SingleActive
from bearlake.telemetry import metrics
from fixtures.subscription_machines import SETTINGS, FakeLog, feed, join, machine_of


def failover(log: FakeLog) -> SingleActive:
    machine = machine_of(SubscriptionType.FAILOVER, log)
    assert isinstance(machine, SingleActive)
    return machine


def log_of(count: int) -> FakeLog:
    log = FakeLog()
    for _ in range(count):
        log.append()
    return log


def test_a_second_exclusive_consumer_is_refused_and_nothing_changes() -> None:
    log = log_of(2)
    machine = machine_of(SubscriptionType.EXCLUSIVE, log)
    _, sink = join(machine, permits=10)

    with pytest.raises(Busy):
        join(machine, "two", permits=10)
    feed(machine, log)

    assert sink.bases == [0, 1]
    assert len(machine.consumers) == 1


@pytest.mark.parametrize(
    ("joining", "active"),
    [
        ([("b", 0)], "b"),
        ([("b", 0), ("a", 0)], "a"),
        ([("a", 0), ("b", 0)], "a"),
        ([("a", 1), ("b", 0)], "b"),
        ([("c", 0), ("a", 1), ("b", 0)], "b"),
    ],
)
def test_failover_is_active_by_priority_then_name(joining: list[tuple[str, int]], active: str) -> None:
    machine = failover(log_of(0))
    for name, priority in joining:
        join(machine, name, priority=priority)

    assert machine.active is not None
    assert machine.active.spec.name == active


@pytest.mark.parametrize(("index", "active"), [(-1, "a"), (0, "a"), (1, "b"), (2, "c"), (3, "a"), (7, "b")])
def test_partitions_of_a_stream_are_spread_over_its_consumers(index: int, active: str) -> None:
    machine = failover(log_of(0))
    for name in ("c", "a", "b"):
        join(machine, name, partition_index=index)
    join(machine, "spare", priority=1, partition_index=index)

    assert machine.active is not None
    assert machine.active.spec.name == active


def test_entries_that_a_consumer_gets_count_among_the_bytes_read() -> None:
    log = log_of(2)
    machine = machine_of(SubscriptionType.EXCLUSIVE, log)
    consumer, _ = join(machine, permits=10)
    before = metrics.FETCH_BYTES.value
    feed(machine, log)

    assert consumer.delivered_bytes > 0
    assert metrics.FETCH_BYTES.value - before == consumer.delivered_bytes


def test_when_the_active_consumer_leaves_the_next_one_gets_the_unacknowledged_entries() -> None:
    log = log_of(4)
    machine = failover(log)
    consumer, first = join(machine, "a", permits=10)
    _, second = join(machine, "b", permits=10)
    feed(machine, log)
    machine.acknowledge(consumer, EntryAck(1))

    machine.remove(consumer)
    feed(machine, log)

    assert first.bases == [0, 1, 2, 3]
    assert second.bases == [0, 2, 3]
    assert (first.activities, second.activities) == ([True], [False, True])


def test_a_consumer_with_precedence_waits_until_the_active_one_has_acknowledged_its_entries() -> None:
    log = log_of(2)
    machine = failover(log)
    consumer, first = join(machine, "b", permits=10)
    feed(machine, log)
    _, second = join(machine, "a", permits=10)
    log.append()
    machine.acknowledge(consumer, EntryAck(1))
    feed(machine, log)
    assert second.bases == []
    assert (first.activities, second.activities) == ([True, False], [True])

    machine.acknowledge(consumer, EntryAck(0))
    feed(machine, log)

    assert (first.bases, second.bases) == ([0, 1], [2])


def test_entries_that_were_read_but_not_delivered_to_the_former_consumer_do_not_delay_the_hand_over() -> None:
    log = log_of(3)
    machine = failover(log)
    consumer, first = join(machine, "b", permits=1)
    feed(machine, log)
    machine.acknowledge(consumer, EntryAck(0))

    _, second = join(machine, "a", permits=10)
    feed(machine, log)

    assert not machine.is_handing_over
    assert (first.bases, second.bases) == ([0], [1, 2])


def test_after_the_hand_over_time_the_next_consumer_gets_the_unacknowledged_entries() -> None:
    log = log_of(2)
    machine = failover(log)
    join(machine, "b", permits=10)
    feed(machine, log)
    _, second = join(machine, "a", permits=10)

    machine.end_handover()
    feed(machine, log)

    assert second.bases == [0, 1]


def test_a_former_consumer_that_becomes_active_again_during_the_hand_over_continues_where_it_was() -> None:
    log = log_of(2)
    machine = failover(log)
    _, first = join(machine, "b", permits=10)
    feed(machine, log)
    two, second = join(machine, "a", permits=10)
    machine.remove(two)
    log.append()
    feed(machine, log)

    assert (first.bases, second.bases) == ([0, 1, 2], [])
    assert not machine.is_handing_over


def test_a_former_consumer_that_leaves_during_the_hand_over_ends_it() -> None:
    log = log_of(2)
    machine = failover(log)
    consumer, _ = join(machine, "b", permits=10)
    feed(machine, log)
    _, second = join(machine, "a", permits=10)
    machine.remove(consumer)
    feed(machine, log)

    assert second.bases == [0, 1]


def test_no_consumer_is_notified_of_activity_before_its_permits() -> None:
    machine = failover(log_of(0))
    consumer, sink = join(machine, "a")
    feed(machine, FakeLog())
    assert sink.activities == []

    machine.flow(consumer, 1)
    feed(machine, FakeLog())
    feed(machine, FakeLog())

    assert sink.activities == [True]


def test_redelivery_starts_at_the_cursor_with_counts_unchanged() -> None:
    log = log_of(3)
    machine = machine_of(SubscriptionType.EXCLUSIVE, log)
    consumer, sink = join(machine, permits=10)
    feed(machine, log)
    machine.acknowledge(consumer, EntryAck(1))

    machine.redeliver_all(consumer)
    feed(machine, log)

    assert sink.bases == [0, 1, 2, 0, 2]
    assert {delivery.redelivery_count for delivery in sink.deliveries} == {0}


def test_with_too_many_holes_nothing_new_is_read_but_the_holes_are_read_again() -> None:
    log = log_of(20)
    machine = machine_of(SubscriptionType.EXCLUSIVE, log, settings=replace(SETTINGS, range_count_max=3))
    consumer, sink = join(machine, permits=8)
    feed(machine, log, read_count=1)
    for base in (1, 3, 5):
        machine.acknowledge(consumer, EntryAck(base))
    machine.flow(consumer, 100)
    feed(machine, log, read_count=1)
    assert sink.bases == list(range(8))

    machine.redeliver_all(consumer)
    feed(machine, log, read_count=1)
    assert sink.bases[8:] == [0, 2, 4]
    machine.acknowledge(consumer, EntryAck(0))
    feed(machine, log, read_count=1)

    assert sink.bases[11:] == list(range(6, 20))


def test_entry_lengths_above_the_limit_are_forgotten_oldest_first() -> None:
    log = log_of(10)
    machine = machine_of(SubscriptionType.EXCLUSIVE, log, settings=replace(SETTINGS, known_entry_count_max=4))
    consumer, _ = join(machine, permits=100)
    feed(machine, log, read_count=1)

    assert not machine.acknowledge(consumer, EntryAck(0))
    machine.acknowledge_read(consumer, EntryAck(0), 0, 1)
    assert machine.acknowledge(consumer, EntryAck(9))

    assert machine.cursor.mark_delete == 1
    assert machine.cursor.ranges == [(9, 10)]


@pytest.mark.parametrize("seed", range(60))
def test_acknowledgements_that_follow_each_other_have_the_effect_of_each_alone(seed: int) -> None:
    draw = Random(seed)
    log = FakeLog()
    for _ in range(12):
        log.append(draw.choice((1, 1, 2, 5)))
    machines = [failover(log) for _ in range(2)]
    consumers = [join(machine, permits=100)[0] for machine in machines]
    for machine in machines:
        feed(machine, log)
    bases = [entry.base for entry in log.entries]
    for _ in range(6):
        chosen = sorted(draw.sample(bases, draw.randint(1, len(bases))))
        acks = [EntryAck(base + draw.choice((0,) * 9 + (1,)), draw.choice((0,) * 9 + (1,))) for base in chosen]
        at = 0
        while at < len(acks):
            count = machines[0].acknowledge_run(consumers[0], acks, at)
            if not count:
                machines[0].acknowledge(consumers[0], acks[at])
            at += count or 1
        for ack in acks:
            machines[1].acknowledge(consumers[1], ack)

        assert machines[0].cursor.mark_delete == machines[1].cursor.mark_delete
        assert machines[0].cursor.ranges == machines[1].cursor.ranges
        assert consumers[0].acknowledged_count == consumers[1].acknowledged_count
        assert machines[0].has_given == machines[1].has_given


def test_a_run_of_acknowledgements_ends_where_an_entry_is_left_out_unknown_or_open_in_part() -> None:
    log = log_of(6)
    machine = failover(log)
    consumer, _ = join(machine, permits=10)
    feed(machine, log)

    acks = [EntryAck(base) for base in (0, 1, 3, 4)]
    assert machine.acknowledge_run(consumer, acks, 0) == 2
    assert machine.acknowledge_run(consumer, acks, 2) == 2
    assert machine.acknowledge_run(consumer, [EntryAck(5, 1)], 0) == 0
    assert machine.acknowledge_run(consumer, [EntryAck(99)], 0) == 0
    assert machine.acknowledge_run(consumer, [EntryAck(2), EntryAck(2)], 0) == 1
    assert (machine.cursor.mark_delete, consumer.acknowledged_count) == (5, 5)
