"""Key compaction with the real planner, worker and sweeper in virtual time: workers die at each call, and consumers read on."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bearlake.compaction.cleaned_files import is_only_in_log
from bearlake.compaction.commit import Committer
from bearlake.compaction.settings import MergeSettings
from bearlake.compaction.stream_index import read_index
from bearlake.metadata.model import NO_ROW
from bearlake.records.codec import Record, encode
from bearlake.streams.offsets import OffsetQuestion
from bearlake.streams.principal import ANONYMOUS
from bearlake.table import Unmergeable
from fixtures.cleaned_stream import PARTITION_COUNT, Life, after, scene_of, settings
from fixtures.deployment import NOW_MS, append, deployment
from simulator.loop import virtual_time

CALL_COUNT = 60
CALLS_PER_TEST = 10


@pytest.mark.parametrize("on_compaction", ["latest", "history"])
def test_a_consumer_gets_the_newest_records_and_the_table_what_its_stream_says(on_compaction: str) -> None:
    @virtual_time
    async def run() -> None:
        async with deployment() as stores:
            scene = await scene_of(stores, on_compaction)
            for turn in range(3):
                await scene.produce(turn)
                assert await scene.work(settings(), scene.is_cleaned, Life())

            assert await scene.read() == scene.newest()
            assert await scene.rows() == sorted(scene.newest() if on_compaction == "latest" else scene.sent)
            located, _ = await read_index(scene.view.stream, stores.metadata)
            assert {is_only_in_log(found.object_key) for found in located} == {on_compaction == "history"}

    run()


@pytest.mark.parametrize("first", range(1, CALL_COUNT, CALLS_PER_TEST))
def test_a_worker_that_cleans_may_die_at_any_of_its_calls_from(first: int) -> None:
    @virtual_time
    async def run(dies_at: int) -> None:
        async with deployment() as stores:
            on_compaction = "latest" if dies_at % 4 < 2 else "history"
            scene = await scene_of(stores, on_compaction)
            await scene.produce(dies_at)
            await scene.work(settings(), scene.is_cleaned, Life())
            await scene.produce(dies_at + 1)
            await scene.work(settings(is_cleaning=False), scene.is_compacted, Life())

            await scene.work(settings(), scene.is_cleaned, Life(dies_at=dies_at))
            await scene.work(settings(), scene.is_cleaned, Life())

            assert await scene.read() == scene.newest()
            assert await scene.rows() == sorted(scene.newest() if on_compaction == "latest" else scene.sent)

    for dies_at in range(first, first + CALLS_PER_TEST):
        run(dies_at)


@virtual_time
async def test_consumers_read_on_while_their_files_are_cleaned_and_swept() -> None:
    async with deployment() as stores:
        scene = await scene_of(stores, "latest")
        await scene.produce(1, batch_count=10)
        is_over = asyncio.Event()
        read_count = 0

        async def consume() -> None:
            nonlocal read_count
            while not is_over.is_set():
                newest, sent = scene.newest(), len(scene.sent)
                found = await scene.read()
                read_count += 1
                assert found.items() <= scene.sent.items()
                if sent == len(scene.sent):
                    assert newest.items() <= found.items()
                await asyncio.sleep(0.003)

        async with asyncio.TaskGroup() as group:
            group.create_task(consume())
            for turn in range(3):
                await scene.work(settings(), scene.is_cleaned, Life())
                await scene.produce(turn, batch_count=3)
            await scene.work(settings(), scene.is_cleaned, Life())
            is_over.set()

        assert read_count > 10
        assert await scene.read() == scene.newest()


@virtual_time
async def test_a_partition_of_which_no_record_is_left_is_read_to_its_end() -> None:
    async with deployment() as stores:
        scene = await scene_of(stores, "latest", delete__retention__ms="0")
        await append(scene.streams, scene.view, encode([Record(key=b"a", timestamp=NOW_MS)] * 3), index=0)
        for value in (b"1", b"2"):
            batch = encode([Record(key=b"b", value=value, timestamp=NOW_MS)])
            await append(scene.streams, scene.view, batch, index=1)
            await scene.work(settings(), scene.is_cleaned, Life())
        located, bounds = await read_index(scene.view.stream, stores.metadata)

        assert await scene.read() == {(1, 1): (b"b", b"2")}
        assert [(found.slice.base_offset, found.slice.end_offset, found.slice.position) for found in located] == [
            (0, 3, NO_ROW),
            (0, 2, 0),
        ]
        question = OffsetQuestion(scene.view.partition(0), NOW_MS)
        assert (await scene.streams.offsets([question]))[0].offset == -1
        assert [found.end for found in bounds.values()] == [3, 2]


@virtual_time
async def test_a_stream_whose_records_have_no_key_at_all_is_left_as_it_is() -> None:
    async with deployment() as stores:
        scene = await scene_of(stores, "latest", cleanup__policy="delete")
        for index in range(PARTITION_COUNT):
            await append(scene.streams, scene.view, encode([Record(value=b"v", timestamp=NOW_MS)]), index=index)
        scene.view = await scene.streams.change(
            ANONYMOUS, scene.view.stream, lambda present: ({"cleanup.policy": "compact"}, [])
        )

        await scene.work(settings(), scene.is_compacted, Life())
        await scene.work(settings(check_ms=20), after(2.0), Life())

        assert sorted(await scene.read()) == [(0, 0), (1, 0)]
        assert not await stores.metadata.tasks.list()


@virtual_time
async def test_merges_keep_all_records_while_key_compaction_is_switched_off() -> None:
    off = settings(is_cleaning=False)
    async with deployment() as stores:
        scene = await scene_of(stores, "latest")
        for turn in range(4):
            await scene.produce(turn)
            await scene.work(off, scene.is_compacted, Life())
        await scene.produce(4)

        await scene.work(replace(off, merge=MergeSettings(fan_in=2)), after(2.0), Life())

        located, _ = await read_index(scene.view.stream, stores.metadata)
        assert len({found.object_key for found in located}) == 1
        assert await scene.read() == scene.sent


@virtual_time
async def test_a_table_that_lost_a_file_stops_neither_the_log_nor_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    async with deployment() as stores:
        scene = await scene_of(stores, "latest")
        await scene.produce(1)
        attempts = 0

        async def refuse(self: Committer, stream: Any, works: Any) -> None:
            nonlocal attempts
            if any(work.cleaning is not None for work in works):
                attempts += 1
                raise Unmergeable("a file is gone")
            await apply(self, stream, works)

        apply = Committer._apply  # noqa: SLF001 - the step that a foreign change of the table makes fail
        monkeypatch.setattr(Committer, "_apply", refuse)

        await scene.work(settings(check_ms=20), scene.is_compacted, Life())
        await scene.work(settings(check_ms=20), after(3.0), Life())

        assert await scene.read() == scene.sent
        assert 0 < attempts <= 12  # three times the same files, alone and together, by each of two planners
        assert not await stores.metadata.tasks.list()
