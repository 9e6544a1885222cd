"""The segment index: where older offsets lie, as the store has told, for readers on their way through history.

A reader that lags asks the metadata store once for a page of slices and segments, and then finds its next fetches here. One *run* of
pieces without gaps is kept per partition; the partitions used least recently go when there are too many pieces in all.

Guarantees: what is here is as true as the commit log up to the follower's position. A swap takes away what it moved, and an answer of
the store that is older than the last swap is not learned. This index says *where*, never *whether*: out of range and the earliest
offset are the store's word, and the caller knows the partition's start before it asks here.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence

from bearlake.metadata.model import Entry, EntryKind, Located, LocatedSlice, PartitionKey


class _Run:
    """Pieces of one partition without gaps, in offset order."""

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
    """Runs of located pieces, at most `piece_count_max` in all. Used from the event loop's thread only."""

    def __init__(self, piece_count_max: int) -> None:
        """A piece takes about 500 bytes."""
        self._piece_count_max = piece_count_max
        self._runs: OrderedDict[PartitionKey, _Run] = OrderedDict()
        self._swapped_at = 0
        self.piece_count = 0

    def find(self, partition: PartitionKey, offset: int, *, limit: int) -> Sequence[LocatedSlice]:
        """At most `limit` pieces from the one that holds `offset` on; none when that is not known here."""
        run = self._runs.get(partition)
        if run is None or not run.pieces or not run.bases[0] <= offset < run.end:
            return ()
        self._runs.move_to_end(partition)
        at = bisect_right(run.bases, offset) - 1
        return run.pieces[at : at + limit]

    def learn(self, partition: PartitionKey, located: Located) -> None:
        """Take over what the store has told, unless a swap that was applied since may have moved it."""
        pieces = located.slices
        if not pieces or located.position < self._swapped_at:
            return
        run = self._runs.pop(partition, None)
        news = [piece for piece in pieces if run is not None and piece.slice.base_offset >= run.end]
        if run is None or not (news and news[0].slice.base_offset == run.end):
            self.piece_count -= len(run.pieces) if run is not None else 0
            run, news = _Run(), list(pieces)
        run.extend(news)
        self.piece_count += len(news)
        self._runs[partition] = run
        self._shrink()

    def _shrink(self) -> None:
        while self.piece_count > self._piece_count_max and len(self._runs) > 1:
            _, oldest = self._runs.popitem(last=False)
            self.piece_count -= len(oldest.pieces)
        excess = self.piece_count - self._piece_count_max
        if excess > 0:  # one run is left: readers go forward, so its front is wanted least
            (run,) = self._runs.values()
            count = min(max(excess, len(run.pieces) // 4), len(run.pieces) - 1)
            run.drop_first(count)
            self.piece_count -= count

    def apply(self, entry: Entry) -> None:
        """Drop what a SWAP entry has moved and what a TRIM entry has put before the start; other kinds change nothing here."""
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
        """Drop what is known of a partition (deleted, or in doubt)."""
        run = self._runs.pop(partition, None)
        if run is not None:
            self.piece_count -= len(run.pieces)

    def reset(self, position: int) -> None:
        """Forget everything: entries up to log position `position` were not followed."""
        self._runs.clear()
        self.piece_count = 0
        self._swapped_at = position
