"""Acknowledgements of parts of an entry whose first records are acknowledged already, so that the mark-delete offset lies inside it."""

import asyncio
from dataclasses import replace

import pytest

from bearlake.errors import Unavailable
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.subscriptions.model import EntryAck, SubscriptionType
from bearlake.streams.subscriptions.settings import SubscriptionSettings
from fixtures.deployment import append, batch_of
from fixtures.subscription_machines import SETTINGS, FakeLog, feed, join, machine_of
from fixtures.subscriptions import attach, attachment, lake
from simulator.loop import virtual_time

FIRST_OPEN = 0b1110
LAST_OPEN = 0b0110


def log_of_batches(count: int) -> FakeLog:
    log = FakeLog()
    for _ in range(count):
        log.append(4)
    return log


@pytest.mark.parametrize("type_", list(SubscriptionType))
def test_a_part_is_acknowledged_at_a_server_that_has_loaded_the_cursor_and_read_nothing_yet(
    type_: SubscriptionType,
) -> None:
    """The consumer got the batch from the former server, and acknowledges its last record at this one."""
    machine = machine_of(type_, log_of_batches(2), mark_delete=1)
    consumer, _ = join(machine)
    ack = EntryAck(0, LAST_OPEN)

    assert not machine.acknowledge(consumer, ack)  # it is looked up
    machine.acknowledge_read(consumer, ack, 0, 4)

    assert machine.cursor.ranges == [(3, 4)]


def test_a_part_is_acknowledged_when_the_extent_of_its_entry_was_forgotten() -> None:
    log = log_of_batches(8)
    machine = machine_of(SubscriptionType.EXCLUSIVE, log, settings=_remembers(2))
    consumer, _ = join(machine, permits=100)
    feed(machine, log, read_count=1)
    machine.acknowledge_read(consumer, EntryAck(0, FIRST_OPEN), 0, 4)
    assert machine.cursor.mark_delete == 1

    assert not machine.acknowledge(consumer, EntryAck(0, LAST_OPEN))
    machine.acknowledge_read(consumer, EntryAck(0, LAST_OPEN), 0, 4)

    assert machine.cursor.ranges == [(3, 4)]


def test_an_entry_that_is_acknowledged_again_when_all_are_acknowledged_is_not_looked_up() -> None:
    log = log_of_batches(1)
    machine = machine_of(SubscriptionType.EXCLUSIVE, log)
    consumer, _ = join(machine, permits=100)
    feed(machine, log)

    assert machine.acknowledge(consumer, EntryAck(0))
    assert machine.cursor.mark_delete == log.end
    assert machine.acknowledge(consumer, EntryAck(0))


def test_an_entry_that_was_trimmed_together_with_unread_ones_is_not_looked_up() -> None:
    log = log_of_batches(1)
    machine = machine_of(SubscriptionType.EXCLUSIVE, log)
    consumer, _ = join(machine, permits=4)
    feed(machine, log)
    log.append(4)

    machine.cursor.acknowledge_before(log.end)
    machine.moved()

    assert machine.acknowledge(consumer, EntryAck(0))
    assert not machine.acknowledge(consumer, EntryAck(4))


@pytest.mark.parametrize("type_", list(SubscriptionType))
def test_an_entry_that_is_known_to_be_below_the_mark_is_not_looked_up(type_: SubscriptionType) -> None:
    log = log_of_batches(3)
    machine = machine_of(type_, log)
    consumer, _ = join(machine, permits=100)
    feed(machine, log)
    for base in (0, 4):
        assert machine.acknowledge(consumer, EntryAck(base))

    assert machine.acknowledge(consumer, EntryAck(0))
    assert machine.acknowledge(consumer, EntryAck(0, LAST_OPEN))
    assert machine.cursor.mark_delete == 8


def _remembers(count: int) -> SubscriptionSettings:
    return replace(SETTINGS, known_entry_count_max=count)


@pytest.mark.parametrize("type_", list(SubscriptionType))
@virtual_time
async def test_an_entry_that_a_trim_has_cut_into_is_acknowledged_at_a_server_that_has_not_read_it(
    type_: SubscriptionType,
) -> None:
    """The consumer got it from the former server; the partition begins inside it since."""
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, batch_of(b"a", b"b", b"c"), batch_of(b"d"))
        consumer = await attach(service, made.partition, type_, permits=0)
        await streams.trim(ANONYMOUS, "orders", 0, 2)
        tail = streams._tail.get(made.partition)  # noqa: SLF001 - the trim has reached the follower
        assert tail is not None
        await consumer.until(lambda: tail.start == 2)

        attachment(consumer).acknowledge([EntryAck(0)])
        await attachment(consumer).flushed()

        (stored,) = await made.cursors.load(made.partition)
        assert (stored.mark_delete, stored.acknowledged) == (3, b"")


class Silent:
    """Records that are currently unreadable."""

    async def fetch(self, *_: object, **__: object) -> None:
        await asyncio.Event().wait()


@virtual_time
async def test_a_caller_that_waits_for_a_dropped_acknowledgement_gets_an_error() -> None:
    """The entry must be looked up, the object store does not answer, and the subscription's last consumer leaves."""
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, batch_of(b"a", b"b"))
        consumer = await attach(service, made.partition, SubscriptionType.EXCLUSIVE, permits=0)
        feeder = attachment(consumer)._subscription._feeder  # noqa: SLF001 - only its feeder reads from a dead store
        feeder._around = feeder._around._replace(records=Silent())  # noqa: SLF001
        attachment(consumer).acknowledge([EntryAck(0)])
        flushed = asyncio.ensure_future(attachment(consumer).flushed())
        await asyncio.sleep(1)

        feeder.stop()

        with pytest.raises(Unavailable):
            await flushed
