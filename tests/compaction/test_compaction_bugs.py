# ruff: noqa: SLF001 - bugs are put into parts of a compactor
"""Bugs (errors that are no `BearlakeError`) in the handling of one stream: other streams, tasks and jobs continue (I11)."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest

from bearlake.compaction.leased_jobs import run_with_lease
from bearlake.compaction.runner import InProcess
from bearlake.compaction.upkeep import TableUpkeep
from bearlake.metadata.compaction import TaskState
from bearlake.metadata.model import Stream
from bearlake.owned_tasks import TaskDied
from bearlake.table.settings import TableSettings
from bearlake.telemetry import metrics
from fixtures.failing_runner import FailingRunner
from fixtures.virtual_lake import SETTINGS, Lake
from simulator.loop import virtual_time


class BrokenTables:
    """Tables with a bug for the stream `bad`, in all calls or in those named."""

    def __init__(self, inner: Any, calls: Collection[str] = ()) -> None:
        self._inner = inner
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        async def call(stream: Stream, *arguments: Any, **named: Any) -> Any:
            if stream.name == "bad" and name in (self._calls or (name,)):
                raise KeyError("a bug")
            return await method(stream, *arguments, **named)

        return call


class BrokenStreams:
    """A stream catalog that returns the stream `bad` with configs that cannot be parsed."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def by_numbers(self, numbers: Collection[int]) -> Sequence[Stream]:
        found = await self._inner.by_numbers(numbers)
        return [
            replace(stream, configs={"table.freshness_ms": "soon"}) if stream.name == "bad" else stream
            for stream in found
        ]


@virtual_time
async def test_a_bug_with_one_table_stops_the_upkeep_of_its_stream_only() -> None:
    lake = await Lake.open()
    streams = [await lake.stream(name) for name in ("a", "bad", "c")]
    tables: Any = BrokenTables(lake.tables)
    upkeep = TableUpkeep(lake.metadata, tables, SETTINGS.sweep, TableSettings(), lake.clock)
    await upkeep.run_once()

    assert set(lake.tables.tables) == {streams[0].number, streams[2].number}
    await lake.metadata.close()


BUGS = ["ensure", "commit", "runner", "state"]


@pytest.mark.parametrize("where", BUGS)
def test_a_bug_with_one_task_is_counted_and_quarantined_and_other_streams_are_compacted(where: str) -> None:
    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        bad, good = await lake.stream("bad"), await lake.stream("good")
        await lake.produce(bad, lake.batch(b"1"))
        await lake.produce(good, lake.batch(b"2"))
        compactor = await lake.compactor()
        if where == "runner":
            compactor.worker._runner = FailingRunner(InProcess(lake.store, lake.bench()), bad, KeyError("a bug"))  # type: ignore[assignment]
        else:
            calls = ("ensure", "state") if where == "state" else (where,)
            compactor.worker._committer._tables = BrokenTables(lake.tables, calls)  # type: ignore[assignment]

        async def is_over() -> bool:
            tasks = await lake.metadata.tasks.list()
            compacted = await lake.metadata.tasks.compacted([good.partition(0)])
            return compacted[good.partition(0)] == 1 and [task.state for task in tasks] == [TaskState.QUARANTINED]

        assert await lake.works(compactor, is_over)
        (task,) = await lake.metadata.tasks.list()
        assert (task.stream_number, task.attempt_count) == (bad.number, SETTINGS.worker.attempts_max)
        assert "a bug" in task.error
        await lake.metadata.close()

    body()


@virtual_time
async def test_a_stream_whose_configs_cannot_be_parsed_does_not_stop_planning_for_others() -> None:
    lake = await Lake.open()
    bad, good = await lake.stream("bad"), await lake.stream("good")
    compactor = await lake.compactor()
    compactor.planner._metadata.streams = BrokenStreams(lake.metadata.streams)  # type: ignore[assignment]
    await lake.produce(bad, lake.batch(b"1"))
    await lake.produce(good, lake.batch(b"2"))

    async def is_done() -> bool:
        return (await lake.metadata.tasks.compacted([good.partition(0)]))[good.partition(0)] == 1

    assert await lake.works(compactor, is_done)
    await lake.metadata.close()


def test_a_bug_in_a_job_is_logged_once_and_the_job_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bearlake.compaction")

    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        rounds: list[int] = []

        async def job() -> None:
            rounds.append(len(rounds))
            if len(rounds) < 5:
                raise KeyError("a bug")

        before = metrics.CONTAINED_FAULTS.labels("upkeep: job").value
        turns = run_with_lease("job", lake.metadata.leases, lake.server, job, pause_ms=1_000, retry_pause_ms=100)
        running = asyncio.ensure_future(turns)
        await asyncio.sleep(5)
        running.cancel()
        (end,) = await asyncio.gather(running, return_exceptions=True)

        assert len(rounds) > 5
        assert isinstance(end, asyncio.CancelledError)
        assert metrics.CONTAINED_FAULTS.labels("upkeep: job").value == before + 4
        await lake.metadata.close()

    body()

    levels = [record.levelname for record in caplog.records]
    assert levels == ["ERROR", "WARNING", "INFO"]
    assert caplog.records[0].exc_info is not None


@virtual_time
async def test_a_bug_in_planning_is_followed_by_planning_from_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = await Lake.open()
    stream = await lake.stream()
    compactor = await lake.compactor()
    inner, calls = compactor.planner._apply, []

    def apply(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) < 3:
            raise KeyError("a bug")
        inner(*arguments)

    monkeypatch.setattr(compactor.planner, "_apply", apply)

    async def is_done() -> bool:
        if len(calls) < 3:
            await lake.produce(stream, lake.batch(b"1"))
        return len(calls) >= 3 and await lake.is_done()

    assert await lake.works(compactor, is_done)
    await lake.metadata.close()


@virtual_time
async def test_a_worker_that_ends_as_cancelled_on_its_own_ends_the_compactor(caplog: pytest.LogCaptureFixture) -> None:
    lake = await Lake.open()
    stream = await lake.stream("orders")
    await lake.produce(stream, lake.batch(b"1"))
    compactor = await lake.compactor()
    inner = InProcess(lake.store, lake.bench())
    compactor.worker._runner = FailingRunner(inner, stream, asyncio.CancelledError())  # type: ignore[assignment]

    with pytest.raises(TaskDied, match="'work on tasks'"):
        async with asyncio.timeout(60):
            await compactor.run()
    assert [record.task for record in caplog.records if record.levelname == "ERROR"] == ["work on tasks"]  # type: ignore[attr-defined]
    await lake.metadata.close()


@virtual_time
async def test_a_swap_that_ends_as_cancelled_on_its_own_counts_as_a_failure() -> None:
    lake = await Lake.open()
    stream = await lake.stream("orders")
    await lake.produce(stream, lake.batch(b"1"))
    compactor = await lake.compactor()

    async def cancelled(work: object) -> None:
        raise asyncio.CancelledError

    compactor.worker._committer._swap = cancelled  # type: ignore[assignment, method-assign]

    async def is_quarantined() -> bool:
        return [task.state for task in await lake.metadata.tasks.list()] == [TaskState.QUARANTINED]

    assert await lake.works(compactor, is_quarantined)
    (task,) = await lake.metadata.tasks.list()
    assert "ended as cancelled" in task.error
    await lake.metadata.close()
