"""Offsets by question: earliest, latest, the first at or after a time, the one with the largest timestamp.

Every answer is the store's truth as of now, never a cache's. A look-up by time finds the slice in the index and then reads
that slice, since the exact record decides (KIP-79, KIP-734).
"""

import asyncio
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from bearlake import kernel
from bearlake.cache.objects import ObjectCache
from bearlake.errors import BearlakeError, NotFound
from bearlake.metadata import CommitLog
from bearlake.metadata.model import Located, ObjectRef, PartitionBounds, PartitionKey
from bearlake.records import codec as record_codec

UNCOMPRESSED_BYTES_MAX = 256 * 1024 * 1024
"""Bytes that one batch may decompress to when its records are looked at."""


class OffsetSpec(IntEnum):
    """Special timestamps of ListOffsets. Source: KIP-79 (-1, -2), KIP-734 (-3), KIP-405 (-4), KIP-1005 (-5)."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class OffsetQuestion(NamedTuple):
    """Ask `partition` for the offset at `timestamp` (ms >= 0, or an `OffsetSpec`)."""

    partition: PartitionKey
    timestamp: int


class OffsetAnswer(NamedTuple):
    """`offset` and `timestamp` (ms) are -1 when there is no such record; `error` is set when the question failed."""

    offset: int
    timestamp: int = -1
    error: BearlakeError | None = None


NOTHING = OffsetAnswer(-1)


class Offsets:
    """Answers offset questions. Used from the event loop's thread only."""

    def __init__(self, commit_log: CommitLog, cache: ObjectCache) -> None:
        self._log = commit_log
        self._cache = cache

    async def answer(self, questions: Sequence[OffsetQuestion]) -> list[OffsetAnswer]:
        """One answer per question, in order; one look-up serves all questions for bounds."""
        wanted = {item.partition for item in questions if item.timestamp in _BOUNDS}
        try:
            bounds = await self._log.bounds(wanted) if wanted else {}
        except BearlakeError as error:
            return [OffsetAnswer(-1, -1, error)] * len(questions)
        return list(await asyncio.gather(*(self._one(item, bounds) for item in questions)))

    async def _one(self, question: OffsetQuestion, bounds: dict[PartitionKey, PartitionBounds]) -> OffsetAnswer:
        partition, timestamp = question
        try:
            if timestamp in _BOUNDS:
                known = bounds.get(partition)
                if known is None:
                    raise NotFound(f"no partition {partition}")
                return OffsetAnswer(known.start if timestamp in _STARTS else known.end)
            if timestamp == OffsetSpec.LATEST_TIERED:
                return NOTHING
            if timestamp == OffsetSpec.MAX_TIMESTAMP:
                return await self._largest(await self._log.locate_max_timestamp(partition))
            return await self._first(await self._log.locate_timestamp(partition, timestamp), timestamp)
        except BearlakeError as error:
            return OffsetAnswer(-1, -1, error)

    async def _first(self, located: Located, timestamp: int) -> OffsetAnswer:
        view = await self._view(located)
        if view is not None:
            for position, base_offset, header in kernel.batches(view, 0, len(view)):
                if header.max_timestamp >= timestamp:
                    found = _first_at(view[position : position + header.length], base_offset, timestamp)
                    if found is not None and found.offset >= located.bounds.start:
                        return found
        return NOTHING

    async def _largest(self, located: Located) -> OffsetAnswer:
        view = await self._view(located)
        best = NOTHING
        if view is not None:
            for position, base_offset, header in kernel.batches(view, 0, len(view)):
                if header.max_timestamp > best.timestamp:
                    batch = view[position : position + header.length]
                    best = _first_at(batch, base_offset, header.max_timestamp) or best
        return best

    async def _view(self, located: Located) -> memoryview | None:
        if not located.slices:
            return None
        piece, key, size = located.slices[0]
        return await self._cache.get(ObjectRef(key, size), piece, is_tail=False)


_STARTS = frozenset({OffsetSpec.EARLIEST, OffsetSpec.EARLIEST_LOCAL})
_BOUNDS = _STARTS | {OffsetSpec.LATEST}


def _first_at(batch: memoryview, base_offset: int, timestamp: int) -> OffsetAnswer | None:
    found = record_codec.first_at(batch, timestamp, UNCOMPRESSED_BYTES_MAX)
    return OffsetAnswer(base_offset + found[0], found[1]) if found is not None else None
