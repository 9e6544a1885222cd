"""Answers offset questions: earliest, latest, first at or after a timestamp, largest timestamp.

Every answer reads the store's current state, never a cache. A look-up by time finds the slice or segment in the index and then reads it,
because the exact record decides (KIP-79, KIP-734); of a segment it reads only the columns of offsets and timestamps.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import chain
from typing import NamedTuple

from bearlake import kernel
from bearlake.cache.objects import ObjectCache
from bearlake.errors import BearlakeError, NotFound, Unavailable
from bearlake.metadata import CommitLog
from bearlake.metadata.model import LocatedSlice, ObjectKind, PartitionBounds, PartitionKey
from bearlake.records import codec as record_codec
from bearlake.streams.history import RESOLVE_COUNT_MAX, History, Moved
from bearlake.streams.turns import in_turns

UNCOMPRESSED_BYTES_MAX = 256 * 1024 * 1024
"""Largest decompressed size (bytes) of a batch whose records are read."""

_PAGE_SLICE_COUNT = 1_000

LOOKUPS_AT_ONCE = 64
"""Partitions whose offset one call looks up by time at once: each asks the metadata store, and may read an object."""

LOOKUPS_MS_MAX = 30_000
"""Longest time (ms) in which one call begins look-ups by time: that of a Kafka client's request (`request.timeout.ms`)."""


class OffsetSpec(IntEnum):
    """Special timestamps in ListOffsets. Source: KIP-79 (-1, -2), KIP-734 (-3), KIP-405 (-4), KIP-1005 (-5)."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class OffsetQuestion(NamedTuple):
    """A request for the offset at `timestamp` (ms >= 0, or an `OffsetSpec`) in `partition`."""

    partition: PartitionKey
    timestamp: int


class OffsetAnswer(NamedTuple):
    """`offset` and `timestamp` (ms) are -1 if there is no such record; `error` is set if the look-up failed."""

    offset: int
    timestamp: int = -1
    error: BearlakeError | None = None


NOTHING = OffsetAnswer(-1)


class Offsets:
    """Answers offset questions. Use it from the event loop's thread only."""

    def __init__(self, commit_log: CommitLog, history: History, cache: ObjectCache) -> None:
        self._log = commit_log
        self._history = history
        self._cache = cache

    async def answer(self, questions: Sequence[OffsetQuestion], *, is_committed: bool = False) -> list[OffsetAnswer]:
        """Return one answer per question, in order; one store read answers all questions about bounds, before any look-up by time.

        `is_committed`: the latest offset is the last stable one, and an offset by time at or above it counts as none.

        Looks `LOOKUPS_AT_ONCE` questions up by time at once. Those that remain after `LOOKUPS_MS_MAX` fail as `Unavailable`.
        """
        partitions: set[PartitionKey] = set()
        async for part in in_turns(questions):
            partitions.update(item.partition for item in part if item.timestamp in _BOUNDS or is_committed)
        try:
            bounds = await self._log.bounds(partitions) if partitions else {}
        except BearlakeError as error:
            return [OffsetAnswer(-1, -1, error)] * len(questions)
        answers: list[OffsetAnswer] = []
        by_time: list[int] = []
        async for part in in_turns(questions):
            for question in part:
                if question.timestamp not in _KNOWN:
                    by_time.append(len(answers))
                answers.append(_known(question, bounds, is_committed=is_committed))
        loop = asyncio.get_running_loop()
        end = loop.time() + LOOKUPS_MS_MAX / 1000
        async for places in in_turns(by_time, LOOKUPS_AT_ONCE):
            if loop.time() >= end:
                late = Unavailable(f"{len(by_time)} offsets by time take more than {LOOKUPS_MS_MAX} ms: ask for fewer")
                found = [OffsetAnswer(-1, -1, late)] * len(places)
            else:
                found = await asyncio.gather(*(self._by_time(*questions[place]) for place in places))
            for place, answer in zip(places, found, strict=True):
                answers[place] = _stable(answer, bounds.get(questions[place].partition)) if is_committed else answer
        return answers

    async def _by_time(self, partition: PartitionKey, timestamp: int) -> OffsetAnswer:
        try:
            for _ in range(RESOLVE_COUNT_MAX):
                try:
                    if timestamp == OffsetSpec.MAX_TIMESTAMP:
                        return await self._largest(partition)
                    return await self._first(partition, timestamp)
                except Moved:  # the object was swept during the read: its offsets are in another object now
                    continue
        except BearlakeError as error:
            return OffsetAnswer(-1, -1, error)
        missing = Unavailable(f"committed bytes are missing: partition {partition}, time {timestamp}")
        return OffsetAnswer(-1, -1, missing)

    async def _first(self, partition: PartitionKey, timestamp: int) -> OffsetAnswer:
        located = await self._log.locate_timestamp(partition, timestamp)
        while located.slices:
            found = located.slices[0]
            if found.slice.max_timestamp >= timestamp:
                answer = await self._first_in(found, timestamp, located.bounds.start)
                if answer is not None:
                    return answer
            # Only the slice that holds the start offset can have trimmed records: continue with the next slice.
            located = await self._log.locate(partition, found.slice.end_offset, limit=1)
        return NOTHING

    async def _first_in(self, found: LocatedSlice, timestamp: int, start: int) -> OffsetAnswer | None:
        if found.kind is ObjectKind.PARQUET:
            record = await self._history.first_at(found, timestamp, start)
            return OffsetAnswer(*record) if record is not None else None
        for batch, base_offset, header in await self._batches(found):
            if header.max_timestamp >= timestamp:
                answer = _first_at(batch, base_offset, timestamp, start)
                if answer is not None:
                    return answer
        return None

    async def _largest(self, partition: PartitionKey) -> OffsetAnswer:
        located = await self._log.locate_max_timestamp(partition)
        if not located.slices:
            return NOTHING
        start, found = located.bounds.start, located.slices[0]
        best = await self._largest_in(found, start)
        if best.timestamp == found.slice.max_timestamp:
            return best
        # A trim moved the start into this slice, past its largest timestamp: compare with the following slices.
        newest: LocatedSlice | None = None
        offset = found.slice.end_offset
        while page := (await self._log.locate(partition, offset, limit=_PAGE_SLICE_COUNT)).slices:
            newest = max([newest, *page] if newest else page, key=_max_timestamp)
            offset = page[-1].slice.end_offset
        if newest is not None and newest.slice.max_timestamp > best.timestamp:
            best = await self._largest_in(newest, start)
        return best

    async def _largest_in(self, found: LocatedSlice, start: int) -> OffsetAnswer:
        best = NOTHING
        if found.kind is ObjectKind.PARQUET:
            record = await self._history.first_at(found, None, start)
            return OffsetAnswer(*record) if record is not None and record[1] > best.timestamp else best
        for batch, base_offset, header in await self._batches(found):
            if base_offset >= start:
                if header.max_timestamp > best.timestamp:
                    best = _first_at(batch, base_offset, header.max_timestamp, start) or best
            else:
                for offset, timestamp in _from(batch, base_offset, start):
                    if timestamp > best.timestamp:
                        best = OffsetAnswer(offset, timestamp)
        return best

    async def _batches(self, found: LocatedSlice) -> list[tuple[memoryview, int, kernel.BatchHeader]]:
        """Read (bytes, base offset, header) of the slice's batches."""
        try:
            view = await self._cache.get(found.object, found.slice, is_tail=False)
        except NotFound as error:
            raise Moved(f"object {found.object_key}") from error
        return [
            (view[position : position + header.length], base_offset, header)
            for position, base_offset, header in kernel.batches(view, 0, len(view))
        ]


