"""How often a follower polls the file for commits of other processes."""

import asyncio
from collections.abc import Callable

from bearlake.metadata.sqlite.waiting import Waiting
from simulator.loop import virtual_time


class OthersFile:
    """A database to which other processes write: the position of its newest entry, and how often it was polled."""

    is_shared = True

    def __init__(self) -> None:
        self.head = 0
        self.poll_count = 0

    async def run_read(self, _step: Callable[[], int]) -> int:
        self.poll_count += 1
        return self.head


def follower(file: OthersFile, idle_ms: int = 25) -> Waiting:
    waiting = Waiting(file, poll_interval_ms=5, idle_ms=idle_ms)  # type: ignore[arg-type]
    waiting._data_version = 0  # the first poll happens at the start  # noqa: SLF001
    return waiting


async def polls_in_a_second(waiting: Waiting, file: OthersFile) -> int:
    before = file.poll_count
    await waiting.wait(file.head, 1_000)
    return file.poll_count - before


@virtual_time
async def test_a_follower_polls_often_for_a_second_after_an_entry_and_seldom_afterwards() -> None:
    file = OthersFile()
    waiting = follower(file)
    assert await polls_in_a_second(waiting, file) == 40

    file.head = 1
    start_s = asyncio.get_running_loop().time()
    await waiting.wait(0, 1_000)
    assert asyncio.get_running_loop().time() - start_s < 0.026

    assert await polls_in_a_second(waiting, file) in (199, 200)
    assert await polls_in_a_second(waiting, file) == 40


@virtual_time
async def test_a_commit_of_this_process_counts_as_an_entry() -> None:
    file = OthersFile()
    waiting = follower(file)
    sleeping = asyncio.create_task(waiting.wait(0, 10_000))
    await asyncio.sleep(1)
    waiting.notify(1)
    await sleeping
    file.head = 1

    assert await polls_in_a_second(waiting, file) in (199, 200)


@virtual_time
async def test_a_follower_without_an_idle_interval_always_polls_often() -> None:
    file = OthersFile()

    assert await polls_in_a_second(follower(file, idle_ms=0), file) in (199, 200)


@virtual_time
async def test_a_noted_commit_ends_the_wait_at_the_next_poll_without_a_look_at_the_file() -> None:
    file = OthersFile()
    waiting = follower(file)
    sleeping = asyncio.create_task(waiting.wait(0, 10_000))
    await asyncio.sleep(0)
    start_s = asyncio.get_running_loop().time()
    waiting.note(1)
    await sleeping

    assert 0.02 < asyncio.get_running_loop().time() - start_s < 0.026
    assert file.poll_count == 0


@virtual_time
async def test_a_notification_wakes_waiters_for_a_noted_commit_before_it() -> None:
    file = OthersFile()
    waiting = follower(file)
    sleeping = asyncio.create_task(waiting.wait(0, 10_000))
    await asyncio.sleep(0)
    start_s = asyncio.get_running_loop().time()
    waiting.note(1)
    waiting.notify(2)
    await sleeping

    assert asyncio.get_running_loop().time() == start_s
