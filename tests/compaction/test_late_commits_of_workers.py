# ruff: noqa: SLF001 - steps of a worker are taken one by one, without its loop
"""Table commits of workers that were overtaken, or whose table was dropped; see `fixtures/late_commits.py`."""

import asyncio
from typing import Any

import pytest

from bearlake.errors import Fenced, Unavailable
from bearlake.table import CommitCheck
from bearlake.table.model import TableState
from fixtures.late_commits import (
    ASK,
    POINTS,
    Gate,
    Intercepted,
    does,
    index_files,
    late_compaction,
    offer_compaction,
    rows,
    scene,
    takes,
)
from fixtures.virtual_lake import Lake


@pytest.mark.parametrize("point", POINTS)
@scene
async def test_a_table_that_was_switched_off_and_dropped_is_not_created_again(lake: Lake, point: str) -> None:
    stream, former = await late_compaction(lake, point)
    now = await lake.metadata.streams.get(stream.name)
    await lake.metadata.streams.alter(
        now.number, set_configs={"table.enable": "false"}, unset_configs=(), version=now.version
    )
    await lake.tables.drop(stream)
    await does(lake)
    await former.wakes_up()

    assert not lake.tables.tables
    assert len(await index_files(lake, stream)) == 3
    assert not await lake.metadata.tasks.list()


@pytest.mark.parametrize("point", POINTS)
@scene
async def test_a_table_dropped_under_a_live_worker_is_created_again_for_a_live_stream(lake: Lake, point: str) -> None:
    stream = await lake.stream()
    await lake.produce(stream, lake.batch(b"0"))
    await offer_compaction(lake, stream, 0, 1)
    compactor = await lake.compactor()
    works = await takes(compactor)
    gate = Gate(lake.tables, point)
    compactor.worker._committer._tables = gate  # type: ignore[assignment]
    commit = asyncio.create_task(compactor.worker._commit_round(works))
    await gate.reached.wait()
    await lake.tables.drop(stream)
    gate.open.set()
    await commit

    assert await rows(lake, stream) == 1
    assert not await lake.metadata.tasks.list()


@scene
async def test_among_tasks_that_are_committed_together_only_the_overtaken_task_fails(lake: Lake) -> None:
    stream = await lake.stream(partition_count=2)
    for index in range(2):
        await lake.produce(stream, lake.batch(b"%d" % index), index=index)
        await offer_compaction(lake, stream, 0, 1, index=index)
    compactor = await lake.compactor()
    works = await takes(compactor)
    gate = Gate(lake.tables, ASK)
    compactor.worker._committer._tables = gate  # type: ignore[assignment]
    commit = asyncio.create_task(compactor.worker._committer.commit(stream, works))
    await gate.reached.wait()
    await lake.metadata.tasks.release([works[0].claim])
    gate.open.set()
    errors = await commit

    assert {task: type(error) for task, error in errors.items()} == {works[0].task.id: Fenced}
    assert dict(lake.tables.tables[stream.number].applied_tasks.applied) == {works[1].task.id: works[1].claim.epoch}


@scene
async def test_a_table_commit_that_was_given_up_cannot_begin_another_try(lake: Lake) -> None:
    """Its thread may continue after its caller has stopped waiting, while the claim is still the newest."""
    stream = await lake.stream()
    await lake.produce(stream, lake.batch(b"0"))
    await offer_compaction(lake, stream, 0, 1)
    compactor = await lake.compactor()
    works = await takes(compactor)
    asked: list[CommitCheck] = []

    async def given_up(*_: Any, check: CommitCheck, **__: Any) -> TableState:
        asked.append(check)
        await check()
        raise Unavailable("no answer within the deadline")

    committer = compactor.worker._committer
    committer._tables = Intercepted(lake.tables, commit=given_up)  # type: ignore[assignment]
    errors = await committer.commit(stream, works)

    assert [type(error) for error in errors.values()] == [Unavailable]
    await lake.metadata.tasks.check([works[0].claim])
    for check in asked:
        with pytest.raises(Fenced):
            await check()
