"""A subscription's cursor in memory: the set of acknowledged offsets.

    0 ........ mark_delete      [start, end)   [start, end)
    all acknowledged   | open |  acknowledged | acknowledged |  open ...

Ranges above the mark-delete offset ascend and are not empty; they touch neither each other nor the mark-delete offset. So equal sets of
acknowledged offsets have equal representations. The module is pure; tests compare it with a set of offsets.

Source: Apache Pulsar, ManagedCursor (mark-delete position and individually deleted messages).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from bearlake.metadata.subscriptions import ACKNOWLEDGED_BYTES_MAX, pack_ranges, unpack_ranges


class AckCursor:
    """The acknowledged offsets of one subscription in one partition."""

    __slots__ = ("_count", "_ends", "_starts", "mark_delete", "version")

    def __init__(self, mark_delete: int, ranges: Sequence[tuple[int, int]] = ()) -> None:
        self.mark_delete = mark_delete
        """All smaller offsets are acknowledged; this one is not."""
        self._starts = [start for start, _ in ranges]
        self._ends = [end for _, end in ranges]
        self._count = sum(self._ends) - sum(self._starts)
        self.version = 0
        """Grows with every change."""

    @classmethod
    def unpack(cls, mark_delete: int, packed: bytes) -> "AckCursor":
        """Decode a saved cursor. Raises `Corrupt`."""
        return cls(mark_delete, unpack_ranges(mark_delete, packed))

    def pack(self, bytes_max: int = ACKNOWLEDGED_BYTES_MAX) -> tuple[bytes, bool]:
        """Return the packed ranges, and whether they are complete: the highest ranges are left out to fit `bytes_max`."""
        count = len(self._starts)
        packed = pack_ranges(self.mark_delete, self.ranges)
        while len(packed) > bytes_max:
            count = count * bytes_max // len(packed)
            packed = pack_ranges(self.mark_delete, self.ranges[:count])
        return packed, count == len(self._starts)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Acknowledged ranges above `mark_delete`."""
        return list(zip(self._starts, self._ends, strict=True))

    @property
    def range_count(self) -> int:
        """Number of acknowledged ranges above `mark_delete`."""
        return len(self._starts)

    @property
    def last_end(self) -> int:
        """The end of the highest acknowledged range; `mark_delete` if there is none."""
        return self._ends[-1] if self._ends else self.mark_delete

    @property
    def range_offset_count(self) -> int:
        """Number of acknowledged offsets above `mark_delete`."""
        return self._count

    def acknowledge(self, start: int, end: int) -> int:
        """Acknowledge `[start, end)`; returns how many of these offsets were not acknowledged before."""
        if end <= self.mark_delete or end <= start:
            return 0
        if start <= self.mark_delete:
            return self._advance(end)
        starts, ends = self._starts, self._ends
        low = bisect_left(ends, start)  # the first range that touches or follows
        high = bisect_right(starts, end)  # after the last range that touches or precedes
        if low == high:
            starts.insert(low, start)
            ends.insert(low, end)
            fresh = end - start
        else:
            before = sum(ends[low:high]) - sum(starts[low:high])
            first, last = min(start, starts[low]), max(end, ends[high - 1])
            starts[low:high] = [first]
            ends[low:high] = [last]
            fresh = last - first - before
        if fresh:
            self._count += fresh
            self.version += 1
        return fresh

    def acknowledge_before(self, offset: int) -> int:
        """Acknowledge all offsets below `offset`; returns how many of them were not acknowledged before."""
        return self._advance(offset) if offset > self.mark_delete else 0

    def _advance(self, end: int) -> int:
        """Move `mark_delete` (which is below `end`) to `end`, or, if a range touches `end`, to that range's end."""
        fresh = end - self.mark_delete
        starts, ends = self._starts, self._ends
        passed = bisect_right(starts, end)
        if passed:
            # The last passed range may reach beyond `end`; count only the part below `end` as already acknowledged.
            last_end = ends[passed - 1]
            known = sum(ends[:passed]) - sum(starts[:passed])
            fresh -= known - max(0, last_end - end)
            self._count -= known
            end = max(end, last_end)
            del starts[:passed], ends[:passed]
        self.mark_delete = end
        self.version += 1
        return fresh

    def reset(self, offset: int) -> None:
        """Acknowledge exactly the offsets below `offset`."""
        self.mark_delete = offset
        self._starts.clear()
        self._ends.clear()
        self._count = 0
        self.version += 1

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the acknowledged ranges, clipped to `[start, end)`."""
        found = []
        if start < self.mark_delete:
            found.append((start, min(end, self.mark_delete)))
        if self._starts:
            touched = range(bisect_right(self._ends, start), bisect_left(self._starts, end))
            found += [(max(start, self._starts[at]), min(end, self._ends[at])) for at in touched]
        return found

    def open_count(self, start: int, end: int) -> int:
        """Return how many offsets of `[start, end)` are not acknowledged."""
        if end <= self.mark_delete:
            return 0
        if start >= self.last_end:
            return end - start
        return end - start - sum(last - first for first, last in self.within(start, end))

    def offset_behind(self, count: int) -> int:
        """Return the smallest offset with `count` unacknowledged offsets below it."""
        offset = self.mark_delete
        for start, end in zip(self._starts, self._ends, strict=True):
            if count <= start - offset:
                break
            count -= start - offset
            offset = end
        return offset + count
