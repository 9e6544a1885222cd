# ruff: noqa: SLF001 - answers of the catalog are lost or held at the last step before the socket
"""Commits to a table: exactly once under races, zombies, lost replies and other writers' commits (I5)."""

import asyncio
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bearlake.errors import Conflict, NotFound, Unavailable
from bearlake.objects import Buffer, ObjectStore
from bearlake.objects.faulty import FaultSettings, FaultyObjectStore
from bearlake.objects.memory import MemoryObjectStore
from bearlake.table.iceberg import IcebergTables
from bearlake.table.model import AppliedTask, TableChange
from fixtures.tables import Work, a_stream, commit_of, local_store, pyiceberg_catalog, rows, tables_in
from fixtures.waiting import WAIT_S


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[tuple[ObjectStore, str]]:
    opened, url = local_store(tmp_path)
    yield opened, url
    await opened.close()


@pytest.fixture
async def tables(tmp_path: Path, store: tuple[ObjectStore, str]) -> AsyncIterator[IcebergTables]:
    opened = tables_in(tmp_path, *store)
    yield opened
    await opened.close()


@pytest.fixture
async def work(store: tuple[ObjectStore, str], tables: IcebergTables) -> Work:
    stream = a_stream()
    await tables.ensure(stream)
    return Work(store[0], stream)


def foreign(tmp_path: Path) -> Any:
    """The table as another engine has it: PyIceberg alone, with its own files and its own connection."""
    catalog = pyiceberg_catalog(tmp_path)
    return catalog.load_table("streams.orders")


async def offsets(tables: IcebergTables, work: Work) -> list[tuple[int, int]]:
    """(partition, offset) of all rows, as an engine that knows nothing of us reads them."""

    def scan() -> list[tuple[int, int]]:
        table = tables.lookup().find(work.stream)
        assert table is not None
        found = table.scan(selected_fields=("_partition_id", "_offset")).to_arrow().to_pylist()
        return sorted((row["_partition_id"], row["_offset"]) for row in found)

    return await tables.run("test", scan)


def expected(*ranges: tuple[int, int, int]) -> list[tuple[int, int]]:
    return sorted((partition, offset) for partition, start, end in ranges for offset in range(start, end))


async def test_an_append_adds_rows_and_moves_the_ends(tables: IcebergTables, work: Work) -> None:
    state = await tables.commit(work.stream, commit_of(await work.append(1, 0, 10, epoch=3)), closed_tasks=[])

    assert (state.ends, state.applied) == ({0: 10}, {1: 3})
    assert state.snapshot_id is not None
    assert await offsets(tables, work) == expected((0, 0, 10))
    assert await tables.state(work.stream) == state


async def test_a_repeated_commit_changes_nothing(tables: IcebergTables, work: Work) -> None:
    change = await work.append(1, 0, 10)
    first = await tables.commit(work.stream, commit_of(change), closed_tasks=[])

    assert await tables.commit(work.stream, commit_of(change), closed_tasks=[]) == first
    assert await offsets(tables, work) == expected((0, 0, 10))


async def test_an_overtaken_worker_cannot_append_its_own_file(tables: IcebergTables, work: Work) -> None:
    await tables.commit(work.stream, commit_of(await work.append(1, 0, 10, epoch=2)), closed_tasks=[])

    state = await tables.commit(work.stream, commit_of(await work.append(1, 0, 10, epoch=1)), closed_tasks=[])

    assert state.applied == {1: 2}
    assert await offsets(tables, work) == expected((0, 0, 10))


async def test_an_overtaken_worker_cannot_append_after_its_mark_was_dropped(tables: IcebergTables, work: Work) -> None:
    await tables.commit(work.stream, commit_of(await work.append(1, 0, 10, epoch=2)), closed_tasks=[])
    await tables.commit(work.stream, commit_of(await work.append(2, 10, 20)), closed_tasks=[1])

    state = await tables.commit(work.stream, commit_of(await work.append(1, 0, 10, epoch=1)), closed_tasks=[])

    assert (state.ends, state.applied) == ({0: 20}, {2: 1})
    assert await offsets(tables, work) == expected((0, 0, 20))


async def test_a_task_that_overlaps_the_table_is_a_conflict(tables: IcebergTables, work: Work) -> None:
    await tables.commit(work.stream, commit_of(await work.append(1, 0, 10)), closed_tasks=[])

    with pytest.raises(Conflict, match=r"\[5, 15\)"):
        await tables.commit(work.stream, commit_of(await work.append(2, 5, 15)), closed_tasks=[])

    assert await offsets(tables, work) == expected((0, 0, 10))


