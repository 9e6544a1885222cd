"""Where a reset of offsets moves them: what consumer groups and share groups have in common."""

from collections.abc import Collection, Mapping, Sequence

from bearlake.metadata.model import PartitionKey
from bearlake.protocols.rest.problems import Problem, partition_not_found
from bearlake.streams.catalog import StreamView
from bearlake.streams.offsets import OffsetQuestion
from bearlake.streams.service import Streams


def keys_of(view: StreamView, partition_ids: Collection[int] | None) -> list[PartitionKey]:
    """Return the partitions that a request names (None: all). Raises `Problem` (404)."""
    if partition_ids is None:
        return list(view.partitions())
    for index in partition_ids:
        if index >= view.partition_count:
            raise partition_not_found(view.name, index)
    return [view.partition(index) for index in partition_ids]


def given(value: int | None, name: str) -> int:
    """Return a value that the kind of reset needs. Raises `Problem` (400)."""
    if value is None:
        raise Problem(400, 400, f"{name}: expected a number, found nothing")
    return value


async def at_time(
    streams: Streams,
    keys: Sequence[PartitionKey],
    timestamp_ms: int,
    ends: Mapping[PartitionKey, int],
    *,
    is_committed: bool,
) -> Mapping[PartitionKey, int]:
    """Return the first offset at or after the time (ms) in each partition; its end in `ends` if there is none."""
    answers = await streams.offsets([OffsetQuestion(key, timestamp_ms) for key in keys], is_committed=is_committed)
    found = {}
    for key, at in zip(keys, answers, strict=True):
        if at.error is not None:
            raise at.error
        found[key] = at.offset if at.offset >= 0 else ends[key]
    return found
