"""A server catches up with the store before it says that a stream or partition does not exist (decision 157)."""

import asyncio

import pytest

from bearlake.errors import Unavailable
from bearlake.streams.catching_up import WAIT_MS_MAX
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
        assert not second.catalog._catching_up._waiting  # noqa: SLF001 - nothing may be left behind


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
