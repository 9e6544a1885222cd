# ruff: noqa: SLF001 - rows and steps of the file that no method shows
"""Compaction in the SQLite store: upgrades of its file, crashes inside a swap, and no leftover rows."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bearlake.clock import ManualClock
from bearlake.errors import Unavailable
from bearlake.metadata.model import BatchCommit, ObjectCommit, StreamSpec
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.store import SqliteMetadata, open_sqlite
from fixtures.compaction_scene import Compaction


@pytest.fixture
async def small(tmp_path: Path, new_scene: Any) -> AsyncIterator[Compaction]:
    """A store with tiny pages, one stream of two partitions, and eight rolled-up slices in each."""

    class Store:
        """One file; `backend` of a scene."""

        def __init__(self) -> None:
            self.clock = ManualClock()
            self.handles: list[SqliteMetadata] = []

        async def open(self) -> SqliteMetadata:
            settings = SqliteSettings(synchronous="OFF", page_slice_count_max=4)
            self.handles.append(await open_sqlite(tmp_path / "metadata.db", settings, clock=self.clock))
            return self.handles[-1]

    store = Store()
    compaction = await Compaction.on(await new_scene(store))
    scene = compaction.scene
    scene.first = await scene.stream(partition_count=2)
    scene.keys = [scene.first.partition(0), scene.first.partition(1)]
    for number in range(8):
        await scene.commit(*(scene.batch(key, 10) for key in scene.keys), token=f"wal/0{number}")
    await scene.maintain()
    yield compaction
    for handle in store.handles:
        await handle.close()


def rows(path: Any, query: str) -> list[tuple[Any, ...]]:
    raw = sqlite3.connect(path)
    try:
        return raw.execute(query).fetchall()
    finally:
        raw.close()


def store_key(key: int) -> Any:
    return key


@pytest.mark.parametrize("step_count", range(1, 32, 3))
async def test_a_crash_inside_a_swap_leaves_nothing(small: Compaction, step_count: int) -> None:
    """SQLite is interrupted after so many times 20 instructions of its virtual machine, anywhere in the transaction."""
    key = small.scene.keys[0]
    claim = await small.claimed((key, 0, 70))
    swap = await small.prepared(claim, small.file(await small.segments((key, 0, 70))))
    victim = await small.scene.backend.open()
    left = [step_count]

    def interrupt(*_: object) -> int:
        left[0] -= 1
        return 0 if left[0] > 0 else 1

    await victim._database.run(victim._database.writer.set_progress_handler, interrupt, 20)
    with pytest.raises(Unavailable):
        await victim.log.swap(swap)
    before = [located_slice.object_key for located_slice in await small.slices((key, 0, 80))]
    position = await small.metadata.log.swap(swap)

    assert before == [f"wal/0{number}" for number in range(8)]
    assert position == await small.metadata.log.head()
    assert [located_slice.object_key for located_slice in await small.slices((key, 0, 80))] == ["data/000001", "wal/07"]


async def test_pages_are_filled_again_as_compaction_shrinks_them(small: Compaction) -> None:
    path = small.metadata._database.path  # type: ignore[attr-defined]
    key = small.scene.keys[0]
    for start in range(0, 80, 20):
        await small.compacted((key, start, start + 20))

    pages = rows(
        path, f"SELECT base_offset, end_offset, slice_count, size_before FROM index_pages WHERE partition = {key}"
    )
    assert pages == [(0, 80, 4, 0)]


async def test_swaps_and_objects_are_forgotten_in_the_end(small: Compaction) -> None:
    path = small.metadata._database.path  # type: ignore[attr-defined]
    await small.compacted(*((key, 0, 80) for key in small.scene.keys))
    await small.metadata.objects.deleted([f"wal/0{number}" for number in range(8)])
    await small.scene.backend.open()
    small.scene.backend.clock.advance(7 * 3_600_000)
    for _ in range(3):
        await small.metadata.log.maintain(entry_count_min=0)

    assert rows(path, "SELECT key FROM objects") == [("data/000001",)]
    assert rows(path, "SELECT * FROM swaps") == []
    for table in ("tasks", "task_partitions", "task_inputs", "task_results"):
        assert rows(path, f"SELECT * FROM {table}") == []


async def test_idle_partitions_are_not_in_the_index_of_those_that_wait(small: Compaction) -> None:
    path = small.metadata._database.path  # type: ignore[attr-defined]
    waiting = "SELECT count(*) FROM partitions INDEXED BY partitions_uncompacted WHERE compacted < end AND start < end"
    assert rows(path, waiting) == [(2,)]
    await small.compacted((small.scene.keys[0], 0, 80))
    assert rows(path, waiting) == [(1,)]
    await small.metadata.log.trim(small.scene.keys[1], 80)
    await small.scene.maintain()
    assert rows(path, waiting) == [(0,)]


async def test_commits_in_one_process_and_swaps_in_another_take_turns(small: Compaction) -> None:
    other = await small.scene.backend.open()
    key = small.scene.keys[0]
    for number in range(8, 12):
        batch = BatchCommit(key, 0, 10, 10, 1_000)
        await other.log.commit(
            ObjectCommit(token=f"wal/0{number}", server=small.scene.server, size=10, batches=[batch])
        )
        start = 10 * (number - 8) * 2
        await small.compacted((key, start, start + 20))
    stream = await other.streams.create(StreamSpec(name="bills", partition_count=1))

    assert await other.log.bounds([key, stream.partition(0)]) == {key: (0, 120, 120), stream.partition(0): (0, 0, 0)}
    assert [located_slice.slice.end_offset for located_slice in (await other.log.locate(key, 0, limit=100)).slices] == [
        20, 40, 60, 80, 90, 100, 110, 120,
    ]  # fmt: skip
