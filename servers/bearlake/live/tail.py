"""Which offsets a view adds to its table, and which pieces of earlier views still fit. Pure.

The tail of a partition begins where the table ends, so a piece below that end would show records twice. Compaction can also reach offsets
without a table (while the stream had none): these are never in the table, and not in the tail either.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bearlake.metadata.compaction import OffsetRange
from bearlake.metadata.model import PartitionBounds, PartitionKey, partition_index
from bearlake.table.column_book import ColumnBook
from bearlake.table.model import DataFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Data files with the rows of some offsets. `columns`: their typed columns; None: they have none. `made_ms`: when they were written, by
    the server's clock. `size`: bytes of the log. `is_full`: a piece has no room for as much again."""

    ranges: tuple[OffsetRange, ...]
    files: tuple[DataFile, ...]
    columns: ColumnBook | None
    made_ms: int
    size: int = 0
    is_full: bool = False

    @property
    def offset_count(self) -> int:
        """The number of its offsets."""
        return sum(range_.end - range_.start for range_ in self.ranges)


def tail_of(
    ends: Mapping[int, int], compacted: Mapping[PartitionKey, int], bounds: Mapping[PartitionKey, PartitionBounds]
) -> list[OffsetRange]:
    """Return the offsets that a table lacks, by partition; at most one range each.

    `ends`: those of the table. `compacted`: read before the table, so that it is not ahead of the table's own commits. `bounds`: read
    after the table.
    """
    found = []
    for partition, bound in sorted(bounds.items()):
        start = max(ends.get(partition_index(partition), 0), compacted.get(partition, 0), bound.start)
        if start < bound.last_stable:
            found.append(OffsetRange(partition, start, bound.last_stable))
    return found


def choose(
    pieces: Iterable[Piece], tail: Sequence[OffsetRange], *, made_after_ms: int, now_ms: int
) -> tuple[list[Piece], list[OffsetRange]]:
    """Return the pieces to keep, and the offsets of the tail that none of them has: those of one new piece.

    A piece fits if all its offsets are in the tail, and it was made after `made_after_ms` and not later than `now_ms`: after a step back of
    the clock, nobody knows how old a piece of the future is. Pieces that are neither full nor larger than what
    is new are written again together with it: there are at most about log2(offsets) of them, and each record is written about as often.
    """
    of_partition = {range_.partition: range_ for range_ in tail}
    kept = [
        piece
        for piece in pieces
        if made_after_ms < piece.made_ms <= now_ms
        and all(_has(of_partition.get(part.partition), part) for part in piece.ranges)
    ]
    kept.sort(key=lambda piece: (piece.is_full, piece.offset_count), reverse=True)
    missing = _without(tail, [part for piece in kept for part in piece.ranges])
    count = sum(range_.end - range_.start for range_ in missing)
    while missing and kept and not kept[-1].is_full and kept[-1].offset_count <= count:
        absorbed = kept.pop()
        count += absorbed.offset_count
        missing = joined([*missing, *absorbed.ranges])
    return kept, missing


def joined(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the same offsets (no offset twice) as the fewest ranges, in order."""
    found: list[OffsetRange] = []
    for range_ in sorted(ranges):
        last = found[-1] if found else None
        if last is not None and last.partition == range_.partition and last.end == range_.start:
            found[-1] = OffsetRange(last.partition, last.start, range_.end)
        else:
            found.append(range_)
    return found


def _has(outer: OffsetRange | None, inner: OffsetRange) -> bool:
    return outer is not None and outer.start <= inner.start and inner.end <= outer.end


def _without(tail: Iterable[OffsetRange], covered: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the offsets of `tail` that are not `covered`; the covered ranges are inside the tail and do not overlap."""
    parts: dict[PartitionKey, list[OffsetRange]] = {}
    for range_ in sorted(covered):
        parts.setdefault(range_.partition, []).append(range_)
    left = []
    for partition, start, end in tail:
        at = start
        for part in parts.get(partition, ()):
            if at < part.start:
                left.append(OffsetRange(partition, at, part.start))
            at = part.end
        if at < end:
            left.append(OffsetRange(partition, at, end))
    return left
