"""Faults inside simulated workers: a network to the stores on which workers crash, and a runner that fails for some tasks."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from typing_extensions import override

from bearlake.compaction.model import ItemResult, WorkItem
from bearlake.compaction.runner import InProcess, Runner
from bearlake.errors import Corrupt
from simulator.network import Network

if TYPE_CHECKING:
    from simulator.deployment import Deployment
    from simulator.lake import LakeSettings

T = TypeVar("T")

LATE_S = 5.0
"""Maximum delay of a late request at the catalog."""


class CrashingNetwork(Network):
    """A worker's network to the stores. The worker may crash before its call is sent or after its effect. It may freeze before it loads a
    table, and the catalog may execute its request to replace a table's version late."""

    def __init__(
        self,
        network: Network,
        randomness: random.Random,
        settings: "LakeSettings",
        at_call: int,
        crash: Callable[[], None],
        freeze_and_replace: Callable[[], None],
    ) -> None:
        """`freeze_and_replace` freezes the worker's process for a while, from its next step on; another worker replaces it."""
        self._network = network
        self._random = randomness
        self._rate = settings.crash_rate
        self._swap_rate = settings.crash_before_swap_rate
        self._late_rates = {
            "tables.replace": settings.late_commit_rate,
            "tables.merge": max(settings.late_commit_rate, settings.late_merge_rate),
        }
        self._still_rates = {"tables.load": settings.freeze_before_load_rate}
        self._at_call = at_call
        self._crash = crash
        self._freeze_and_replace = freeze_and_replace
        self.call_count = 0

    @override
    def write_objects(self) -> None:
        self._network.write_objects()

    @override
    def write_metadata(self) -> None:
        self._network.write_metadata()

    @override
    async def call(
        self,
        store: str,
        what: str,
        effect: Callable[[], Awaitable[T]],
        *,
        wait_ms: float = 0.0,
        given_up: "list[asyncio.TimerHandle] | None" = None,
    ) -> T:
        self.call_count += 1
        if self._network.happens(self._still_rates.get(what, 0.0), "worker freezes before it loads a table"):
            self._freeze_and_replace()
            await asyncio.sleep(0)
        if self._network.happens(self._late_rates.get(what, 0.0), "late table commit"):
            effect = partial(_late, self._random.random() * LATE_S, effect)
        is_due = self.call_count == self._at_call or (self._rate > 0 and self._random.random() < self._rate)
        is_swap = what == "log.swap" and self._swap_rate > 0 and self._random.random() < self._swap_rate
        if not (is_due or is_swap) or self._network.is_healthy:
            return await self._network.call(store, what, effect, wait_ms=wait_ms, given_up=given_up)
        self._network.faults["crash at a call"] += 1
        if is_swap or self._random.random() < 0.3:
            self._crash()
            await asyncio.sleep(0)  # never returns

        async def last() -> T:
            try:
                return await effect()
            finally:
                self._crash()

        return await self._network.call(store, what, last, wait_ms=wait_ms, given_up=given_up)


async def _late(delay_s: float, effect: Callable[[], Awaitable[T]]) -> T:
    """Execute a request at the catalog long after its caller has given up."""
    await asyncio.sleep(delay_s)
    return await effect()


class FailingRunner(Runner):
    """A runner that always fails for some tasks until the deployment is healed."""

    def __init__(self, deployment: "Deployment", inner: InProcess, rate: float) -> None:
        self._deployment = deployment
        self._inner = inner
        self._rate = rate

    @override
    async def run(self, items: Sequence[WorkItem]) -> list[ItemResult]:
        for item in items:
            task_id = int(item.output_prefix.rpartition("/")[2].partition("-")[0], 16)
            draw = random.Random(f"{self._deployment.seed} {task_id}").random()
            if draw < self._rate and not self._deployment.network.is_healthy:
                self._deployment.events["poisoned run"] += 1
                raise Corrupt(f"task {task_id} is poisoned")
        return await self._inner.run(items)

    @override
    async def close(self) -> None:
        pass
