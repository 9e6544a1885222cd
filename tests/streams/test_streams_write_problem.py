"""What a server says while it does not store batches, which `/healthz` shows."""

import asyncio

from bearlake.errors import Fenced, Unavailable
from fixtures.deployment import append, batch_of, create, deployment, submit, verdicts_of
from fixtures.failing_stores import SlowStore, settings
from fixtures.stores_here import HereStore, Server, with_server
from simulator.loop import virtual_time


@virtual_time
async def test_puts_that_fail_are_a_problem_until_one_succeeds() -> None:
    store = SlowStore()
    async with deployment(store) as stores:
        streams = await stores.serve(settings())
        view = await create(streams)
        store.fails = {0}
        assert verdicts_of(await append(streams, view, batch_of(b"lost"))) == ["NOT_STORED"]
        assert streams.write_problem

        assert verdicts_of(await append(streams, view, batch_of(b"stored"))) == ["ACCEPTED"]
        assert streams.write_problem == ""


@virtual_time
async def test_a_failed_put_is_forgotten_when_nobody_produces() -> None:
    store = SlowStore()
    async with deployment(store) as stores:
        streams = await stores.serve(settings())
        view = await create(streams)
        store.fails = {0}
        await append(streams, view, batch_of(b"lost"))
        await asyncio.sleep(50)
        assert streams.write_problem

        await asyncio.sleep(20)
        assert streams.write_problem == ""


def test_a_folder_that_takes_no_objects_is_a_problem() -> None:
    async def body(server: Server, store: HereStore) -> None:
        store.is_full = True
        store.failures = [Unavailable("disk full")]
        assert verdicts_of(await server.submit(b"a")) == ["NOT_STORED"]
        assert server.streams.write_problem == "disk full"

        assert verdicts_of(await server.submit(b"b")) == ["ACCEPTED"]
        assert server.streams.write_problem == ""

    with_server(body, HereStore())


@virtual_time
async def test_a_put_that_does_not_end_is_a_problem_once_its_producer_was_answered() -> None:
    store = SlowStore()
    async with deployment(store) as stores:
        streams = await stores.serve(settings(deadline_ms=30_000))
        view = await create(streams)
        store.each_put_s = [100]
        answer = submit(streams, view, batch_of(b"a"))
        await asyncio.sleep(20)
        assert streams.write_problem == ""

        assert verdicts_of(await answer) == ["UNAVAILABLE"]
        await asyncio.sleep(1)
        assert streams.write_problem == "an object has been waiting to be stored for 31 s"
        await asyncio.sleep(100)
        assert streams.write_problem == ""


def test_a_server_that_was_fenced_says_so_until_it_has_stopped() -> None:
    async def body(server: Server, store: HereStore) -> None:
        server.log.failures = [Fenced("a newer epoch was registered")]
        assert verdicts_of(await server.append(b"a")) == ["SERVER_FENCED"]

        assert server.streams.write_problem == "this server accepts no batches any more, and stops"

    with_server(body, HereStore(), Fenced("a newer epoch was registered"))
