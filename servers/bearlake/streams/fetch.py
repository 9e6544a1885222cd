"""The read path: offsets to bytes.

    at the tail and cached: `streams/tail_reads.py`, in one step; otherwise
    plan (tail index, else history) → load (caches, else the object store, all extents at once) → cut whole batches

- A fetch at an offset inside a batch returns the whole batch. A response includes its first batch even above `bytes_max` (KIP-74).
- With fewer than `bytes_min` bytes, a fetch waits up to `wait_ms`; commit log entries wake it.
- Only the store decides out of range, never a cache; a lagging follower is never an error.
- If an object is missing (swept during the read), the reader looks its offsets up again before the read fails.
- A response ends before damaged bytes; only a fetch at their offset fails.
- A fetch over many partitions reads some at a time, so that it neither holds the event loop nor asks the stores too much at once.
- `streams/history.py` finds offsets that the tail index no longer holds: slices of WAL objects, and row groups of segments.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, cast

from bearlake import kernel
from bearlake.cache.objects import ExtentKey, ObjectCache
from bearlake.errors import BearlakeError, Corrupt, NotFound, Unavailable
from bearlake.index.tail import PartitionTail, TailIndex
from bearlake.metadata import CommitLog
from bearlake.metadata.model import PartitionBounds, PartitionKey
from bearlake.streams import waiting
from bearlake.streams.committed import CommittedViews, keep_committed
from bearlake.streams.fetch_plan import Plan, Progress, is_behind, ration
from bearlake.streams.fetched import Fetched, FetchRange, least
from bearlake.streams.history import RESOLVE_COUNT_MAX, History, Moved
from bearlake.streams.history_pieces import BlockPiece, Piece, bytes_from
from bearlake.streams.tail_reads import TailReads
from bearlake.streams.turns import in_turns
from bearlake.telemetry import metrics
from bearlake.telemetry.repeated import RepeatedError

if TYPE_CHECKING:
    from bearlake.table.blocks import Block

log = logging.getLogger(__name__)

_FROM_TAIL = metrics.FETCH_LOOKUPS.labels("tail")

_LEARN_PAUSE_S = 0.2
"""Pause (s) before a waiting fetch asks the store again for bounds that it could not get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSettings:
    """Limits of one fetch."""

    bytes_max: int = 64 * 1024 * 1024
    """Largest answer in bytes, whatever the client requests (except for a single larger batch)."""
    wait_max_ms: int = 60_000
    """Longest wait (ms), whatever the client requests."""
    load_bytes_max: int = 32 * 1024 * 1024
    """Bytes that one fetch reads from the object store; then it answers with what it has. Bounds memory and time of lagging consumers."""
    slices_per_lookup: int = 256
    """Slices that one look-up in the metadata store returns."""