_STARTS = frozenset({OffsetSpec.EARLIEST, OffsetSpec.EARLIEST_LOCAL})
_BOUNDS = _STARTS | {OffsetSpec.LATEST}
_KNOWN = _BOUNDS | {OffsetSpec.LATEST_TIERED}
"""What is answered without a look-up by time."""


def _known(
    question: OffsetQuestion, bounds: Mapping[PartitionKey, PartitionBounds], *, is_committed: bool
) -> OffsetAnswer:
    """Answer a question about bounds; `NOTHING` for one that needs a look-up."""
    partition, timestamp = question
    if timestamp not in _BOUNDS:
        return NOTHING
    known = bounds.get(partition)
    if known is None:
        return OffsetAnswer(-1, -1, NotFound(f"no partition {partition}"))
    if timestamp in _STARTS:
        return OffsetAnswer(known.start)
    return OffsetAnswer(known.last_stable if is_committed else known.end)


def _stable(answer: OffsetAnswer, bounds: PartitionBounds | None) -> OffsetAnswer:
    """Return the answer for readers of committed records: none if the record is not decided yet."""
    is_hidden = bounds is not None and answer.error is None and answer.offset >= bounds.last_stable
    return NOTHING if is_hidden else answer


def _first_at(batch: memoryview, base_offset: int, timestamp: int, start: int) -> OffsetAnswer | None:
    """Find the batch's first record at or after `timestamp` with an offset of at least `start`."""
    if base_offset >= start:
        found = record_codec.first_at(batch, timestamp, UNCOMPRESSED_BYTES_MAX)
        return OffsetAnswer(base_offset + found[0], found[1]) if found is not None else None
    return next((OffsetAnswer(*found) for found in _from(batch, base_offset, start) if found[1] >= timestamp), None)


def _from(batch: memoryview, base_offset: int, start: int) -> Iterator[tuple[int, int]]:
    """Yield (offset, timestamp) of the records from `start` on, for the one batch that a trim cut."""
    for delta, timestamp, *_ in chain.from_iterable(record_codec.parts(batch, UNCOMPRESSED_BYTES_MAX)):
        if base_offset + delta >= start:
            yield base_offset + delta, timestamp


def _max_timestamp(found: LocatedSlice) -> int:
    return found.slice.max_timestamp
