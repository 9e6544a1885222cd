# ruff: noqa: SLF001 - steps of a worker are taken one by one, without its loop
"""Merges whose table commit arrives late; see `fixtures/late_commits.py`."""

from typing import Any

import pytest

from bearlake.errors import Unavailable
from bearlake.metadata.model import Stream
from bearlake.table.model import TableState
from fixtures.late_commits import (
    POINTS,
    REPLACE,
    Intercepted,
    does,
    index_files,
    late_merge,
    rows,
    scene,
    sweep_all,
    takes,
)
from fixtures.virtual_lake import DAY_MS, Lake


@pytest.mark.parametrize("point", POINTS)
@scene
async def test_a_merge_whose_file_was_forbidden_counts_a_failure_and_the_former_worker_loses_nothing(
    lake: Lake, point: str
) -> None:
    stream, former = await late_merge(lake, point)
    other = await lake.compactor()
    works = await takes(other)
    written = [file.file.key for item in works[0].result.items for file in item.files]
    assert await lake.metadata.objects.forbid(written) == set(written)
    await other.worker._commit_round(works)

    (task,) = await lake.metadata.tasks.list()
    assert (task.attempt_count, "was forbidden" in task.error) == (1, True)
    await former.wakes_up()
    assert await rows(lake, stream) == 2
    lake.clock.advance(DAY_MS)
    await does(lake)
    assert not await lake.metadata.tasks.list()
    assert await rows(lake, stream) == 2
    assert await index_files(lake, stream) == set(lake.tables.tables[stream.number].files)
    await sweep_all(lake)
    assert await rows(lake, stream) == 2


@pytest.mark.parametrize("point", POINTS)
@scene
async def test_a_merge_that_is_dropped_for_a_trim_cannot_be_committed_later(lake: Lake, point: str) -> None:
    """The table still has the inputs, so only the fence and the claim exclude the former worker."""
    stream, former = await late_merge(lake, point)
    await lake.metadata.log.trim(stream.partition(0), 1)
    await does(lake)

    assert not await lake.metadata.tasks.list()
    await former.wakes_up()
    assert await rows(lake, stream) == 2
    await sweep_all(lake)
    assert await rows(lake, stream) == 2
    assert len(lake.tables.tables[stream.number].files) == 2
    assert {key for key in await lake.listed("table/") if "/data/" in key} == set(
        lake.tables.tables[stream.number].files
    )


@scene
async def test_a_merge_that_was_committed_while_it_was_being_dropped_is_taken_over(lake: Lake) -> None:
    stream, former = await late_merge(lake, REPLACE)
    await lake.metadata.log.trim(stream.partition(0), 1)
    other = await lake.compactor()
    fence = lake.tables.fence

    async def just_before(stream: Stream) -> TableState | None:
        await former.wakes_up()
        return await fence(stream)

    other.worker._committer._tables = Intercepted(lake.tables, fence=just_before)  # type: ignore[assignment]
    await takes(other)

    assert not await lake.metadata.tasks.list()
    (key,) = lake.tables.tables[stream.number].files
    assert await index_files(lake, stream) == {key}
    assert await rows(lake, stream) == 2
    assert 1 in await lake.served(stream)


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@scene
async def test_a_merge_whose_fence_was_not_answered_is_not_dropped(lake: Lake, is_done: bool) -> None:
    """The reply is lost before or after the effect: nothing is deleted, and the next worker does it again."""
    stream, former = await late_merge(lake, REPLACE)
    await lake.metadata.log.trim(stream.partition(0), 1)
    before = await lake.listed("table/")
    other = await lake.compactor()

    async def lost(stream: Stream) -> TableState | None:
        if is_done:
            await lake.tables.fence(stream)
        raise Unavailable("the reply is lost")

    other.worker._committer._tables = Intercepted(lake.tables, fence=lost)  # type: ignore[assignment]
    await takes(other)

    assert len(await lake.metadata.tasks.list()) == 1
    assert await lake.listed("table/") == before
    await other.worker._release_due_claims()
    lake.clock.advance(DAY_MS)
    await does(lake)
    assert not await lake.metadata.tasks.list()
    await former.wakes_up()
    await sweep_all(lake)
    assert await rows(lake, stream) == 2


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@scene
async def test_the_files_written_for_a_merge_stay_until_its_outcome_is_known(lake: Lake, is_done: bool) -> None:
    """The reply to `cancel` is lost before or after the effect."""
    stream, former = await late_merge(lake, REPLACE)
    await lake.metadata.log.trim(stream.partition(0), 1)
    before = await lake.listed("table/")
    other = await lake.compactor()
    tasks = lake.metadata.tasks

    async def lost(claim: Any) -> None:
        if is_done:
            await tasks.cancel(claim)
        raise Unavailable("the reply is lost")

    other.worker._metadata = Intercepted(lake.metadata, tasks=Intercepted(tasks, cancel=lost))  # type: ignore[assignment]
    await takes(other)

    assert await lake.listed("table/") == before
    await other.worker._release_due_claims()
    await former.wakes_up()
    lake.clock.advance(DAY_MS)
    if not is_done:
        await does(lake)
    assert not await tasks.list()
    await sweep_all(lake)
    assert await rows(lake, stream) == 2
    assert len(await lake.listed("table/")) == 2
