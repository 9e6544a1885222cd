"""Shows and ends the holds of backups, in the object store of the settings."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from bearlake.compaction.holds import Hold, Holds
from bearlake.errors import NotFound
from bearlake.objects.open import open_store
from bearlake.settings.document import Settings
from bearlake.telemetry.object_calls import ObjectCalls


async def holds(settings: Settings) -> Sequence[Hold]:
    """Return all holds, by when they began. Raises `Unavailable`, `Corrupt`."""
    async with _opened(settings) as found:
        return await found.everything()


async def release(settings: Settings, backup_id: str) -> None:
    """End the hold of a backup. Raises `NotFound` if there is none."""
    async with _opened(settings) as found:
        if backup_id not in {hold.id for hold in await found.everything()}:
            raise NotFound(f"no backup {backup_id} holds objects")
        await found.release(backup_id)


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Holds]:
    store = open_store(settings.object_store.url, settings.object_store, recorder=ObjectCalls())
    try:
        yield Holds(store)
    finally:
        await store.close()
