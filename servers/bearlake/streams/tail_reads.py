"""Reads from memory alone, in one step of the event loop, without a task: at the end of the log, from the tail index and the object
cache, and before it, from row groups that were decoded already (decision 284).

Very many polls may wait for one commit. Those that it wakes read in turns of the event loop (`TailReads.wake`), so that nobody else waits
for all of them.

TailReads.read   answers ranges at once, or says that they need the store (`streams/fetch.py`)
Poll             waits for records: a commit wakes it, and it reads again in the same turn of the event loop
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from bearlake.cache.objects import ObjectCache
from bearlake.index.tail import PartitionTail, TailIndex
from bearlake.streams.fetched import Fetched, FetchRange, has_enough, least
from bearlake.streams.turns import AT_ONCE
from bearlake.streams.waiting import Lack
from bearlake.telemetry import metrics
from bearlake.telemetry.containment import fault

log = logging.getLogger(__name__)

_FROM_TAIL = metrics.FETCH_LOOKUPS.labels("tail")
_POLL_WEIGHT = 10
"""What a poll weighs beside its partitions: it is answered as a rule, which takes as long as the look-up of ten partitions."""


class Past(Protocol):
    """Offsets before the tail index, as far as they are in memory; `streams/history.py` has them."""

    def from_memory(
        self, item: FetchRange, end: int, room: int, *, is_first: bool
    ) -> tuple[list[memoryview], bool] | None:
        """See `History.from_memory`."""

    def is_coming(self, item: FetchRange, end: int) -> bool:
        """See `History.is_coming`."""


class TailReads:
    """One server's reads from memory. Use it from the event loop's thread only."""

    def __init__(self, tail: TailIndex, past: Past, cache: ObjectCache, bytes_max: int, wait_max_ms: int) -> None:
        """`bytes_max` (bytes) and `wait_max_ms` limit each read and each wait, whatever the client requests."""
        self._tail = tail
        self._past = past
        self._cache = cache
        self._bytes_max = bytes_max
        self.wait_max_ms = wait_max_ms
        self._woken: deque[Poll] = deque()

    def bytes_min(self, bytes_min: int, bytes_max: int) -> int:
        """Return the bytes for which a read waits: at most as many as its answer may have."""
        return least(bytes_min, min(bytes_max, self._bytes_max))

    def note_wait(self, wait_ms: float) -> None:
        """Somebody waits up to `wait_ms` for records."""
        self._cache.note_reader(wait_ms)

    def wake(self, poll: "Poll") -> None:
        """Let a poll read, after the event loop's present step and the polls that were woken before it."""
        if not self._woken:
            asyncio.get_running_loop().call_soon(self._look)
        self._woken.append(poll)

    def _look(self) -> None:
        """Let woken polls read, as many as one turn of the event loop has time for."""
        weight = 0
        while self._woken and weight < AT_ONCE:
            poll = self._woken[0]
            weight += poll.look()
            self._woken.popleft()
        if self._woken:
            asyncio.get_running_loop().call_soon(self._look)

    def read(
        self, ranges: Sequence[FetchRange], bytes_max: int, *, bytes_min: int = 0, is_committed: bool = False
    ) -> list[Fetched] | None:
        """Read the ranges, in order, up to `bytes_max` bytes in total; never waits.

        Returns one answer per range, which may be empty; none has an error. Returns None if a range needs the stores: also if, before the
        tail, memory has fewer than `bytes_min` bytes and the stores have more. A range whose row group is being loaded does not need them
        if another one has records: its answer is empty. With `is_committed`, returns None if a range may have records that are not
        committed.
        """
        self._cache.note_reader()
        room = min(bytes_max, self._bytes_max)
        results: list[Fetched] = []
        is_first, is_cut, past_count = True, False, 0
        for item in ranges:
            tail = self._tail.get(item.partition)
            if tail is None or not 0 <= tail.start <= item.offset <= tail.end:
                return None
            if is_committed and item.offset < tail.committed_from:
                return None
            result = Fetched(item, tail.start, tail.end, tail.end)
            results.append(result)
            if item.offset < tail.end and (room > 0 or is_first):
                limit = min(item.bytes_max, room)
                if item.offset >= tail.known_from:
                    if not self._cut(tail, result, limit, is_first=is_first):
                        return None
                else:
                    past_count += 1
                    found = self._past.from_memory(item, tail.end, limit, is_first=is_first)
                    if found is None:
                        if not self._past.is_coming(item, tail.end):
                            return None
                        is_cut = True
                        continue
                    result.views, is_short = found
                    result.size_bytes = sum(map(len, result.views))
                    is_cut = is_cut or is_short
                room -= result.size_bytes
                is_first = is_first and not result.views
        if is_cut and (is_first or not has_enough(results, bytes_min)):
            return None
        _FROM_TAIL.value += len(results) - past_count
        return results

    def _cut(self, tail: PartitionTail, result: Fetched, room: int, *, is_first: bool) -> bool:
        """Take the runs of batches for one range; False if a slice is not cached."""
        offset = result.range.offset
        handle = tail.find(offset)
        while (piece := tail.at(handle)) is not None:
            found = self._cache.cut(piece.object, piece.slice, offset, room, is_first=is_first)
            if found is None:
                return False
            view, is_whole = found
            if view:
                result.views.append(view)
                result.size_bytes += len(view)
                room -= len(view)
                is_first = False
            if room <= 0 or not is_whole:
                break
            handle += 1
        return True

    def tails(self, ranges: Sequence[FetchRange]) -> list[PartitionTail]:
        """The known tails of the ranges' partitions."""
        return [tail for item in ranges if (tail := self._tail.get(item.partition)) is not None]


