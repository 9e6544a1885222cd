"""One behaviour, two kinds of tables: those on Iceberg, and those of the simulation."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bearlake.clock import ManualClock
from bearlake.errors import Conflict, Fenced, NotFound
from bearlake.metadata.model import Stream
from bearlake.objects import ObjectStore
from bearlake.table import Tables, TableState, Unmergeable
from bearlake.table.model import AppliedTask, TableChange
from fixtures.tables import DAY_MS, START_MS, Work, a_stream, commit_of, local_store, tables_in
from simulator.tables import MemoryTables


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[tuple[ObjectStore, str]]:
    found, url = local_store(tmp_path)
    yield found, url
    await found.close()


@pytest.fixture(params=["iceberg", "simulation"])
async def tables(
    request: pytest.FixtureRequest, tmp_path: Path, store: tuple[ObjectStore, str]
) -> AsyncIterator[Tables]:
    made: Tables = MemoryTables(ManualClock(START_MS)) if request.param == "simulation" else tables_in(tmp_path, *store)
    yield made
    await made.close()


@pytest.fixture
def stream() -> Stream:
    return a_stream()


@pytest.fixture
def work(store: tuple[ObjectStore, str], stream: Stream) -> Work:
    return Work(store[0], stream)


async def test_a_table_is_made_once_and_found_again(tables: Tables, stream: Stream) -> None:
    assert await tables.state(stream) is None
    made = await tables.ensure(stream)

    assert await tables.ensure(stream) == await tables.state(stream) == made
    assert (dict(made.ends), dict(made.applied)) == ({}, {})


async def test_a_commit_moves_ends_and_marks_and_its_file_is_live(tables: Tables, work: Work) -> None:
    await tables.ensure(work.stream)
    change = await work.append(3, 0, 5, partition=1)
    state = await tables.commit(work.stream, commit_of(change), closed_tasks=())

    assert (dict(state.ends), dict(state.applied)) == ({1: 5}, {3: 1})
    assert await tables.live_files(work.stream, [change.add[0].key, "other"]) == {change.add[0].key}


async def test_a_later_epoch_finds_the_earlier_one_applied(tables: Tables, work: Work) -> None:
    await tables.ensure(work.stream)
    await tables.commit(work.stream, commit_of(await work.append(3, 0, 5)), closed_tasks=())
    again = await work.append(3, 0, 5, epoch=2)
    state = await tables.commit(work.stream, commit_of(again), closed_tasks=())

    assert dict(state.applied) == {3: 1}
    assert await tables.live_files(work.stream, [again.add[0].key]) == set()


async def test_a_zombie_is_too_late_when_its_task_is_closed(tables: Tables, work: Work) -> None:
    await tables.ensure(work.stream)
    await tables.commit(work.stream, commit_of(await work.append(3, 0, 5)), closed_tasks=())
    await tables.commit(work.stream, commit_of(await work.append(4, 5, 9)), closed_tasks={3})
    late = await work.append(3, 0, 5, epoch=2)
    state = await tables.commit(work.stream, commit_of(late), closed_tasks=())

    assert (dict(state.ends), dict(state.applied)) == ({0: 9}, {4: 1})
    assert await tables.live_files(work.stream, [late.add[0].key]) == set()


async def test_a_gap_means_trimmed_records_and_an_overlap_is_a_conflict(tables: Tables, work: Work) -> None:
    await tables.ensure(work.stream)
    await tables.commit(work.stream, commit_of(await work.append(3, 0, 5)), closed_tasks=())
    state = await tables.commit(work.stream, commit_of(await work.append(4, 7, 9)), closed_tasks=())

    assert dict(state.ends) == {0: 9}
    with pytest.raises(Conflict):
        await tables.commit(work.stream, commit_of(await work.append(5, 8, 12)), closed_tasks=())


async def test_a_merge_replaces_files_once_and_the_old_ones_live_in_old_snapshots(tables: Tables, work: Work) -> None:
    await tables.ensure(work.stream)
    changes = [await work.append(1, 0, 5), await work.append(2, 5, 9)]
    await tables.commit(work.stream, commit_of(*changes), closed_tasks=())
    inputs = [change.add[0].key for change in changes]
    merged = await work.file(0, 0, 9)
    merge = TableChange(task=AppliedTask(task_id=9, epoch=1), add=[merged], remove=inputs)
    for _ in range(2):
        state = await tables.commit(work.stream, commit_of(merge), closed_tasks=())
    summary = await tables.summary(work.stream)

    assert summary is not None
    assert (summary.file_count, summary.row_count) == (1, 9)
    assert dict(state.applied) == {1: 1, 2: 1, 9: 1}
    assert await tables.live_files(work.stream, [*inputs, merged.key]) == {*inputs, merged.key}


async def test_a_merge_of_files_that_are_gone_is_a_conflict(tables: Tables, work: Work) -> None:
    await tables.ensure(work.stream)
    merge = TableChange(
        task=AppliedTask(task_id=9, epoch=1), add=[await work.file(0, 0, 9)], remove=["table/a/b/data/c"]
    )
    with pytest.raises(Unmergeable):
        await tables.commit(work.stream, commit_of(merge), closed_tasks=())
    state = await tables.state(work.stream)

    assert state is not None
    assert not state.applied


async def test_a_commit_without_files_still_writes_its_mark(tables: Tables, work: Work) -> None:
    await tables.ensure(work.stream)
    change = TableChange(task=AppliedTask(task_id=3, epoch=2, ranges={0: (0, 4)}), add=[])
    state = await tables.commit(work.stream, commit_of(change), closed_tasks=())

    assert (dict(state.ends), dict(state.applied)) == ({0: 4}, {3: 2})


async def test_rows_of_an_age_leave_the_table(tables: Tables, work: Work) -> None:
    await tables.ensure(work.stream)
    old, new = await work.append(1, 0, 5), await work.append(2, 5, 9, timestamp_ms=START_MS + DAY_MS)
    await tables.commit(work.stream, commit_of(old, new), closed_tasks=())

    assert await tables.delete_before(work.stream, START_MS + DAY_MS // 2) == 1
    assert await tables.delete_before(work.stream, START_MS + DAY_MS // 2) == 0
    summary = await tables.summary(work.stream)
    assert summary is not None
    assert summary.row_count == 4


async def test_a_dropped_table_is_gone_and_commits_to_it_are_not_found(tables: Tables, work: Work) -> None:
    await tables.ensure(work.stream)
    await tables.drop(work.stream)
    await tables.drop(work.stream)

    assert await tables.state(work.stream) is None
    assert await tables.summary(work.stream) is None
    with pytest.raises(NotFound):
        await tables.commit(work.stream, commit_of(await work.append(1, 0, 5)), closed_tasks=())


@pytest.mark.parametrize("is_new", [False, True])
async def test_a_commit_that_was_looked_at_before_a_fence_does_not_happen_after_it(
    tables: Tables, work: Work, is_new: bool
) -> None:
    await tables.ensure(work.stream)
    if not is_new:
        await tables.commit(work.stream, commit_of(await work.append(1, 0, 5)), closed_tasks=())
    before = await tables.state(work.stream)
    seen: list[TableState | None] = []

    async def check() -> None:
        """Allowed at first; then another worker takes over and fences."""
        if seen:
            raise Fenced("overtaken")
        seen.append(await tables.fence(work.stream))

    late = await work.append(2, 5, 9)
    with pytest.raises(Fenced):
        await tables.commit(work.stream, commit_of(late), closed_tasks=(), check=check)

    state = await tables.state(work.stream)
    assert before is not None
    assert seen == [state]
    assert state is not None
    assert (state.ends, state.applied) == (before.ends, before.applied)
    assert state.snapshot_id != before.snapshot_id
    assert not await tables.live_files(work.stream, [late.add[0].key])


async def test_a_commit_that_was_already_made_runs_no_check(tables: Tables, work: Work) -> None:
    await tables.ensure(work.stream)
    change = await work.append(1, 0, 5)
    state = await tables.commit(work.stream, commit_of(change), closed_tasks=())

    async def check() -> None:
        raise Fenced("overtaken")

    assert await tables.commit(work.stream, commit_of(change), closed_tasks=(), check=check) == state


async def test_without_a_table_a_fence_does_nothing(tables: Tables, stream: Stream) -> None:
    assert await tables.fence(stream) is None
    assert await tables.state(stream) is None
