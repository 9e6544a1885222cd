"""CPU time and memory of a dispatcher per message during a million acknowledgements on one subscription.

    python bench/micro/subscriptions.py [--messages 1000000] [--consumers 10] [--records-per-entry 1] [--types Shared]

Only the state machine runs: entries are generated, consumers acknowledge in random order, at most `--window` entries late. One consumer
acknowledges its first entry only at the end, so the cursor always has a gap. Memory is the process's resident set.
"""

import argparse
import random
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from bearlake.streams.subscriptions.consumers import AttachedConsumer, StoredEntry
from bearlake.streams.subscriptions.cursor import AckCursor
from bearlake.streams.subscriptions.dispatcher import Dispatcher, Read, ReadAgain
from bearlake.streams.subscriptions.key_shared import KeyShared
from bearlake.streams.subscriptions.model import Closed, ConsumerSpec, Delivery, EntryAck, EntryTraits, SubscriptionType
from bearlake.streams.subscriptions.settings import SubscriptionSettings
from bearlake.streams.subscriptions.shared import Shared
from bearlake.streams.subscriptions.single import SingleActive

READ_ENTRY_COUNT = 500
PERMITS = 1_000
BATCH = memoryview(bytes(100))
KEYS = [b"key-%d" % number for number in range(1_000)]


def traits_of(number: int) -> EntryTraits:
    """Return the traits of an entry; the keys take turns."""
    return EntryTraits(ordering_key=KEYS[number * 7 % len(KEYS)])


class Consumer:
    """Takes every delivery, and acknowledges a random entry of the last `window` ones."""

    def __init__(self, window: int, draw: random.Random) -> None:
        self.has: deque[int] = deque()
        self.window = window
        self.draw = draw
        self.kept: int | None = None
        self.owed = 0

    def deliver(self, deliveries: Sequence[Delivery]) -> int:
        """Keep the entries; return the number of their open messages."""
        self.has.extend([delivery.base_offset for delivery in deliveries])
        count = sum(delivery.open_count for delivery in deliveries)
        self.owed += count
        return count

    def take(self) -> list[int]:
        """Return the acknowledgements that are due."""
        has = list(self.has)
        self.draw.shuffle(has)
        count = max(0, len(has) - self.window // 2)
        self.has = deque(has[count:])
        return [base for base in has[:count] if base != self.kept]

    def is_ready(self) -> bool:
        """Return True: this consumer never pauses."""
        return True

    def activity(self, is_active: bool) -> None:
        """Ignored."""

    def end_of_topic(self) -> None:
        """Ignored."""

    def closed(self, reason: Closed) -> None:
        """Ignored."""


def resident_mib() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / (1 << 20)


def machine_of(type_: SubscriptionType) -> Dispatcher:
    """A state machine at offset 0."""
    cursor, settings = AckCursor(0), SubscriptionSettings()
    if type_ is SubscriptionType.SHARED:
        return Shared(cursor, settings)
    if type_ is SubscriptionType.KEY_SHARED:
        return KeyShared(cursor, settings)
    return SingleActive(type_, cursor, settings)


def measure(type_: SubscriptionType, options: argparse.Namespace) -> None:
    """Run one subscription type to the end, and print its figures."""
    machine = machine_of(type_)
    draw = random.Random(1)
    count = options.consumers if type_ is not SubscriptionType.EXCLUSIVE else 1
    consumers = [Consumer(options.window, draw) for _ in range(count)]
    attached = [AttachedConsumer(ConsumerSpec(type=type_, name=f"c{at}"), sink) for at, sink in enumerate(consumers)]
    for attached_consumer in attached:
        machine.add(attached_consumer)
        machine.flow(attached_consumer, PERMITS)
    size = options.records_per_entry
    rows: list[str] = []
    range_count = packed_bytes = acknowledged = 0
    step = options.messages // 5
    started = time.process_time()
    spent_packing = 0.0
    while acknowledged < options.messages:
        machine.dispatch(0)
        want = machine.want()
        if isinstance(want, Read):
            entries = [
                StoredEntry(want.offset + at * size, want.offset + at * size + size, BATCH, traits_of(want.offset + at))
                for at in range(READ_ENTRY_COUNT)
            ]
            machine.offer(entries, 0)
            machine.dispatch(0)
        elif isinstance(want, ReadAgain):
            machine.offer_again([StoredEntry(base, base + size, BATCH) for base in want.bases])
        for attached_consumer, consumer in zip(attached, consumers, strict=True):
            if consumer.kept is None and consumer is consumers[0] and consumer.has:
                consumer.kept = consumer.has[0]
            for base in consumer.take():
                machine.acknowledge(attached_consumer, EntryAck(base))
                acknowledged += size
            if consumer.owed >= PERMITS // 2:
                machine.flow(attached_consumer, consumer.owed)
                consumer.owed = 0
        range_count = max(range_count, machine.cursor.range_count)
        if acknowledged >= step * (len(rows) + 1):
            before = time.process_time()
            packed_bytes = max(packed_bytes, len(machine.cursor.pack()[0]))
            spent_packing += time.process_time() - before
            rows.append(f"{resident_mib():.0f}")
    cpu = time.process_time() - started - spent_packing
    print(
        f"{type_.value:10} {cpu / acknowledged * 1e6:6.2f} µs/message  at most {range_count:5} ranges, {packed_bytes:6} bytes packed"
        f" ({spent_packing / max(1, len(rows)) * 1e3:.2f} ms each), resident MiB at each fifth: {', '.join(rows)}"
    )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--consumers", type=int, default=10)
    parser.add_argument("--records-per-entry", type=int, default=1)
    parser.add_argument("--window", type=int, default=200)
    names = [type_.value for type_ in SubscriptionType if type_ is not SubscriptionType.FAILOVER]
    parser.add_argument("--types", nargs="+", choices=names, default=names)
    options = parser.parse_args()
    for name in options.types:
        measure(SubscriptionType(name), options)


if __name__ == "__main__":
    main()
