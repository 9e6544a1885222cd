"""Upkeep of tables: expiry keeps live files (I7), a busy table stays small, retention, figures."""

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyiceberg.table import Table, snapshots
from pyiceberg.table.update import AddSnapshotUpdate

from bearlake.clock import ManualClock, SystemClock
from bearlake.objects import ObjectStore
from bearlake.table.iceberg import IcebergTables, open_tables
from bearlake.table.model import AppliedTask, TableChange
from fixtures.tables import START_MS, Work, a_stream, commit_of, local_store, pyiceberg_catalog, rows, sqlite_settings

HOUR_MS = 3_600_000
MERGED_COUNT_MIN = 10


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[tuple[ObjectStore, str]]:
    opened, url = local_store(tmp_path)
    yield opened, url
    await opened.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(SystemClock().now_ms())


@pytest.fixture
async def tables(tmp_path: Path, store: tuple[ObjectStore, str], clock: ManualClock) -> AsyncIterator[IcebergTables]:
    settings = sqlite_settings(tmp_path, manifests_merged_count_min=MERGED_COUNT_MIN, metadata_versions_max=3)
    opened = open_tables(settings, *store, clock=clock)
    yield opened
    await opened.close()


@pytest.fixture
async def work(store: tuple[ObjectStore, str], tables: IcebergTables) -> Work:
    stream = a_stream()
    await tables.ensure(stream)
    return Work(store[0], stream)


async def metadata_keys(store: ObjectStore, work: Work, tables: IcebergTables) -> set[str]:
    state = await tables.state(work.stream)
    assert state is not None
    return {found.key async for found in store.list(f"{state.location_key}/metadata/")}


async def count_rows(tables: IcebergTables, work: Work) -> int:
    def count() -> int:
        table = tables.lookup().find(work.stream)
        assert table is not None
        return int(table.scan(selected_fields=("_offset",)).to_arrow().num_rows)

    return await tables.run("test", count)


def foreign(tmp_path: Path) -> Table:
    return pyiceberg_catalog(tmp_path).load_table("streams.orders")


async def test_expiry_keeps_young_and_newest_snapshots(tables: IcebergTables, work: Work, clock: ManualClock) -> None:
    for task in range(5):
        await tables.commit(work.stream, commit_of(await work.append(task, task, task + 1)), closed_tasks=[])
    before = await tables.summary(work.stream)

    assert await tables.expire(work.stream, keep_ms=HOUR_MS, keep_count_min=2) == 0
    young = await tables.summary(work.stream)
    clock.advance(2 * HOUR_MS)
    deleted = await tables.expire(work.stream, keep_ms=HOUR_MS, keep_count_min=2)
    old = await tables.summary(work.stream)

    assert before is not None
    assert young is not None
    assert old is not None
    assert young.snapshots == before.snapshots
    assert old.snapshots == before.snapshots[-2:]
    assert deleted > 0
    assert old.state.ends == {0: 5}
    assert await count_rows(tables, work) == 5


