"""A fetch that does not wait sees what its server has acknowledged (decision 247)."""

import asyncio

import pytest

from bearlake.streams.own_writes import WAIT_MS
from fixtures.deployment import append, batch_of, create, deployment, fetch, values_of
from fixtures.late_follower import delay, wait_for_question
from simulator.loop import virtual_time


@virtual_time
async def test_a_fetch_without_a_wait_sees_a_commit_behind_that_of_another_server() -> None:
    async with deployment() as stores:
        first, second = await stores.serve(), await stores.serve()
        view = await create(first)
        await second.catalog.catch_up()
        log = delay(second)
        await append(second, view, batch_of(b"applied at once"))
        await append(first, view, batch_of(b"of the other"))
        await append(second, view, batch_of(b"behind it"))

        reading = asyncio.create_task(fetch(second, view))
        await wait_for_question(second)
        log.opened.set()

        assert [value for _, value in values_of(await reading)] == [b"applied at once", b"of the other", b"behind it"]


@virtual_time
async def test_a_server_that_cannot_follow_the_log_answers_with_what_it_has() -> None:
    async with deployment() as stores:
        first, second = await stores.serve(), await stores.serve()
        view = await create(first)
        await second.catalog.catch_up()
        delay(second)
        await append(second, view, batch_of(b"applied at once"))
        await append(first, view, batch_of(b"of the other"))
        await append(second, view, batch_of(b"behind it"))
        loop = asyncio.get_running_loop()
        times = [loop.time()]

        for _ in range(2):
            assert [value for _, value in values_of(await fetch(second, view))] == [b"applied at once"]
            times.append(loop.time())

        assert times[1] - times[0] == pytest.approx(WAIT_MS / 1000, abs=0.1)
        assert times[2] - times[1] == pytest.approx(0, abs=0.1)  # it waits once


@virtual_time
async def test_a_fetch_that_waits_and_a_server_that_is_not_behind_ask_the_store_nothing() -> None:
    async with deployment() as stores:
        server = await stores.serve()
        view = await create(server)
        await server.catalog.catch_up()
        await append(server, view, batch_of(b"0"))

        assert not server.own_writes.are_hidden
        server.own_writes.ended()
        assert server.own_writes.are_hidden
        await fetch(server, view, 1, bytes_min=1, wait_ms=10)
        assert server.own_writes.are_hidden
        await fetch(server, view)
        assert not server.own_writes.are_hidden
