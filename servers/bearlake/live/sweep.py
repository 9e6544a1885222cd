"""Deletes old pieces and manifests of views. Any server may delete those of every server.

What is old is decided by the time of the object store alone: a server whose clock is hours ahead would delete the files of running queries,
and pieces that other servers still use.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from random import SystemRandom
from typing import Final

from bearlake.clock import Clock
from bearlake.errors import BearlakeError
from bearlake.live.settings import TAIL_PREFIX, LiveSettings
from bearlake.metadata.tokens import hour_prefix
from bearlake.objects import ObjectInfo, ObjectStore
from bearlake.wal.keys import KeySource

log = logging.getLogger(__name__)

_PAGE_COUNT: Final = 1_000
_HOUR_MS: Final = 3_600_000


async def sweep_again_and_again(store: ObjectStore, settings: LiveSettings, clock: Clock) -> None:
    """Sweep until the task is cancelled: also what other processes have left, and if nobody reads any more."""
    keys = KeySource(clock, SystemRandom().getrandbits, TAIL_PREFIX)
    while True:
        try:
            if count := await sweep(store, settings, clock, keys):
                log.info("old pieces of live views deleted", extra={"count": count})
        except BearlakeError as error:
            log.warning("cannot sweep old pieces of live views; trying again", extra={"error": repr(error)})
        await asyncio.sleep(settings.sweep_interval_ms / 1000)


async def sweep(store: ObjectStore, settings: LiveSettings, clock: Clock, keys: KeySource) -> int:
    """Delete what is older than `LiveSettings.life_ms` by the store's time; return how many objects.

    If something seems old by the server's clock, an object with one of `keys` is written and deleted, for the store's time. Raises
    `Unavailable`.
    """
    deleted = 0
    before_ms = clock.now_ms() - settings.life_ms
    is_checked = False
    old: list[str] = []
    async for found in _from_hours_before(store, before_ms):
        if found.modified_ms >= before_ms:
            continue
        if not is_checked:
            before_ms, is_checked = min(before_ms, await _store_now_ms(store, keys) - settings.life_ms), True
        if found.modified_ms < before_ms:
            old.append(found.key)
        if len(old) == _PAGE_COUNT:
            await store.delete(old)
            deleted += len(old)
            old = []
    if old:
        await store.delete(old)
    return deleted + len(old)


async def _from_hours_before(store: ObjectStore, before_ms: int) -> AsyncIterator[ObjectInfo]:
    end = hour_prefix(before_ms + _HOUR_MS, TAIL_PREFIX)
    async for found in store.list(TAIL_PREFIX):
        if found.key >= end:
            return  # keys sort by hour
        yield found


async def _store_now_ms(store: ObjectStore, keys: KeySource) -> int:
    """Return the store's time (ms). A probe that is not listed yet, or that this process leaves behind, is an object like others: it is
    swept later."""
    key = keys.next()
    await store.put(key, [b"time"])
    times = [found.modified_ms async for found in store.list(key)]
    await store.delete([key])
    return min(times, default=0)
