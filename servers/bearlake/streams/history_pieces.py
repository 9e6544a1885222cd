"""What a plan of a read before the tail index consists of: slices of WAL objects, and parts of segments by row group.

Offsets of a segment without rows (control batches, aborted records) become empty batches, so that readers get past them.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from bearlake import kernel
from bearlake.errors import Corrupt
from bearlake.index.tail import TailSlice
from bearlake.metadata.model import NO_ROW, LocatedSlice, ObjectRef, Slice, partition_index
from bearlake.records.batch import HEADER_BYTES, NO_LEADER_EPOCH

if TYPE_CHECKING:
    from bearlake.table.blocks import Block
    from bearlake.table.footer import Footer

_PREFIX = Struct(">qiibI")
_FIELDS = Struct(">hiqqqhii")
_LENGTH_END = 12
_DELTA_MAX = 2**31 - 1

BlockKey = tuple[str, int]
"""A row group: its data file's key, and its number in the file."""


class BlockPiece(NamedTuple):
    """The part of a segment in one row group.

    `slice` has the part's approximate offsets and bytes; `end` is the segment's end; `rest` holds the segment's later row groups.
    """

    slice: Slice
    object: ObjectRef
    footer: "Footer"
    group: int
    end: int
    rest: Sequence[int]

    @property
    def block(self) -> BlockKey:
        """The row group."""
        return self.object.key, self.group

    @property
    def next_offset(self) -> int:
        """Where its reader goes on: offsets without rows at the end of a segment belong to its last row group."""
        return self.slice.end_offset if self.rest else self.end

    def runs(self, block: "Block", start: int) -> Iterator[tuple[TailSlice, memoryview]]:
        """Yield the block's batches from offset `start` on, as slices with their bytes; empty batches cover offsets without rows."""
        partition = self.slice.partition
        at = start
        for base, end, view in block.views(partition_index(partition), start, self.end):
            yield from self._gap(at, base)
            yield TailSlice(Slice(partition, base, end - base, 0, len(view), 0), self.object), view
            at = end
        if not self.rest:
            yield from self._gap(at, self.end)

    def _gap(self, start: int, end: int) -> Iterator[tuple[TailSlice, memoryview]]:
        while start < end:
            count = min(end - start, _DELTA_MAX)
            view = empty_batch(start, count)
            yield TailSlice(Slice(self.slice.partition, start, count, 0, len(view), 0), self.object), view
            start += count


Piece = TailSlice | BlockPiece


def bytes_from(piece: Slice, offset: int) -> int:
    """Estimate the bytes of the slice from `offset` on, at least 1; exact if `offset` is not inside the slice."""
    _, base, count, _, length, _ = piece
    return length if offset <= base else max(1, length * (base + count - offset) // count)


def empty_batch(base_offset: int, count: int) -> memoryview:
    """Build a record batch without records that covers `count` offsets (1 … 2**31 - 1), like those that Kafka's log cleaner leaves."""
    fields = _FIELDS.pack(0, count - 1, -1, -1, -1, -1, -1, 0)
    length = _PREFIX.size + len(fields) - _LENGTH_END
    return memoryview(_PREFIX.pack(base_offset, length, NO_LEADER_EPOCH, 2, kernel.crc32c(fields)) + fields)


def blocks_of(located: LocatedSlice, footer: "Footer", offset: int) -> Iterator[BlockPiece]:
    """Yield the segment's row groups, starting with the one that may hold `offset`. Most fetches need one of the many in a file.

    A row group shared with other partitions may end before the offset. Such a piece counts as zero bytes if another piece follows, so
    that a plan never ends with it.
    """
    piece = located.slice
    start, end = max(offset, piece.base_offset), piece.end_offset
    index = partition_index(piece.partition)
    groups = footer.holding(index, start, end)
    if not groups:  # `offset` is after the last row: that row's group yields the empty batch
        groups = footer.holding(index, piece.base_offset, end)[-1:]
    if not groups and piece.position == NO_ROW:  # no row group has a row of it: all of it becomes empty batches
        about = Slice(piece.partition, start, end - start, 0, HEADER_BYTES, piece.max_timestamp)
        yield BlockPiece(about, located.object, footer, 0, end, ())
        return
    if not groups:
        raise Corrupt(f"data file {located.object_key} has no rows of the segment {piece}")
    for at, number in enumerate(groups):
        group = footer.groups[number]
        base, next_base, length = start, footer.offset_end(number, index, end), 0
        if group.is_of_one_partition:
            base, length = group.offset_min, group.size_bytes
        elif at == len(groups) - 1:
            length = group.size_bytes * min(piece.record_count, group.row_end - group.row_start)
            length //= group.row_end - group.row_start
        about = Slice(piece.partition, base, next_base - base, 0, length, piece.max_timestamp)
        yield BlockPiece(about, located.object, footer, number, end, groups[at + 1 :])
