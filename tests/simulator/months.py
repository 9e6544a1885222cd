"""Months pass while a server is suspended, so that the producers whose batches the server holds expire in the store.

    a server is suspended ── its clients retry elsewhere ── months pass, producers expire ── the server resumes

A batch that the server had read but not committed may have been stored through another server, and must not be stored again (I9,
decision 83). Clients do not retry after months: they have given up (`clients.DELIVERY_TIMEOUT_S`).
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bearlake.metadata.producer_ids import ProducerIds
from bearlake.metadata.producers import MINUTE_MS

if TYPE_CHECKING:
    from simulator.deployment import Deployment

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


async def pass_minutes(producers: ProducerIds, count: int) -> None:
    """Advance the producer clock by `count` minutes, as servers do."""
    minute = await producers.advance_clock(-1)
    for _ in range(count):
        minute = await producers.advance_clock(minute)


class Months:
    """Makes months pass; see the module."""

    def __init__(self, deployment: "Deployment", settings: MonthsSettings) -> None:
        self._deployment = deployment
        self._settings = settings
        self._random = deployment.randomness("months")

    async def run(self) -> None:
        """Make months pass several times."""
        deployment, settings = self._deployment, self._settings
        for _ in range(settings.round_count):
            await self._wait(settings.pause_s)
            while not (nodes := deployment.serving()):  # noqa: ASYNC110 - servers come and go without an event
                await asyncio.sleep(0.1)
            node = self._random.choice(nodes)
            deployment.trace("freezes for months", node=node.process.name)
            deployment.loop.pause(node.process)
            node.cut_connections()
            await self._wait(settings.before_s)
            deployment.loop.skip(self._random.uniform(30, 120) * DAY_S)
            # The other servers counted these minutes: enough to expire every producer.
            idle_minutes = deployment.settings.streams.upkeep.producer_idle_ms // MINUTE_MS
            await pass_minutes(deployment.metadata.producers, idle_minutes + 2)
            deployment.events["months pass"] += 1
            deployment.trace("months have passed")
            await self._wait(settings.after_s)
            if not node.is_gone:
                deployment.loop.resume(node.process)

    async def _wait(self, mean_s: float) -> None:
        await asyncio.sleep(self._random.expovariate(1.0) * mean_s)
