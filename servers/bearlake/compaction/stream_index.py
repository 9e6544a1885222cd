"""Reads the compacted part of a stream's index, and bounds of its partitions."""

from collections.abc import Sequence

from bearlake.metadata import Metadata
from bearlake.metadata.compaction import OffsetRange
from bearlake.metadata.model import LocatedSlice, PartitionBounds, PartitionKey, Stream

PARTITIONS_PER_CALL = 1_000
"""Partitions that are read at once."""


async def read_bounds(metadata: Metadata, keys: Sequence[PartitionKey]) -> dict[PartitionKey, PartitionBounds]:
    """Return the bounds of any number of partitions; those that do not exist are left out. Raises `Unavailable`."""
    found: dict[PartitionKey, PartitionBounds] = {}
    for first in range(0, len(keys), PARTITIONS_PER_CALL):
        found |= await metadata.log.bounds(keys[first : first + PARTITIONS_PER_CALL])
    return found


async def read_index(
    stream: Stream, metadata: Metadata
) -> tuple[list[LocatedSlice], dict[PartitionKey, PartitionBounds]]:
    """Return the compacted slices and segments of a stream, by partition and offset, and its partitions' bounds. Raises `Unavailable`."""
    located: list[LocatedSlice] = []
    bounds: dict[PartitionKey, PartitionBounds] = {}
    for first in range(0, stream.partition_count, PARTITIONS_PER_CALL):
        indexes = range(first, min(first + PARTITIONS_PER_CALL, stream.partition_count))
        keys = [stream.partition(index) for index in indexes]
        bounds |= await metadata.log.bounds(keys)
        compacted = await metadata.tasks.compacted(keys)
        ranges = [
            OffsetRange(key, bounds[key].start, end)
            for key, end in compacted.items()
            if key in bounds and end > bounds[key].start
        ]
        if ranges:
            located += await metadata.log.slices(ranges)
    return sorted(located, key=lambda found: found.slice[:2]), bounds
