"""A member's Consume call, message by message: the client acts while the server is in the middle of a step."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from bearlake.protocols.grpc import consuming, fetching, methods
from bearlake.protocols.grpc.call import Node
from bearlake.protocols.grpc.errors import Failure
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.protocols.grpc.settings import GrpcSettings
from bearlake.streams.groups.model import Joined, JoinRequest, MemberRef, Synced
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.principal import ANONYMOUS, Principal
from bearlake.telemetry.exposition import REGISTRY
from fixtures.grpc_server import GrpcNode
from fixtures.kafka_server import batch_of
from fixtures.waiting import WAIT_S, until

PLENTY = pb.Credit(bytes=1 << 40, messages=1 << 20)


class Client:
    """The client's end of a call without a connection: its requests, and the writer of the server's messages."""

    def __init__(self) -> None:
        self.on_news: Callable[[pb.ConsumeResponse], Awaitable[None]] = _ignore
        """Runs during the server's write of each message."""
        self._requests: asyncio.Queue[pb.ConsumeRequest] = asyncio.Queue()
        self._news: asyncio.Queue[pb.ConsumeResponse] = asyncio.Queue()
        self._handled = asyncio.Event()
        """Set while the server waits for a request."""

    def __aiter__(self) -> "Client":
        return self

    async def __anext__(self) -> pb.ConsumeRequest:
        self._handled.set()
        request = await self._requests.get()
        self._handled.clear()
        return request

    async def write(self, message: pb.ConsumeResponse) -> None:
        """Receive a message of the server."""
        await self.on_news(message)
        self._news.put_nowait(message)

    async def send(self, request: pb.ConsumeRequest) -> None:
        """Send a message; return when the server has handled it."""
        self._handled.clear()
        self._requests.put_nowait(request)
        async with asyncio.timeout(WAIT_S):
            await self._handled.wait()

    async def news(self, kind: str) -> pb.ConsumeResponse:
        """Return the server's next message of this kind."""
        async with asyncio.timeout(WAIT_S):
            while (message := await self._news.get()).WhichOneof("news") != kind:
                pass
        return message


async def _ignore(message: pb.ConsumeResponse) -> None:
    """Do nothing."""


def read_bytes() -> float:
    return REGISTRY.get_sample_value("bearlake_fetch_bytes_total") or 0


async def fill(grpc_node: GrpcNode) -> None:
    payload = pb.Payload(record_batches=batch_of(b"a", b"b"))
    await grpc_node.call(methods.PRODUCE, pb.ProduceRequest(stream="one", payload=payload))


@asynccontextmanager
async def joined(grpc_node: GrpcNode, client: Client, credit: pb.Credit = PLENTY) -> AsyncIterator[None]:
    """The client's Consume call, as the only member of its group."""
    node = Node(grpc_node.streams, grpc_node.member.live, GrpcSettings(), random.Random(1))
    call = asyncio.create_task(consuming.consume(node, ANONYMOUS, client, client))
    join = pb.Join(group="g", streams=["one"], session_timeout_ms=60_000, rebalance_timeout_ms=60_000)
    await client.send(pb.ConsumeRequest(join=join, credit=credit))
    yield
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call


@pytest.fixture
async def filled(grpc_node: GrpcNode) -> GrpcNode:
    """A server with two records in the stream `one`."""
    await grpc_node.create("one")
    await fill(grpc_node)
    return grpc_node


async def test_a_member_may_seek_while_the_server_still_writes_its_assignment(filled: GrpcNode) -> None:
    client = Client()

    async def seek_at_once(message: pb.ConsumeResponse) -> None:
        if message.WhichOneof("news") == "assigned":
            await client.send(pb.ConsumeRequest(seek=[pb.Position(stream="one", offset=1, tag=5)]))

    client.on_news = seek_at_once
    async with joined(filled, client):
        answer = (await client.news("records")).records

    assert answer.tag == 5
    assert [record.value for record in answer.payload.records.records] == [b"b"]


async def test_a_member_that_seeks_behind_the_end_continues_with_the_tag_of_its_seek(filled: GrpcNode) -> None:
    client = Client()
    async with joined(filled, client):
        await client.news("records")
        await client.send(pb.ConsumeRequest(seek=[pb.Position(stream="one", offset=99, tag=5)]))
        answer = (await client.news("records")).records

    assert answer.tag == 5
    assert [record.value for record in answer.payload.records.records] == [b"a", b"b"]


