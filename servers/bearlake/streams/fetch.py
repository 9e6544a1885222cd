"""The read path: offsets to bytes.

    plan (tail index, else the metadata store) → load (cache, else the object store, all extents at once) → cut whole batches

- A fetch inside a batch returns the whole batch; the first batch of a response is returned even above `bytes_max` (KIP-74).
- With fewer than `bytes_min` bytes it waits, woken by the commit log, up to `wait_ms`.
- Out of range is the store's word, never a cache's; a follower that lags is never an error.
- A missing object (swept while we looked) is resolved again before the read fails.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from bearlake import kernel
from bearlake.cache.objects import ExtentKey, ObjectCache
from bearlake.errors import BearlakeError, NotFound, OutOfRange, Unavailable
from bearlake.index.tail import TailIndex, TailSlice
from bearlake.metadata import CommitLog
from bearlake.metadata.model import ObjectRef, PartitionBounds, PartitionKey
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

_FROM_TAIL = metrics.FETCH_LOOKUPS.labels("tail")
_FROM_STORE = metrics.FETCH_LOOKUPS.labels("store")

_LEARN_PAUSE_S = 0.2
"""Before a waiting fetch asks again for bounds that the store did not tell."""


class Isolation(Enum):
    """Which records of transactions a reader sees."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FetchRange(NamedTuple):
    """Read `partition` from `offset` on, about `bytes_max` bytes."""

    partition: PartitionKey
    offset: int
    bytes_max: int


@dataclass(slots=True, kw_only=True)
class Fetched:
    """What one range gave: `views` are runs of whole record batches in offset order; bounds are -1 when not known.

    `error` is `OutOfRange`, `NotFound`, `Corrupt` or `Unavailable`, with no bytes then.
    """

    range: FetchRange
    start: int = -1
    end: int = -1
    last_stable: int = -1
    views: list[memoryview] = field(default_factory=list)
    size_bytes: int = 0
    error: BearlakeError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSettings:
    """Bounds of one fetch."""

    bytes_max: int = 64 * 1024 * 1024
    """Largest answer in bytes, whatever the client asks for (one larger batch excepted)."""
    wait_max_ms: int = 60_000
    """Longest wait (ms), whatever the client asks for."""
    load_bytes_max: int = 32 * 1024 * 1024
    """Bytes that one fetch reads from the object store; it answers with what it then has. Bounds memory and time of lagging consumers."""
    slices_per_lookup: int = 256
    """Slices that one look-up in the metadata store returns."""


@dataclass(slots=True)
class _Plan:
    """Slices to read for one range. `is_tail`: found in the tail index, so their objects are wanted by others too."""

    fetched: Fetched
    slices: list[TailSlice]
    is_tail: bool
    views: list[memoryview | None]


