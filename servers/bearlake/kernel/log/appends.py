"""A batch on its way from its request to its commit: the loops that run once per batch.

The native versions exist because these loops were half of a server with a thousand small partitions per object.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import TypeVar

from bearlake.kernel.log import Append, BatchCommit, PartitionKey, QueuedBatch

CallType = TypeVar("CallType")


def queue_appends(
    call: CallType,
    appends: Sequence[Append],
    start: int,
    partitions: dict[PartitionKey, list[tuple[CallType, int, Append]]],
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
        if size and size + len(item.batch) > limit:
            break
        size += len(item.batch)
        partitions.setdefault(item.partition, []).append((call, at, item))
    else:
        at = max(start, len(appends))
    for hold, run in groupby(item.hold for item in appends[start:at]):
        if hold is not None:
            hold.acquire(len(list(run)))
    return at, size


def place_appends(entries: Sequence[QueuedBatch], position: int, /) -> list[BatchCommit]:
    """What a commit is told of the batches, which lie back to back from `position` on."""
    commits = []
    for _, _, item in entries:
        partition, _, batch, _, *rest = item
        commits.append(BatchCommit(partition, position, len(batch), *rest))
        position += len(batch)
    return commits
