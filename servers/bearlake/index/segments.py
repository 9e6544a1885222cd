"""The segment index: caches the store's answers about where older offsets are, for readers of history.

A lagging reader asks the metadata store once for a page of slices and segments; its next fetches use this cache. The index keeps one
*run* of contiguous pieces per partition, and evicts the least recently used partitions when it holds too many pieces.

Guarantees: the content matches the commit log up to the follower's position. A swap removes the pieces that it moved, and the index ignores
an answer of the store that is older than the last swap. The index says *where* an offset is, never *whether* it exists: only the store
decides out of range and the earliest offset, and the caller knows the partition's start before it looks here.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence

from bearlake.metadata.model import Entry, EntryKind, Located, LocatedSlice, PartitionKey


class _Run:
    """Contiguous pieces of one partition, in offset order."""

    __slots__ = ("bases", "end", "pieces")

    def __init__(self) -> None:
        self.bases: list[int] = []
        self.pieces: list[LocatedSlice] = []
        self.end = -1

    def extend(self, pieces: Sequence[LocatedSlice]) -> None:
        self.bases += [piece.slice.base_offset for piece in pieces]
        self.pieces += pieces
        self.end = pieces[-1].slice.end_offset

    def drop_first(self, count: int) -> None:
        del self.bases[:count]
        del self.pieces[:count]


class SegmentIndex:
    """Runs of located pieces, at most `piece_count_max` in total. Use it from the event loop's thread only."""

    def __init__(self, piece_count_max: int) -> None:
        """A piece takes about 500 bytes."""
        self._piece_count_max = piece_count_max
        self._runs: OrderedDict[PartitionKey, _Run] = OrderedDict()
        self._swapped_at = 0
        self.piece_count = 0

    def find(self, partition: PartitionKey, offset: int, *, limit: int) -> Sequence[LocatedSlice]:
        """Return at most `limit` pieces, starting with the piece that holds `offset`; none if the index does not know that piece."""
        run = self._runs.get(partition)
        if run is None or not run.pieces or not run.bases[0] <= offset < run.end:
            return ()
        self._runs.move_to_end(partition)
        at = bisect_right(run.bases, offset) - 1
        return run.pieces[at : at + limit]

    def learn(self, partition: PartitionKey, located: Located) -> None:
        """Add the store's answer, unless a swap applied since then may have moved its pieces."""
        pieces = located.slices
        if not pieces or located.position < self._swapped_at:
            return
        run = self._runs.pop(partition, None)
        added = [piece for piece in pieces if run is not None and piece.slice.base_offset >= run.end]
        if run is None or not (added and added[0].slice.base_offset == run.end):
            self.piece_count -= len(run.pieces) if run is not None else 0
            run, added = _Run(), list(pieces)
        run.extend(added)
        self.piece_count += len(added)
        self._runs[partition] = run
        self._shrink()

    def _shrink(self) -> None:
        while self.piece_count > self._piece_count_max and len(self._runs) > 1:
            _, oldest = self._runs.popitem(last=False)
            self.piece_count -= len(oldest.pieces)
        excess = self.piece_count - self._piece_count_max
        if excess > 0:  # one run is left; readers move forward, so its front is the least useful
            (run,) = self._runs.values()
            count = min(max(excess, len(run.pieces) // 4), len(run.pieces) - 1)
            run.drop_first(count)
            self.piece_count -= count

    def apply(self, entry: Entry) -> None:
        """Drop pieces that a SWAP entry moved or a TRIM entry removed; ignore entries of other kinds."""
        if entry.kind is EntryKind.SWAP:
            self._swapped_at = entry.position
            for partition, start, end in entry.ranges:
                run = self._runs.get(partition)
                if run is not None and start < run.end and run.bases[0] < end:
                    self.forget(partition)
        elif entry.kind is EntryKind.TRIM:
            run = self._runs.get(entry.partition)
            if run is not None and entry.start_offset >= run.end:
                self.forget(entry.partition)
            elif run is not None:
                count = max(0, bisect_right(run.bases, entry.start_offset) - 1)
                run.drop_first(count)
                self.piece_count -= count

    def forget(self, partition: PartitionKey) -> None:
        """Drop the partition's run (it was deleted, or may be stale)."""
        run = self._runs.pop(partition, None)
        if run is not None:
            self.piece_count -= len(run.pieces)

    def reset(self, position: int) -> None:
        """Drop everything: this server skipped log entries up to `position`."""
        self._runs.clear()
        self.piece_count = 0
        self._swapped_at = position
