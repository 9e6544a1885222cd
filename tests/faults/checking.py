"""Compares the records that were acknowledged, stored and read.

A record's value is `producer.number` or `producer.number.partition`; each producer counts its records from 0 and sends those of a
partition in ascending order. So the log alone shows which records are missing, duplicated or out of order:

    lost         acknowledged at an offset where the log does not have it
    duplicated   stored at two offsets (whether acknowledged or not), or given to a reader of its own position twice
    reordered    stored after a later record of its producer in the same partition
    unknown      sent and never acknowledged; it may be stored, once
    broken       a promise that `simulator.history` finds broken in what all clients saw, order in real time among them
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from faults.histories import violations
from simulator.history.model import Kind


class Name(NamedTuple):
    """A record: whose it is, and its number among that producer's."""

    producer: str
    number: int


class Read(NamedTuple):
    """A record as a consumer got it; `at_s` on this process's monotonic clock."""

    partition: int
    offset: int
    name: Name
    at_s: float


class Acknowledged(NamedTuple):
    """A record as its producer got it acknowledged; `sent_s` and `at_s` on this process's monotonic clock."""

    partition: int
    offset: int
    name: Name
    sent_s: float
    at_s: float
    is_sent_told: bool = True
    """Whether `sent_s` is known; if not, it is a guess that only measures of time may use."""


Log = Mapping[int, Sequence[Read]]
"""A stream's records from its start to its end, by partition, in the order of reading."""


def name_of(value: bytes) -> Name:
    """The record's name, from its value."""
    producer, number = value.decode().split(".")[:2]
    return Name(producer, int(number))


@dataclass(kw_only=True)
class Counts:
    """Counts of one run, and examples of faults."""

    acknowledged: int = 0
    stored: int = 0
    unknown: int = 0
    unknown_stored: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    read: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Broken promises, as the history checker reports them."""

    def __str__(self) -> str:
        read = ", ".join(f"{name} {count:,}" for name, count in self.read.items())
        return (
            f"acknowledged {self.acknowledged:,}, stored {self.stored:,}, "
            f"unknown {self.unknown:,} (stored {self.unknown_stored:,}), read: {read or 'nothing'}; "
            f"lost {self.lost}, duplicated {self.duplicated}, reordered {self.reordered}, broken promises {len(self.broken)}"
        )

    def assert_exact(self) -> None:
        """Nothing acknowledged is lost, nothing at all is duplicated or reordered, and no promise is broken."""
        wrong = self.lost + self.duplicated + self.reordered + len(self.broken)
        assert wrong == 0, "\n".join([str(self), *self.examples[:20], *self.broken[:10]])

    def note(self, kind: str, example: str) -> None:
        """Count something that must not be; `kind` is `lost`, `duplicated` or `reordered`."""
        setattr(self, kind, getattr(self, kind) + 1)
        self.examples.append(f"{kind}: {example}")


def check(
    acknowledged: Sequence[Acknowledged],
    unknown: Iterable[Name],
    log: Log,
    readers: Mapping[str, Sequence[Read]],
    members: Mapping[str, Sequence[Read]] | None = None,
    *,
    kind: Kind = Kind.IDEMPOTENT,
) -> Counts:
    """Compare what producers and readers saw with the log, and all of it with the promises to clients.

    `readers` are those that keep their own position, from the start; `members` share partitions. `kind`: what the producers are promised.
    """
    unknown = set(unknown)
    counts = Counts(acknowledged=len(acknowledged), stored=sum(map(len, log.values())), unknown=len(unknown))
    stored = Counter(read.name for reads in log.values() for read in reads)
    counts.unknown_stored = sum(1 for name in unknown if stored[name])
    for name, count in stored.items():
        if count > 1:
            counts.note("duplicated", f"{name} is stored {count} times")
    for partition, reads in log.items():
        _check_order(counts, f"log of partition {partition}", reads)
        for offset, read in enumerate(reads):
            if read.offset != offset:  # nothing here writes markers or trims
                counts.note("lost", f"offset {offset} of partition {partition}: there is {read}")
                break
    found = {(read.partition, read.offset): read.name for reads in log.values() for read in reads}
    for record in acknowledged:
        there = found.get((record.partition, record.offset))
        if there != record.name:
            counts.note("lost", f"{record} is not where it was acknowledged; there is {there}")
    for reader, reads in readers.items():
        counts.read[reader] = len(reads)
        _check_reader(counts, reader, reads, log)
    counts.broken = violations(acknowledged, unknown, log, readers, members or {}, kind=kind)
    return counts


def _check_order(counts: Counts, where: str, reads: Sequence[Read]) -> None:
    last: dict[str, int] = {}
    for read in reads:
        if read.name.number < last.get(read.name.producer, -1):
            counts.note("reordered", f"{where}: {read} behind number {last[read.name.producer]}")
        last[read.name.producer] = read.name.number


def _check_reader(counts: Counts, reader: str, reads: Sequence[Read], log: Log) -> None:
    """A reader that keeps its own position got each partition's records as the log has them, each once, from the first one on."""
    at: dict[int, int] = {}
    for read in reads:
        position = at.get(read.partition, 0)
        stored = log.get(read.partition, [])
        if position >= len(stored):
            counts.note("lost", f"reader {reader} got {read}, which the log does not have")
            continue
        expected = stored[position]
        at[read.partition] = position + 1
        if (read.offset, read.name) != (expected.offset, expected.name):
            kind = "duplicated" if read.offset < expected.offset else "lost"
            counts.note(kind, f"reader {reader} got {read} instead of {expected}")
