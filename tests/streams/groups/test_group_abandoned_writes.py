"""Tasks that finish abandoned writes, and requests that arrive at the moment at which such a task ends."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from bearlake.metadata.model import Lease, ServerRef
from bearlake.streams.groups.abandoned_writes import AbandonedWrites
from bearlake.streams.groups.problems import GroupRefusal

LEASE = Lease(name="group/g", holder=ServerRef(node_id=0, epoch=1), epoch=1)


class Store:
    """A store that answers writes when the test allows it. It is also its own `groups`."""

    def __init__(self) -> None:
        self.groups = self
        self.answers: list[asyncio.Future[None]] = []

    async def commit_offsets(self, *_: Any) -> None:
        self.answers.append(asyncio.get_running_loop().create_future())
        await self.answers[-1]


@contextmanager
def loop_that_must_go_on() -> Iterator[None]:
    """Fail the block if it keeps the event loop busy for two seconds: no timeout of asyncio ends such a block."""

    def fail(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError("the event loop stands still")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, 2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


async def test_a_request_that_arrives_with_the_answer_to_an_empty_write_waits_for_a_newer_abandoned_write():
    store = Store()
    writes = AbandonedWrites(store)  # type: ignore[arg-type]
    writes.add("g", LEASE)
    earlier = asyncio.create_task(writes.finish("g"))
    for _ in range(10):
        await asyncio.sleep(0)
    writes.add("g", LEASE)

    with loop_that_must_go_on():
        store.answers[0].set_result(None)
        arriving = asyncio.create_task(writes.finish("g"))  # runs directly after the empty write, before its callbacks
        for _ in range(10):
            await asyncio.sleep(0)
    assert not arriving.done()
    assert not earlier.done()
    assert len(store.answers) == 2
    store.answers[1].set_result(None)
    async with asyncio.timeout(2):
        await asyncio.gather(earlier, arriving)


async def test_an_abandoned_write_that_is_removed_before_its_task_runs_needs_no_empty_write():
    store = Store()
    writes = AbandonedWrites(store)  # type: ignore[arg-type]
    writes.add("g", LEASE)
    finishing = asyncio.create_task(writes.finish("g"))
    asyncio.get_running_loop().call_soon(writes.remove, "g")  # after `finish`, before the task that it creates

    async with asyncio.timeout(2):
        await finishing

    assert store.answers == []


async def test_who_waits_for_an_empty_write_when_the_groups_are_closed_is_refused_and_not_cancelled() -> None:
    """The task that releases idle groups would end as cancelled, which nobody asked for."""
    store = Store()
    writes = AbandonedWrites(store)  # type: ignore[arg-type]
    writes.add("g", LEASE)
    waiting = asyncio.create_task(writes.finish("g"))
    for _ in range(10):
        await asyncio.sleep(0)

    await writes.close()

    with pytest.raises(GroupRefusal, match="closes"):
        await waiting