async def test_several_tasks_go_into_one_snapshot(tables: IcebergTables, work: Work) -> None:
    changes = [await work.append(1, 0, 10), await work.append(2, 0, 5, partition=1), await work.append(3, 10, 12)]

    state = await tables.commit(work.stream, commit_of(*changes), closed_tasks=[])

    summary = await tables.summary(work.stream)
    assert (state.ends, state.applied) == ({0: 12, 1: 5}, {1: 1, 2: 1, 3: 1})
    assert summary is not None
    assert (len(summary.snapshots), summary.file_count, summary.row_count) == (1, 3, 17)
    assert summary.size_bytes == sum(file.size for change in changes for file in change.add)


async def test_a_task_without_rows_moves_the_ends(tables: IcebergTables, work: Work) -> None:
    mark = AppliedTask(task_id=1, epoch=1, ranges={2: (0, 6)})

    state = await tables.commit(work.stream, commit_of(TableChange(task=mark, add=[])), closed_tasks=[])

    assert (state.ends, state.applied) == ({2: 6}, {1: 1})
    assert await offsets(tables, work) == []


async def test_a_merge_replaces_files_in_one_snapshot(tables: IcebergTables, work: Work) -> None:
    small = [await work.append(1, 0, 4), await work.append(2, 4, 8), await work.append(3, 8, 12)]
    for change in small:
        await tables.commit(work.stream, commit_of(change), closed_tasks=[])
    merge = TableChange(
        task=AppliedTask(task_id=9, epoch=1), add=[await work.file(0, 0, 8)], remove=[c.add[0].key for c in small[:2]]
    )

    state = await tables.commit(work.stream, commit_of(merge), closed_tasks=[1, 2])
    again = await tables.commit(work.stream, commit_of(merge), closed_tasks=[])

    summary = await tables.summary(work.stream)
    assert state == again
    assert state.applied == {3: 1, 9: 1}
    assert await offsets(tables, work) == expected((0, 0, 12))
    assert summary is not None
    assert [snapshot.operation for snapshot in summary.snapshots] == ["append"] * 3 + ["replace"]
    assert (summary.file_count, summary.row_count) == (2, 12)


async def test_a_cleaning_replaces_files_by_one_with_fewer_rows_in_an_overwrite(
    tables: IcebergTables, work: Work
) -> None:
    dirty = [await work.append(1, 0, 4), await work.append(2, 4, 8)]
    for change in dirty:
        await tables.commit(work.stream, commit_of(change), closed_tasks=[])
    cleaning = TableChange(
        task=AppliedTask(task_id=9, epoch=1),
        add=[await work.file(0, 6, 8)],
        remove=[change.add[0].key for change in dirty],
        drops_rows=True,
    )

    state = await tables.commit(work.stream, commit_of(cleaning), closed_tasks=[])
    again = await tables.commit(work.stream, commit_of(cleaning), closed_tasks=[])

    summary = await tables.summary(work.stream)
    assert state == again
    assert state.ends == {0: 8}
    assert await offsets(tables, work) == expected((0, 6, 8))
    assert summary is not None
    assert [snapshot.operation for snapshot in summary.snapshots] == ["append", "append", "overwrite"]
    assert (summary.file_count, summary.row_count) == (1, 2)


async def test_a_merge_of_files_that_are_gone_is_a_conflict_and_adds_nothing(tables: IcebergTables, work: Work) -> None:
    first = await work.append(1, 0, 4)
    await tables.commit(work.stream, commit_of(first), closed_tasks=[])
    remove = [first.add[0].key]
    merge = TableChange(task=AppliedTask(task_id=9, epoch=1), add=[await work.file(0, 0, 4)], remove=remove)
    await tables.commit(work.stream, commit_of(merge), closed_tasks=[])
    late = TableChange(task=AppliedTask(task_id=10, epoch=1), add=[await work.file(0, 0, 4)], remove=remove)

    with pytest.raises(Conflict, match="not in the table"):
        await tables.commit(work.stream, commit_of(late), closed_tasks=[])

    assert await offsets(tables, work) == expected((0, 0, 4))


