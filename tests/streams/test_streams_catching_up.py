"""A server catches up with the store before it says that a stream or partition does not exist (decision 157)."""

import asyncio
from typing import Any

import pytest

from bearlake.errors import Unavailable
from bearlake.metadata.model import Stream
from bearlake.streams.catching_up import WAIT_MS_MAX, CatchingUp
from bearlake.streams.principal import ANONYMOUS
from fixtures.deployment import append, batch_of, create, deployment
from fixtures.late_follower import delay
from simulator.loop import virtual_time


@virtual_time
async def test_catching_up_waits_for_streams_that_other_servers_created_and_grew() -> None:
    async with deployment() as stores:
        first = await stores.serve()
        grown = await create(first, "grown", 1)
        second = await stores.serve()
        log = delay(second)
        await create(first, "new", 2)
        await first.add_partitions(ANONYMOUS, grown.stream, 3)

        waiting = asyncio.create_task(second.catalog.catch_up())
        await asyncio.sleep(1)
        before = waiting.done(), second.catalog.peek("new")
        log.opened.set()
        await waiting

        assert before == (False, None)
        assert {view.name: view.partition_count for view in second.catalog.views()} == {"grown": 3, "new": 2}


@virtual_time
async def test_a_server_that_is_too_far_behind_says_so() -> None:
    async with deployment() as stores:
        first = await stores.serve()
        second = await stores.serve()
        delay(second)
        await create(first, "new")
        started = asyncio.get_running_loop().time()

        with pytest.raises(Unavailable):
            await second.catalog.catch_up()

        assert asyncio.get_running_loop().time() - started == pytest.approx(WAIT_MS_MAX / 1000, abs=0.1)
        assert not second.catalog.catching_up._waiting  # noqa: SLF001 - nothing may be left behind


@virtual_time
async def test_a_server_that_writes_alone_is_never_behind() -> None:
    async with deployment() as stores:
        server = await stores.serve()
        view = await create(server)
        await asyncio.sleep(2)
        for number in range(5):
            await append(server, view, batch_of(b"%d" % number))
            started = asyncio.get_running_loop().time()

            await server.catalog.catch_up()

            assert asyncio.get_running_loop().time() - started < 0.1


class LateHints:
    """The commit log as a server sees it whose hints arrive after the replies to its own commits."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def wait(self, after: int, *, wait_ms: int) -> None:
        """Wait for a hint, and a little longer."""
        await self._inner.wait(after, wait_ms=wait_ms)
        await asyncio.sleep(0.01)


@virtual_time
async def test_a_server_that_starts_over_while_it_writes_is_not_behind() -> None:
    async with deployment() as stores:
        server = await stores.serve()
        catalog, view = server.catalog, await create(server)
        listed, loaded = catalog._listed, asyncio.Event()  # noqa: SLF001 - the moment of the load

        async def written_meanwhile() -> dict[int, Stream]:
            await append(server, view, batch_of(b"during the load"))
            loaded.set()
            return await listed()

        async def write() -> None:
            while True:
                await append(server, view, batch_of(b"x"))

        catalog._listed = written_meanwhile  # type: ignore[method-assign]  # noqa: SLF001
        follower = server._follower  # noqa: SLF001 - there is no other way to fall behind
        follower._log = LateHints(follower._log)  # type: ignore[assignment]  # noqa: SLF001
        writing = asyncio.create_task(write())
        follower._is_lost = True  # noqa: SLF001 - as after the log was truncated past its position
        await loaded.wait()

        try:
            await catalog.catch_up()
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)


class Head:
    """The head of the log, whose reads end when the test says so."""

    def __init__(self) -> None:
        self.reads: list[asyncio.Future[int]] = []

    async def __call__(self) -> int:
        """Wait for the result of this read."""
        self.reads.append(asyncio.get_running_loop().create_future())
        return await self.reads[-1]


@virtual_time
async def test_callers_share_one_read_of_the_head_and_only_one_that_began_after_they_arrived() -> None:
    head = Head()
    catching_up = CatchingUp(head)
    first = asyncio.create_task(catching_up.wait())
    await asyncio.sleep(0.1)
    later = [asyncio.create_task(catching_up.wait()) for _ in range(100)]
    await asyncio.sleep(0.1)
    reads_before = len(head.reads)

    head.reads[0].set_result(0)
    await first
    await asyncio.sleep(0.1)
    head.reads[1].set_result(5)
    await asyncio.sleep(0.1)
    are_done = [waiter.done() for waiter in later]
    catching_up.reached(5)
    await asyncio.sleep(0.1)

    assert (reads_before, len(head.reads)) == (1, 2)
    assert not any(are_done)
    assert all(waiter.done() for waiter in later)


@virtual_time
@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_read_of_the_head_that_fails_is_repeated_by_the_next_caller(*, is_cancelled: bool) -> None:
    head = Head()
    catching_up = CatchingUp(head)
    first = asyncio.create_task(catching_up.wait())
    await asyncio.sleep(0.1)
    second = asyncio.create_task(catching_up.wait())
    await asyncio.sleep(0.1)

    if is_cancelled:
        first.cancel()
    else:
        head.reads[0].set_exception(Unavailable("no"))
    (failure,) = await asyncio.gather(first, return_exceptions=True)
    await asyncio.sleep(0.1)
    head.reads[1].set_result(0)
    await second

    assert isinstance(failure, asyncio.CancelledError if is_cancelled else Unavailable)
