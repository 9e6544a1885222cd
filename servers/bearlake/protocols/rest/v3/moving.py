"""Moves the offsets of a group or subscription, partition by partition: each partition's dispatcher moves its own.

So some partitions may move and others not. The answer and the audit log then name both.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from bearlake.errors import BearlakeError, NotFound, Unavailable
from bearlake.metadata.model import PartitionKey, partition_index
from bearlake.protocols.rest.v3 import models

AT_ONCE = 16
"""Partitions that are moved at once."""


def goal_of(asked: models.Reset | models.ShareReset | models.SubscriptionReset) -> str:
    """Return where a reset moves offsets, as the audit log says it: `to offset 5, partitions 0-3`."""
    match asked.to:
        case "offset":
            goal = f"to offset {asked.offset}"
        case "timestamp":
            goal = f"to time {asked.timestamp_ms}"
        case "shift" if isinstance(asked, models.Reset):
            goal = f"by {asked.shift} records"
        case _:
            goal = f"to {asked.to}"
    return goal if asked.partition_ids is None else f"{goal}, {_named(asked.partition_ids)}"


async def move_each(
    targets: Mapping[PartitionKey, int], move: Callable[[PartitionKey, int], Awaitable[None]], details: list[str]
) -> None:
    """Call `move` with each partition and its new offset, some at once. After a failure, no further moves begin; those under way end.

    Raises `NotFound` if the partitions that did not move had nothing to move, else `Unavailable`: these may have moved. The error names the
    partitions that have moved, and the others; `details`, those of the audit log, gets the first.
    """
    keys, moved = list(targets), []
    failed: dict[PartitionKey, BearlakeError] = {}
    for start in range(0, len(keys), AT_ONCE):
        part = keys[start : start + AT_ONCE]
        results = await asyncio.gather(*(move(key, targets[key]) for key in part), return_exceptions=True)
        for key, result in zip(part, results, strict=True):
            if result is None:
                moved.append(key)
            elif isinstance(result, BearlakeError):
                failed[key] = result
            else:
                raise result
        if failed:
            break
    if not failed:
        return
    if moved:
        details.append(f"moved {_named(map(partition_index, moved))}")
    first = next(iter(failed.values()))
    if len(keys) == 1:
        raise first
    rest = [key for key in keys if key not in moved]
    text = f"moved {_named(map(partition_index, moved))}, not {_named(map(partition_index, rest))}: {first}"
    if all(isinstance(error, NotFound) for error in failed.values()):
        raise NotFound(text) from first
    raise Unavailable(f"{text}; a repeat moves the others, too") from first


def _named(indexes: Iterable[int]) -> str:
    """Return partitions in few words: `partitions 0-3, 7`."""
    ranges: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], index
        else:
            ranges.append((index, index))
    shown = [str(start) if start == last else f"{start}-{last}" for start, last in ranges]
    if not shown:
        return "no partition"
    return f"partition{'' if shown == [str(ranges[0][0])] else 's'} {', '.join(shown)}"