async def test_a_snapshot_is_kept_from_its_replacement_on(
    tables: IcebergTables, work: Work, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader may have begun to read the old snapshot just before it was replaced."""
    monkeypatch.setattr(snapshots, "time", SimpleNamespace(time=lambda: clock.now_ms() / 1000))
    first = await tables.commit(work.stream, commit_of(await work.append(0, 0, 1)), closed_tasks=[])
    clock.advance(2 * HOUR_MS)
    await tables.commit(work.stream, commit_of(await work.append(1, 1, 2)), closed_tasks=[])

    clock.advance(HOUR_MS)
    await tables.expire(work.stream, keep_ms=HOUR_MS, keep_count_min=1)
    kept = await tables.summary(work.stream)
    clock.advance(1)
    await tables.expire(work.stream, keep_ms=HOUR_MS, keep_count_min=1)
    left = await tables.summary(work.stream)

    assert kept is not None
    assert left is not None
    assert first.snapshot_id in [found.snapshot_id for found in kept.snapshots]
    assert first.snapshot_id not in [found.snapshot_id for found in left.snapshots]


async def test_expiry_leaves_only_named_metadata_files(
    tables: IcebergTables, work: Work, clock: ManualClock, store: tuple[ObjectStore, str]
) -> None:
    for task in range(2 * MERGED_COUNT_MIN + 3):
        await tables.commit(work.stream, commit_of(await work.append(task, task, task + 1)), closed_tasks=[task - 1])
    clock.advance(2 * HOUR_MS)
    await tables.expire(work.stream, keep_ms=0, keep_count_min=1)

    summary = await tables.summary(work.stream)
    assert summary is not None
    keys = await metadata_keys(store[0], work, tables)
    manifests = summary.manifest_count
    assert len([key for key in keys if key.endswith(".metadata.json")]) == 3 + 1
    assert len([key for key in keys if key.endswith(".avro")]) == manifests + 1  # and the snapshot's manifest list
    assert await count_rows(tables, work) == 2 * MERGED_COUNT_MIN + 3
    assert await tables.expire(work.stream, keep_ms=0, keep_count_min=1) == 0


async def test_tagged_snapshots_and_the_files_that_they_name_stay(
    tmp_path: Path, tables: IcebergTables, work: Work, clock: ManualClock
) -> None:
    first = await work.append(1, 0, 4)
    state = await tables.commit(work.stream, commit_of(first), closed_tasks=[])
    assert state.snapshot_id is not None
    foreign(tmp_path).manage_snapshots().create_tag(state.snapshot_id, "audit").commit()
    merge = TableChange(task=AppliedTask(task_id=2, epoch=1), add=[await work.file(0, 0, 4)], remove=[first.add[0].key])
    await tables.commit(work.stream, commit_of(merge), closed_tasks=[])
    clock.advance(2 * HOUR_MS)

    await tables.expire(work.stream, keep_ms=0, keep_count_min=1)

    keys = [first.add[0].key, merge.add[0].key]
    assert await tables.live_files(work.stream, [*keys, "table/other.parquet"]) == set(keys)
    assert foreign(tmp_path).scan(snapshot_id=state.snapshot_id).to_arrow().num_rows == 4


async def test_a_merged_file_is_live_until_its_snapshots_are_expired(
    tables: IcebergTables, work: Work, clock: ManualClock
) -> None:
    first = await work.append(1, 0, 4)
    await tables.commit(work.stream, commit_of(first), closed_tasks=[])
    merge = TableChange(task=AppliedTask(task_id=2, epoch=1), add=[await work.file(0, 0, 4)], remove=[first.add[0].key])
    await tables.commit(work.stream, commit_of(merge), closed_tasks=[])
    keys = {first.add[0].key, merge.add[0].key}

    before = await tables.live_files(work.stream, keys)
    clock.advance(HOUR_MS)
    await tables.expire(work.stream, keep_ms=0, keep_count_min=1)
    after = await tables.live_files(work.stream, keys)

    assert before == keys
    assert after == {merge.add[0].key}


async def test_files_of_other_engines_are_live_too(tmp_path: Path, tables: IcebergTables, work: Work) -> None:
    theirs = foreign(tmp_path)
    theirs.append(rows(3, 0, 5))
    path = next(iter(theirs.scan().plan_files())).file.file_path
    key = tables.locations.key(path)

    assert await tables.live_files(work.stream, [key]) == {key}


async def test_orphaned_metadata_is_deleted_after_the_grace_period_and_no_other_file(
    tables: IcebergTables, work: Work, clock: ManualClock, store: tuple[ObjectStore, str]
) -> None:
    state = await tables.commit(work.stream, commit_of(await work.append(1, 0, 4)), closed_tasks=[])
    folder = f"{state.location_key}/metadata"
    orphan, stranger = f"{folder}/00007-lost.metadata.json", f"{folder}/notes.txt"
    for key in (orphan, stranger):
        await store[0].put(key, [b"{}"])

    assert await tables.expire(work.stream, keep_ms=HOUR_MS, keep_count_min=1) == 0
    clock.advance(2 * HOUR_MS)
    assert await tables.expire(work.stream, keep_ms=24 * HOUR_MS, keep_count_min=1) == 1

    keys = await metadata_keys(store[0], work, tables)
    assert orphan not in keys
    assert stranger in keys
    assert await count_rows(tables, work) == 4


@pytest.mark.slow
async def test_a_day_of_commits_leaves_a_small_table(
    tables: IcebergTables, work: Work, clock: ManualClock, store: tuple[ObjectStore, str]
) -> None:
    """300 commits with expiry every 30: the numbers depend on the settings, not on how many commits there were."""
    file = await work.file(0, 0, 1)
    seen = []
    summary = None
    for task in range(300):
        copy = replace(file, key=f"{file.key[:-8]}-{task}.parquet")  # only named: no engine reads this file here
        change = TableChange(task=AppliedTask(task_id=task, epoch=1, ranges={0: (task, task + 1)}), add=[copy])
        await tables.commit(work.stream, commit_of(change), closed_tasks=[task - 1])
        if task % 30 == 29:
            clock.advance(SystemClock().now_ms() - clock.now_ms())
            await tables.expire(work.stream, keep_ms=0, keep_count_min=5)
            summary = await tables.summary(work.stream)
            assert summary is not None
            listed = [found async for found in store[0].list(f"{summary.state.location_key}/metadata/")]
            size = max(found.size for found in listed if found.key.endswith(".metadata.json"))
            seen.append((len(summary.snapshots), summary.manifest_count, len(listed), size))

    assert summary is not None
    assert max(count for count, _, _, _ in seen) == 5
    assert max(count for _, count, _, _ in seen) <= MERGED_COUNT_MIN + 1
    assert max(count for _, _, count, _ in seen) <= 5 * 2 + 3 * MERGED_COUNT_MIN
    assert seen[-1][3] < 2 * seen[0][3]
    assert summary.file_count == 300
    assert summary.state.ends == {0: 300}
    assert summary.state.applied == {299: 1}


async def test_retention_removes_files_whose_newest_row_is_older(tables: IcebergTables, work: Work) -> None:
    for task in range(4):
        change = await work.append(task, task * 10, task * 10 + 10, timestamp_ms=START_MS + task * HOUR_MS)
        await tables.commit(work.stream, commit_of(change), closed_tasks=[])

    removed = await tables.delete_before(work.stream, START_MS + 2 * HOUR_MS)
    again = await tables.delete_before(work.stream, START_MS + 2 * HOUR_MS)

    summary = await tables.summary(work.stream)
    assert (removed, again) == (2, 0)
    assert await count_rows(tables, work) == 20
    assert summary is not None
    assert (summary.snapshots[-1].operation, summary.snapshots[-1].deleted_files) == ("delete", 2)
    assert summary.state.ends == {0: 40}


async def test_upkeep_of_a_stream_without_a_table_does_nothing(tables: IcebergTables) -> None:
    stream = a_stream("absent")

    assert await tables.expire(stream, keep_ms=0, keep_count_min=1) == 0
    assert await tables.delete_before(stream, START_MS) == 0
    assert await tables.live_files(stream, ["a"]) is None
    assert await tables.summary(stream) is None


async def test_the_cost_of_a_commit_at_a_thousand_snapshots_is_reported(
    tables: IcebergTables, work: Work, record_property: Callable[[str, object], None]
) -> None:
    await tables.commit(work.stream, commit_of(await work.append(0, 0, 1)), closed_tasks=[])
    await tables.run("test", lambda: add_snapshots(tables, work, 999))
    file = await work.file(0, 1, 2)
    costs = []
    for task in range(1, 12):
        change = TableChange(task=AppliedTask(task_id=task, epoch=1, ranges={0: (task, task + 1)}), add=[file])
        started = time.process_time()
        await tables.commit(work.stream, commit_of(change), closed_tasks=[task - 1])
        costs.append((time.process_time() - started) * 1_000)

    summary = await tables.summary(work.stream)
    assert summary is not None
    assert len(summary.snapshots) == 1_011
    cost_ms = sorted(costs)[5]
    record_property("commit_cpu_ms_at_1000_snapshots", round(cost_ms))
    print(f"a commit at 1,000 snapshots: {cost_ms:.0f} ms of CPU")


def add_snapshots(tables: IcebergTables, work: Work, count: int) -> None:
    """Snapshots that have the manifest list of the current one, in one commit."""
    table = tables.lookup().find(work.stream)
    assert table is not None
    current, sequence = table.current_snapshot(), len(table.metadata.snapshots)
    assert current is not None
    updates = [
        AddSnapshotUpdate(
            snapshot=current.model_copy(update={"snapshot_id": number, "sequence_number": sequence + number})
        )
        for number in range(1, count + 1)
    ]
    table.catalog.commit_table(table, (), tuple(updates))
