"""A subscription's cursor in memory: which offsets are acknowledged.

    0 ........ mark_delete      [start, end)   [start, end)
    all acknowledged   | open |  acknowledged | acknowledged |  open ...

Ranges above the mark-delete offset ascend, are not empty, and touch neither each other nor the mark-delete offset, so equal sets
of acknowledged offsets look equal. Pure; the model it is tested against is a set of offsets.

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
        """All offsets below are acknowledged; this one is not."""
        self._starts = [start for start, _ in ranges]
        self._ends = [end for _, end in ranges]
        self._count = sum(self._ends) - sum(self._starts)
        self.version = 0
        """Grows with every change."""

    @classmethod
    def unpack(cls, mark_delete: int, packed: bytes) -> "AckCursor":
        """The cursor as it was saved. Raises `Corrupt`."""
        return cls(mark_delete, unpack_ranges(mark_delete, packed))

    def pack(self, bytes_max: int = ACKNOWLEDGED_BYTES_MAX) -> tuple[bytes, bool]:
        """The packed ranges, and whether these are all of them: the highest ones are left out as far as needed for `bytes_max`."""
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
        """How many ranges there are."""
        return len(self._starts)

    @property
    def last_end(self) -> int:
        """The end of the highest acknowledged range; `mark_delete` when there is none."""
        return self._ends[-1] if self._ends else self.mark_delete

    @property
    def range_offset_count(self) -> int:
        """How many offsets are acknowledged above `mark_delete`."""
        return self._count

    def acknowledge(self, start: int, end: int) -> int:
        """Acknowledge `[start, end)`; returns how many offsets of it were not acknowledged before."""
        if end <= self.mark_delete or end <= start:
            return 0
        if start <= self.mark_delete:
            return self._advance(end)
        starts, ends = self._starts, self._ends
        low = bisect_left(ends, start)  # the first range that touches or follows
        high = bisect_right(starts, end)  # behind the last one that touches or precedes
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
        """Acknowledge everything below `offset`; returns how many offsets that were not acknowledged before."""
        return self._advance(offset) if offset > self.mark_delete else 0

    def _advance(self, end: int) -> int:
        """Move `mark_delete` (which is below `end`) to `end` or, if a range touches that, to the range's end."""
        fresh = end - self.mark_delete
        starts, ends = self._starts, self._ends
        passed = bisect_right(starts, end)
        if passed:
            # The last range passed may reach beyond `end`: what lies in `[mark_delete, end)` of them all was acknowledged already.
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
        """Everything below `offset` is acknowledged, nothing else."""
        self.mark_delete = offset
        self._starts.clear()
        self._ends.clear()
        self._count = 0
        self.version += 1

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """The acknowledged ranges inside `[start, end)`, clipped to it."""
        found = []
        if start < self.mark_delete:
            found.append((start, min(end, self.mark_delete)))
        if self._starts:
            touched = range(bisect_right(self._ends, start), bisect_left(self._starts, end))
            found += [(max(start, self._starts[at]), min(end, self._ends[at])) for at in touched]
        return found

    def open_count(self, start: int, end: int) -> int:
        """How many offsets of `[start, end)` are not acknowledged."""
        if end <= self.mark_delete:
            return 0
        if start >= self.last_end:
            return end - start
        return end - start - sum(last - first for first, last in self.within(start, end))

    def offset_behind(self, count: int) -> int:
        """The smallest offset with `count` offsets below it that are not acknowledged."""
        offset = self.mark_delete
        for start, end in zip(self._starts, self._ends, strict=True):
            if count <= start - offset:
                break
            count -= start - offset
            offset = end
        return offset + count
