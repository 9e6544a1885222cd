"""Where the log has the offsets of a tail. Slices that reach beyond them are cut between batches."""

import asyncio
from collections.abc import Collection, Coroutine, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from bearlake import kernel
from bearlake.compaction.concurrency import run_all
from bearlake.errors import Conflict, Corrupt
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import OffsetRange
from bearlake.metadata.model import LocatedSlice, ObjectKind, PartitionKey, Slice, partition_index
from bearlake.objects import ByteRange, ObjectStore

_AT_ONCE = 5_000
"""Slices of one turn of the event loop: about 10 ms."""


class Moved(Conflict):
    """Compaction has reached the offsets since the table was loaded: load it again."""


class Damaged(Corrupt):
    """A part of the log is damaged: restore the object, or trim the partition. Consumers and compaction stop there, too (decision 244)."""


async def tail_slices(
    metadata: Metadata, store: ObjectStore, ranges: Collection[OffsetRange], count_max: int
) -> list[LocatedSlice] | None:
    """Return the slices with exactly the offsets of `ranges`, by partition and offset; a batch that begins below a range is whole.

    Offsets that were trimmed in the meantime are left out. None: there are more than `count_max` slices, of which no more were read.

    Raises:
        Moved: some offsets are in data files already.
        NotFound: an object does not exist (any more).
        Damaged: batches of a slice cannot be told apart.
        Unavailable: a store did not answer.
    """
    located = await metadata.log.slices(ranges, count_max=count_max + 1)
    if any(found.kind is not ObjectKind.WAL for found in located):
        raise Moved("the tail was compacted in the meantime")
    if len(located) > count_max:
        return None
    wanted: dict[PartitionKey, list[OffsetRange]] = {
        partition: list(group) for partition, group in groupby(sorted(ranges), key=attrgetter("partition"))
    }
    whole: list[LocatedSlice] = []
    cuts: list[Coroutine[Any, Any, list[LocatedSlice]]] = []
    unique = {(found.slice.partition, found.slice.base_offset): found for found in located}
    for at, found in enumerate(unique.values(), 1):
        if at % _AT_ONCE == 0:
            await asyncio.sleep(0)
        piece = found.slice
        parts = [range_ for range_ in wanted[piece.partition] if _overlaps(range_, piece)]
        if any(range_.start <= piece.base_offset and piece.end_offset <= range_.end for range_ in parts):
            whole.append(found)
        elif parts:
            cuts.append(_parts(found, parts, store))
    slices = [*whole, *(part for found in await run_all(cuts) for part in found)]
    return sorted(slices, key=lambda found: (found.slice.partition, found.slice.base_offset))


def _overlaps(range_: OffsetRange, piece: Slice) -> bool:
    return range_.start < piece.end_offset and piece.base_offset < range_.end


async def _parts(located: LocatedSlice, ranges: Sequence[OffsetRange], store: ObjectStore) -> list[LocatedSlice]:
    piece = located.slice
    (view,) = await store.read(located.object_key, [ByteRange(piece.position, piece.position + piece.length)])
    try:
        return [located._replace(slice=part) for part in cut(piece, view, ranges)]
    except Corrupt as error:
        place = f"partition {partition_index(piece.partition)} from offset {piece.base_offset} on, object {located.object_key}"
        raise Damaged(f"the log is damaged: {place}: {error}") from error


def portions(
    ranges: Collection[OffsetRange], slices: Sequence[LocatedSlice], bytes_max: int
) -> Iterator[tuple[list[OffsetRange], list[LocatedSlice]]]:
    """Divide a tail, whose `slices` are in order, into parts of at most `bytes_max` bytes or one slice. No offset is left out."""
    left = sorted(ranges)
    group: list[LocatedSlice] = []
    size = 0
    for found in slices:
        if group and size + found.slice.length > bytes_max:
            before, left = _split(left, found.slice.partition, found.slice.base_offset)
            yield before, group
            group, size = [], 0
        group.append(found)
        size += found.slice.length
    if left:
        yield left, group


def _split(
    ranges: Sequence[OffsetRange], partition: PartitionKey, offset: int
) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """Return what is before an offset of a partition, and the rest."""
    before, rest = list[OffsetRange](), list[OffsetRange]()
    for range_ in ranges:
        if (range_.partition, range_.end) <= (partition, offset):
            before.append(range_)
        elif (range_.partition, range_.start) >= (partition, offset):
            rest.append(range_)
        else:
            before.append(OffsetRange(partition, range_.start, offset))
            rest.append(OffsetRange(partition, offset, range_.end))
    return before, rest


def cut(piece: Slice, view: memoryview, ranges: Sequence[OffsetRange]) -> list[Slice]:
    """Return, for each range, the slice of those batches of `piece` (its bytes are `view`) that overlap it."""
    batches = []
    offset = piece.base_offset
    for position, _, header in kernel.batches(view, 0, len(view)):
        end = offset + header.last_offset_delta + 1
        batches.append((offset, end, position, position + header.length))
        offset = end
    parts = []
    for _, start, end in ranges:
        inside = [batch for batch in batches if batch[0] < end and start < batch[1]]
        if inside:
            base, position = inside[0][0], inside[0][2]
            parts.append(
                piece._replace(
                    base_offset=base,
                    record_count=inside[-1][1] - base,
                    position=piece.position + position,
                    length=inside[-1][3] - position,
                )
            )
    return parts
