"""Creates and deletes cursors conditionally on an earlier read, so that a late write cannot undo a result already reported (I12)."""

from collections.abc import Mapping

from bearlake.errors import Conflict, Unavailable
from bearlake.metadata.model import Lease, PartitionKey
from bearlake.metadata.subscriptions import Cursor, CursorStore

ATTEMPTS_MAX = 16
"""Attempts when other requests create or delete subscriptions of the partition at the same time. Never of a creation."""


async def create_cursor(
    store: CursorStore, partition: PartitionKey, name: str, mark_delete: int, properties: Mapping[str, str]
) -> Cursor:
    """Create the cursor, or return the existing one. Raises as `CursorStore.create`, but `Unavailable` instead of `Conflict`.

    Looks up once. If the create is refused, another request may have created and deleted this subscription since the look-up, and this
    request may have been given up before that. A client that still waits repeats it, and that is a new request.
    """
    after = await store.deletion_count(partition)
    try:
        return await store.create(partition, name, mark_delete=mark_delete, properties=properties, after=after)
    except Conflict as error:
        raise changing(partition) from error


async def refuse_deletions(store: CursorStore, partition: PartitionKey, lease: Lease, named: int) -> None:
    """Return when no pending deletion that named a count up to `named` can take effect any more. Raises `Fenced`, `Unavailable`."""
    count = await store.deletion_count(partition)
    if count > named:
        return
    try:
        await store.delete(partition, {}, lease, after=count)
    except Conflict:
        return  # the count has grown, so such deletions are refused


def changing(partition: PartitionKey) -> Unavailable:
    """Return the error of a request that meets others for the same partition: nothing was changed, and a repeat may succeed."""
    return Unavailable(f"other requests create or delete subscriptions of partition {partition} at the same time")
