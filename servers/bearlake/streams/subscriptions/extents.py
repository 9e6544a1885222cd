"""Where entries begin and end, for those that were read: a client may acknowledge an entry by its base offset alone.

One array of base offsets, 8 bytes per entry: each entry ends where the next one begins.
"""

from array import array
from bisect import bisect_left, bisect_right


class Extents:
    """The known entries of one partition: a run without gaps, bounded."""

    __slots__ = ("_bases", "_count_max", "_end")

    def __init__(self, count_max: int) -> None:
        """Remember at most `count_max` entries; with more, the older half is forgotten."""
        self._bases = array("q")
        self._end = 0
        self._count_max = count_max

    def __len__(self) -> int:
        return len(self._bases)

    def add(self, base: int, end: int) -> None:
        """Learn an entry. One that does not follow the last one starts a new run, unless it is known."""
        if base == self._end or not self._bases:
            pass
        elif base > self._end or base < self._bases[0]:
            del self._bases[:]
        else:
            return
        self._bases.append(base)
        self._end = end
        if len(self._bases) > self._count_max:
            del self._bases[: len(self._bases) // 2]

    def find(self, offset: int) -> tuple[int, int] | None:
        """`[base, end)` of the entry that holds `offset`; None when it is not known."""
        bases = self._bases
        if not bases or not bases[0] <= offset < self._end:
            return None
        at = bisect_right(bases, offset)
        return bases[at - 1], bases[at] if at < len(bases) else self._end

    def ends_by(self, offset: int, mark: int) -> bool:
        """Whether the entry that holds `offset` is known to end at or before `mark`, also when it is forgotten itself: an entry is known to
        begin or end in between, and entries do not overlap."""
        if self._end <= mark:
            return offset < self._end
        at = bisect_right(self._bases, mark)
        return at > 0 and offset < self._bases[at - 1]

    def forget_before(self, offset: int) -> None:
        """Forget entries that end at or before `offset`; done now and then, when it pays."""
        bases = self._bases
        if offset >= self._end:
            del bases[:]
            return
        count = bisect_left(bases, offset + 1) - 1
        if count > 64 and count * 2 > len(bases):
            del bases[:count]
