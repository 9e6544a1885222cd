"""Which offset of the target a record of the source has: runs, in which both sides count alike.

    runs = Runs()
    runs.add(1_000, 0)                  # the record at offset 1,000 of the source is at offset 0 of the target …
    runs.add(1_010, 8)                  # … and so on, up to a gap before offset 1,010
    runs.target_of(1_004), runs.source_of(9)        # 4, 1_011

A run begins at each gap of the source: the marker of a transaction, records that key compaction or deletion has removed.
"""

from array import array
from bisect import bisect_right


class Runs:
    """The runs of one partition, in order; the newest `count_max` of them."""

    __slots__ = ("_count_max", "_sources", "_targets", "dropped")

    def __init__(self, count_max: int = 1_000_000) -> None:
        self._count_max = count_max
        self._sources = array("q")
        self._targets = array("q")
        self.dropped = 0
        """Older runs that are not remembered."""

    def __len__(self) -> int:
        return len(self._sources)

    @property
    def first(self) -> tuple[int, int] | None:
        """The first remembered run: (source offset, target offset); None: there is none."""
        return (self._sources[0], self._targets[0]) if self._sources else None

    @property
    def last(self) -> tuple[int, int] | None:
        """The newest run, likewise."""
        return (self._sources[-1], self._targets[-1]) if self._sources else None

    def cut(self, target: int) -> None:
        """Forget the runs that begin at the target's offset `target` or later."""
        keep = len(self._targets)
        while keep and self._targets[keep - 1] >= target:
            keep -= 1
        del self._sources[keep:], self._targets[keep:]

    def add(self, source: int, target: int) -> None:
        """Add a run after all others."""
        self._sources.append(source)
        self._targets.append(target)
        if len(self._sources) >= 2 * self._count_max:
            count = len(self._sources) - self._count_max
            del self._sources[:count], self._targets[:count]
            self.dropped += count

    def goes_on(self, source: int, target: int) -> bool:
        """Whether a record at these offsets belongs to the newest run."""
        return bool(self._sources) and self._sources[-1] - self._targets[-1] == source - target

    def target_of(self, source: int, end: int) -> int | None:
        """Return the target's offset of the first record at or after the source's offset `source`; None: not remembered.

        `end`: the target's offset after the newest record.
        """
        index = bisect_right(self._sources, source) - 1
        if index < 0:
            return None if self.dropped or not self._sources else self._targets[0]
        stop = self._targets[index + 1] if index + 1 < len(self._targets) else end
        return min(stop, self._targets[index] + source - self._sources[index])

    def source_of(self, target: int) -> int | None:
        """Return the source's offset at which the copy goes on when the target ends at `target`; None: not remembered."""
        index = bisect_right(self._targets, target) - 1
        return None if index < 0 else self._sources[index] + target - self._targets[index]
