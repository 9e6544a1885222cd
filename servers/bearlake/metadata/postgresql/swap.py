"""The swap of index rows: converts values to the arrays of `swap_rows`. Pure; `functions/swap.sql` has the step itself.

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


def arguments(swap: Swap) -> dict[str, object]:
    """Return the parameters of `swap_rows` (`functions/swap.sql`), except the bounds of roll-up.

    Raises:
        Conflict: two of the new slices overlap.
    """
    claim = swap.claim
    rows = sorted((slice_, number) for number, object_ in enumerate(swap.objects, 1) for slice_ in object_.slices)
    ranges = ranges_of([slice_ for slice_, _ in rows])
    refs = [object_.object for object_ in swap.objects]
    return {
        "task": claim.task_id,
        "epoch": claim.epoch,
        "node_id": claim.worker.node_id,
        "server_epoch": claim.worker.epoch,
        "is_final": swap.is_final,
        "keys": [ref.key for ref in refs],
        "object_sizes": [ref.size for ref in refs],
        "kinds": [int(ref.kind) for ref in refs],
        "partitions": [slice_.partition for slice_, _ in rows],
        "bases": [slice_.base_offset for slice_, _ in rows],
        "counts": [slice_.record_count for slice_, _ in rows],
        "positions": [slice_.position for slice_, _ in rows],
        "lengths": [slice_.length for slice_, _ in rows],
        "timestamps": [slice_.max_timestamp for slice_, _ in rows],
        "objects": [number for _, number in rows],
        "range_partitions": [range_.partition for range_ in ranges],
        "range_starts": [range_.start for range_ in ranges],
        "range_ends": [range_.end for range_ in ranges],
        "range_firsts": [range_.first for range_ in ranges],
        "range_lasts": [range_.last for range_ in ranges],
        "range_turns": [range_.turn for range_ in ranges],
    }


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
