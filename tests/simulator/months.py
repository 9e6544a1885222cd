"""Months pass while a server is suspended, so that the producers whose batches the server holds expire in the store.

    a server is suspended ── its clients retry elsewhere ── months pass, producers expire ── the server resumes

A batch that the server had read but not committed may have been stored through another server, and must not be stored again (I9,
decision 83). Clients do not retry after months: they have given up (`clients.DELIVERY_TIMEOUT_S`).
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bearlake.metadata.producers import MINUTE_MS

if TYPE_CHECKING:
    from simulator.world import World

DAY_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthsSettings:
    """How often months pass, and how long the server is suspended before and after. Times are means of exponential distributions."""

    round_count: int = 3
    pause_s: float = 0.3
    """Between the end of one suspension and the start of the next."""
    before_s: float = 0.5
    """Time for the server's clients to retry elsewhere."""
    after_s: float = 0.3
    """Time for the other servers to expire producers."""


class Months:
    """Makes months pass; see the module."""

    def __init__(self, world: "World", settings: MonthsSettings) -> None:
        self._world = world
        self._settings = settings
        self._random = world.randomness("months")

    async def run(self) -> None:
        """Make months pass several times."""
        world, settings = self._world, self._settings
        for _ in range(settings.round_count):
            await self._wait(settings.pause_s)
            while not (nodes := world.serving()):  # noqa: ASYNC110 - servers come and go without an event
                await asyncio.sleep(0.1)
            node = self._random.choice(nodes)
            world.note("stands still for months", node=node.process.name)
            world.loop.pause(node.process)
            node.cut_connections()
            await self._wait(settings.before_s)
            world.loop.skip(self._random.uniform(30, 120) * DAY_S)
            await self._count_minutes()
            world.events["months pass"] += 1
            world.note("months have passed")
            await self._wait(settings.after_s)
            if not node.is_gone:
                world.loop.resume(node.process)

    async def _count_minutes(self) -> None:
        """Advance the producer clock as the other servers did in these months: by enough to expire every producer."""
        producers = self._world.metadata.producers
        minute = await producers.advance_clock(-1)
        for _ in range(self._world.settings.streams.upkeep.producer_idle_ms // MINUTE_MS + 2):
            minute = await producers.advance_clock(minute)

    async def _wait(self, mean_s: float) -> None:
        await asyncio.sleep(self._random.expovariate(1.0) * mean_s)
