"""Share groups over the admin API: a server asks the dispatcher of a partition on another server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from bearlake.errors import BearlakeError, Fenced, Invalid, NotFound, Overloaded, Unavailable
from bearlake.metadata.model import PartitionKey, ServerRef
from bearlake.serving.admin.token import AdminToken
from bearlake.serving.groups.client import GroupClient
from bearlake.serving.shares import packing
from bearlake.serving.shares.client import WAIT_MS_MAX, SharePeers
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.groups.shares import ShareCoordinator
from bearlake.streams.shares import Shares
from bearlake.streams.subscriptions.model import NotHolder
from bearlake.streams.subscriptions.share.acknowledgements import InvalidRecordState, ShareAck
from bearlake.streams.subscriptions.share.acquiring import Acquired
from bearlake.streams.subscriptions.share.terms import ShareAnswer, ShareAsk
from bearlake.streams.subscriptions.share_dispatch import ShareDispatch
from fixtures.deployment import append, batch_of
from fixtures.server_pair import TOKEN, Pair, make


@pytest.fixture
async def closing() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def pair(closing: AsyncExitStack) -> Pair:
    return await make(closing, (TOKEN, TOKEN))


async def remote(closing: AsyncExitStack, pair: Pair, token: str = TOKEN) -> ShareDispatch:
    """The first server's dispatcher, as the second server reaches it."""
    peers = SharePeers(pair.nodes[1].member, GroupSettings(), AdminToken(token))
    closing.push_async_callback(peers.close)
    found = peers.reach_shares(pair.nodes[0].member.server)
    assert found is not None
    return found


def ask(*partitions: PartitionKey) -> ShareAsk:
    return ShareAsk(
        group="g/ö", member="m", partitions=partitions, bytes_max=1_000, record_count_max=5, is_strict=True, wait_ms=0
    )


async def test_requests_reach_the_dispatcher_and_its_refusals_come_back(closing: AsyncExitStack, pair: Pair) -> None:
    there = await remote(closing, pair)
    partition = (await pair.nodes[0].streams.catalog.find("t")).partition(0)
    nowhere = PartitionKey(partition + 1)

    with pytest.raises(Invalid):
        await there.acknowledge("g", partition, "m", [ShareAck(0, 5, [1])])
    await there.release("g", partition, "m")
    answers = await there.acquire(ask(nowhere))
    assert isinstance(answers[0].error, NotFound)


async def test_a_server_with_another_token_is_unavailable(closing: AsyncExitStack, pair: Pair) -> None:
    there = await remote(closing, pair, "another token")

    (answer,) = await there.acquire(ask(PartitionKey(1)))

    assert isinstance(answer.error, Unavailable)
    with pytest.raises(Unavailable):
        await there.forget("g", PartitionKey(1))


async def test_a_server_that_is_not_live_is_not_reached(closing: AsyncExitStack, pair: Pair) -> None:
    peers = SharePeers(pair.nodes[1].member, GroupSettings(), AdminToken(TOKEN))
    closing.push_async_callback(peers.close)

    assert peers.reach_shares(ServerRef(node_id=77, epoch=1)) is None


# -- records -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def partition(closing: AsyncExitStack, pair: Pair) -> PartitionKey:
    """A partition with six records; the first server dispatches it, and the group `g/ö` begins at its start."""
    for node in pair.nodes:
        run = asyncio.create_task(node.streams.run())
        closing.push_async_callback(asyncio.gather, run, return_exceptions=True)
        closing.callback(run.cancel)
    here = pair.nodes[0].streams
    view = await here.catalog.find("t")
    await append(here, view, batch_of(b"0", b"1"), batch_of(b"2", b"3"), batch_of(b"4", b"5"))
    await ShareCoordinator(here.metadata, here.coordinator.ownership).note_streams(
        "g/ö", {view.stream.number: view.partition_count}
    )
    await here.local_shares.reset("g/ö", view.partition(0), 0)
    return view.partition(0)


def shares_of(closing: AsyncExitStack, pair: Pair) -> Shares:
    """What a protocol of the second server uses: its own dispatcher, and others over their admin APIs."""
    streams = pair.nodes[1].streams
    peers = SharePeers(pair.nodes[1].member, GroupSettings(), AdminToken(TOKEN))
    closing.push_async_callback(peers.close)
    return Shares(streams.local_shares, streams.metadata.cursors, streams, peers)