class Reader:
    """One server's read path. Used from the event loop's thread only."""

    def __init__(self, commit_log: CommitLog, tail: TailIndex, cache: ObjectCache, settings: ReaderSettings) -> None:
        self._log = commit_log
        self._tail = tail
        self._cache = cache
        self._settings = settings

    async def fetch(
        self, ranges: Sequence[FetchRange], *, bytes_min: int, bytes_max: int, wait_ms: int
    ) -> list[Fetched]:
        """Read the ranges, in order, until `bytes_max` bytes in all; one answer per range.

        Returns at once when `bytes_min` bytes are there or any range has an error; else waits up to `wait_ms`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(wait_ms, self._settings.wait_max_ms) / 1000
        bytes_max = min(bytes_max, self._settings.bytes_max)
        wake = asyncio.Event()
        while True:
            wake.clear()
            await self._learn([item.partition for item in ranges])
            tails = [tail for item in ranges if (tail := self._tail.get(item.partition)) is not None]
            for tail in tails:
                tail.waiters[wake.set] = None
            try:
                results, is_cut = await self._collect(ranges, bytes_max)
                size = sum(result.size_bytes for result in results)
                wait = deadline - loop.time()
                if size >= bytes_min or wait <= 0 or is_cut or any(result.error is not None for result in results):
                    return results
                if len(tails) < len(ranges):  # nobody will wake us for a partition whose bounds could not be learned
                    wait = min(wait, _LEARN_PAUSE_S)
                await _wait(wake, wait)
            except TimeoutError:
                if loop.time() >= deadline:
                    return results
            finally:
                for tail in tails:
                    tail.waiters.pop(wake.set, None)

    async def bounds(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, PartitionBounds]:
        """Bounds of the partitions, the store's truth as of now; those that do not exist are left out. Raises `Unavailable`."""
        return await self._log.bounds(partitions)

    async def _learn(self, partitions: Sequence[PartitionKey]) -> None:
        """Ask the store for the bounds of partitions that this server has not met yet; once per partition."""
        unknown = [
            partition for partition in partitions if (tail := self._tail.get(partition)) is None or tail.start < 0
        ]
        if not unknown:
            return
        generation = self._tail.generation
        try:
            found = await self._log.bounds(unknown)
        except BearlakeError as error:
            log.warning("bounds not readable", extra={"error": repr(error)})
            return
        for partition, bounds in found.items():
            self._tail.learn(partition, bounds, generation)

    # -- plan ----------------------------------------------------------------------------------------------------

    async def _collect(self, ranges: Sequence[FetchRange], bytes_max: int) -> tuple[list[Fetched], bool]:
        """One answer per range, and whether more is there that was too much to read at once."""
        plans = [_Plan(Fetched(range=item), [], True, []) for item in ranges]
        cold = [plan for plan in plans if not self._plan_from_tail(plan)]
        _FROM_TAIL.value += len(plans) - len(cold)
        _FROM_STORE.value += len(cold)
        if cold:
            await asyncio.gather(*(self._plan_from_store(plan) for plan in cold))
        _ration(plans, bytes_max)
        is_cut = await self._load(plans)
        budget = bytes_max
        has_bytes = False
        for plan in plans:
            if plan.fetched.error is None and (budget > 0 or not has_bytes):
                self._cut(plan, min(plan.fetched.range.bytes_max, budget), is_first=not has_bytes)
                budget -= plan.fetched.size_bytes
                has_bytes = has_bytes or plan.fetched.size_bytes > 0
        return [plan.fetched for plan in plans], is_cut

    def _plan_from_tail(self, plan: _Plan) -> bool:
        """Plan from memory; False when the store has to be asked."""
        fetched = plan.fetched
        tail = self._tail.get(fetched.range.partition)
        offset = fetched.range.offset
        if tail is None or tail.start < 0 or not max(tail.known_from, tail.start) <= offset <= tail.end:
            return False
        fetched.start, fetched.end, fetched.last_stable = tail.start, tail.end, tail.end
        if offset == tail.end:
            return True
        handle = tail.find(offset)
        room = fetched.range.bytes_max
        while (piece := tail.at(handle)) is not None:
            plan.slices.append(piece)
            room -= _bytes_from(piece, offset)
            if room <= 0:
                break
            handle += 1
        return True

    async def _plan_from_store(self, plan: _Plan) -> None:
        fetched = plan.fetched
        partition, offset, room = fetched.range
        plan.is_tail = False
        try:
            located = await self._log.locate(partition, offset, limit=self._settings.slices_per_lookup)
        except BearlakeError as error:
            fetched.error = error
            return
        bounds = located.bounds
        fetched.start, fetched.end, fetched.last_stable = bounds
        if not bounds.start <= offset <= bounds.end:
            fetched.error = OutOfRange(
                f"offset {offset} is outside [{bounds.start}, {bounds.end})", start=bounds.start, end=bounds.end
            )
            return
        plan.slices = []
        for piece, key, object_size in located.slices:
            plan.slices.append(TailSlice(piece, ObjectRef(key, object_size)))
            room -= _bytes_from(plan.slices[-1], offset)
            if room <= 0:
                break

    # -- load ----------------------------------------------------------------------------------------------------

    async def _load(self, plans: Sequence[_Plan]) -> bool:
        """Get the planned slices' bytes; returns whether slices were dropped because they were too much to read at once."""
        waiting = []
        extents: set[ExtentKey] = set()
        room = self._settings.load_bytes_max
        is_cut = False
        for plan in plans:
            for at, piece in enumerate(plan.slices):
                view = self._cache.peek(piece.object, piece.slice)
                if view is None:
                    extent = self._cache.extent_of(piece.object, piece.slice, is_tail=plan.is_tail)
                    if extent not in extents:
                        size = extent[2] - extent[1]
                        if extents and size > room:
                            del plan.slices[at:]
                            is_cut = True
                            break
                        extents.add(extent)
                        room -= size
                plan.views.append(view)
            if None in plan.views:
                waiting.append(plan)
        if waiting:
            await asyncio.gather(*(self._load_plan(plan) for plan in waiting))
        return is_cut

    async def _load_plan(self, plan: _Plan) -> None:
        try:
            await self._load_views(plan)
        except NotFound:
            # The object was swept while we looked: its offsets are elsewhere by now (I4).
            self._tail.forget(plan.fetched.range.partition)
            await self._plan_from_store(plan)
            try:
                await self._load_views(plan)
            except NotFound as error:
                log.error("a committed object is missing", extra={"error": repr(error)})  # noqa: TRY400
                metrics.FETCH_MISSING.inc()
                plan.fetched.error = Unavailable(f"committed bytes are missing: {error}")
            except BearlakeError as error:
                plan.fetched.error = error
        except BearlakeError as error:
            plan.fetched.error = error

    async def _load_views(self, plan: _Plan) -> None:
        plan.views = list(
            await asyncio.gather(
                *(self._cache.get(piece.object, piece.slice, is_tail=plan.is_tail) for piece in plan.slices)
            )
        )

    # -- cut -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _cut(plan: _Plan, bytes_max: int, *, is_first: bool) -> None:
        """Take whole batches from the one that holds the offset on; at least one if `is_first` (KIP-74)."""
        fetched = plan.fetched
        room = bytes_max
        offset = fetched.range.offset
        for piece, view in zip(plan.slices, plan.views, strict=True):
            assert view is not None
            length = len(view)
            start = kernel.seek(view, 0, length, offset) if offset > piece.slice.base_offset else 0
            end = length
            if end - start > room:
                end = kernel.take(view, start, length, room)
                if end - start > room and not (is_first and not fetched.views):
                    return
            if end > start:
                fetched.views.append(view[start:end] if (start, end) != (0, length) else view)
                fetched.size_bytes += end - start
                room -= end - start
            if end < length or room <= 0:
                return


async def _wait(wake: asyncio.Event, seconds: float) -> None:
    """Wait for records. Raises `TimeoutError`."""
    start = asyncio.get_running_loop().time()
    metrics.FETCH_WAITING.value += 1
    try:
        async with asyncio.timeout(seconds):
            await wake.wait()
    finally:
        metrics.FETCH_WAITING.value -= 1
        metrics.FETCH_WAIT_SECONDS.observe(asyncio.get_running_loop().time() - start)


def _bytes_from(piece: TailSlice, offset: int) -> int:
    """About how many bytes of the slice lie from `offset` on, at least 1; exact when it is not inside the slice."""
    _, base, count, _, length, _ = piece.slice
    return length if offset <= base else max(1, length * (base + count - offset) // count)


def _ration(plans: Sequence[_Plan], bytes_max: int) -> None:
    """Drop slices that the answer has no room for, so that memory is bounded by it; at least one stays (KIP-74)."""
    room = bytes_max
    is_first = True
    for plan in plans:
        kept = 0
        while kept < len(plan.slices) and (room > 0 or is_first):
            room -= _bytes_from(plan.slices[kept], plan.fetched.range.offset)
            is_first = False
            kept += 1
        del plan.slices[kept:]