async def test_an_append_and_a_merge_in_one_commit_are_atomic(tables: IcebergTables, work: Work) -> None:
    first = await work.append(1, 0, 4)
    await tables.commit(work.stream, commit_of(first), closed_tasks=[])
    merge = TableChange(
        task=AppliedTask(task_id=9, epoch=1), add=[await work.file(0, 0, 4)], remove=[first.add[0].key, "gone.parquet"]
    )

    with pytest.raises(Conflict):
        await tables.commit(work.stream, commit_of(await work.append(2, 4, 8), merge), closed_tasks=[])
    unchanged = await tables.state(work.stream)
    good = TableChange(task=merge.task, add=merge.add, remove=[first.add[0].key])
    state = await tables.commit(work.stream, commit_of(await work.append(2, 4, 8), good), closed_tasks=[])

    assert unchanged is not None
    assert unchanged.ends == {0: 4}
    assert (state.ends, state.applied) == ({0: 8}, {1: 1, 2: 1, 9: 1})
    assert await offsets(tables, work) == expected((0, 0, 8))


async def test_rival_workers_append_a_task_once(
    tmp_path: Path, store: tuple[ObjectStore, str], tables: IcebergTables, work: Work
) -> None:
    rivals = [tables_in(tmp_path, *store) for _ in range(3)]
    for task in range(5):
        attempts = [await work.append(task, task * 10, task * 10 + 10, epoch=epoch) for epoch in (1, 2, 3)]
        states = await asyncio.gather(
            *(
                rival.commit(work.stream, commit_of(attempt), closed_tasks=[])
                for rival, attempt in zip(rivals, attempts, strict=True)
            )
        )
        assert len({state.applied[task] for state in states}) == 1
    for rival in rivals:
        await rival.close()

    summary = await tables.summary(work.stream)
    assert summary is not None
    assert len(summary.snapshots) == 5
    assert await offsets(tables, work) == expected((0, 0, 50))


async def test_workers_of_different_partitions_all_succeed(
    tmp_path: Path, store: tuple[ObjectStore, str], tables: IcebergTables, work: Work
) -> None:
    workers = [tables_in(tmp_path, *store) for _ in range(3)]

    async def run(partition: int) -> None:
        for turn in range(4):
            change = await work.append(partition * 100 + turn, turn * 5, turn * 5 + 5, partition=partition)
            await workers[partition].commit(work.stream, commit_of(change), closed_tasks=[])

    await asyncio.gather(*(run(partition) for partition in range(3)))
    for worker in workers:
        await worker.close()

    state = await tables.state(work.stream)
    assert state is not None
    assert state.ends == {0: 20, 1: 20, 2: 20}
    assert await offsets(tables, work) == expected((0, 0, 20), (1, 0, 20), (2, 0, 20))


@pytest.mark.parametrize("seed", range(3))
async def test_lost_replies_and_errors_of_the_object_store_change_nothing(
    tmp_path: Path, store: tuple[ObjectStore, str], tables: IcebergTables, work: Work, seed: int
) -> None:
    faults = FaultSettings(error_rate=0.06, lost_reply_rate=0.06, torn_read_rate=0.06)
    faulty = FaultyObjectStore(store[0], faults, random.Random(seed))
    worker = tables_in(tmp_path, faulty, store[1], commit_attempt_count_max=60)
    for task in range(6):
        change = await work.append(task, task * 10, task * 10 + 10)
        while True:
            try:
                await worker.commit(work.stream, commit_of(change), closed_tasks=[])
                break
            except Unavailable:
                continue
    await worker.close()

    assert await offsets(tables, work) == expected((0, 0, 60))


