"""The memory of a Shared subscription depends on the messages in flight, not on the number or order of acknowledgements."""

import gc
import random

import pytest

from bearlake.metadata.subscriptions import unpack_ranges
from bearlake.streams.subscriptions.consumers import AttachedConsumer, StoredEntry
from bearlake.streams.subscriptions.dispatcher import Dispatcher, Read
from bearlake.streams.subscriptions.model import Delivery, EntryAck, EntryTraits, SubscriptionType
from bearlake.streams.subscriptions.pool import Entry
from fixtures.subscription_machines import FakeConsumer, FakeLog, join, machine_of

COUNT = 100_000
CONSUMER_COUNT = 10
PERMITS = 200
RANGE_BYTES_MAX = 6
"""Size of a range: two numbers below 2**21."""


class LongLog(FakeLog):
    """`COUNT` messages in entries of `size` messages, generated when they are read."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def read(self, offset: int, count: int) -> list[StoredEntry]:
        bases = range(offset - offset % self.size, COUNT, self.size)[:count]
        return [StoredEntry(base, base + self.size, memoryview(b"entry"), EntryTraits()) for base in bases]


class Worker(FakeConsumer):
    """A consumer that keeps its deliveries, and acknowledges them message by message in random order."""

    def __init__(self, machine: Dispatcher, seed: int) -> None:
        super().__init__()
        self.machine = machine
        self.random = random.Random(seed)
        self.held: dict[int, int] = {}
        """Base offset → bits of the messages that are not acknowledged."""
        self.consumer: AttachedConsumer = join(machine, f"c{seed}", permits=PERMITS, sink=self)[0]

    def deliver(self, deliveries: list[Delivery]) -> int:  # type: ignore[override]
        for delivery in deliveries:
            assert delivery.base_offset not in self.held, "an entry was delivered twice"
            self.held[delivery.base_offset] = (1 << delivery.record_count) - 1
        return sum(delivery.open_count for delivery in deliveries)

    def acknowledge(self, kept_count: int) -> int:
        """Acknowledge all messages except `kept_count`; return the number of acknowledgements."""
        messages = [
            (base, bit) for base, bits in self.held.items() for bit in range(bits.bit_length()) if bits >> bit & 1
        ]
        self.random.shuffle(messages)
        chosen = messages[kept_count:]
        for base, bit in chosen:
            self.held[base] &= ~(1 << bit)
            assert self.machine.acknowledge(self.consumer, EntryAck(base, self.held[base]))
            if not self.held[base]:
                del self.held[base]
        if chosen:
            self.machine.flow(self.consumer, len(chosen))
        return len(chosen)


def deliver(machine: Dispatcher, log: LongLog) -> None:
    """Read and deliver as far as permits allow."""
    machine.dispatch(0)
    while isinstance(want := machine.want(), Read) and want.offset < COUNT:
        machine.offer(log.read(want.offset, 100), 0)
        machine.dispatch(0)


def entry_count() -> int:
    """Number of entries in this process's memory."""
    gc.collect()
    return sum(isinstance(found, Entry) for found in gc.get_objects())


@pytest.mark.parametrize("size", [1, 10], ids=["alone in their entries", "ten in an entry"])
def test_acknowledgements_in_random_order_leave_no_memory_behind(size: int) -> None:
    log = LongLog(size)
    machine = machine_of(SubscriptionType.SHARED, log)
    workers = [Worker(machine, seed) for seed in range(CONSUMER_COUNT)]
    in_flight_max = CONSUMER_COUNT * (PERMITS + size)
    cursor = machine.cursor
    before = entry_count()
    acknowledged = widest = most_bytes = most_entries = rounds = 0

    while acknowledged < COUNT:
        deliver(machine, log)
        for worker in workers:
            acknowledged += worker.acknowledge(PERMITS // 10 if machine.read_offset < COUNT else 0)
            widest = max(widest, cursor.range_count)
        packed, is_whole = cursor.pack()
        assert is_whole
        assert unpack_ranges(cursor.mark_delete, packed) == cursor.ranges
        most_bytes = max(most_bytes, len(packed))
        if rounds % 10 == 0:
            most_entries = max(most_entries, entry_count() - before)
        rounds += 1

    assert (cursor.mark_delete, cursor.range_count, cursor.pack()) == (COUNT, 0, (b"", True))
    assert entry_count() == before
    assert not machine.has_given
    assert 0 < widest <= in_flight_max
    assert 0 < most_bytes <= 1 + in_flight_max * RANGE_BYTES_MAX
    assert 0 < most_entries <= in_flight_max + 100
