"""A fetch that does not wait sees what its server has acknowledged (decision 247)."""

import asyncio

import pytest

from bearlake.objects.markers import MarkerObjectStore
from bearlake.objects.memory import MemoryObjectStore
from bearlake.streams.own_writes import WAIT_MS
from fixtures.deployment import append, batch_of, create, deployment, fetch, values_of, verdicts_of
from fixtures.late_follower import delay, wait_for_question
from fixtures.transactional import TransactionalWriter
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
async def test_a_fetch_without_a_wait_sees_a_batch_that_was_sent_again_after_another_server_stored_it() -> None:
    async with deployment() as stores:
        first, second = await stores.serve(), await stores.serve()
        view = await create(first)
        await second.catalog.catch_up()
        log = delay(second)
        sent = batch_of(b"once", producer=(await stores.metadata.producers.allocate(1)).start, sequence=0)
        await append(first, view, sent)

        assert verdicts_of(await append(second, view, sent)) == ["DUPLICATE"]
        reading = asyncio.create_task(fetch(second, view))
        await wait_for_question(second)
        log.opened.set()

        assert values_of(await reading) == [(0, b"once")]


@virtual_time
async def test_a_fetch_without_a_wait_sees_a_transaction_whose_end_was_asked_of_another_server_before() -> None:
    async with deployment(MarkerObjectStore(MemoryObjectStore())) as stores:
        first, second = await stores.serve(), await stores.serve()
        view = await create(first)
        await second.catalog.catch_up()
        writer = await TransactionalWriter.of(first, view.name)
        await writer.send(b"committed")
        log = delay(second)
        await writer.end()

        await writer.end(at=second)  # the answer of the first server was lost
        reading = asyncio.create_task(fetch(second, view, is_committed=True))
        await wait_for_question(second)
        log.opened.set()

        assert values_of(await reading)[0] == (0, b"committed")


@virtual_time
@pytest.mark.parametrize("is_by_administrator", [False, True])
async def test_a_fetch_without_a_wait_sees_the_end_of_a_transaction_whose_producer_was_fenced(
    is_by_administrator: bool,
) -> None:
    async with deployment(MarkerObjectStore(MemoryObjectStore())) as stores:
        first, second = await stores.serve(), await stores.serve()
        view = await create(first)
        await second.catalog.catch_up()
        writer = await TransactionalWriter.of(first, view.name)
        await writer.send(b"in a transaction")
        await append(first, view, batch_of(b"behind it"))
        await second.catalog.catch_up()
        log = delay(second)

        if is_by_administrator:
            await writer.end()
            await writer.fence(at=second)  # which finds that it has ended
        else:
            await TransactionalWriter.of(first, view.name)
            await TransactionalWriter.of(second, view.name)
        reading = asyncio.create_task(fetch(second, view, is_committed=True))
        await wait_for_question(second)
        log.opened.set()

        assert (1, b"behind it") in values_of(await reading)


@virtual_time
async def test_a_fetch_without_a_least_size_sees_what_its_server_has_acknowledged() -> None:
    async with deployment(MarkerObjectStore(MemoryObjectStore())) as stores:
        server = await stores.serve()
        view = await create(server)
        writer = await TransactionalWriter.of(server, view.name)
        await writer.send(b"committed")
        log = delay(server)
        await writer.end()

        reading = asyncio.create_task(fetch(server, view, bytes_min=0, wait_ms=60_000, is_committed=True))
        await wait_for_question(server)
        log.opened.set()

        assert values_of(await reading)[0] == (0, b"committed")


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
        server.own_writes.unplaced()
        assert server.own_writes.are_hidden
        await fetch(server, view, 1, bytes_min=1, wait_ms=10)
        assert server.own_writes.are_hidden
        await fetch(server, view)
        assert not server.own_writes.are_hidden