class Reader:
    """One server's read path. Use it from the event loop's thread only."""

    def __init__(
        self,
        commit_log: CommitLog,
        tail: TailIndex,
        history: History,
        cache: ObjectCache,
        committed_views: CommittedViews,
        settings: ReaderSettings,
    ) -> None:
        self._log = commit_log
        self._tail = tail
        self._history = history
        self._cache = cache
        self._views = committed_views
        self._settings = settings
        self._damaged = RepeatedError(log, "committed bytes are damaged")
        self._absent = RepeatedError(log, "a committed object is missing")
        self.at_tail = TailReads(tail, history, cache, settings.bytes_max, settings.wait_max_ms)
        """Reads that need neither the stores nor a wait."""

    async def fetch(
        self,
        ranges: Sequence[FetchRange],
        *,
        bytes_min: int,
        bytes_max: int,
        wait_ms: int,
        is_committed: bool = True,
    ) -> list[Fetched]:
        """Read the ranges, in order, up to `bytes_max` bytes in total; returns one answer per range.

        `is_committed`: return only records of committed transactions, and those without a transaction (`streams/committed.py`).

        Returns at once if `bytes_min` bytes are available, or as many as an answer may have, or if any range has an error; otherwise waits
        up to `wait_ms`.
        """
        wait_ms = min(wait_ms, self._settings.wait_max_ms)
        self._cache.note_reader(wait_ms)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        bytes_max = min(bytes_max, self._settings.bytes_max)
        bytes_min = least(bytes_min, bytes_max)
        wake = asyncio.Event()
        waiter = waiting.Lack(bytes_min, wake.set)
        while True:
            waiter.size_bytes = (
                bytes_min  # what arrives during the read may be counted twice: then the fetch reads once more
            )
            wake.clear()
            tails: list[PartitionTail] = []
            done = Progress(
                bytes_left=bytes_max, load_bytes_left=self._settings.load_bytes_max, is_committed=is_committed
            )
            try:
                async for part in in_turns(ranges):
                    await self._learn([item.partition for item in part])
                    if is_committed:
                        await self._views.know([item.partition for item in part])
                    watched = [tail for item in part if (tail := self._tail.get(item.partition)) is not None]
                    tails += watched
                    for tail in watched:
                        tail.waiters[waiter] = None
                    await self._collect(part, done)
                wait = deadline - loop.time()
                is_last = done.size_bytes >= bytes_min or wait <= 0 or done.is_cut or done.has_error
                if not is_last:
                    # The end of a transaction adds few bytes, and shows many.
                    waiter(waiter.size_bytes - 1 if done.hides_records() else done.size_bytes)
                    if len(tails) < len(ranges):  # a partition without known bounds has no tail to wake us
                        wait = min(wait, _LEARN_PAUSE_S)
                    is_last = not await waiting.is_woken(wake, wait) and loop.time() >= deadline
                await waiting.leave(tails, waiter)
            finally:
                for tail in tails:  # those that are left when the caller gives up
                    tail.waiters.pop(waiter, None)
            if is_last:
                return done.results

    async def bounds(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, PartitionBounds]:
        """Read the partitions' bounds from the store; partitions that do not exist are left out. Raises `Unavailable`."""
        return await self._log.bounds(partitions)

    async def _learn(self, partitions: Sequence[PartitionKey]) -> None:
        """Ask the store for the bounds of partitions that the tail index does not know; once per partition."""
        unknown = [
            partition for partition in partitions if (tail := self._tail.get(partition)) is None or tail.start < 0
        ]
        if not unknown:
            return
        generation = self._tail.generation
        try:
            found = await self._log.bounds(unknown)
        except BearlakeError as error:
            log.warning("cannot read the bounds of partitions", extra={"error": repr(error)})
            return
        for partition, bounds in found.items():
            self._tail.learn(partition, bounds, generation)

    # -- plan ----------------------------------------------------------------------------------------------------

    async def _collect(self, ranges: Sequence[FetchRange], done: Progress) -> None:
        """Add one answer per range to those that are `done`."""
        plans = [Plan(Fetched(item), [], True, [], done.is_committed) for item in ranges]
        cold = [plan for plan in plans if not self._plan_from_tail(plan)]
        _FROM_TAIL.value += len(plans) - len(cold)
        if cold:
            await asyncio.gather(*(self._plan_from_history(plan) for plan in cold))
        ration(plans, done)
        await self._load(plans, done)
        for plan in plans:
            fetched = plan.fetched
            if not plan.is_tail:
                self._spread(plan)
            is_first = done.size_bytes == 0
            if fetched.error is None:
                if done.bytes_left > 0 or is_first:
                    self._cut(plan, min(fetched.range.bytes_max, done.bytes_left), is_first=is_first)
                if plan.view is not None and plan.slices:
                    keep_committed(fetched, plan.view, plan.slices[-1].slice.end_offset)
                done.bytes_left -= fetched.size_bytes
                done.size_bytes += fetched.size_bytes
            done.has_error = done.has_error or fetched.error is not None
            done.results.append(fetched)

    def _plan_from_tail(self, plan: Plan) -> bool:
        """Plan from the tail index; False if the reader must ask the store."""
        fetched = plan.fetched
        tail = self._tail.get(fetched.range.partition)
        offset = fetched.range.offset
        if tail is None or tail.start < 0:
            return False
        if plan.is_committed:
            plan.view = self._views.view(fetched.range.partition, tail, offset)
            if plan.view is None:
                return False
        if not max(tail.known_from, tail.start) <= offset <= tail.end:
            return False
        fetched.start, fetched.end = tail.start, tail.end
        plan.limit()
        end = fetched.last_stable
        if offset >= end:
            return True
        handle = tail.find(offset)
        room = fetched.range.bytes_max
        while (piece := tail.at(handle)) is not None and piece.slice.base_offset < end:
            plan.slices.append(piece)
            room -= bytes_from(piece.slice, offset)
            if room <= 0:
                break
            handle += 1
        return True

    async def _plan_from_history(self, plan: Plan, *, is_fresh: bool = False) -> None:
        fetched = plan.fetched
        plan.is_tail = False
        plan.slices, plan.views = [], []
        for _ in range(RESOLVE_COUNT_MAX):
            try:
                if plan.is_committed and plan.view is None:
                    plan.view = await self._views.read(fetched.range.partition)
                bounds, plan.slices = await self._history.plan(*fetched.range, is_fresh=is_fresh)
                if plan.is_committed and (plan.view is None or is_behind(plan.view, plan.slices)):
                    plan.view = None
                    is_fresh = (
                        True  # what this server knows may be of a stream that was deleted, whose view stays empty
                    )
                    continue
                fetched.start, fetched.end = bounds.start, bounds.end
                plan.limit()
                return
            except Moved:
                is_fresh = True
            except BearlakeError as error:
                fetched.error = self._noted(error, fetched)
                return
        fetched.error = self._missing(fetched)

    # -- load ----------------------------------------------------------------------------------------------------

    async def _load(self, plans: Sequence[Plan], done: Progress) -> None:
        """Load the planned slices; drops those that are too much for one read."""
        unloaded = []
        for plan in plans:
            for at, piece in enumerate(plan.slices):
                view = self._cache.peek(piece.object, piece.slice) if plan.is_tail else self._peek(piece)
                if view is None:
                    extent = self._extent_of(piece, plan)
                    if extent not in done.extents:
                        size = extent[2] - extent[1]
                        if done.is_filled and size > done.load_bytes_left:
                            del plan.slices[at:]
                            done.is_cut = True
                            break
                        done.extents.add(extent)
                        done.load_bytes_left -= size
                        done.is_filled = (
                            done.is_filled or piece.slice.length > 0
                        )  # a piece that may be empty never ends a plan
                plan.views.append(view)
            if None in plan.views:
                unloaded.append(plan)
        if unloaded:
            await asyncio.gather(*(self._load_plan(plan) for plan in unloaded))

    def _peek(self, piece: Piece) -> "memoryview | Block | None":
        if isinstance(piece, BlockPiece):
            return self._history.peek(piece)
        return self._cache.peek(piece.object, piece.slice)

    def _extent_of(self, piece: Piece, plan: Plan) -> ExtentKey:
        if isinstance(piece, BlockPiece):
            group = piece.footer.groups[piece.group]
            return (piece.object.key, group.start, group.start + group.size_bytes)
        return self._cache.extent_of(piece.object, piece.slice, is_tail=plan.is_tail)

    async def _load_plan(self, plan: Plan) -> None:
        for _ in range(RESOLVE_COUNT_MAX):
            try:
                await self._load_views(plan)
                return
            except NotFound:
                # The object was swept during the read: its offsets are in another object now (I4).
                if plan.is_tail:
                    self._tail.forget(plan.fetched.range.partition)
                await self._plan_from_history(plan, is_fresh=True)
                if plan.fetched.error is not None:
                    return
            except BearlakeError as error:
                plan.fetched.error = self._noted(error, plan.fetched)
                return
        plan.fetched.error = self._missing(plan.fetched)

    async def _load_views(self, plan: Plan) -> None:
        """Load the plan's slices. Before damaged ones, a plan ends: readers get what precedes the damage, and its exact place next time.

        Raises `Corrupt` if nothing precedes it.
        """
        found = await asyncio.gather(*(self._get(piece, plan) for piece in plan.slices), return_exceptions=True)
        errors = [error for error in found if isinstance(error, BaseException)]
        for error in errors:
            if not isinstance(error, Corrupt):
                raise error
        whole = list(takewhile(lambda view: not isinstance(view, BaseException), found))
        if errors and not any(piece.slice.length for piece in plan.slices[: len(whole)]):  # 0: it may be empty
            raise errors[0]
        del plan.slices[len(whole) :]
        plan.views = cast("list[memoryview | Block | None]", whole)

    async def _get(self, piece: Piece, plan: Plan) -> "memoryview | Block":
        if isinstance(piece, BlockPiece):
            return await self._history.block(piece)
        return await self._cache.get(piece.object, piece.slice, is_tail=plan.is_tail)

    def _spread(self, plan: Plan) -> None:
        """Replace each block by its runs of batches, and read ahead after the last block."""
        blocks = [piece for piece in plan.slices if isinstance(piece, BlockPiece)]
        if not blocks or plan.fetched.error is not None:
            return
        slices: list[Piece] = []
        views: list[memoryview | Block | None] = []
        at = plan.fetched.range.offset
        for piece, view in zip(plan.slices, plan.views, strict=True):
            if isinstance(piece, BlockPiece):
                assert view is not None
                assert not isinstance(view, memoryview)
                for run, batches in piece.runs(view, at):
                    slices.append(run)
                    views.append(batches)
                    at = run.slice.end_offset
            else:
                slices.append(piece)
                views.append(view)
                at = piece.slice.end_offset
        plan.slices, plan.views = slices, views
        self._history.note_read(plan.fetched.range.offset, blocks[0], blocks[-1])

    # -- cut -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _cut(plan: Plan, bytes_max: int, *, is_first: bool) -> None:
        """Take whole batches, starting with the batch that holds the offset; at least one if `is_first` (KIP-74)."""
        fetched = plan.fetched
        views = cast("list[memoryview]", plan.views)  # all are loaded, and blocks are spread
        for view in views:
            length = len(view)
            start, end = kernel.find_run(view, 0, length, fetched.range.offset, bytes_max, is_first)
            if end > start:
                fetched.views.append(view[start:end] if (start, end) != (0, length) else view)
                fetched.size_bytes += end - start
                bytes_max -= end - start
                is_first = False
            if end < length or bytes_max <= 0:
                return

    # -- faults --------------------------------------------------------------------------------------------------

    def _noted(self, error: BearlakeError, fetched: Fetched) -> BearlakeError:
        """Return the error for a reader. Damage is logged with its place: readers learn only that there is some."""
        if isinstance(error, Corrupt):
            partition, offset, _ = fetched.range
            self._damaged.log((partition, str(error)), partition=partition, offset=offset, error=str(error))
            metrics.FETCH_DAMAGED.inc()
        return error

    def _missing(self, fetched: Fetched) -> Unavailable:
        """Return the error for a reader when objects that the store named are missing, in every attempt."""
        partition, offset, _ = fetched.range
        self._absent.log((partition, offset), partition=partition, offset=offset)
        metrics.FETCH_MISSING.inc()
        return Unavailable(f"committed bytes are missing: partition {partition}, offset {offset}")
