"""Cursors are created on what was read before, so that a creation that arrives late brings no deleted subscription back (I12)."""

from collections.abc import Mapping

from bearlake.errors import Conflict, Unavailable
from bearlake.metadata.model import PartitionKey
from bearlake.metadata.subscriptions import Cursor, CursorStore

ATTEMPTS_MAX = 16
"""Tries while subscriptions of the partition are deleted all the time."""


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
    raise Unavailable(f"subscriptions of partition {partition} are deleted all the time")
