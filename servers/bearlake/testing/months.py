"""Months that pass while a server stands still, so that the store forgets the producers whose batches the server holds.

    a server stands still ── its clients go elsewhere, send again ── months pass, the others forget ── the server goes on

What the server has read and not committed by then was perhaps stored through another server, and must not be stored again (I9, decision
83). Clients do not send anything again after months: they have given it up (`clients.DELIVERY_TIMEOUT_S`).
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bearlake.testing.world import World

DAY_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthsSettings:
    """How often months pass, and how long the server stands still before and after that. Times are means of exponential distributions."""

    round_count: int = 3
    pause_s: float = 0.3
    """Between the end of one stand-still and the begin of the next."""
    before_s: float = 0.5
    """The server's clients send again elsewhere."""
    after_s: float = 0.3
    """The other servers forget."""


class Months:
    """See the module."""

    def __init__(self, world: "World", settings: MonthsSettings) -> None:
        self._world = world
        self._settings = settings
        self._random = world.randomness("months")

    async def run(self) -> None:
        """Let months pass a few times."""
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
            world.events["months pass"] += 1
            world.note("months have passed")
            await self._wait(settings.after_s)
            if not node.is_gone:
                world.loop.resume(node.process)

    async def _wait(self, mean_s: float) -> None:
        await asyncio.sleep(self._random.expovariate(1.0) * mean_s)
