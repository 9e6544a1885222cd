"""The tail index: an in-memory map of the newest committed slices, fed by the commit log.

A caught-up reader needs no metadata store. A slice leaves the index when compaction moves its offsets to a new object (a SWAP entry).
The number of slices is bounded: when compaction lags, the oldest slices are evicted. `PartitionTail.known_from` then moves forward;
readers find earlier offsets in history (`index/segments.py`, else the store).

Guarantees: the slices of a partition are dense (I2: each starts where the previous one ended). A new slice that does not start at the known
end shows that this server missed an entry. The index then forgets the partition and reports the gap; the next reader asks the store.
The index says *where* an offset is, never *whether* it exists: only the store decides out of range and the earliest offset.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from typing import NamedTuple, TypeAlias

from bearlake.index.wakes import Wakes
from bearlake.metadata.model import Entry, EntryKind, ObjectRef, PartitionBounds, PartitionKey, Slice
from bearlake.telemetry import metrics

_DEAD_COUNT_MIN = 1_000
"""Fewer dead slices than this (400 KB) do not justify a scan of all entries."""


NEVER = 1 << 62
"""An offset that no partition reaches."""

UNKNOWN_BYTES = 1 << 62
"""The argument for waiters that must look again, whatever they lack."""

Waiter: TypeAlias = Callable[[int], None]
"""Called with the bytes that a partition got, or `UNKNOWN_BYTES`. It does little: a commit may call very many."""


class TailSlice(NamedTuple):
    """A slice and the object that holds it."""

    slice: Slice
    object: ObjectRef


_tail_slice = partial(tuple.__new__, TailSlice)


class PartitionTail:
    """The newest slices of one partition: offsets `[known_from, end)`."""

    __slots__ = ("_bases", "_head", "_slices", "committed_from", "end", "known_from", "start", "store_end", "waiters")

    def __init__(self, known_from: int, end: int) -> None:
        self.known_from = known_from
        self.end = end
        self.start = -1
        """Start offset of the partition; -1 until this server has asked the store for it."""
        self.store_end = -1
        """The newest end that came from the store and not from the log; -1: none. The log that this server follows may be behind it."""
        self.committed_from = NEVER
        """Every record from this offset on is committed, as the isolation index knows it (`streams/committed.py`)."""
        self.waiters: dict[Waiter, None] = {}
        self._bases: list[int] = []
        self._slices: list[TailSlice] = []
        self._head = 0

    def append(self, item: TailSlice, base: int, end: int) -> None:
        """Add the next slice, with offsets `[base, end)`; `base` is the tail's end."""
        self._bases.append(base)
        self._slices.append(item)
        self.end = end

    def drop_first(self, base: int) -> bool:
        """Drop the oldest slice if it starts at `base`; returns whether it does. Amortized constant time."""
        bases, head = self._bases, self._head
        if head >= len(bases) or bases[head] != base:
            return False
        self.known_from = self._slices[head].slice.end_offset
        self._head = head = head + 1
        if head > 64 and head * 2 > len(bases):
            del self._slices[:head]
            del bases[:head]
            self._head = 0
        return True

    def drop_before(self, offset: int) -> int:
        """Drop the slices that start before `offset`; returns how many."""
        count = bisect_left(self._bases, offset, lo=self._head) - self._head
        if count:
            self.known_from = self._slices[self._head + count - 1].slice.end_offset
            del self._slices[: self._head + count]
            del self._bases[: self._head + count]
            self._head = 0
        return count

    def holds(self, piece: Slice) -> bool:
        """Whether the index still has the slice, which was appended earlier."""
        return self.known_from <= piece.base_offset < self.end

    def __len__(self) -> int:
        return len(self._slices) - self._head

    def find(self, offset: int) -> int:
        """Return a handle, for `at`, of the slice that holds `offset` (known_from <= offset < end)."""
        return bisect_right(self._bases, offset, lo=self._head) - 1

    def at(self, handle: int) -> TailSlice | None:
        """Return the slice of a handle from `find`; handle + 1 is the next slice. None after the last slice."""
        return self._slices[handle] if handle < len(self._slices) else None

    @property
    def waiter_count(self) -> int:
        """Waiters."""
        return len(self.waiters)

    def wake(self, size_bytes: int = UNKNOWN_BYTES) -> None:
        """Call every waiter once."""
        for waiter in list(self.waiters):
            waiter(size_bytes)


