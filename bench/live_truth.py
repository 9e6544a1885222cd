"""What readers of a stream must find: records of a producer whose offsets follow from their numbers. Checks of what an engine read.

Record number n has the key n modulo `key_count` and goes to partition n modulo `partition_count`, which divides `key_count`, so a key
stays in its partition. The producer loses no record, so number n has offset n // partition_count: offset and partition give the number,
the key and the value of a record, and the newest record of a key below any end. Pure.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

TOMBSTONE_EVERY = 17
"""One record in so many deletes its key."""

Counts = Mapping[int, tuple[int, int, int, int, int]]
"""Partition → rows, distinct offsets, smallest offset, largest offset + 1, rows from the floor on."""

Row = tuple[int, int, str | None, str | None]
"""Partition, offset, key and value; bytes as digits in upper case, as SQL's `hex` has them."""


@dataclass(frozen=True, slots=True)
class Truth:
    """The records of the producer."""

    partition_count: int
    key_count: int
    value_bytes: int

    def __post_init__(self) -> None:
        if self.key_count % self.partition_count:
            raise ValueError("the number of partitions must divide the number of keys")

    def key(self, number: int) -> bytes:
        """The key of a record."""
        return b"key-%d" % (number % self.key_count)

    def value(self, number: int) -> bytes | None:
        """The value of a record; None: a tombstone. Half of the bytes do not compress."""
        if number % TOMBSTONE_EVERY == 0:
            return None
        noise = hashlib.shake_128(b"%d" % number).digest(self.value_bytes // 2)
        return (b"%d " % number + noise).ljust(self.value_bytes, b".")

    def row(self, partition: int, offset: int) -> Row:
        """The row of a record in the stream's table."""
        number = offset * self.partition_count + partition
        value = self.value(number)
        return partition, offset, self.key(number).hex().upper(), None if value is None else value.hex().upper()

    def newest(self, partition: int, end: int) -> dict[int, int]:
        """The newest records of the partition's keys below `end`: offset by key. A key whose newest record is a tombstone is not there."""
        per_key = self.key_count // self.partition_count
        found = {}
        for offset in range(max(0, end - per_key), end):
            number = offset * self.partition_count + partition
            if number % TOMBSTONE_EVERY:
                found[number % self.key_count] = offset
        return found


def check_counts(
    counts: Counts, acknowledged: Sequence[int], starts_max: Sequence[int], floor: int = 0
) -> Iterable[str]:
    """Yield what is wrong with a read of a whole table.

    `acknowledged`: the ends before the read. `starts_max`: the largest offsets at which retention may let the table begin. `floor`: from
    this offset on, retention can have removed nothing. It removes whole files, so below the floor an older file may outlive a newer one.
    """
    for partition, (end, start_max) in enumerate(zip(acknowledged, starts_max, strict=True)):
        rows, distinct, start, seen_end, above = counts.get(partition, (0, 0, 0, 0, 0))
        if rows != distinct or above != max(0, seen_end - max(start, floor)):
            yield f"partition {partition}: {rows} rows, {distinct} offsets in [{start}, {seen_end}), {above} from {floor} on"
        if seen_end < end:
            yield f"partition {partition}: up to {seen_end}, acknowledged {end}"
        if start > start_max:
            yield f"partition {partition}: from {start}, retention keeps {start_max}"


def check_rows(truth: Truth, rows: Iterable[Row], partition: int, start: int, end: int) -> Iterable[str]:
    """Yield what is wrong with the rows of the partition's offsets [start, end), in any order."""
    found = sorted((row[0], row[1], row[2] or "", row[3]) for row in rows)
    expected = [truth.row(partition, offset) for offset in range(start, end)]
    if found != expected:
        wrong = next((pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]), "their number")
        yield f"partition {partition}: {len(found)} rows of [{start}, {end}), wrong is {str(wrong)[:200]}"


def check_newest(truth: Truth, rows: Iterable[Row], ends_before: dict[int, int]) -> Iterable[str]:
    """Yield what is wrong with the rows of a current table. `ends_before`: the smallest ends that it may have; moved to what was found.

    The rows do not say up to which offset they are, if tombstones are last: one of the ends after the newest row must explain them all.
    """
    by_partition: dict[int, dict[int, Row]] = {}
    for row in rows:
        of_partition = by_partition.setdefault(row[0], {})
        if row[1] in of_partition:
            yield f"partition {row[0]}: offset {row[1]} twice"
        of_partition[row[1]] = row
    for partition in range(truth.partition_count):
        found = by_partition.get(partition, {})
        last = max(found, default=-1)
        for end in range(max(last + 1, ends_before.get(partition, 0)), last + 4):
            if set(truth.newest(partition, end).values()) == found.keys():
                ends_before[partition] = end
                break
        else:
            before = ends_before.get(partition, 0)
            yield f"partition {partition}: {len(found)} rows up to {last} are the newest ones of no end from {before} on"
        for offset, row in found.items():
            if row != truth.row(partition, offset):
                yield f"partition {partition}: {str(row)[:200]}"
