"""The swap of index rows: converts values to the arrays of `swap_rows`. Pure; `migrations/0006_swap.sql` has the step itself.

New slices are sorted by partition and offset. Adjacent slices form a range; the rows that a range covers are replaced.
A partition's first range has turn 1, its second turn 2, and so on: the store replaces one range per partition and statement.
"""

from collections.abc import Sequence
from typing import NamedTuple

from bearlake.errors import Conflict
from bearlake.metadata.compaction import Swap
from bearlake.metadata.model import Slice


class Range(NamedTuple):
    """Offsets `[start, end)` that the new slices `first` to `last` (counted from 1) cover; `turn` numbers the partition's ranges."""

    partition: int
    start: int
    end: int
    first: int
    last: int
    turn: int


def arguments(swap: Swap) -> tuple[object, ...]:
    """Return the arguments of `swap_rows`, except the bounds of roll-up.

    Raises:
        Conflict: two of the new slices overlap.
    """
    claim = swap.claim
    rows = sorted((slice_, number) for number, one in enumerate(swap.objects, 1) for slice_ in one.slices)
    ranges = ranges_of([slice_ for slice_, _ in rows])
    refs = [one.object for one in swap.objects]
    return (
        claim.task_id,
        claim.epoch,
        claim.worker.node_id,
        claim.worker.epoch,
        swap.is_final,
        [ref.key for ref in refs],
        [ref.size for ref in refs],
        [int(ref.kind) for ref in refs],
        *(list(column) for column in _columns([slice_ for slice_, _ in rows], len(Slice._fields))),
        [number for _, number in rows],
        *(list(column) for column in _columns(ranges, len(Range._fields))),
    )


def ranges_of(slices: Sequence[Slice]) -> list[Range]:
    """Return the ranges that the slices (sorted by partition and offset) cover. Raises `Conflict` if two overlap."""
    ranges: list[Range] = []
    for number, slice_ in enumerate(slices, 1):
        last = ranges[-1] if ranges and ranges[-1].partition == slice_.partition else None
        if last is not None and slice_.base_offset < last.end:
            raise Conflict(f"two new slices of partition {slice_.partition} overlap at {slice_.base_offset}")
        if last is not None and slice_.base_offset == last.end:
            ranges[-1] = last._replace(end=slice_.end_offset, last=number)
        else:
            turn = 1 if last is None else last.turn + 1
            ranges.append(Range(slice_.partition, slice_.base_offset, slice_.end_offset, number, number, turn))
    return ranges


def _columns(rows: Sequence[Sequence[int]], width: int) -> list[Sequence[int]]:
    return list(zip(*rows, strict=True)) if rows else [()] * width
