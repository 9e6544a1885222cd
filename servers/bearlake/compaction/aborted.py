"""Transactions in compaction: no task goes past a last stable offset, and records of aborted transactions never become rows.

A last stable offset only grows, and what lies below it is decided for good. So a task that was cut there stays valid for all time.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

from bearlake.compaction.model import AbortedRange
from bearlake.kernel import BatchHeader
from bearlake.metadata import Metadata
from bearlake.metadata.aborted import Aborted, AbortedTransactions
from bearlake.metadata.compaction import OffsetRange, TaskKind, TaskOffer
from bearlake.metadata.model import LocatedSlice, PartitionKey
from bearlake.records.batch import is_transactional


class AbortedRanges:
    """Which batches of an item belong to aborted transactions."""

    def __init__(self, ranges: Collection[AbortedRange]) -> None:
        """Those of a partition and producer come in the order of their offsets."""
        self._of_partition: defaultdict[PartitionKey, AbortedTransactions] = defaultdict(AbortedTransactions)
        for partition, producer_id, start, end in ranges:
            self._of_partition[partition].add(Aborted(producer_id, start, end))

    def has(self, partition: PartitionKey, header: BatchHeader, offset: int) -> bool:
        """Return whether the batch at `offset` was aborted."""
        known = self._of_partition.get(partition)
        return known is not None and is_transactional(header.attributes) and known.has(header.producer_id, offset)


async def aborted_ranges(metadata: Metadata, ranges: Collection[OffsetRange]) -> dict[PartitionKey, list[AbortedRange]]:
    """Return the aborted transactions that overlap a task's ranges, by partition."""
    found = await metadata.transactions.isolation([partition for partition, _, _ in ranges])
    aborted: dict[PartitionKey, list[AbortedRange]] = {}
    for partition, start, end in ranges:
        overlapping = [
            AbortedRange(partition, item.producer_id, item.first_offset, item.marker_offset)
            for item in (found[partition].aborted if partition in found else ())
            if item.first_offset < end and item.marker_offset > start
        ]
        if overlapping:
            aborted[partition] = overlapping
    return aborted


def of_slices(aborted: dict[PartitionKey, list[AbortedRange]], slices: Sequence[LocatedSlice]) -> list[AbortedRange]:
    """Return those of the partitions that the slices belong to."""
    partitions = {located.slice.partition for located in slices} if aborted else set()
    return [item for partition in sorted(partitions) for item in aborted.get(partition, ())]


async def stable(metadata: Metadata, offers: Sequence[TaskOffer]) -> list[TaskOffer]:
    """Cut the offers at the partitions' last stable offsets; drop those of which nothing is left."""
    partitions = [range_.partition for offer in offers if offer.kind is TaskKind.COMPACT for range_ in offer.ranges]
    bounds = await metadata.log.bounds(partitions) if partitions else {}
    unstable = {key: found.last_stable for key, found in bounds.items() if found.last_stable < found.end}
    if not unstable:
        return list(offers)
    left: list[TaskOffer] = []
    for offer in offers:
        ranges = [await _cut(metadata, range_, unstable) for range_ in offer.ranges]
        kept = [range_ for range_ in ranges if range_.start < range_.end]
        if len(kept) == len(offer.ranges) and kept == list(offer.ranges):
            left.append(offer)
        elif kept:
            records = sum(range_.end - range_.start for range_ in kept)
            size = offer.size_bytes * records // max(1, offer.record_count)
            left.append(replace(offer, ranges=kept, record_count=records, size_bytes=size))
    return left


async def _cut(metadata: Metadata, range_: OffsetRange, unstable: dict[PartitionKey, int]) -> OffsetRange:
    """Return the part of the range below the last stable offset, up to the end of a slice: ranges end where slices end."""
    partition, start, end = range_
    limit = unstable.get(partition, end)
    if limit >= end:
        return range_
    if limit <= start:
        return OffsetRange(partition, start, start)
    located = await metadata.log.locate(partition, limit, limit=1)
    base = located.slices[0].slice.base_offset if located.slices else limit
    return OffsetRange(partition, start, min(base, limit))
