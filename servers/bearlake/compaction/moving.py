"""Where segments go when their rows move into other files.

Segments come in order of (partition, offset), and so do the rows that are written. A segment begins at the first row at or behind
its base offset; a file that ends inside one cuts it in two; segments that follow each other in one file become one.
"""

from collections.abc import Sequence

from bearlake.compaction.segments import join
from bearlake.errors import Corrupt
from bearlake.metadata.model import Slice, partition_index
from bearlake.table.rows import Key, Keys


class Moving:
    """Follows the rows of a merge through its files."""

    def __init__(self, segments: Sequence[Slice]) -> None:
        """`segments` are sorted, all those whose rows will come."""
        self._rest = list(reversed(segments))
        self._placed: list[Slice] = []

    def add_group(self, keys: Keys, position: int) -> None:
        """Rows with these keys were written; the first has the number `position` in the file.

        Raises:
            Corrupt: a segment has no row.
        """
        last = keys.key(-1)
        while self._rest and _start(self._rest[-1]) <= last:
            segment = self._rest.pop()
            row = keys.find(_start(segment))
            if keys.key(row) >= _end(segment):
                raise Corrupt(f"no row of the segment {segment}")
            self._place(segment._replace(position=position + row))

    def end_file(self, next_key: Key | None) -> list[Slice]:
        """The segments of the file; `next_key` is of the row that will be written next, None if there is none.

        Raises:
            Corrupt: a segment has no row, since `next_key` is None.
        """
        placed, self._placed = self._placed, []
        if next_key is None:
            if self._rest:
                raise Corrupt(f"no row of the segment {self._rest[-1]}")
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
    """Both parts; the committed bytes are shared out by offsets, since nobody knows them by batch any more."""
    count = offset - segment.base_offset
    length = segment.length * count // segment.record_count
    behind = segment._replace(
        base_offset=offset, record_count=segment.record_count - count, length=segment.length - length
    )
    return segment._replace(record_count=count, length=length), behind