class Poll:
    """A read that waits until `bytes_min` bytes are available, or until its time is over."""

    __slots__ = (
        "_bytes_max",
        "_bytes_min",
        "_done",
        "_failed",
        "_is_committed",
        "_is_woken",
        "_lack",
        "_loop",
        "_ranges",
        "_reads",
        "_since",
        "_tails",
        "_timer",
    )

    def __init__(
        self,
        reads: TailReads,
        ranges: Sequence[FetchRange],
        *,
        bytes_min: int,
        bytes_max: int,
        wait_ms: int,
        done: Callable[[list[Fetched] | None], None],
        failed: Callable[[BaseException], None],
        found_bytes: int = 0,
        is_committed: bool = False,
    ) -> None:
        """Wait for records of `ranges`, of which `reads.read` has just found `found_bytes` bytes.

        Calls `done` once, with the answers, or with None where `reads.read` returns None. Calls `failed` with an error of `done`: a bug.
        """
        self._reads = reads
        self._ranges = ranges
        self._bytes_min = reads.bytes_min(bytes_min, bytes_max)
        self._bytes_max = bytes_max
        self._done = done
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._is_committed = is_committed
        self._is_woken = False
        self._lack = Lack(self._bytes_min - found_bytes, self._wake)
        wait_ms = min(wait_ms, reads.wait_max_ms)
        reads.note_wait(wait_ms)
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(wait_ms / 1000, self._read, 0)
        self._tails = reads.tails(ranges)
        for tail in self._tails:
            tail.waiters[self._lack] = None
        metrics.FETCH_WAITING.value += 1

    def _wake(self) -> None:
        """Called once the partitions have got what was lacking; the read follows when the whole entry has been applied."""
        if not self._is_woken and self._timer is not None:
            self._is_woken = True
            self._reads.wake(self)

    def look(self) -> int:
        """Read again; returns how much work that was, in partitions. Called by `TailReads`."""
        self._is_woken = False
        if self._timer is None:
            return 1
        self._read(self._bytes_min)
        return _POLL_WEIGHT + len(self._ranges)

    def _read(self, bytes_min: int) -> None:
        """Read again, and end the wait if there are `bytes_min` bytes. Raises nothing: a bug closes the waiting connection."""
        try:
            results = self._reads.read(
                self._ranges, self._bytes_max, bytes_min=bytes_min, is_committed=self._is_committed
            )
            if results is None or has_enough(results, bytes_min):
                self.cancel()
                self._done(results)
            else:
                self._lack.size_bytes = bytes_min - sum(result.size_bytes for result in results)
        except Exception as error:  # noqa: BLE001 - boundary: one connection
            self.cancel()
            fault(log, "answer a waiting fetch", error, self._failed)

    def cancel(self) -> None:
        """End the wait without an answer. Safe to repeat."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        for tail in self._tails:
            tail.waiters.pop(self._lack, None)
        metrics.FETCH_WAITING.value -= 1
        metrics.FETCH_WAIT_SECONDS.observe(self._loop.time() - self._since)
