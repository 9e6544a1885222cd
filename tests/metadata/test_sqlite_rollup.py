# ruff: noqa: SLF001 - parts of a round and rows of the file that no method shows
"""A round of roll-up in SQLite commits in parts: nobody sees a slice twice, even if the round never ends."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bearlake.clock import ManualClock
from bearlake.metadata import registering
from bearlake.metadata.compaction import OffsetRange
from bearlake.metadata.model import BatchCommit, ObjectCommit, PartitionKey, StreamSpec
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.store import SqliteMetadata, open_sqlite


class Scene:
    """Two handles on one file, as of two processes, and a stream of three partitions."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.stores: list[SqliteMetadata] = []
        self.keys: list[PartitionKey] = []
        self._server: Any = None
        self._count = 0

    async def open(self, **settings: Any) -> SqliteMetadata:
        """Open another handle whose rounds write one partition per part."""
        bounds = {"roll_partition_count_max": 1, **settings}
        self.stores.append(await open_sqlite(self._path, SqliteSettings(**bounds), clock=ManualClock()))
        return self.stores[-1]

    async def begin(self) -> None:
        """Open both handles and create the stream."""
        store = await self.open()
        await self.open()
        stream = await store.streams.create(StreamSpec(name="orders", partition_count=3))
        self.keys = [stream.partition(index) for index in range(3)]
        registered = await registering.register(
            store.servers, "server", zone=None, endpoints={}, version="", timeout_ms=1_000
        )
        self._server = registered.server

    async def commit(self, count: int) -> None:
        """Commit objects with a slice of two records and ten bytes for each partition."""
        for _ in range(count):
            self._count += 1
            batches = [BatchCommit(key, 10 * at, 10, 2, self._count) for at, key in enumerate(self.keys)]
            await self.stores[0].log.commit(
                ObjectCommit(token=f"wal/{self._count:03}", server=self._server, size=30, batches=batches)
            )

    async def write_part(self, store: SqliteMetadata) -> None:
        """Begin a round, and end it after its first partition, as a crash does."""
        upkeep = store._log.upkeep
        round_ = upkeep._begin()
        while upkeep._read(round_):
            pass
        for _ in ("the objects", "the first partition"):
            assert await store._database.run(upkeep._write, round_)

    async def check(self) -> None:
        """Every look-up of both handles returns each slice once."""
        bases = [2 * number for number in range(self._count)]
        for store in self.stores:
            for key in self.keys:
                located = await store.log.locate(key, 0, limit=100)
                assert [found.slice.base_offset for found in located.slices] == bases
                page = await store.log.locate(key, bases[1], limit=2)
                assert [found.slice.base_offset for found in page.slices] == bases[1:3]
                assert [found.object_key for found in located.slices] == [
                    f"wal/{at + 1:03}" for at in range(len(bases))
                ]
                newest = await store.log.locate_max_timestamp(key)
                assert [found.slice.base_offset for found in newest.slices] == bases[-1:]
            ranges = [OffsetRange(key, 0, bases[-1] + 2) for key in self.keys]
            found = await store.log.slices(ranges)
            assert [(at.slice.partition, at.slice.base_offset) for at in found] == [
                (key, base) for key in self.keys for base in bases
            ]

    async def pages(self, key: PartitionKey) -> list[tuple[int, ...]]:
        """Return base offset, end, slices and bytes before of the partition's pages."""
        store = self.stores[0]
        find = (
            "SELECT base_offset, end_offset, slice_count, size_before FROM index_pages WHERE partition = ? ORDER BY 1"
        )
        return await store._database.run_read(lambda: store._database.reader.execute(find, (key,)).fetchall())


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path / "metadata.db")
    await scene.begin()
    yield scene
    for store in scene.stores:
        await store.close()


async def test_lookups_in_the_middle_of_a_round_return_each_slice_once(scene: Scene) -> None:
    await scene.commit(3)
    await scene.stores[0].log.maintain(entry_count_min=0)
    await scene.commit(4)
    await scene.write_part(scene.stores[0])

    await scene.check()
    assert [[page[2] for page in await scene.pages(key)] for key in scene.keys] == [[7], [3], [3]]


