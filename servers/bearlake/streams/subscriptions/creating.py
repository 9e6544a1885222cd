"""Cursors are created and deleted on what was read before, so that what arrives late undoes nothing that was told since (I12)."""

from collections.abc import Mapping

from bearlake.errors import Conflict, Unavailable
from bearlake.metadata.model import Lease, PartitionKey
from bearlake.metadata.subscriptions import Cursor, CursorStore

ATTEMPTS_MAX = 16
"""Tries while subscriptions of the partition are created and deleted all the time."""


async def create_cursor(
    store: CursorStore, partition: PartitionKey, name: str, mark_delete: int, properties: Mapping[str, str]
) -> Cursor:
    """Make the cursor, or return the one that exists. Raises as `CursorStore.create`, but `Unavailable` instead of `Conflict`."""
    for _ in range(ATTEMPTS_MAX):
        after = await store.deletion_count(partition)
        try:
            return await store.create(partition, name, mark_delete=mark_delete, properties=properties, after=after)
        except Conflict:
            continue
    raise changing(partition)


async def refuse_deletions(store: CursorStore, partition: PartitionKey, lease: Lease, named: int) -> None:
    """Return when a deletion that named the count `named` or a smaller one either took effect or never will. Raises `Fenced`,
    `Unavailable`."""
    count = await store.deletion_count(partition)
    if count > named:
        return
    try:
        await store.delete(partition, {}, lease, after=count)
    except Conflict:
        return  # the count has grown


def changing(partition: PartitionKey) -> Unavailable:
    """To be raised after `ATTEMPTS_MAX` attempts: nothing was changed."""
    return Unavailable(f"subscriptions of partition {partition} are created and deleted all the time")