async def test_a_member_gets_records_of_a_dispatcher_on_another_server(
    closing: AsyncExitStack, pair: Pair, partition: PartitionKey
) -> None:
    shares, here = shares_of(closing, pair), pair.nodes[0].streams.local_shares

    (found,) = await shares.acquire(replace(ask(partition), record_count_max=3, wait_ms=1_000))

    assert (found.error, found.acquired) == (None, [Acquired(0, 3, 1)])
    assert len(found.views) == 2  # whole batches
    await shares.acknowledge("g/ö", partition, "m", [ShareAck(0, 2, [1, 2])])
    (again,) = await here.acquire(replace(ask(partition), member="n"))
    assert again.acquired == [Acquired(1, 2, 2), Acquired(3, 6, 1)]
    with pytest.raises(InvalidRecordState):
        await shares.acknowledge("g/ö", partition, "m", [ShareAck(3, 4, [1])])
    await shares.release("g/ö", partition, "n", via="")
    (all_left,) = await shares.acquire(ask(partition))
    assert all_left.acquired == [Acquired(1, 2, 3), Acquired(3, 6, 2)]
    assert (await shares.positions("g/ö", [partition]))[partition].start == 1


async def test_records_of_an_answer_that_is_lost_stay_locked_until_their_member_releases_them(
    closing: AsyncExitStack, pair: Pair, partition: PartitionKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, send = await remote(closing, pair), GroupClient.send

    async def lost(self: GroupClient, *arguments: Any, **options: Any) -> Any:
        await send(self, *arguments, **options)
        raise aiohttp.ServerDisconnectedError

    with monkeypatch.context() as patched:
        patched.setattr(GroupClient, "send", lost)
        (found,) = await there.acquire(ask(partition))

    assert isinstance(found.error, Unavailable)
    (other,) = await there.acquire(replace(ask(partition), member="n"))
    assert other.acquired == [Acquired(5, 6, 1)]
    await there.release("g/ö", partition, "m")
    (again,) = await there.acquire(replace(ask(partition), member="n"))
    assert again.acquired == [Acquired(0, 5, 2)]


async def test_a_request_that_its_server_has_given_up_keeps_no_records(
    closing: AsyncExitStack, pair: Pair, partition: PartitionKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here, has_arrived = await remote(closing, pair), pair.nodes[0].streams.local_shares, asyncio.Event()
    everything = replace(ask(partition), record_count_max=6)
    await here.acquire(replace(everything, member="holder"))
    acquire = here.acquire

    async def arrived(ask: ShareAsk) -> list[ShareAnswer]:
        has_arrived.set()
        return await acquire(ask)

    monkeypatch.setattr(here, "acquire", arrived)
    waiting = asyncio.create_task(there.acquire(replace(everything, wait_ms=60_000)))
    await has_arrived.wait()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await there.release("g/ö", partition, "m")

    await here.release("g/ö", partition, "holder")

    (found,) = await there.acquire(replace(everything, member="n", wait_ms=60_000))
    assert found.acquired == [Acquired(0, 6, 2)]


async def test_a_request_for_records_waits_for_a_limited_time_at_the_other_server(
    closing: AsyncExitStack, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, asked = await remote(closing, pair), []

    async def acquire(ask: ShareAsk) -> list[ShareAnswer]:
        asked.append(ask)
        return [ShareAnswer(partition=partition) for partition in ask.partitions]

    monkeypatch.setattr(pair.nodes[0].streams.local_shares, "acquire", acquire)

    await there.acquire(replace(ask(PartitionKey(1)), wait_ms=60_000))

    assert [item.wait_ms for item in asked] == [WAIT_MS_MAX]


@pytest.mark.parametrize(
    "error",
    [
        InvalidRecordState("a"),
        Invalid("b"),
        NotFound("c"),
        Fenced("d"),
        Overloaded("e"),
        Unavailable("f"),
        NotHolder("g", None),
        NotHolder("h", ServerRef(node_id=3, epoch=4)),
    ],
)
def test_errors_keep_their_kind(error: BearlakeError) -> None:
    found = packing.unpack_problem(packing.pack_problem(error))

    assert type(found) is type(error)
    assert str(found) == str(error)
    assert getattr(found, "holder", None) == getattr(error, "holder", None)


def test_answers_keep_what_was_acquired() -> None:
    answers = [
        ShareAnswer(partition=PartitionKey(1), acquired=[Acquired(2, 4, 1), Acquired(7, 8, 3)]),
        ShareAnswer(partition=PartitionKey(2), error=Unavailable("x")),
    ]

    found = packing.unpack_answers(packing.pack_answers(answers))

    assert [(item.partition, item.acquired) for item in found] == [
        (PartitionKey(1), [Acquired(2, 4, 1), Acquired(7, 8, 3)]),
        (PartitionKey(2), []),
    ]
    assert isinstance(found[1].error, Unavailable)
