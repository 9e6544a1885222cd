"""Deletes old pieces and manifests of views. Any server may delete those of every server."""

from bearlake.clock import Clock
from bearlake.live.pieces import TAIL_PREFIX
from bearlake.live.settings import LiveSettings
from bearlake.metadata.tokens import hour_prefix
from bearlake.objects import ObjectStore

_PAGE_COUNT = 1_000
_HOUR_MS = 3_600_000


async def sweep(store: ObjectStore, settings: LiveSettings, clock: Clock) -> int:
    """Delete what is older than `LiveSettings.life_ms` by the store's time; return how many objects. Raises `Unavailable`."""
    before_ms = clock.now_ms() - settings.life_ms
    end = hour_prefix(before_ms + _HOUR_MS, TAIL_PREFIX)
    count = 0
    old: list[str] = []
    async for found in store.list(TAIL_PREFIX):
        if found.key >= end:
            break  # keys sort by hour
        if found.modified_ms < before_ms:
            old.append(found.key)
        if len(old) == _PAGE_COUNT:
            await store.delete(old)
            count += len(old)
            old = []
    if old:
        await store.delete(old)
    return count + len(old)
