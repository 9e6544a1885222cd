"""Entries of which key compaction has removed records, before and after they were read (decision 207)."""

import pytest

from bearlake import kernel
from bearlake.records.codec import Record, decode, encode
from bearlake.streams.subscriptions import cleaned_batches
from bearlake.streams.subscriptions.cleaned_batches import has_gaps, split
from bearlake.streams.subscriptions.consumers import StoredEntry
from bearlake.streams.subscriptions.dispatcher import Read, ReadAgain
from bearlake.streams.subscriptions.extents import Extents
from bearlake.streams.subscriptions.model import EntryAck, EntryTraits, SubscriptionType
from fixtures.subscription_machines import FakeLog, feed, join, machine_of

BYTES_MAX = 1 << 20
BASE = 10
SHARING = [SubscriptionType.SHARED, SubscriptionType.KEY_SHARED]


def cleaned(*deltas: int, count: int = 7) -> memoryview:
    """A batch of which these records are left."""
    batch = bytearray(
        encode([Record(key=b"%d" % delta, value=b"v", timestamp=delta, offset_delta=delta) for delta in deltas])
    )
    batch[23:27] = (count - 1).to_bytes(4, "big")
    return memoryview(batch)


def entry(base: int, end: int) -> StoredEntry:
    return StoredEntry(base, end, memoryview(b"x"), EntryTraits())


def gap(base: int, end: int) -> StoredEntry:
    return StoredEntry(base, end, None)


def test_runs_of_records_are_batches_of_their_own_with_the_same_offsets() -> None:
    batch = cleaned(1, 2, 5)
    parts = split(batch, BASE, BASE + 7, 0, BYTES_MAX)

    assert has_gaps(batch, 7)
    assert not has_gaps(cleaned(0, 1, 2, count=3), 3)
    assert [part[:2] for part in parts] == [(10, 11), (11, 13), (13, 15), (15, 16), (16, 17)]
    found = {}
    for part in parts:
        for position, base, header in [] if part.batch is None else kernel.batches(part.batch, 0, len(part.batch)):
            assert (position, base, base + header.last_offset_delta + 1) == (0, part.base, part.end)
            for record in decode(part.batch, BYTES_MAX):
                found[base + (record.offset_delta or 0)] = record.key, record.timestamp
    assert found == {11: (b"1", 1), 12: (b"2", 2), 15: (b"5", 5)}


def test_a_batch_with_very_many_runs_is_split_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaned_batches, "RUN_COUNT_MAX", 2)
    batch = cleaned(0, 2, 4, 6)
    first = split(batch, BASE, BASE + 7, 0, BYTES_MAX)
    rest = split(batch, BASE, BASE + 7, first[-1].end, BYTES_MAX)

    assert [part[:2] for part in first] == [(10, 11), (11, 12), (12, 13)]
    assert [part[:2] for part in rest] == [(13, 14), (14, 15), (15, 16), (16, 17)]


@pytest.mark.parametrize("type_", SHARING)
def test_an_entry_that_is_cleaned_before_its_redelivery_becomes_what_is_left_of_it(type_: SubscriptionType) -> None:
    log = FakeLog()
    log.append(4)
    log.append(1)
    machine = machine_of(type_, log)
    consumer, sink = join(machine, permits=100)
    feed(machine, log)
    machine.redeliver(consumer, [0])

    assert machine.want() == ReadAgain([0])
    machine.offer_again([gap(0, 1), entry(1, 2), gap(2, 3), entry(3, 4)])
    assert sink.bases == [0, 4, 1, 3]
    assert machine.cursor.mark_delete == 1
    for base in (1, 3, 4):
        assert machine.acknowledge(consumer, EntryAck(base))
    assert machine.cursor.mark_delete == 5
    assert machine.want() == Read(5)


@pytest.mark.parametrize("type_", SHARING)
def test_what_was_not_read_yet_of_a_cleaned_entry_is_read_later(type_: SubscriptionType) -> None:
    log = FakeLog()
    log.append(6)
    machine = machine_of(type_, log)
    consumer, sink = join(machine, permits=100)
    feed(machine, log)
    machine.redeliver(consumer, [0])
    machine.offer_again([entry(0, 1), gap(1, 2)])
    again = machine.want()
    machine.offer_again([gap(1, 3), entry(3, 6)])
    machine.acknowledge(consumer, EntryAck(0))
    machine.acknowledge(consumer, EntryAck(3))

    assert again == ReadAgain([2])
    assert sink.bases == [0, 0, 3]
    assert machine.cursor.mark_delete == 6


@pytest.mark.parametrize("type_", SHARING)
def test_an_entry_of_which_the_end_was_removed_is_given_up_to_its_last_record(type_: SubscriptionType) -> None:
    log = FakeLog()
    log.append(4)
    machine = machine_of(type_, log)
    consumer, sink = join(machine, permits=100)
    feed(machine, log)
    machine.redeliver_all(consumer)
    machine.offer_again([entry(0, 2), gap(2, 4)])
    machine.acknowledge(consumer, EntryAck(0))

    assert [(delivery.base_offset, delivery.record_count) for delivery in sink.deliveries] == [(0, 4), (0, 2)]
    assert machine.cursor.mark_delete == 4
    assert machine.want() == Read(4)


def test_the_acknowledgement_of_a_part_does_not_count_for_what_follows_in_the_former_entry() -> None:
    log = FakeLog()
    log.append(4)
    machine = machine_of(SubscriptionType.EXCLUSIVE, log)
    consumer, sink = join(machine, permits=100)
    feed(machine, log)
    machine.redeliver_all(consumer)
    machine.offer([entry(0, 1), gap(1, 2), entry(2, 3), entry(3, 4)], 0)
    machine.dispatch(0)
    machine.acknowledge(consumer, EntryAck(2), is_through=True)

    assert sink.bases == [0, 0, 2, 3]
    assert machine.cursor.mark_delete == 3


def test_an_entry_inside_a_known_one_ends_that_one() -> None:
    extents = Extents(100)
    for base, end in ((0, 4), (4, 8), (0, 1), (1, 2), (2, 4)):
        extents.add(base, end)

    assert [extents.find(offset) for offset in (0, 1, 3, 4, 7)] == [(0, 1), (1, 2), (2, 4), (4, 8), (4, 8)]
