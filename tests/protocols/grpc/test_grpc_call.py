"""The boundary of streaming calls: how they end."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.call import Node, Writer, streaming
from bearlake.protocols.grpc.errors import BadField
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.protocols.grpc.settings import GrpcSettings
from bearlake.streams.principal import Principal
from fixtures.grpc_server import GrpcNode
from fixtures.waiting import until


class Ended(Exception):
    """What grpc.aio raises to end a call."""


class Context:
    """gRPC's side of a call, whose client does not read until `is_read` is set. It takes no status while a write is under way."""

    def __init__(self) -> None:
        self.is_read = asyncio.Event()
        self.is_writing = False
        self.status: Any = None

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def invocation_metadata(self) -> None:
        return None

    async def write(self, message: Any) -> None:
        self.is_writing = True
        await self.is_read.wait()
        self.is_writing = False

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> None:
        assert not self.is_writing, "GRPC_CALL_ERROR_TOO_MANY_OPERATIONS"
        self.status = code
        raise Ended


async def nothing() -> AsyncIterator[pb.FetchRequest]:
    return
    yield


@pytest.fixture
async def node(grpc_node: GrpcNode) -> Node:
    return Node(grpc_node.streams, list, GrpcSettings(), random.Random(1))


async def test_a_status_waits_for_the_write_under_way(node: Node) -> None:
    context = Context()

    async def fail(node: Node, who: Principal, requests: Any, writer: Writer) -> None:
        writing = asyncio.create_task(writer.write(pb.FetchResponse()))
        await until(lambda: context.is_writing)
        writing.cancel()
        raise BadField("seek", "wrong")

    call = asyncio.create_task(streaming(node, methods.FETCH, fail, bytes)(nothing(), context))
    await until(lambda: context.is_writing)
    context.is_read.set()
    with pytest.raises(Ended):
        await call
    assert context.status is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_write_waits_for_one_whose_task_was_cancelled(node: Node) -> None:
    context = Context()
    written: list[int] = []

    async def go_on(node: Node, who: Principal, requests: Any, writer: Writer) -> None:
        first = asyncio.create_task(writer.write(pb.FetchResponse()))
        await until(lambda: context.is_writing)
        first.cancel()
        second = asyncio.create_task(writer.write(pb.FetchResponse()))
        second.add_done_callback(lambda _: written.append(1))
        await asyncio.sleep(0)
        assert not written
        context.is_read.set()
        await second

    await streaming(node, methods.FETCH, go_on, bytes)(nothing(), context)
    assert written == [1]


async def test_a_status_waits_for_a_write_that_a_cancelled_write_waited_for(node: Node) -> None:
    context, is_failing = Context(), asyncio.Event()

    async def fail(node: Node, who: Principal, requests: Any, writer: Writer) -> None:
        for _ in range(2):
            writing = asyncio.create_task(writer.write(pb.FetchResponse()))
            await until(lambda: context.is_writing)
            await asyncio.sleep(0)
            writing.cancel()
            await asyncio.wait({writing})
        is_failing.set()
        raise BadField("seek", "wrong")

    call = asyncio.create_task(streaming(node, methods.FETCH, fail, pb.FetchRequest.FromString)(nothing(), context))
    await is_failing.wait()
    context.is_read.set()
    with pytest.raises(Ended):
        await call
    assert context.status is grpc.StatusCode.INVALID_ARGUMENT