async def test_a_commit_that_lands_and_is_reported_as_lost_is_found_by_its_marks(
    tables: IcebergTables, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.lookup()
    catalog = tables._catalog
    assert catalog is not None
    land, calls = catalog.commit_table, []

    def lost(*arguments: Any) -> Any:
        calls.append(1)
        done = land(*arguments)
        if len(calls) == 1:
            raise ConnectionResetError("the reply was lost")
        return done

    monkeypatch.setattr(catalog, "commit_table", lost)
    state = await tables.commit(work.stream, commit_of(await work.append(1, 0, 10)), closed_tasks=[])

    assert len(calls) == 1
    assert state.ends == {0: 10}
    assert await offsets(tables, work) == expected((0, 0, 10))


async def test_commits_of_other_engines_in_between_are_kept(tmp_path: Path, tables: IcebergTables, work: Work) -> None:
    await tables.commit(work.stream, commit_of(await work.append(1, 0, 10)), closed_tasks=[])
    theirs = foreign(tmp_path)
    with theirs.transaction() as transaction:
        transaction.set_properties({"owner": "somebody"})
    theirs.append(rows(3, 100, 105))

    state = await tables.commit(work.stream, commit_of(await work.append(2, 10, 20)), closed_tasks=[])

    assert state.ends == {0: 20}
    assert await offsets(tables, work) == expected((0, 0, 20), (3, 100, 105))
    assert foreign(tmp_path).properties["owner"] == "somebody"


async def test_another_engine_that_commits_during_ours_makes_ours_look_again(
    tmp_path: Path, tables: IcebergTables, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.lookup()
    catalog = tables._catalog
    assert catalog is not None
    ours, calls = catalog.commit_table, []

    def overtaken(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            foreign(tmp_path).append(rows(3, 100, 105))
        return ours(*arguments)

    monkeypatch.setattr(catalog, "commit_table", overtaken)
    await tables.commit(work.stream, commit_of(await work.append(1, 0, 10)), closed_tasks=[])

    assert len(calls) == 2
    assert await offsets(tables, work) == expected((0, 0, 10), (3, 100, 105))


async def test_a_merge_of_a_file_that_another_engine_has_rewritten_is_a_conflict(
    tmp_path: Path, tables: IcebergTables, work: Work
) -> None:
    first = await work.append(1, 0, 10)
    await tables.commit(work.stream, commit_of(first), closed_tasks=[])
    foreign(tmp_path).delete("_offset = 3")  # copy on write
    merge = TableChange(
        task=AppliedTask(task_id=9, epoch=1), add=[await work.file(0, 0, 10)], remove=[first.add[0].key]
    )

    with pytest.raises(Conflict):
        await tables.commit(work.stream, commit_of(merge), closed_tasks=[])

    assert (0, 3) not in await offsets(tables, work)


async def test_a_commit_to_a_dropped_table_is_not_found(tables: IcebergTables, work: Work) -> None:
    await tables.drop(work.stream)

    with pytest.raises(NotFound):
        await tables.commit(work.stream, commit_of(await work.append(1, 0, 10)), closed_tasks=[])
    assert await tables.state(work.stream) is None
    await tables.drop(work.stream)


class StoppableStore(MemoryObjectStore):
    """A store that refuses requests with a message once `is_down` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_down = False
        self.was_asked = asyncio.Event()

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        if self.is_down:
            self.was_asked.set()
            raise Unavailable("down")
        await super().put(key, parts)


async def test_closing_ends_a_commit_that_waits_for_its_next_try(tmp_path: Path) -> None:
    store, stream = StoppableStore(), a_stream()
    tables = tables_in(tmp_path, store, "memory:///", commit_attempt_count_max=10**6, commit_pause_max_ms=600_000)
    await tables.ensure(stream)
    change = await Work(store, stream).append(1, 0, 10)

    catalog = tables.lookup().catalog
    table = await tables.run("test", lambda: catalog.load_table("streams.orders"))
    store.is_down = True
    commit = asyncio.create_task(
        tables.run("test", lambda: tables.committer.commit(table, commit_of(change), closed_tasks=[]))
    )
    await store.was_asked.wait()
    await tables.close()

    with pytest.raises(Unavailable):
        await commit
    with pytest.raises(Unavailable):
        await tables.state(stream)


async def test_a_store_that_does_not_answer_is_asked_a_few_times_only_and_holds_no_thread(tmp_path: Path) -> None:
    """Callers wait longer each time (`compaction/retries.py`). With 20 attempts per call there were 20 puts, a few each second."""
    store = StoppableStore()
    tables = tables_in(tmp_path, store, "memory:///", commit_unavailable_count_max=3)
    work = Work(store, a_stream())
    await tables.ensure(work.stream)
    change = await work.append(1, 0, 10)
    store.is_down = True
    with pytest.raises(Unavailable, match="not committed after 3 attempts"):
        await tables.commit(work.stream, commit_of(change), closed_tasks=[])
    store.is_down = False

    assert (await tables.commit(work.stream, commit_of(change), closed_tasks=[])).applied == {1: 1}
    await tables.close()


async def test_a_table_of_a_newer_format_is_a_conflict(
    tmp_path: Path, tables: IcebergTables, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bearlake.table.commit.FORMAT_VERSION", 1)

    with pytest.raises(Conflict, match="format version 2"):
        await tables.commit(work.stream, commit_of(await work.append(1, 0, 10)), closed_tasks=[])


def test_servers_import_the_interface_without_table_libraries() -> None:
    program = (
        "import sys, bearlake.table, bearlake.table.model, bearlake.table.settings, bearlake.table.applied_tasks, bearlake.table.naming;"
        "print([name for name in ('pyarrow', 'pyiceberg', 'duckdb', 'sqlalchemy', 'requests') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=WAIT_S)

    assert done.stdout == "[]\n"
