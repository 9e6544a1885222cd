"""Reads entries from the log for a dispatcher: turns fetched bytes into entries, and entry offsets into ranges to fetch."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from bearlake import kernel
from bearlake.errors import Corrupt
from bearlake.metadata.model import PartitionBounds, PartitionKey
from bearlake.streams.fetched import Fetched, FetchRange
from bearlake.streams.offsets import OffsetAnswer, OffsetQuestion
from bearlake.streams.subscriptions.consumers import StoredEntry

CONTROL = 0x20
"""Attribute of a control batch (transaction markers)."""

CHUNK_BYTES = 64 * 1024
"""Bytes whose batches are found at once: at most some 1,000."""

NEAR_OFFSET_COUNT = 1_000
"""Entries at most this many offsets apart are read together."""


class Records(Protocol):
    """The part of the stream service that subscriptions use; `streams.service.Streams` implements it."""

    async def fetch(
        self,
        ranges: Sequence[FetchRange],
        *,
        bytes_min: int,
        bytes_max: int,
        wait_ms: int,
        is_committed: bool | None = None,
    ) -> list[Fetched]:
        """Read batches, as `Streams.fetch` does."""

    async def offsets(self, questions: Sequence[OffsetQuestion]) -> list[OffsetAnswer]:
        """Look offsets up, as `Streams.offsets` does."""

    async def bounds(self, partitions: Sequence[PartitionKey]) -> dict[PartitionKey, PartitionBounds]:
        """The start and end offsets of partitions, as `Streams.bounds` returns them."""


def entries_of(fetched: Fetched) -> list[StoredEntry]:
    """Return the entries of a fetched range, in order. Raises `Corrupt`."""
    return [entry for view in fetched.views for entry in _entries(view, 0, len(view))]


def each_entry(fetched: Fetched) -> Iterator[StoredEntry]:
    """Return the entries of a fetched range, in order. Looks at `CHUNK_BYTES` at once, so who stops early pays for no more.

    Raises `Corrupt`.
    """
    for view in fetched.views:
        start, length = 0, len(view)
        while start < length:
            _, end = kernel.find_run(view, start, length, 0, CHUNK_BYTES, True)
            if end <= start:
                raise Corrupt(f"no record batch at {start} of {length} bytes")
            yield from _entries(view, start, end)
            start = end


def _entries(view: memoryview, start: int, end: int) -> list[StoredEntry]:
    found = []
    for position, base, header in kernel.batches(view, start, end):
        is_empty = header.record_count == 0 or header.attributes & CONTROL
        batch = None if is_empty else view[position : position + header.length]
        found.append(StoredEntry(base, base + header.last_offset_delta + 1, batch))
    return found


def ranges_of(
    partition: PartitionKey, offsets: Sequence[int], range_count_max: int, bytes_max: int
) -> list[FetchRange]:
    """Return the ranges to fetch for entries that hold `offsets` (ascending); they cover at least the first entry."""
    starts = [offsets[0]]
    last = offsets[0]
    for offset in offsets[1:]:
        if offset - last > NEAR_OFFSET_COUNT:
            if len(starts) == range_count_max:
                break
            starts.append(offset)
        last = offset
    return [FetchRange(partition, start, bytes_max // len(starts)) for start in starts]
