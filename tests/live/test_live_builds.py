"""Builds that several callers share, and the slices of a tail."""

import asyncio
import gc
import weakref
from itertools import pairwise
from pathlib import Path

import pytest

from bearlake.live.shared_build import SharedBuild
from bearlake.live.slices import Moved, tail_slices
from bearlake.metadata.compaction import OffsetRange
from fixtures.live_lake import live_lake
from simulator.loop import virtual_time


class Builds:
    """Builds that end when the test says so; each returns its number."""

    def __init__(self) -> None:
        self.begun = 0
        self.gates: list[asyncio.Event] = []

    async def build(self) -> int:
        self.begun += 1
        number = self.begun
        self.gates.append(asyncio.Event())
        await self.gates[-1].wait()
        return number


async def turn() -> None:
    """Let tasks run until they wait."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_callers_during_a_build_share_the_next_one() -> None:
    builds = Builds()
    shared = SharedBuild(builds.build)
    first = asyncio.create_task(shared.result())
    await turn()
    later = [asyncio.create_task(shared.result()) for _ in range(3)]
    await turn()
    assert builds.begun == 1

    builds.gates[0].set()
    await turn()
    assert await first == 1
    assert builds.begun == 2
    builds.gates[1].set()
    assert await asyncio.gather(*later) == [2, 2, 2]


@virtual_time
async def test_builds_begin_at_a_bounded_rate() -> None:
    times: list[float] = []

    async def build() -> None:
        times.append(asyncio.get_running_loop().time())

    shared = SharedBuild(build, pause_ms=100)
    for _ in range(3):
        await shared.result()

    assert [round(later - earlier, 3) for earlier, later in pairwise(times)] == [0.1, 0.1]


async def test_a_caller_that_gives_up_stops_no_build() -> None:
    builds = Builds()
    shared = SharedBuild(builds.build)
    first, second = asyncio.create_task(shared.result()), asyncio.create_task(shared.result())
    await turn()
    first.cancel()
    await turn()
    builds.gates[0].set()

    assert await second == 1


async def test_what_the_callers_have_dropped_is_not_in_memory() -> None:
    class Large:
        pass

    async def build() -> Large:
        return Large()

    shared = SharedBuild(build)
    found = weakref.ref(await shared.result())
    await turn()
    gc.collect()

    assert found() is None


async def test_a_failed_build_fails_its_callers_and_no_later_ones() -> None:
    count = 0

    async def build() -> int:
        nonlocal count
        count += 1
        if count == 1:
            raise ValueError("first")
        return count

    shared = SharedBuild(build)
    with pytest.raises(ValueError, match="first"):
        await shared.result()
    assert await shared.result() == 2


async def test_offsets_that_compaction_has_reached_meanwhile_are_not_sliced(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create(table__value__mode="raw")
        await lake.lake.produce(view, b"0", b"1")
        await lake.lake.compact(view)
        stores = lake.lake.stores

        with pytest.raises(Moved):
            await tail_slices(
                stores.metadata, stores.store, [OffsetRange(view.stream.partition(0), 0, 2)], count_max=10
            )


async def test_a_slice_is_cut_between_batches(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create(table__value__mode="raw")
        values = [b"a", b"b", b"c"]
        await asyncio.gather(*(lake.lake.produce(view, value, value) for value in values))
        stores, key = lake.lake.stores, view.stream.partition(0)

        async def cut(start: int, end: int) -> list[tuple[int, int]]:
            found = await tail_slices(stores.metadata, stores.store, [OffsetRange(key, start, end)], count_max=10)
            assert found is not None
            return [(located.slice.base_offset, located.slice.end_offset) for located in found]

        assert await cut(0, 6) == [(0, 6)]
        assert await cut(2, 4) == [(2, 4)]
        assert await cut(3, 6) == [(2, 6)], "a batch that begins below the range is whole"
        assert await cut(0, 2) == [(0, 2)]
