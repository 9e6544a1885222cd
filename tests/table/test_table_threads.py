"""The threads that call the catalog: tables that do not answer leave threads to tables that do (I11)."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from bearlake.errors import NotFound, Unavailable
from bearlake.table.threads import TableThreads

COUNT = 4
BAD = [f"bad-{number}" for number in range(2 * COUNT)]
WAIT_MS = 30_000


@pytest.fixture
async def threads() -> AsyncIterator[TableThreads]:
    """Threads that have met all bad tables."""
    threads = TableThreads(count=COUNT, pending_count_max=2 * COUNT)
    for name in BAD:
        with pytest.raises(Unavailable):
            await threads.run(name, no_answer, deadline_ms=WAIT_MS)
    yield threads
    threads.shutdown(wait=True)


def no_answer() -> None:
    raise Unavailable("no answer")


async def test_tables_that_hang_leave_threads_to_a_table_that_answers(threads: TableThreads) -> None:
    gate = threading.Event()
    hung = [asyncio.create_task(threads.run(name, gate.wait, deadline_ms=WAIT_MS)) for name in BAD]
    await asyncio.sleep(0)
    try:
        answer = await threads.run("good", lambda: "done", deadline_ms=WAIT_MS)
    finally:
        gate.set()

    assert answer == "done"
    assert await asyncio.gather(*hung) == [True] * len(BAD)


async def test_a_call_that_was_given_up_counts_until_its_thread_ends(threads: TableThreads) -> None:
    gate = threading.Event()
    given_up = [asyncio.create_task(threads.run(name, gate.wait, deadline_ms=WAIT_MS)) for name in BAD[:COUNT]]
    await asyncio.sleep(0)
    for task in given_up:
        task.cancel()
    await asyncio.gather(*given_up, return_exceptions=True)
    others = [asyncio.create_task(threads.run(name, gate.wait, deadline_ms=WAIT_MS)) for name in BAD[COUNT:]]
    await asyncio.sleep(0)
    try:
        answer = await threads.run("good", lambda: "done", deadline_ms=WAIT_MS)
    finally:
        gate.set()

    assert answer == "done"
    assert await asyncio.gather(*others) == [True] * COUNT


async def test_a_table_that_answers_again_takes_any_thread(threads: TableThreads) -> None:
    def refuse() -> None:
        raise NotFound("no such table")

    with pytest.raises(NotFound):
        await threads.run(BAD[0], refuse, deadline_ms=WAIT_MS)
    for name in BAD[1:]:
        await threads.run(name, lambda: None, deadline_ms=WAIT_MS)
    meeting = threading.Barrier(COUNT)
    met = [threads.run(name, lambda: meeting.wait(WAIT_MS / 1000), deadline_ms=WAIT_MS) for name in BAD[:COUNT]]

    assert sorted(await asyncio.gather(*met)) == list(range(COUNT))


async def test_a_call_that_waits_when_the_threads_are_shut_down_is_refused(threads: TableThreads) -> None:
    gate = threading.Event()
    hung = [asyncio.create_task(threads.run(name, gate.wait, deadline_ms=WAIT_MS)) for name in BAD]
    await asyncio.sleep(0)
    threads.shutdown(wait=False)
    gate.set()
    answers = await asyncio.gather(*hung, return_exceptions=True)

    assert answers[: COUNT // 2] == [True] * (COUNT // 2)
    assert all(isinstance(answer, Unavailable) for answer in answers[COUNT // 2 :])
