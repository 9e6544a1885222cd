"""What a server knows of the configs of groups while it reads them again and changes them itself."""

import asyncio
from collections.abc import Mapping
from typing import Any

from bearlake.metadata.defaults import Defaults
from bearlake.metadata.open import open_metadata
from bearlake.streams.groups.configs import ENTRY, REFRESH_MS, GroupConfigs
from bearlake.streams.groups.settings import GroupSettings
from simulator.loop import virtual_time

LOCK = "share.record.lock.duration.ms"


class LateAnswers:
    """A store whose answers to reads may arrive late."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.arrived = asyncio.Event()
        self.arrived.set()

    async def get(self, group: str) -> Defaults:
        """Read now, and answer once `arrived` is set."""
        found: Defaults = await self._inner.get(group)
        await self.arrived.wait()
        return found

    async def set(self, group: str, configs: Mapping[str, str], *, version: int) -> Defaults:
        """As the store."""
        changed: Defaults = await self._inner.set(group, configs, version=version)
        return changed


@virtual_time
async def test_a_late_read_does_not_hide_a_change_of_the_same_server() -> None:
    metadata = await open_metadata("memory:///")
    store = LateAnswers(metadata.defaults)
    configs = GroupConfigs(store, GroupSettings())
    running = asyncio.create_task(configs.run())
    await asyncio.sleep(REFRESH_MS / 1000 - 1)
    store.arrived.clear()
    await asyncio.sleep(2)  # the read that `run` repeats has its answer, which is on its way
    late = store.arrived
    store.arrived = asyncio.Event()
    store.arrived.set()

    await configs.change("g", lambda _: ({LOCK: "20000"}, ()), is_trial=False)
    assert configs.share_of("g").record_lock_duration_ms == 20_000
    late.set()
    await asyncio.sleep(1)

    assert configs.share_of("g").record_lock_duration_ms == 20_000
    await metadata.defaults.set(ENTRY, {}, version=(await metadata.defaults.get(ENTRY)).version)
    await asyncio.sleep(REFRESH_MS / 1000 + 1)
    assert configs.share_of("g").record_lock_duration_ms == GroupSettings().share.record_lock_duration_ms
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await metadata.close()
