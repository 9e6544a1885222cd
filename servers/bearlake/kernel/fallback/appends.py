"""A batch on its way from its request to its answer: the loops that run once per batch, over plain tuples.

The native versions exist because these loops were half of a server with a thousand small partitions per object. They know the
order of the fields (`kernel.header`) and nothing of what the fields mean to others.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeVar

from bearlake.kernel.header import (
    AppendLike,
    Call,
    CommitLike,
    HoldLike,
    PlainRules,
    ProduceEntry,
    ProduceOutcome,
    QueuedBatch,
    SliceLike,
)

_COMPRESSION_MASK = 0x07

AppendType = TypeVar("AppendType", bound=AppendLike)
CallType = TypeVar("CallType", bound=Call)
CommitType = TypeVar("CommitType", bound=CommitLike)
OutcomeType = TypeVar("OutcomeType", bound=ProduceOutcome)
SliceType = TypeVar("SliceType", bound=SliceLike)


def admit_plain(
    make: type[AppendType],
    entries: list[ProduceEntry],
    start: int,
    frame: memoryview,
    hold: HoldLike | None,
    rules: PlainRules,
    appends: list[AppendType],
    /,
) -> int:
    """Add the batches from place `start` on to `appends`, up to the first one of another topic or that is not plain; returns its place.

    Plain is what needs no second look: good status, a partition that exists, no more bytes than allowed, no attributes but
    a compression, timestamps inside the bounds.
    """
    stream_id, first_key, partition_count, bytes_max, earliest, latest = rules
    if not 0 <= start < len(entries):
        raise ValueError(f"{start} is not a place among {len(entries)} entries")
    for at in range(start, len(entries)):
        topic, index, low, high, status, attributes, count, base, newest, producer_id, epoch, sequence = entries[at]
        if (
            topic != entries[start][0]
            or status
            or not 0 <= index < partition_count
            or high - low > bytes_max
            or attributes & ~_COMPRESSION_MASK
            or newest > latest
            or base < earliest
        ):
            return at
        fields = (
            first_key | index,
            stream_id,
            frame[low:high],
            hold,
            count,
            newest,
            producer_id,
            epoch,
            sequence,
            0,
            -1,
            -1,
        )
        appends.append(tuple.__new__(make, fields))
    return len(entries)


def queue_appends(
    call: CallType,
    appends: Sequence[AppendType],
    start: int,
    partitions: dict[Any, list[tuple[CallType, int, AppendType]]],  # Any: a NewType of int
    size: int,
    limit: int,
    /,
) -> tuple[int, int]:
    """Put `appends[start:]` into the lists of their partitions, as long as the sum of bytes stays within `limit`, but at least one
    when `size`, the bytes that are there already, is 0; acquires what they hold. Returns the place where it stopped and the new sum.
    """
    at = start
    for at in range(start, len(appends)):
        item = appends[at]
        if size and size + len(item[2]) > limit:
            break
        size += len(item[2])
        partitions.setdefault(item[0], []).append((call, at, item))
    else:
        at = max(start, len(appends))
    for hold, run in groupby(item[3] for item in appends[start:at]):
        if hold is not None:
            hold.acquire(len(list(run)))
    return at, size


def place_appends(make: type[CommitType], entries: Sequence[QueuedBatch], position: int, /) -> list[CommitType]:
    """What a commit is told of the batches, which lie back to back from `position` on."""
    commits = []
    for _, _, item in entries:
        partition, _, batch, _, count, newest, *rest = item
        fields = (partition, position, len(batch), count, newest, *rest)
        commits.append(tuple.__new__(make, fields))
        position += len(batch)
    return commits


def release_appends(entries: Sequence[QueuedBatch], /) -> None:
    """Release what the batches hold."""
    for hold, run in groupby(item[3] for _, _, item in entries):
        if hold is not None:
            hold.release(len(list(run)))


def resolve_appends(
    entries: Sequence[tuple[CallType, int, AppendLike]], results: Sequence[ProduceOutcome], /
) -> list[CallType]:
    """Give each batch's result to its call, unless that waits for none; returns the calls that have all theirs now, in order."""
    if len(entries) != len(results):
        raise ValueError(f"{len(results)} results for {len(entries)} batches")
    done = []
    for (call, place, _), result in zip(entries, results, strict=True):
        if call.waiting > 0:
            call.results[place] = result
            call.waiting -= 1
            if call.waiting == 0:
                done.append(call)
    return done


def assign_offsets(
    make_outcome: type[OutcomeType],
    accepted: int,
    make_slice: type[SliceType],
    batches: list[CommitType],
    at: int,
    start_offset: int,
    end: int,
    outcomes: list[OutcomeType],
    slices: list[SliceType],
    /,
) -> tuple[int, int, int]:
    """Accept the batch at place `at`, and those behind it that are of the same partition, of no producer and go anywhere: offsets from
    `end` on.

    Adds their outcomes, and their slices; bytes that lie back to back are one slice. Returns the place behind them, the partition's
    end offset then, and the sum of their bytes. Raises `ValueError` for a batch without records.
    """
    if not 0 <= at < len(batches):
        raise ValueError(f"{at} is not a place among {len(batches)} batches")
    first, size = at, 0
    while at < len(batches) and (at == first or _follows(batches[at], batches[first][0])):
        partition, position, length, count, newest, *_ = batches[at]
        if count <= 0:
            raise ValueError(f"I2: a batch takes offsets, not {count}")
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


def _follows(batch: CommitLike, partition: int) -> bool:
    return batch[0] == partition and batch[5] < 0 and batch[9] < 0
