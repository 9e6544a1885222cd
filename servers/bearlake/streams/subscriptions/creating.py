"""Creates and deletes cursors conditionally on an earlier read, so that a late write cannot undo a result already reported (I12)."""

from collections.abc import Awaitable, Callable, Mapping

from bearlake.errors import Conflict, Unavailable
from bearlake.metadata.model import Lease, PartitionKey
from bearlake.metadata.subscriptions import Cursor, CursorStore

ATTEMPTS_MAX = 16
"""Attempts when other requests create or delete subscriptions of the partition at the same time."""


async def _allowed() -> None:
    """Nothing forbids the cursor."""


async def create_cursor(
    store: CursorStore,
    partition: PartitionKey,
    name: str,
    mark_delete: int,
    properties: Mapping[str, str],
    check: Callable[[], Awaitable[object]] = _allowed,
) -> Cursor:
    """Create the cursor, or return the existing one. Raises as `CursorStore.create`, but `Unavailable` instead of `Conflict`.

    Many consumers attach at once, and each that finds its cursor changes the partition's count, so a refused creation is tried again. (If
    the client gave the request up and the subscription was deleted in between, that brings the subscription back: docs/correctness.md.)

    `check` runs before each attempt: what it raises ends the creation, and a deletion after it makes the attempt fail.
    """
    for _ in range(ATTEMPTS_MAX):
        after = await store.deletion_count(partition)
        await check()
        try:
            return await store.create(partition, name, mark_delete=mark_delete, properties=properties, after=after)
        except Conflict:
            continue
    raise changing(partition)


async def refuse_deletions(store: CursorStore, partition: PartitionKey, lease: Lease, named: int) -> None:
    """Return when no pending deletion that named a count up to `named` can still take effect. Raises `Fenced`, `Unavailable`."""
    count = await store.deletion_count(partition)
    if count > named:
        return
    try:
        await store.delete(partition, {}, lease, after=count)
    except Conflict:
        return  # the count has grown, so such deletions are refused


async def refuse_creations(store: CursorStore, partition: PartitionKey, lease: Lease) -> bool:
    """Refuse creations that began earlier; False if the partition's count has grown meanwhile. Raises `Fenced`, `Unavailable`."""
    try:
        await store.delete(partition, {}, lease, after=await store.deletion_count(partition))
    except Conflict:
        return False
    return True


def changing(partition: PartitionKey) -> Unavailable:
    """Return the error of a request that meets others for the same partition: nothing was changed, and a repeat may succeed."""
    return Unavailable(f"other requests create or delete subscriptions of partition {partition} at the same time")
