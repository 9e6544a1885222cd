# ruff: noqa: SLF001 - steps of a worker are taken one by one, without its loop
"""Objects of open tasks (I10): workers that stay away for months, objects that were lost, swaps that can never succeed."""

import asyncio
import logging

import pytest

from bearlake.compaction.commit import Work
from bearlake.errors import BearlakeError, Conflict, Corrupt, Denied, Fenced, NotFound
from bearlake.metadata.compaction import TaskState
from bearlake.metadata.model import (
    ObjectKind,
)
from fixtures.virtual_lake import DAY_MS, Lake
from simulator.loop import virtual_time


async def dies_before_the_swap(lake: Lake) -> None:
    """A worker commits the table and never returns."""
    dying = await lake.compactor()
    died = asyncio.Event()

    async def no_swap(work: Work) -> None:
        died.set()
        await asyncio.Event().wait()

    dying.worker._committer._swap = no_swap  # type: ignore[method-assign]

    async def is_dead() -> bool:
        return died.is_set()

    assert await lake.works(dying, is_dead)


def test_a_worker_may_stay_away_for_months_between_table_and_swap() -> None:
    """The orphan sweep repeatedly runs before the next claim: it takes no object of the open task."""

    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        stream = await lake.stream()
        odd = lake.batch(b"2", is_odd=True)
        await lake.produce(stream, lake.batch(b"1"), odd)
        await dies_before_the_swap(lake)
        written = {*await lake.listed("kept/"), *[key for key in await lake.listed("table/") if "/data/" in key]}
        assert len(written) == 2
        for _ in range(3):
            lake.clock.advance(60 * DAY_MS)
            await lake.sweeper().sweep_orphans()
            await lake.metadata.log.maintain(entry_count_min=0)

        assert written <= {*await lake.listed("kept/"), *await lake.listed("table/")}
        assert await lake.works(await lake.compactor(), lake.is_done)
        assert await lake.served(stream) == {0: ObjectKind.PARQUET, 1: odd}
        await lake.metadata.close()

    body()


def test_a_kept_object_that_was_deleted_under_an_open_task_is_rebuilt_from_the_wal() -> None:
    """The state that an earlier version left behind: the sweep has deleted the kept object, the table has the task's rows."""

    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        stream = await lake.stream()
        batches = [lake.batch(b"%d" % number, is_odd=number in (1, 2, 4)) for number in range(6)]
        await lake.produce(stream, *batches[:2])
        await lake.produce(stream, *batches[2:])
        await dies_before_the_swap(lake)
        lost = await lake.listed("kept/")
        await lake.store.delete(lost)
        lake.clock.advance(DAY_MS)

        assert await lake.works(await lake.compactor(), lake.is_done)
        served = await lake.served(stream)
        assert served[0] is served[3] is served[5] is ObjectKind.PARQUET
        assert served[1] == batches[1] + batches[2]
        assert served[4] == batches[4]
        assert not set(lost) & set(await lake.listed("kept/"))
        await lake.metadata.close()

    body()


def test_offsets_that_were_trimmed_in_the_meantime_are_not_rewritten() -> None:
    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        stream = await lake.stream()
        odd = [lake.batch(b"%d" % number, is_odd=True) for number in range(4)]
        await lake.produce(stream, *odd[:2])
        await lake.produce(stream, *odd[2:])
        await dies_before_the_swap(lake)
        await lake.store.delete(await lake.listed("kept/"))
        await lake.metadata.log.trim(stream.partition(0), 2)
        lake.clock.advance(DAY_MS)

        assert await lake.works(await lake.compactor(), lake.is_done)
        assert await lake.served(stream) == {2: odd[2] + odd[3], 3: ObjectKind.PARQUET}
        await lake.metadata.close()

    body()


@pytest.mark.parametrize("kind", [Fenced, Conflict, NotFound, Corrupt, Denied])
def test_a_swap_that_can_never_succeed_is_quarantined_with_an_alarm(
    kind: type[BearlakeError], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "bearlake.compaction")
    counts: list[int] = []

    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        stream = await lake.stream()
        wal = await lake.produce(stream, lake.batch(b"1"))
        compactor = await lake.compactor()

        async def refused(work: Work) -> None:
            counts.append(work.task.attempt_count)
            raise kind("it can never be")

        swap = compactor.worker._committer._swap
        compactor.worker._committer._swap = refused  # type: ignore[method-assign]

        async def is_quarantined() -> bool:
            return [task.state for task in await lake.metadata.tasks.list()] == [TaskState.QUARANTINED]

        assert await lake.works(compactor, is_quarantined)
        assert counts == [0, 1, 2]
        # Readers still have it, moved out of the object that others share; an operator lets it be tried again.
        (kept,) = await lake.listed("kept/")
        assert wal != kept
        assert list(await lake.served(stream)) == [0]
        (task,) = await lake.metadata.tasks.list()
        assert "it can never be" in task.error
        compactor.worker._committer._swap = swap  # type: ignore[method-assign]
        await lake.metadata.tasks.retry(task.id)
        assert await lake.works(compactor, lake.is_done)
        assert await lake.served(stream) == {0: ObjectKind.PARQUET}
        await lake.metadata.close()

    body()

    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in errors] == ["a compaction task was quarantined"]


def test_a_lost_data_file_of_a_committed_task_counts_a_failure_and_its_records_stay_in_the_wal() -> None:
    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        stream = await lake.stream()
        await lake.produce(stream, lake.batch(b"1"))
        await dies_before_the_swap(lake)
        await lake.store.delete([key for key in await lake.listed("table/") if "/data/" in key])
        lake.clock.advance(DAY_MS)

        async def is_quarantined() -> bool:
            return [task.state for task in await lake.metadata.tasks.list()] == [TaskState.QUARANTINED]

        assert await lake.works(await lake.compactor(), is_quarantined)
        assert list(await lake.served(stream)) == [0]
        await lake.metadata.close()

    body()