async def test_a_later_round_completes_one_that_never_ended(scene: Scene) -> None:
    await scene.commit(4)
    await scene.write_part(scene.stores[0])
    await scene.commit(2)
    await scene.open()
    await scene.stores[1].log.maintain(entry_count_min=0)

    await scene.check()
    assert [await scene.pages(key) for key in scene.keys] == [[(0, 12, 6, 0)]] * 3


async def test_a_round_ends_without_effect_once_another_process_has_rolled_up_its_entries(scene: Scene) -> None:
    await scene.commit(4)
    first, second = scene.stores
    upkeep = first._log.upkeep
    late = upkeep._begin()
    upkeep._read(late)
    assert await first._database.run(upkeep._write, late)
    await second.log.maintain(entry_count_min=0)
    await scene.commit(1)

    assert not await first._database.run(upkeep._write, late)
    assert not late.is_done
    await scene.check()


async def test_a_trim_in_the_middle_of_a_round_drops_what_it_should(scene: Scene) -> None:
    await scene.commit(4)
    await scene.write_part(scene.stores[0])
    for key in scene.keys:
        await scene.stores[1].log.trim(key, 6)
    usage = await scene.stores[0].log.usage(scene.keys)
    await scene.stores[0].log.maintain(entry_count_min=0)

    assert [usage[key].size_bytes for key in scene.keys] == [10, 10, 10]
    assert [await scene.pages(key) for key in scene.keys] == [[(6, 8, 1, 30)]] * 3


async def test_single_slices_fill_pages_of_more_than_a_quarter(scene: Scene) -> None:
    store = await scene.open(page_slice_count_max=16)
    for _ in range(17):
        await scene.commit(1)
        await store.log.maintain(entry_count_min=0)

    await scene.check()
    assert [page[2] for page in await scene.pages(scene.keys[0])] == [5, 5, 5, 2]


async def test_many_slices_at_once_become_full_pages(scene: Scene) -> None:
    store = await scene.open(page_slice_count_max=4)
    await scene.commit(10)
    await store.log.maintain(entry_count_min=0)

    await scene.check()
    assert await scene.pages(scene.keys[1]) == [(0, 8, 4, 0), (8, 16, 4, 40), (16, 20, 2, 80)]


async def test_a_stream_that_is_deleted_during_a_round_is_swept_once_its_last_entries_are_rolled_up(
    scene: Scene,
) -> None:
    await scene.commit(1)
    first = scene.stores[0]
    upkeep = first._log.upkeep
    round_ = upkeep._begin()  # its entries include the creation of the stream
    upkeep._read(round_)
    await scene.commit(1)
    await first.streams.delete(1)
    while await first._database.run(upkeep._write, round_):
        pass
    await first._database.run(upkeep._clean, 0)
    late = await scene.open()  # as after a restart: its state is the checkpoint, and the later entries

    other = await late.streams.create(StreamSpec(name="other", partition_count=1))
    assert await late.log.bounds([other.partition(0)]) != {}
    assert await scene.pages(scene.keys[0]) == [(0, 2, 1, 0)]
    await late.log.maintain(entry_count_min=0)
    assert await scene.pages(scene.keys[0]) == []


async def test_sweeps_of_a_deleted_stream_release_each_slice_once(scene: Scene) -> None:
    first, second = scene.stores
    kept = await first.streams.create(StreamSpec(name="kept", partition_count=1))
    upkeep = first._log.upkeep
    round_ = upkeep._begin()
    upkeep._read(round_)
    scene.keys.append(kept.partition(0))
    await scene.commit(1)
    await first.streams.delete(1)
    while await first._database.run(upkeep._write, round_):
        pass
    await scene.write_part(first)
    await first._database.run(upkeep._clean, 0)
    for _ in range(3):
        await second.log.maintain(entry_count_min=0)

    assert [found.object_key for found in (await second.log.locate(kept.partition(0), 0, limit=9)).slices] == [
        "wal/001"
    ]
    find = "SELECT slice_count, unused_ms FROM objects WHERE key = 'wal/001'"
    assert await first._database.run_read(lambda: first._database.reader.execute(find).fetchall()) == [(1, None)]
