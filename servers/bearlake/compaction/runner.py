"""Runs work items: on Spark (`compaction/spark`), or in this process (`InProcess`: tests, simulation, smallest deployments)."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from typing_extensions import override

from bearlake.compaction.concurrency import run_all
from bearlake.compaction.model import ItemResult, WorkItem
from bearlake.compaction.task import run
from bearlake.compaction.workbench import Workbench
from bearlake.objects import ObjectStore


class Runner(Protocol):
    """Runs work items."""

    async def run(self, items: Sequence[WorkItem]) -> list[ItemResult]:
        """Run the items concurrently; return their results in order. An item may run more than once, under different keys.

        A cancellation stops the items; their objects become orphans.

        Raises:
            NotFound: an object that an item reads does not exist (any more); look up its offsets again.
            Corrupt: an object contradicts its checksums; the message names the object.
            Unavailable: a store or the runner did not answer in time. The results are unknown: run again.
        """

    async def close(self) -> None:
        """Shut down. The runner cannot be used afterwards."""


class InProcess(Runner):
    """A `Runner` in this process, with at most `concurrent_count` items at a time."""

    def __init__(self, store: ObjectStore, workbench: Workbench, *, concurrent_count: int = 1) -> None:
        """The caller keeps ownership of `store`."""
        self._store = store
        self._workbench = workbench
        self._slots = asyncio.Semaphore(concurrent_count)

    @override
    async def run(self, items: Sequence[WorkItem]) -> list[ItemResult]:
        async def run_one(item: WorkItem) -> ItemResult:
            async with self._slots:
                return await run(item, self._store, self._workbench)

        return await run_all([run_one(item) for item in items])

    @override
    async def close(self) -> None:
        pass
