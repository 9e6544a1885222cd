"""What one fetch is about to read, range by range, and what the ranges before have used of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from bearlake.cache.objects import ExtentKey
from bearlake.streams.committed import View
from bearlake.streams.fetched import Fetched
from bearlake.streams.history_pieces import BlockPiece, Piece, bytes_from

if TYPE_CHECKING:
    from bearlake.table.blocks import Block


@dataclass(slots=True)
class Plan:
    """The slices to read for one range and, once loaded, their bytes (for a row group: its block, until its runs replace the block).

    `is_tail`: the tail index has the slices, so other readers want the same objects; all slices are in WAL objects then.
    `view`: what a reader of committed records may see; None for readers of all records, and if the view is not known yet.
    """

    fetched: Fetched
    slices: list[Piece]
    is_tail: bool
    views: "list[memoryview | Block | None]"
    is_committed: bool
    view: View | None = None

    def limit(self) -> None:
        """Set the bounds of the answer to those of the view, and drop the slices at or above the last stable offset."""
        if self.view is None:
            self.fetched.last_stable = self.fetched.end
            return
        fetched = self.fetched
        _, fetched.end, fetched.last_stable, _ = self.view
        end = fetched.last_stable
        if fetched.range.offset >= end:
            self.slices = []
        elif self.slices and self.slices[-1].slice.end_offset > end:
            later = takewhile(lambda piece: piece.slice.base_offset < end, self.slices[1:])
            self.slices = [self.slices[0], *later]  # the first slice has the offset, which is below `end`


@dataclass(slots=True, kw_only=True)
class Progress:
    """What the partitions read so far have used of one fetch."""

    is_committed: bool
    """Whether the reader wants only committed records."""
    bytes_left: int
    """Bytes that the answer still may have; negative after a larger first batch."""
    load_bytes_left: int
    """Bytes that may still be loaded from the object store."""
    results: list[Fetched] = field(default_factory=list)
    size_bytes: int = 0
    extents: set[ExtentKey] = field(default_factory=set)
    is_filled: bool = False
    """Whether something is loaded, so that `load_bytes_left` counts."""
    is_cut: bool = False
    """Whether more data exists that was too much for one read."""
    has_error: bool = False

    def hides_records(self) -> bool:
        """Whether some records are not decided yet."""
        return self.is_committed and any(-1 < found.last_stable < found.end for found in self.results)


def is_behind(view: View, pieces: Sequence[Piece]) -> bool:
    """Whether the view is older than a segment, whose records were all decided when it was written."""
    return any(isinstance(piece, BlockPiece) and piece.end > view.last_stable for piece in pieces)


def ration(plans: Sequence[Plan], done: Progress) -> None:
    """Drop slices that do not fit the answer, so that its size bounds memory; at least one slice stays (KIP-74)."""
    room = done.bytes_left
    is_first = done.size_bytes == 0
    for plan in plans:
        slice_count = 0
        while slice_count < len(plan.slices) and (room > 0 or is_first):
            piece = plan.slices[slice_count].slice
            room -= bytes_from(piece, plan.fetched.range.offset)
            is_first = is_first and piece.length == 0  # this slice may be empty; then the next one is the first
            slice_count += 1
        del plan.slices[slice_count:]
