"""A member's Consume call, message by message: the client acts while the server is in the middle of a step."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from bearlake.protocols.grpc import consuming, methods
from bearlake.protocols.grpc.call import Node
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.protocols.grpc.settings import GrpcSettings
from bearlake.streams.principal import ANONYMOUS
from fixtures.grpc_server import GrpcNode
from fixtures.kafka_server import batch_of
from fixtures.waiting import WAIT_S

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


@asynccontextmanager
async def joined(grpc_node: GrpcNode, client: Client) -> AsyncIterator[None]:
    """The client's Consume call, as the only member of its group."""
    node = Node(grpc_node.streams, grpc_node.member.live, GrpcSettings(), random.Random(1))
    call = asyncio.create_task(consuming.consume(node, ANONYMOUS, client, client))
    join = pb.Join(group="g", streams=["one"], session_timeout_ms=60_000, rebalance_timeout_ms=60_000)
    await client.send(pb.ConsumeRequest(join=join, credit=PLENTY))
    yield
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call


@pytest.fixture
async def filled(grpc_node: GrpcNode) -> GrpcNode:
    """A server with two records in the stream `one`."""
    await grpc_node.create("one")
    payload = pb.Payload(record_batches=batch_of(b"a", b"b"))
    await grpc_node.call(methods.PRODUCE, pb.ProduceRequest(stream="one", payload=payload))
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
