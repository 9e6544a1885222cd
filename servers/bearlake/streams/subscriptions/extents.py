"""Extents of the entries that were read: a client may acknowledge an entry by its base offset alone, so the server must know its end.

The extents are one array of base offsets, 8 bytes per entry: each entry ends where the next one begins.
"""

from array import array
from bisect import bisect_left, bisect_right


class Extents:
    """The known entries of one partition: a contiguous run, bounded in length."""

    __slots__ = ("_bases", "_count_max", "_end")

    def __init__(self, count_max: int) -> None:
        """Keep at most `count_max` entries; beyond that, drop the older half."""
        self._bases = array("q")
        self._end = 0
        self._count_max = count_max

    def __len__(self) -> int:
        return len(self._bases)

    def add(self, base: int, end: int) -> None:
        """Add an entry. An unknown entry that does not follow the last one starts a new run.

        An entry inside a known one is what a cleaning has left of that: the known one ends there.
        """
        if base == self._end or not self._bases:
            pass
        elif base > self._end or base < self._bases[0]:
            del self._bases[:]
        else:
            at = bisect_left(self._bases, base)
            if at == len(self._bases) or self._bases[at] != base:
                self._bases.insert(at, base)
            return
        self._bases.append(base)
        self._end = end
        if len(self._bases) > self._count_max:
            del self._bases[: len(self._bases) // 2]

    def find(self, offset: int) -> tuple[int, int] | None:
        """Return `[base, end)` of the entry that holds `offset`; None if the entry is not known."""
        bases = self._bases
        if not bases or not bases[0] <= offset < self._end:
            return None
        at = bisect_right(bases, offset)
        return bases[at - 1], bases[at] if at < len(bases) else self._end

    def ends_by(self, offset: int, end: int) -> bool:
        """Whether the entry that holds `offset` certainly ends at or before `end`.

        The entry itself may be forgotten: it is enough that a known entry begins or ends in between, because entries do not overlap.
        """
        if self._end <= end:
            return offset < self._end
        at = bisect_right(self._bases, end)
        return at > 0 and offset < self._bases[at - 1]

    def forget_before(self, offset: int) -> None:
        """Drop entries that end at or before `offset`; may be deferred until enough entries can be dropped."""
        bases = self._bases
        if offset >= self._end:
            del bases[:]
            return
        count = bisect_left(bases, offset + 1) - 1
        if count > 64 and count * 2 > len(bases):
            del bases[:count]
