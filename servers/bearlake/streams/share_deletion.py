"""Deletes what share groups have in partitions, at the partitions' dispatchers, and whole share groups: the group itself comes last.

While the group exists, it names the streams in which it has state. So a deletion that fails is complete once it is repeated.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

from bearlake.errors import BearlakeError, NotFound
from bearlake.metadata.model import PartitionKey
from bearlake.streams.catalog import Catalog
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.shares import Shares

_AT_ONCE = 32
"""Partitions that are changed at once."""


async def forget(shares: Shares, group: str, partitions: Sequence[PartitionKey]) -> None:
    """Delete the group's state in these partitions. Raises as `Shares.forget`."""
    for start in range(0, len(partitions), _AT_ONCE):
        await asyncio.gather(*(shares.forget(group, key) for key in partitions[start : start + _AT_ONCE]))


async def delete_share_group(
    group: str,
    known: Collection[int],
    catalog: Catalog,
    shares: Shares,
    delete: Callable[[str], Awaitable[None]],
) -> None:
    """Delete a group without members, and what it has in all streams.

    known: the numbers of the streams in which it has state. delete: deletes the group itself, at its coordinator. Raises `GroupRefusal`.
    """
    try:
        await catalog.catch_up()  # another server may have added partitions
    except BearlakeError as error:
        raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, str(error)) from error
    numbers = sorted(known)
    await _forget_streams(catalog, shares, group, numbers)  # a failure is found again: the group still has the streams
    await delete(group)
    await _forget_streams(catalog, shares, group, numbers)  # what a late request has created meanwhile


async def _forget_streams(catalog: Catalog, shares: Shares, group: str, numbers: Sequence[int]) -> None:
    for number in numbers:
        view = catalog.peek_number(number)
        if view is None:
            continue  # its cursors were deleted with the stream
        try:
            await forget(shares, group, list(view.partitions()))
        except NotFound:
            continue
        except BearlakeError as error:
            raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, str(error)) from error
