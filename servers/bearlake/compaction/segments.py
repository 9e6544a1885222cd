"""Tracks which offsets of a partition are in which data file: builds segments, and proves that no offset is lost.

A segment is a contiguous run of offsets in the index: consecutive rows of one file, and offsets without rows (control batches) between
or after them, which readers answer with an empty batch. Every segment has at least one row.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from bearlake.metadata.model import PartitionKey, Slice


class BatchSpan(NamedTuple):
    """A record batch (or several consecutive ones): offsets `[start, end)`, committed bytes, largest timestamp (ms)."""

    partition: PartitionKey
    start: int
    end: int
    length: int
    max_timestamp: int


class Segments:
    """Builds the segments of one data file, from rows in order of partition and offset."""

    def __init__(self) -> None:
        self._done: list[Slice] = []
        self._open: Slice | None = None
        self._gaps: list[BatchSpan] = []  # before the first row of a segment; always empty while `_open` is set

    def add_rows(self, span: BatchSpan, position: int) -> list[BatchSpan]:
        """Add a span with rows; its first row has index `position` in the file.

        Returns the spans given to `add_gap` that no segment covers, because no row precedes or follows them.
        """
        homeless: list[BatchSpan] = []
        if self._open is not None and _follows(self._open, span):
            self._open = _join(self._open, span)
            return homeless
        gaps = self._gaps
        homeless = self.cut()
        if gaps and gaps[-1].partition == span.partition and gaps[-1].end == span.start:
            homeless = []
            first = gaps[0]
            length = span.length + sum(gap.length for gap in gaps)
            newest = max(span.max_timestamp, *(gap.max_timestamp for gap in gaps))
            span = BatchSpan(span.partition, first.start, span.end, length, newest)
        self._open = Slice(span.partition, span.start, span.end - span.start, position, span.length, span.max_timestamp)
        return homeless

    def add_gap(self, span: BatchSpan) -> list[BatchSpan]:
        """Add a span with offsets but no rows. Returns spans as `add_rows` does."""
        if self._open is not None and _follows(self._open, span):
            self._open = _join(self._open, span)
            return []
        homeless: list[BatchSpan] = []
        if not (self._gaps and self._gaps[-1].partition == span.partition and self._gaps[-1].end == span.start):
            homeless = self.cut()
        self._gaps.append(span)
        return homeless

    def cut(self) -> list[BatchSpan]:
        """End the segment; the next span starts a new one. Returns spans as `add_rows` does."""
        if self._open is not None:
            self._done.append(self._open)
            self._open = None
        homeless, self._gaps = self._gaps, []
        return homeless

    def take(self) -> list[Slice]:
        """Return the segments of the finished file; call `cut` first."""
        assert self._open is None
        assert not self._gaps
        done, self._done = self._done, []
        return done


def join(left: Slice, right: Slice) -> Slice | None:
    """Join two segments if `right` follows `left` in the partition; else None."""
    if left.partition != right.partition or left.end_offset != right.base_offset:
        return None
    return Slice(
        left.partition,
        left.base_offset,
        left.record_count + right.record_count,
        left.position,
        left.length + right.length,
        max(left.max_timestamp, right.max_timestamp),
    )


def ranges_of(slices: Iterable[Slice]) -> list[tuple[PartitionKey, int, int]]:
    """Return the offsets of `slices` (any order, not overlapping) as the fewest (partition, start, end), sorted."""
    ranges: list[tuple[PartitionKey, int, int]] = []
    for partition, pieces in groupby(sorted(slices), key=attrgetter("partition")):
        for piece in pieces:
            if ranges and ranges[-1][0] == partition and ranges[-1][2] == piece.base_offset:
                ranges[-1] = (partition, ranges[-1][1], piece.end_offset)
                continue
            assert not ranges or ranges[-1][0] != partition or ranges[-1][2] < piece.base_offset, "offsets twice"
            ranges.append((partition, piece.base_offset, piece.end_offset))
    return ranges


def check_cover(given: Sequence[Slice], made: Sequence[Slice]) -> None:
    """Assert that `made` names exactly the offsets of `given`, each once (I4)."""
    assert ranges_of(given) == ranges_of(made), "the result has other offsets than the work item"


def _follows(segment: Slice, span: BatchSpan) -> bool:
    return segment.partition == span.partition and segment.end_offset == span.start


def _join(segment: Slice, span: BatchSpan) -> Slice:
    return segment._replace(
        record_count=span.end - segment.base_offset,
        length=segment.length + span.length,
        max_timestamp=max(segment.max_timestamp, span.max_timestamp),
    )
