"""The tail index: where the newest committed slices lie, in memory, fed by the commit log.

It makes a caught-up read free of the metadata store. Slices leave it when compaction has given their offsets a new home (a SWAP
entry), and, since it is bounded by a number of slices, the oldest ones when compaction lags. `PartitionTail.known_from` moves
forward then; offsets before that are history (`index/segments.py`, else the store).

Guarantees: per partition the slices are dense (I2: each starts where the one before ended). An entry that does not start at
the known end means that something was missed: the partition is forgotten and counted, and its next reader asks the store.
The index is a hint for *where*, never for *whether*: out of range and the earliest offset are answered by the store.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bearlake.metadata.model import Entry, EntryKind, ObjectRef, PartitionBounds, PartitionKey, Slice
from bearlake.telemetry import metrics

_DEAD_COUNT_MIN = 1_000
"""Fewer dead slices (400 KB) are not worth a walk through all entries."""


class TailSlice(NamedTuple):
    """A slice and the object that it lies in."""

    slice: Slice
    object: ObjectRef


class PartitionTail:
    """The newest slices of one partition: offsets `[known_from, end)`."""

    __slots__ = ("_bases", "_head", "_slices", "end", "known_from", "start", "waiters")

    def __init__(self, known_from: int, end: int) -> None:
        self.known_from = known_from
        self.end = end
        self.start = -1
        """Start offset of the partition, -1 while this server has not asked for it."""
        self.waiters: dict[Callable[[], None], None] = {}
        self._bases: list[int] = []
        self._slices: list[TailSlice] = []
        self._head = 0

    def append(self, item: TailSlice) -> None:
        """Add the next slice, which starts at `end`."""
        self._bases.append(item.slice.base_offset)
        self._slices.append(item)
        self.end = item.slice.base_offset + item.slice.record_count

    def drop_first(self) -> None:
        """Forget the oldest slice; amortized constant time."""
        self.known_from = self._slices[self._head].slice.end_offset
        self._head += 1
        if self._head > 64 and self._head * 2 > len(self._slices):
            del self._slices[: self._head]
            del self._bases[: self._head]
            self._head = 0

    def drop_before(self, offset: int) -> int:
        """Forget the slices that start before `offset`; returns how many."""
        count = bisect_left(self._bases, offset, lo=self._head) - self._head
        if count:
            self.known_from = self._slices[self._head + count - 1].slice.end_offset
            del self._slices[: self._head + count]
            del self._bases[: self._head + count]
            self._head = 0
        return count

    def holds(self, piece: Slice) -> bool:
        """Whether the slice, once appended, is still here."""
        return self.known_from <= piece.base_offset < self.end

    def __len__(self) -> int:
        return len(self._slices) - self._head

    def first_base(self) -> int:
        """Base offset of the oldest slice that is kept, or `end` when there is none."""
        return self._bases[self._head] if len(self) else self.end

    def find(self, offset: int) -> int:
        """Handle of the slice that holds `offset` (known_from <= offset < end), for `at`."""
        return bisect_right(self._bases, offset, lo=self._head) - 1

    def at(self, handle: int) -> TailSlice | None:
        """The slice under a handle of `find`; the next handle is one larger; None behind the last slice."""
        return self._slices[handle] if handle < len(self._slices) else None

    def wake(self) -> None:
        """Call every waiter once."""
        for waiter in list(self.waiters):
            waiter()


class TailIndex:
    """All partitions' tails. One per server; used from the event loop's thread only."""

    def __init__(self, slice_count_max: int, on_gap: Callable[[PartitionKey], None]) -> None:
        """Keep at most `slice_count_max` slices (about 400 bytes each); `on_gap` is told of every partition that missed an entry."""
        self._slice_count_max = slice_count_max
        self._on_gap = on_gap
        self._tails: dict[PartitionKey, PartitionTail] = {}
        self._entries: deque[Sequence[Slice]] = deque()
        self.slice_count = 0
        """Slices of the entries that are kept, dead ones included: what takes memory."""
        self._dead_count = 0
        """How many of them no tail holds any more: they were swapped, or their partition was forgotten."""
        self.generation = 0
        """Grows whenever something is not kept: bounds that were asked for before may be older than what is not known any more."""
        self.position = 0
        """Log position up to which entries were applied."""

    def get(self, partition: PartitionKey) -> PartitionTail | None:
        """The partition's tail, or None while nothing is known of it."""
        return self._tails.get(partition)

    def reset(self, position: int) -> None:
        """Forget all slices and go on behind log position `position`; waiters are woken to look again."""
        tails, self._tails = self._tails, {}
        self.generation += 1
        self._entries.clear()
        self.slice_count = self._dead_count = 0
        self.position = position
        for tail in tails.values():
            tail.wake()

    def learn(self, partition: PartitionKey, bounds: PartitionBounds, generation: int) -> PartitionTail | None:
        """Take over bounds that the store has told; returns the partition's tail, whose start is known then.

        `generation` is what it was when the store was asked. If it has grown, entries behind these bounds may have been applied
        and forgotten: nothing is learned, and None returned.
        """
        if generation != self.generation:
            return None
        tail = self._tails.get(partition)
        if tail is None:
            tail = self._tails[partition] = PartitionTail(bounds.end, bounds.end)
        elif bounds.end > tail.end and len(tail) == 0:
            tail.known_from = tail.end = bounds.end
            tail.wake()
        tail.start = max(tail.start, bounds.start)
        return tail

    def forget(self, partition: PartitionKey) -> None:
        """Drop what is known of a partition (deleted, or in doubt) and wake its waiters."""
        self.generation += 1
        tail = self._tails.pop(partition, None)
        if tail is not None:
            self._died(len(tail))
            tail.wake()

    def apply(self, entry: Entry) -> None:
        """Apply the entry at `position + 1` … or later, and wake the readers that wait for it."""
        if entry.position <= self.position:
            return
        self.position = entry.position
        if entry.kind is EntryKind.COMMIT:
            self._append(entry)
        elif entry.kind is EntryKind.TRIM:
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

    def _append(self, entry: Entry) -> None:
        ref = ObjectRef(entry.object_key, entry.object_size)
        tails = self._tails
        for piece in entry.slices:
            partition = piece.partition
            tail = tails.get(partition)
            if tail is None:
                tail = tails[partition] = PartitionTail(piece.base_offset, piece.base_offset)
            if piece.base_offset == tail.end:
                tail.append(TailSlice(piece, ref))
                if tail.waiters:
                    tail.wake()
            elif piece.end_offset > tail.end:
                self._on_gap(partition)
                self.forget(partition)
        self._entries.append(entry.slices)
        self.slice_count += len(entry.slices)
        while self.slice_count > self._slice_count_max and len(self._entries) > 1:
            self._evict(self._entries.popleft())

    def _evict(self, slices: Sequence[Slice]) -> None:
        self.slice_count -= len(slices)
        metrics.INDEX_EVICTED.value += len(slices)
        for piece in slices:
            tail = self._tails.get(piece.partition)
            if tail is not None and len(tail) and tail.first_base() == piece.base_offset:
                tail.drop_first()
            elif self._dead_count:
                self._dead_count -= 1

    def _died(self, count: int) -> None:
        """Count slices that no tail holds any more; when they are most of what is kept, let them go."""
        self._dead_count += count
        if self._dead_count < _DEAD_COUNT_MIN or self._dead_count * 2 < self.slice_count:
            return
        tails = self._tails
        kept = [
            [piece for piece in slices if (tail := tails.get(piece.partition)) is not None and tail.holds(piece)]
            for slices in self._entries
        ]
        self._entries = deque(slices for slices in kept if slices)
        self.slice_count = sum(map(len, self._entries))
        self._dead_count = 0
