"""Assign offsets to accepted batches, and build the slices that contain them."""

from typing import TypeVar

from bearlake.kernel.batch import SliceLike
from bearlake.kernel.log import BatchCommit, PartitionKey, ProduceOutcome

OutcomeType = TypeVar("OutcomeType", bound=ProduceOutcome)
SliceType = TypeVar("SliceType", bound=SliceLike)


def assign_offsets(
    make_outcome: type[OutcomeType],
    accepted: int,
    make_slice: type[SliceType],
    batches: list[BatchCommit],
    at: int,
    start_offset: int,
    end: int,
    outcomes: list[OutcomeType],
    slices: list[SliceType],
    /,
) -> tuple[int, int, int]:
    """Accept the batch at index `at` and the batches that follow it in the same partition, with offsets from `end` on.

    Only following batches without a producer and without an expected offset are accepted. Appends to `outcomes` and `slices`; batches
    whose bytes are contiguous share a slice. Returns the index after the accepted batches, the partition's new end offset, and the
    batches' total bytes. Raises `ValueError` for a batch without records.
    """
    if not 0 <= at < len(batches):
        raise ValueError(f"index {at} is not in a list of {len(batches)} batches")
    first, size = at, 0
    while at < len(batches) and (at == first or _follows(batches[at], batches[first].partition)):
        partition, position, length, count, newest, *_ = batches[at]
        if count <= 0:
            raise ValueError(f"I2: a batch has at least one record, not {count}")
        outcomes.append(tuple.__new__(make_outcome, (accepted, end, start_offset)))
        base, records, begin = end, 0, position
        if slices and slices[-1][0] == partition and slices[-1][3] + slices[-1][4] == position:
            _, base, records, begin, _, latest = slices.pop()
            newest = max(newest, latest)
        fields = (partition, base, records + count, begin, position + length - begin, newest)
        slices.append(tuple.__new__(make_slice, fields))
        end += count
        size += length
        at += 1
    return at, end, size


def _follows(batch: BatchCommit, partition: PartitionKey) -> bool:
    return batch.partition == partition and batch.producer_id < 0 and batch.expected_offset < 0
