"""Who runs work items: Spark (`compaction/spark`), or this process (`InProcess`: tests, simulation, the smallest deployments)."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from typing_extensions import override

from bearlake.compaction.model import ItemResult, WorkItem
from bearlake.compaction.task import run
from bearlake.compaction.together import together
from bearlake.compaction.workbench import Workbench
from bearlake.objects import ObjectStore


class Runner(Protocol):
    """Runs work items somewhere."""

    async def run(self, items: Sequence[WorkItem]) -> list[ItemResult]:
        """The items' results, in order. Items run side by side; an item may run more than once, under different keys.

        Cancelling it stops the items; what they wrote so far are orphans.

        Raises:
            NotFound: an object that an item reads does not exist (any more): look up again where its offsets are.
            Corrupt: an object contradicts its checksums; the message names it.
            Unavailable: a store, or whoever runs the items, did not answer in time. Nothing is known of the results: run again.
        """

    async def close(self) -> None:
        """End what runs the items; the runner is not used afterwards."""


class InProcess(Runner):
    """A `Runner` in this process: at most `concurrent_count` items at once."""

    def __init__(self, store: ObjectStore, workbench: Workbench, *, concurrent_count: int = 1) -> None:
        """`store` stays the caller's."""
        self._store = store
        self._workbench = workbench
        self._slots = asyncio.Semaphore(concurrent_count)

    @override
    async def run(self, items: Sequence[WorkItem]) -> list[ItemResult]:
        async def run_one(item: WorkItem) -> ItemResult:
            async with self._slots:
                return await run(item, self._store, self._workbench)

        return await together([run_one(item) for item in items])

    @override
    async def close(self) -> None:
        pass