class TailIndex:
    """The tails of all partitions. One per server; use it from the event loop's thread only."""

    def __init__(self, slice_count_max: int, on_gap: Callable[[PartitionKey], None]) -> None:
        """Keep at most `slice_count_max` slices (about 400 bytes each); calls `on_gap` for a partition when an entry is missing."""
        self._slice_count_max = slice_count_max
        self._on_gap = on_gap
        self._tails: dict[PartitionKey, PartitionTail] = {}
        self._wakes = Wakes()
        self._entries: deque[Sequence[Slice]] = deque()
        self.slice_count = 0
        """Slices in memory, including dead slices."""
        self._dead_count = 0
        """Dead slices: no tail holds them, because they were swapped or their partition was forgotten."""
        self.generation = 0
        """Grows whenever the index forgets something: bounds requested before that may be older than the forgotten entries."""
        self.position = 0
        """Log position of the last applied entry."""

    def get(self, partition: PartitionKey) -> PartitionTail | None:
        """The partition's tail, or None if the index knows nothing of the partition."""
        return self._tails.get(partition)

    def reset(self, position: int) -> None:
        """Forget all slices and continue after log position `position`; wakes all waiters to look again."""
        tails, self._tails = self._tails, {}
        self.generation += 1
        self._entries.clear()
        self.slice_count = self._dead_count = 0
        self.position = position
        self._wakes.begin()
        for tail in tails.values():
            if tail.waiters:
                self._wakes.add(tail, UNKNOWN_BYTES)

    def learn(self, partition: PartitionKey, bounds: PartitionBounds, generation: int) -> PartitionTail | None:
        """Record bounds that the store returned; returns the partition's tail, with its start set.

        `generation` is the index's generation before the store was asked. If it has grown, the index may have applied and forgotten
        entries after these bounds: it then ignores the bounds and returns None.
        """
        if generation != self.generation:
            return None
        tail = self._tails.get(partition)
        if tail is None:
            tail = self._tails[partition] = PartitionTail(bounds.end, bounds.end)
            tail.store_end = bounds.end
        elif bounds.end > tail.end and len(tail) == 0:
            tail.known_from = tail.end = tail.store_end = bounds.end
            tail.committed_from = NEVER  # the isolation index may be behind
            tail.wake()
        tail.start = max(tail.start, bounds.start)
        return tail

    def forget(self, partition: PartitionKey) -> None:
        """Drop a partition's tail (it was deleted, or may be stale) and wake its waiters."""
        self.generation += 1
        tail = self._tails.pop(partition, None)
        if tail is not None:
            self._died(len(tail))
            tail.wake()

    def apply(self, entry: Entry) -> None:
        """Apply an entry after `position` and wake the readers that wait for it; ignores entries up to `position`."""
        if entry.position <= self.position:
            return
        if entry.kind is EntryKind.COMMIT:
            self.committed(entry.position, ObjectRef(entry.object_key, entry.object_size), entry.slices)
            return
        self.position = entry.position
        if entry.kind is EntryKind.TRIM:
            tail = self._tails.get(entry.partition)
            if tail is not None:
                tail.start = max(tail.start, entry.start_offset)
            else:
                self.generation += 1
        elif entry.kind is EntryKind.SWAP:
            for partition, _, end in entry.ranges:
                tail = self._tails.get(partition)
                if tail is not None:
                    self._died(tail.drop_before(end))

    def committed(self, position: int, ref: ObjectRef, committed: Sequence[Slice]) -> None:
        """Apply the commit at `position`, which is after `self.position`, and wake the readers that wait for it."""
        self.position = position
        tails = self._tails
        self._wakes.begin()
        slices = list(committed)
        for item in map(_tail_slice, zip(slices, repeat(ref))):
            partition, base, count, _, length, _ = item[0]
            tail = tails.get(partition)
            if tail is None:
                tail = tails[partition] = PartitionTail(base, base)
            if base == tail.end:
                tail.append(item, base, base + count)
                if tail.waiters:
                    self._wakes.add(tail, length)
            elif base + count > tail.end:
                self._on_gap(partition)
                self.forget(partition)
        self._entries.append(slices)
        self.slice_count += len(slices)
        while self.slice_count > self._slice_count_max and len(self._entries) > 1:
            self._evict(self._entries.popleft())

    def _evict(self, slices: Sequence[Slice]) -> None:
        self.slice_count -= len(slices)
        metrics.INDEX_EVICTED.value += len(slices)
        tails = self._tails
        for piece in slices:
            tail = tails.get(piece[0])
            if (tail is None or not tail.drop_first(piece[1])) and self._dead_count:
                self._dead_count -= 1

    def _died(self, count: int) -> None:
        """Count `count` slices as dead; free all dead slices once they are at least half of the slices in memory."""
        self._dead_count += count
        if self._dead_count < _DEAD_COUNT_MIN or self._dead_count * 2 < self.slice_count:
            return
        tails = self._tails
        remaining = [
            [piece for piece in slices if (tail := tails.get(piece.partition)) is not None and tail.holds(piece)]
            for slices in self._entries
        ]
        self._entries = deque(slices for slices in remaining if slices)
        self.slice_count = sum(map(len, self._entries))
        self._dead_count = 0
