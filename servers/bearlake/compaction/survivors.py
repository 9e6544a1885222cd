"""The index's segments after a cleaning: offsets stay, rows go.

The segments of the rewritten files are joined into ranges of contiguous offsets. A range is divided among the new files that have rows of
it: the first file gets the range's begin, each further file begins at the base offset of its first batch, the last gets the end. Offsets
without rows are gaps, which readers answer with empty batches (decision 27). A range without any row left is *rowless*.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

import bearlake.table.rows as table_rows
from bearlake.compaction.segments import join
from bearlake.metadata.model import NO_ROW, PartitionKey, Slice, partition_index
from bearlake.table.rows import Key, Keys
from bearlake.table.writer import Rows

_NO_TIMESTAMP = -1


class _Mark(NamedTuple):
    """The rows of a range in one file: number of the file, base offset of the first batch, index of the first row, newest time (ms)."""

    file: int
    start: int
    position: int
    max_timestamp: int


@dataclass(slots=True)
class _Range:
    """Contiguous offsets of one partition whose segments were rewritten."""

    partition: PartitionKey
    start: int
    end: int
    length: int
    marks: list[_Mark] = field(default_factory=list)

    @property
    def first(self) -> Key:
        return partition_index(self.partition), self.start

    @property
    def last(self) -> Key:
        return partition_index(self.partition), self.end

    def pieces(self) -> Iterator[tuple[int, Slice]]:
        """Yield (file number, segment) for the files with rows of the range."""
        starts = [self.start, *(mark.start for mark in self.marks[1:]), self.end]
        spent = 0
        for at, mark in enumerate(self.marks):
            start, end = starts[at], starts[at + 1]
            below = self.length * (end - self.start) // (self.end - self.start)
            piece = Slice(self.partition, start, end - start, mark.position, below - spent, mark.max_timestamp)
            spent = below
            yield mark.file, piece


class Survivors:
    """Follows the rows that are written, in order of key."""

    def __init__(self, segments: Sequence[Slice]) -> None:
        """`segments` are all segments of the rewritten files, in any order."""
        self._ranges: list[_Range] = []
        joined: Slice | None = None
        for piece in sorted(segments):
            both = None if joined is None else join(joined, piece)
            if both is None and joined is not None:
                self._ranges.append(_range(joined))
            joined = both or piece
        if joined is not None:
            self._ranges.append(_range(joined))

    def add_group(self, rows: Rows, keys: Keys, file: int, position: int) -> None:
        """Note a written row group, whose first row has index `position` in the file of this number."""
        first, last = keys.key(0), keys.key(-1)
        at = max(0, bisect_right(self._ranges, first, key=attrgetter("first")) - 1)
        while at < len(self._ranges) and self._ranges[at].first <= last:
            found = self._ranges[at]
            start, end = keys.find(found.first), keys.find(found.last)
            if start < end:
                newest_ms = table_rows.newest_ms(rows, start, end)
                _note(found, _Mark(file, table_rows.batch_base(rows, start), position + start, newest_ms))
            at += 1

    def segments(self, file_count: int) -> list[list[Slice]]:
        """Return the segments of each file, in order."""
        found: list[list[Slice]] = [[] for _ in range(file_count)]
        for range_ in self._ranges:
            for file, piece in range_.pieces():
                found[file].append(piece)
        return found

    def rowless(self) -> list[Slice]:
        """Return the ranges of which no row is left."""
        return [
            Slice(range_.partition, range_.start, range_.end - range_.start, NO_ROW, range_.length, _NO_TIMESTAMP)
            for range_ in self._ranges
            if not range_.marks
        ]


def _range(piece: Slice) -> _Range:
    return _Range(piece.partition, piece.base_offset, piece.end_offset, piece.length)


def _note(range_: _Range, mark: _Mark) -> None:
    if range_.marks and range_.marks[-1].file == mark.file:
        newest = max(range_.marks[-1].max_timestamp, mark.max_timestamp)
        range_.marks[-1] = range_.marks[-1]._replace(max_timestamp=newest)
    else:
        range_.marks.append(mark)
