"""Maps segments to new files when their rows move.

Segments and written rows are both in order of (partition, offset). A segment begins at the first row at or after its base offset. A file
that ends inside a segment splits it; consecutive segments in one file are joined.
"""

from collections.abc import Sequence

from bearlake.compaction.segments import join
from bearlake.errors import Corrupt
from bearlake.metadata.model import Slice, partition_index
from bearlake.table.rows import Key, Keys


class Moving:
    """Tracks the rows of a merge through its files."""

    def __init__(self, segments: Sequence[Slice]) -> None:
        """`segments` are sorted, and all of their rows will be written."""
        self._rest = list(reversed(segments))
        self._placed: list[Slice] = []

    def add_group(self, keys: Keys, position: int) -> None:
        """Record written rows with these keys; the first row has index `position` in the file.

        Raises:
            Corrupt: a segment has no row.
        """
        last = keys.key(-1)
        while self._rest and _start(self._rest[-1]) <= last:
            segment = self._rest.pop()
            row = keys.find(_start(segment))
            if keys.key(row) >= _end(segment):
                raise Corrupt(f"found no row of segment {segment}")
            self._place(segment._replace(position=position + row))

    def end_file(self, next_key: Key | None) -> list[Slice]:
        """Return the segments of the finished file; `next_key` is the key of the next row to write, or None.

        Raises:
            Corrupt: a segment has no row, because `next_key` is None.
        """
        placed, self._placed = self._placed, []
        if next_key is None:
            if self._rest:
                raise Corrupt(f"found no row of segment {self._rest[-1]}")
        elif placed and _start(placed[-1]) < next_key < _end(placed[-1]):
            placed[-1], behind = _split(placed[-1], next_key[1])
            self._rest.append(behind)
        return placed

    def _place(self, segment: Slice) -> None:
        joined = join(self._placed[-1], segment) if self._placed else None
        if joined is not None:
            self._placed[-1] = joined
        else:
            self._placed.append(segment)


def _start(segment: Slice) -> Key:
    return partition_index(segment.partition), segment.base_offset


def _end(segment: Slice) -> Key:
    return partition_index(segment.partition), segment.end_offset


def _split(segment: Slice, offset: int) -> tuple[Slice, Slice]:
    """Split a segment. Committed bytes are divided in proportion to offsets, because their sizes per batch are no longer known."""
    count = offset - segment.base_offset
    length = segment.length * count // segment.record_count
    behind = segment._replace(
        base_offset=offset, record_count=segment.record_count - count, length=segment.length - length
    )
    return segment._replace(record_count=count, length=length), behind