async def test_a_seek_is_not_undone_while_the_server_looks_for_the_start(
    filled: GrpcNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client()

    async def look_slowly(node: Node, who: Principal, position: pb.Position) -> fetching.Assigned | Failure:
        found = await fetching.locate(node, who, position)
        if position.tag == 5:
            await client.send(pb.ConsumeRequest(seek=[pb.Position(stream="one", offset=1, tag=6)]))
        return found

    async with joined(filled, client):
        await client.news("records")
        monkeypatch.setattr(consuming, "locate", look_slowly)
        await client.send(pb.ConsumeRequest(seek=[pb.Position(stream="one", offset=99, tag=5)]))
        answer = (await client.news("records")).records

    assert answer.tag == 6
    assert [record.value for record in answer.payload.records.records] == [b"b"]


class Rebalance:
    """Asks the member to rejoin, at the moment that the test chooses."""

    def __init__(self, filled: GrpcNode, monkeypatch: pytest.MonkeyPatch) -> None:
        self._is_due = False
        self._begun = asyncio.Event()
        monkeypatch.setattr(consuming, "HEARTBEAT_MS", 5)
        monkeypatch.setattr(filled.streams.groups, "heartbeat", self._beat)

    async def _beat(self, member: MemberRef) -> None:
        if self._is_due:
            self._is_due = False
            self._begun.set()
            raise GroupRefusal(Problem.REBALANCE_IN_PROGRESS)

    async def begin(self) -> None:
        """Return when the member's partitions are revoked at the server."""
        self._is_due = True
        async with asyncio.timeout(WAIT_S):
            await self._begun.wait()


async def test_a_seek_does_not_bring_back_a_revoked_partition(
    filled: GrpcNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client()
    rebalance = Rebalance(filled, monkeypatch)
    tags: list[int] = []

    async def look_slowly(node: Node, who: Principal, position: pb.Position) -> fetching.Assigned | Failure:
        tags.append(position.tag)
        if position.tag == 5:
            await rebalance.begin()
        return await locate(node, who, position)

    locate = fetching.locate
    monkeypatch.setattr(fetching, "locate", look_slowly)
    async with joined(filled, client):
        await client.news("assigned")
        for tag in (5, 6):
            await client.send(pb.ConsumeRequest(seek=[pb.Position(stream="one", latest=True, tag=tag)]))
        await client.send(pb.ConsumeRequest(released=True))
        await client.news("assigned")
        await client.send(pb.ConsumeRequest(seek=[pb.Position(stream="one", latest=True, tag=7)]))

    assert tags == [5, 7]


async def test_credit_of_a_message_that_is_not_sent_remains(
    grpc_node: GrpcNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await grpc_node.create("one")
    client = Client()
    rebalance = Rebalance(grpc_node, monkeypatch)

    async def read_slowly(message: pb.ConsumeResponse) -> None:
        """While an answer to a commit is written, a record waits for its turn, and its partition is revoked."""
        if message.WhichOneof("news") == "committed":
            before = read_bytes()
            await fill(grpc_node)
            await until(lambda: read_bytes() > before)
            await rebalance.begin()

    client.on_news = read_slowly
    async with joined(grpc_node, client, pb.Credit(bytes=1 << 40, messages=1)):
        await client.news("assigned")
        await client.send(pb.ConsumeRequest(commit=pb.Commit(tag=1)))
        await client.news("revoked")
        await client.send(pb.ConsumeRequest(released=True))
        answer = (await client.news("records")).records

    assert [record.value for record in answer.payload.records.records] == [b"a", b"b"]


async def test_a_member_keeps_its_id_when_its_generation_was_not_saved(
    filled: GrpcNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = filled.streams.groups
    join, sync = groups.join, groups.sync
    asked: list[str] = []
    given: list[str] = []

    async def join_noted(name: str, request: JoinRequest) -> Joined:
        answer = await join(name, request)
        asked.append(request.member_id)
        given.append(answer.member_id)
        return answer

    async def sync_after_a_move(member: MemberRef, *rest: Any) -> Synced:
        if len(asked) == 1:  # the next coordinator has a snapshot of an earlier generation
            raise GroupRefusal(Problem.ILLEGAL_GENERATION)
        return await sync(member, *rest)

    monkeypatch.setattr(groups, "join", join_noted)
    monkeypatch.setattr(groups, "sync", sync_after_a_move)
    client = Client()
    async with joined(filled, client):
        member_id = (await client.news("assigned")).assigned.member_id

    assert asked == ["", member_id]
    assert given == [member_id, member_id]
