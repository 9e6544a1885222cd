"""The write path: batches that may be stored already, because their producer was forgotten or their token is too old to be decided."""

import asyncio
from typing import Any

import pytest

from bearlake.metadata.model import ObjectCommit, ObjectCommitted
from bearlake.metadata.tokens import Forgotten
from bearlake.streams.append import AppendCall
from fixtures.deployment import (
    Deployment,
    append,
    append_of,
    batch_of,
    create,
    deployment,
    fetch,
    submit,
    values_of,
    verdicts_of,
)
from fixtures.failing_stores import Failing, FailingLog, SlowStore, failing, settings
from fixtures.idle_producers import forget_all
from simulator.loop import virtual_time


class HeldLog(FailingLog):
    """Commits arrive when the test releases them."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.are_let_go = asyncio.Event()

    async def commit(self, commit: ObjectCommit) -> ObjectCommitted:
        await self.are_let_go.wait()
        return await super().commit(commit)


class DeafLog(FailingLog):
    """No follower sees new entries."""

    async def wait(self, after: int, *, wait_ms: int) -> None:
        await asyncio.Event().wait()


async def expire(stores: Deployment) -> None:
    """The store forgets all producers."""
    await forget_all(stores.metadata)


@virtual_time
async def test_a_batch_whose_commit_hung_until_its_producer_expired_is_stored_once() -> None:
    async with deployment() as stores:
        held = HeldLog(stores.metadata.log)
        first = await stores.serve(settings(deadline_ms=1_000), metadata=Failing(stores.metadata, held))  # type: ignore[arg-type]
        other = await stores.serve(settings())
        view = await create(other)
        await asyncio.sleep(2)
        told: list[Any] = []
        batch = append_of(view, batch_of(b"a", producer=1))
        first.submit(AppendCall([batch], lambda call: told.append(call.results), first.seen.position))
        await asyncio.sleep(2)
        again = await append(other, view, batch_of(b"a", producer=1))
        await expire(stores)
        held.are_let_go.set()
        await first.drain()

        assert verdicts_of(told[0]) == ["UNAVAILABLE"]
        assert verdicts_of(again) == ["ACCEPTED"]
        assert values_of(await fetch(other, view)) == [(0, b"a")]


@virtual_time
async def test_a_batch_that_waited_in_a_server_until_its_producer_expired_is_stored_once() -> None:
    """The server saw the expiry before it sent the commit, but the batch arrived earlier."""
    async with deployment() as stores:
        slow = await stores.serve(settings(linger_ms=10_000, flush_when_idle=False))
        other = await stores.serve(settings())
        view = await create(other)
        await asyncio.sleep(2)
        waiting = submit(slow, view, batch_of(b"a", producer=1))
        await asyncio.sleep(1)
        await append(other, view, batch_of(b"a", producer=1))
        await expire(stores)
        await asyncio.sleep(2)

        assert not waiting.done()
        assert verdicts_of(await waiting) == ["UNAVAILABLE"]
        assert values_of(await fetch(other, view)) == [(0, b"a")]


@virtual_time
async def test_an_object_is_as_old_as_the_oldest_of_its_batches() -> None:
    """A batch that waited before it was submitted joins later batches."""
    async with deployment() as stores:
        slow = await stores.serve(settings(linger_ms=10_000, flush_when_idle=False))
        other = await stores.serve(settings())
        view = await create(other)
        await asyncio.sleep(2)
        came = slow.seen.position
        await append(other, view, batch_of(b"a", producer=1))
        await expire(stores)
        await asyncio.sleep(2)
        younger = submit(slow, view, batch_of(b"b"))
        older = submit(slow, view, batch_of(b"a", producer=1), seen=came)

        assert slow.seen.position > came
        assert verdicts_of(await older) == ["UNAVAILABLE"]
        assert verdicts_of(await younger) == ["ACCEPTED"]
        assert values_of(await fetch(other, view)) == [(0, b"a"), (1, b"b")]


@pytest.mark.parametrize("old", [{}, {"producer": 30, "sequence": 1}])
@virtual_time
async def test_a_call_that_began_long_ago_does_no_harm_to_batches_of_other_calls(old: dict[str, int]) -> None:
    """A batch of a continuing client, without a producer or with a known one, shares an object with a producer's first batch."""
    async with deployment() as stores:
        server = await stores.serve(settings(linger_ms=100, flush_when_idle=False))
        view = await create(server)
        began = server.seen.position
        await append(server, view, batch_of(b"a", producer=20))
        await expire(stores)
        await append(server, view, batch_of(b"b", producer=30))
        await asyncio.sleep(2)
        going_on = submit(server, view, batch_of(b"c", **old), seen=began)
        first = submit(server, view, batch_of(b"d", producer=3))

        assert server.seen.position > began
        assert verdicts_of([*await going_on, *await first]) == ["ACCEPTED", "ACCEPTED"]


@virtual_time
async def test_a_server_whose_follower_is_stuck_stores_repeated_batches() -> None:
    """Batches after the unsure one are surely not stored: their client resends them, in order."""
    async with deployment(SlowStore(0.1)) as stores:
        other = await stores.serve(settings())
        view = await create(other)
        deaf = await stores.serve(settings(), metadata=Failing(stores.metadata, DeafLog(stores.metadata.log)))  # type: ignore[arg-type]
        await append(other, view, batch_of(b"old", producer=5))
        await expire(stores)
        batches = [batch_of(b"a", producer=3), batch_of(b"b", producer=3, sequence=1)]
        waiting = [submit(deaf, view, batches[0])]
        await asyncio.sleep(0.05)
        waiting.append(submit(deaf, view, batches[1]))
        refused = [verdicts_of(await append) for append in waiting]
        again = await append(deaf, view, *batches)

        assert refused == [["UNAVAILABLE"], ["NOT_STORED"]]
        assert verdicts_of(again) == ["ACCEPTED", "ACCEPTED"]
        assert values_of(await fetch(other, view)) == [(0, b"old"), (1, b"a"), (2, b"b")]


@virtual_time
async def test_a_commit_below_the_token_floor_is_unknown_and_ends_the_server() -> None:
    """Its decision may be forgotten: 'nothing was stored' would let a client store it twice."""
    async with deployment() as stores:
        told: list[str] = []
        metadata = failing(stores, Forgotten("too old"))
        streams = await stores.serve(settings(), metadata=metadata, on_fenced=lambda: told.append("fenced"))
        view = await create(streams)
        first = await append(streams, view, batch_of(b"a", producer=1))
        later = await append(streams, view, batch_of(b"b", producer=1, sequence=1))

        assert verdicts_of(first) == ["UNAVAILABLE"]
        assert (told, verdicts_of(later)) == (["fenced"], ["SERVER_FENCED"])
