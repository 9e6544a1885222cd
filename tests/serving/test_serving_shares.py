"""Share groups over the admin API: a server asks the dispatcher of a partition on another server."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from bearlake.errors import BearlakeError, Fenced, Invalid, NotFound, Overloaded, Unavailable
from bearlake.metadata.model import PartitionKey, ServerRef
from bearlake.serving.admin.token import AdminToken
from bearlake.serving.shares import packing
from bearlake.serving.shares.client import SharePeers
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.subscriptions.model import NotHolder
from bearlake.streams.subscriptions.share.in_flight import Acquired, InvalidRecordState, ShareAck
from bearlake.streams.subscriptions.share.terms import ShareAnswer, ShareAsk
from bearlake.streams.subscriptions.share_dispatch import ShareDispatch
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
