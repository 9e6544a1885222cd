"""How often a follower polls the file for commits of other processes."""

import asyncio
from collections.abc import Callable

from bearlake.metadata.sqlite.waiting import Waiting
from simulator.loop import virtual_time


class OthersFile:
    """Stands for a database that other processes write to: the position of its newest entry, and how often it was looked at."""

    is_shared = True

    def __init__(self) -> None:
        self.head = 0
        self.look_count = 0

    async def run_read(self, _step: Callable[[], int]) -> int:
        self.look_count += 1
        return self.head


def follower(file: OthersFile, idle_ms: int = 25) -> Waiting:
    waiting = Waiting(file, poll_interval_ms=5, idle_ms=idle_ms)  # type: ignore[arg-type]
    waiting._data_version = 0  # the first look is that of the start  # noqa: SLF001
    return waiting


async def looks_in_a_second(waiting: Waiting, file: OthersFile) -> int:
    before = file.look_count
    await waiting.wait(file.head, 1_000)
    return file.look_count - before


@virtual_time
async def test_it_is_looked_often_for_a_second_after_an_entry_and_seldom_afterwards() -> None:
    file = OthersFile()
    waiting = follower(file)
    assert await looks_in_a_second(waiting, file) == 40

    file.head = 1
    start_s = asyncio.get_running_loop().time()
    await waiting.wait(0, 1_000)
    assert asyncio.get_running_loop().time() - start_s < 0.026

    assert await looks_in_a_second(waiting, file) in (199, 200)
    assert await looks_in_a_second(waiting, file) == 40


@virtual_time
async def test_an_own_commit_counts_as_an_entry_too() -> None:
    file = OthersFile()
    waiting = follower(file)
    sleeping = asyncio.create_task(waiting.wait(0, 10_000))
    await asyncio.sleep(1)
    waiting.notify(1)
    await sleeping
    file.head = 1

    assert await looks_in_a_second(waiting, file) in (199, 200)


@virtual_time
async def test_it_can_be_looked_as_often_all_the_time() -> None:
    file = OthersFile()

    assert await looks_in_a_second(follower(file, idle_ms=0), file) in (199, 200)
