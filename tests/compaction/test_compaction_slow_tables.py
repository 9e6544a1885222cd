"""Tables and files of some streams are denied or do not answer for a long time: other streams continue, and all recover (I11)."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from bearlake.compaction.runner import InProcess
from bearlake.compaction.service import Compactor
from bearlake.compaction.settings import CompactionSettings, MergeSettings, PlannerSettings
from bearlake.compaction.upkeep import QuarantineUpkeep
from bearlake.errors import BearlakeError, Denied, Unavailable
from bearlake.metadata.compaction import TaskState
from bearlake.metadata.model import Stream
from bearlake.metadata.registering import register
from bearlake.objects import ByteRange
from fixtures.late_commits import Intercepted, rows
from fixtures.virtual_lake import DAY_MS, Lake
from simulator.loop import virtual_time

SETTINGS = CompactionSettings(planner=PlannerSettings(wait_ms=50), merge=MergeSettings(is_enabled=False))
"""The product's waits and limits."""


class Catalog:
    """Tables whose commits fail for some streams, whenever they are asked; the times (s) of these calls."""

    def __init__(self, lake: Lake, names: Collection[str], error: BearlakeError) -> None:
        self.names = set(names)
        self.called_s: list[float] = []
        self._commit = lake.tables.commit
        self._error = error
        lake.tables = Intercepted(lake.tables, commit=self.commit)  # type: ignore[assignment]

    async def commit(self, stream: Stream, *arguments: Any, **named: Any) -> Any:
        if stream.name in self.names:
            self.called_s.append(asyncio.get_running_loop().time())
            raise self._error
        return await self._commit(stream, *arguments, **named)


def compacted(lake: Lake, stream: Stream) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        key = stream.partition(0)
        return (await lake.metadata.tasks.compacted([key])).get(key) == 1

    return holds


@asynccontextmanager
async def a_worker(lake: Lake, settings: CompactionSettings = SETTINGS) -> AsyncIterator[Compactor]:
    """A worker that plans and works as long as the block runs; its registration lasts."""
    registered = await register(lake.metadata.servers, "w", zone=None, endpoints={}, version="1", timeout_ms=DAY_MS)
    compactor = Compactor(
        lake.metadata,
        lake.store,
        lake.tables,
        InProcess(lake.store, lake.bench()),
        registered.server,
        settings,
        clock=lake.clock,
        random_source=random.Random(1),
    )
    running = [asyncio.ensure_future(part.run()) for part in (compactor.planner, compactor.worker)]
    try:
        yield compactor
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def within(lake: Lake, seconds: int, holds: Callable[[], Awaitable[bool]], step_s: int = 1) -> bool:
    """Let time pass until it holds, at most so long; returns whether it does."""
    for _ in range(0, seconds, step_s):
        if await holds():
            return True
        lake.clock.advance(step_s * 1_000)
        await asyncio.sleep(step_s)
    return await holds()


def test_tables_that_do_not_take_commits_delay_no_other_stream() -> None:
    """More of them than rounds that may commit at once; each commit is tried for ten minutes."""

    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        count = SETTINGS.worker.commits_under_way_max + 1
        bad = [await lake.stream(f"bad-{number}") for number in range(count)]
        good = await lake.stream("good")
        catalog = Catalog(lake, [stream.name for stream in bad], Unavailable("500"))
        async with a_worker(lake):
            for stream in bad:
                await lake.produce(stream, lake.batch(b"1"))
                await within(lake, 3, compacted(lake, stream))
            await lake.produce(good, lake.batch(b"2"))

            assert await within(lake, 30, compacted(lake, good))
            catalog.names.clear()
            assert await within(lake, 300, lake.is_done)
        assert [await rows(lake, stream) for stream in [*bad, good]] == [1] * (count + 1)
        await lake.metadata.close()

    body()


@pytest.mark.parametrize("is_one_round", [True, False])
def test_a_round_holds_its_place_only_while_too_many_commits_are_slow(is_one_round: bool) -> None:
    """For a while, one commit more than the limit is slow. Afterwards the commit that never ends delays no other stream."""

    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        brief, bad, good = [await lake.stream(name) for name in ("brief", "bad", "good")]
        catalog = Catalog(lake, ["brief", "bad"], Unavailable("500"))
        bounds = replace(SETTINGS.worker, commits_under_way_max=1, slow_commits_max=1)
        await lake.produce(brief, lake.batch(b"1"))
        if is_one_round:
            await lake.produce(bad, lake.batch(b"1"))
        async with a_worker(lake, replace(SETTINGS, worker=bounds)):
            assert not await within(lake, 3, compacted(lake, brief))
            if not is_one_round:
                await lake.produce(bad, lake.batch(b"1"))
            assert not await within(lake, 30, compacted(lake, bad))
            catalog.names.remove("brief")
            assert await within(lake, 120, compacted(lake, brief))
            await lake.produce(good, lake.batch(b"2"))

            assert await within(lake, 30, compacted(lake, good))
            catalog.names.clear()
            assert await within(lake, 120, lake.is_done)
        await lake.metadata.close()

    body()


def test_a_catalog_that_keeps_failing_is_asked_at_a_bounded_rate_and_all_recovers() -> None:
    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        stream = await lake.stream("bad")
        catalog = Catalog(lake, ["bad"], Unavailable("500"))
        async with a_worker(lake):
            await lake.produce(stream, lake.batch(b"1"))
            assert not await within(lake, 1_200, compacted(lake, stream), 10)
            count = len(catalog.called_s)
            assert not await within(lake, 1_200, compacted(lake, stream), 10)
            count = len(catalog.called_s) - count
            (task,) = await lake.metadata.tasks.list()
            assert (task.state, task.attempt_count) == (TaskState.OPEN, 0)
            catalog.names.clear()
            assert await within(lake, 120, lake.is_done)
        assert count <= 2 * 20 + 2 * 10  # two per minute, and a few more each time the worker restarts the task
        assert await rows(lake, stream) == 1
        assert len(await lake.listed("table/")) == 1  # the files of all other attempts are gone
        await lake.metadata.close()

    body()


def test_objects_of_one_stream_that_are_denied_delay_no_other_and_recover_without_an_operator() -> None:
    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        bad, good = await lake.stream("bad"), await lake.stream("good")
        denied = {await lake.produce(bad, lake.batch(b"1"))}
        read = lake.store.read

        async def checked(key: str, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
            if key in denied:
                raise Denied("403")
            return await read(key, ranges)

        lake.store.read = checked  # type: ignore[method-assign,assignment]
        async with a_worker(lake):
            await lake.produce(good, lake.batch(b"2"))
            assert await within(lake, 30, compacted(lake, good))

            async def is_quarantined() -> bool:
                return [task.state for task in await lake.metadata.tasks.list()] == [TaskState.QUARANTINED]

            assert await within(lake, 300, is_quarantined)
            denied.clear()
            upkeep = QuarantineUpkeep(lake.metadata, SETTINGS.sweep)

            async def is_done() -> bool:
                await upkeep.run_once()
                return await lake.is_done()

            assert await within(lake, 1_200, is_done, 10)
        assert [await rows(lake, stream) for stream in (bad, good)] == [1, 1]
        await lake.metadata.close()

    body()
