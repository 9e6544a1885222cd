"""Callers that must not make a server hold their messages, or take all of its calls: without a login, beyond their share, or stalling."""

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from bearlake.protocols.grpc import framing, methods, open_services
from bearlake.protocols.grpc.methods import Method
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.protocols.grpc.settings import GrpcSettings
from fixtures.failing_stores import HeldStore, settings
from fixtures.grpc_server import GrpcNode, MakeGrpc
from fixtures.kafka_server import batch_of
from fixtures.logins import Logins
from fixtures.waiting import WAIT_S, until

MIB = 1024 * 1024
WATCH = "/grpc.health.v1.Health/Watch"
CHECK = "/grpc.health.v1.Health/Check"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
UNARY = [method for method in vars(methods).values() if isinstance(method, Method) and not method.is_streaming]


def silent(node: GrpcNode, path: str, timeout_s: float = WAIT_S) -> Any:
    """A call whose client sends no message, and does not say that it sends none."""
    return node.channel.stream_stream(path)(timeout=timeout_s)


def whole(node: GrpcNode, path: str, message: bytes) -> Any:
    """A call whose client sends one message.

    Its status is the server's, whenever the server refuses. A client that calls `write` while it is refused gets INTERNAL instead, from
    its own library.
    """
    return node.channel.unary_stream(path)(message, timeout=WAIT_S)


async def code_of(call: Any) -> grpc.StatusCode:
    """The status with which the server ends a call."""
    code: grpc.StatusCode = await call.code()
    return code


@pytest.mark.parametrize("method", UNARY, ids=lambda method: method.name)
async def test_a_caller_without_a_login_is_refused_before_its_message_is_read(
    grpc_cluster: MakeGrpc, logins: Logins, method: Method[Any, Any]
) -> None:
    """gRPC holds a message until it is complete: 16 MiB of each call of a caller whom nobody knows."""
    node = (await grpc_cluster(1, authentication=logins.settings()))[0]

    assert await code_of(silent(node, method.path)) is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("path", [*(method.path for method in UNARY), WATCH, CHECK, REFLECTION])
async def test_a_message_that_does_not_arrive_in_time_ends_its_call(grpc_cluster: MakeGrpc, path: str) -> None:
    node = (await grpc_cluster(1, settings=GrpcSettings(receive_ms=50)))[0]

    assert await code_of(silent(node, path)) is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_call_without_a_message_is_malformed(grpc_node: GrpcNode) -> None:
    call = silent(grpc_node, methods.LIST_STREAMS.path)
    await call.done_writing()

    assert await code_of(call) is grpc.StatusCode.INTERNAL


async def test_the_message_of_a_write_is_read_only_when_the_write_path_has_room(
    grpc_cluster: MakeGrpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def counting(parse: Any) -> Any:
        def parsed(data: bytes) -> Any:
            read.append(len(data))
            return parse(data)

        return parsed

    monkeypatch.setattr(framing, "read_stream", counting(framing.read_stream))
    monkeypatch.setattr(framing, "read_unary", counting(framing.read_unary))
    store = HeldStore()
    node = (await grpc_cluster(1, store=store, streams=settings(bytes_max=2 * MIB, puts_in_flight_max=1)))[0]
    await node.create("s", max_message_bytes=str(4 * MIB))
    payload = pb.Payload(records=pb.Records(records=[pb.Record(value=bytes(3 * MIB))]))
    first = asyncio.create_task(node.call(methods.PRODUCE, pb.ProduceRequest(stream="s", payload=payload)))
    await until(lambda: node.streams.is_over_budget)
    assert len(read) == 1

    unary = asyncio.create_task(node.call(methods.PRODUCE, pb.ProduceRequest(stream="s", payload=payload)))
    stream = node.open(methods.PRODUCE_STREAM)
    writing = asyncio.create_task(stream.write(pb.ProduceStreamRequest(stream="s", payload=payload)))
    await until(lambda: len(node.streams._writer.relief) == 2)  # noqa: SLF001
    assert len(read) == 1
    store.go.set()

    offsets = {(await first).base_offset, (await unary).base_offset}
    await writing
    offsets.update((await stream.read()).base_offsets)
    assert offsets == {0, 1, 2}


async def test_an_idle_stream_holds_no_room(grpc_cluster: MakeGrpc) -> None:
    store = HeldStore()
    node = (await grpc_cluster(1, store=store, streams=settings(bytes_max=2 * MIB, puts_in_flight_max=1)))[0]
    await node.create("s", max_message_bytes=str(4 * MIB))
    payload = pb.Payload(records=pb.Records(records=[pb.Record(value=bytes(3 * MIB))]))
    first = asyncio.create_task(node.call(methods.PRODUCE, pb.ProduceRequest(stream="s", payload=payload)))
    await until(lambda: node.streams.is_over_budget)
    streams = [node.open(methods.PRODUCE_STREAM) for _ in range(50)]
    await until(lambda: len(node.streams._writer.relief) == 50)  # noqa: SLF001
    store.go.set()
    await first

    await until(lambda: not node.streams._writer.reservations.size_bytes)  # noqa: SLF001
    assert node.server.call_count == 50
    await streams[7].write(pb.ProduceStreamRequest(stream="s", payload=pb.Payload(record_batches=batch_of(b"a"))))
    assert (await streams[7].read()).acknowledged_count == 1


@pytest.mark.parametrize("path", [WATCH, methods.FETCH.path])
async def test_calls_of_one_address_leave_calls_to_others(grpc_cluster: MakeGrpc, path: str) -> None:
    """Health needs no login: `Watch` never ends, and took all calls of a server."""
    node = (await grpc_cluster(1, settings=GrpcSettings(calls_max=10, address_call_count_max=5)))[0]
    message = health_pb2.HealthCheckRequest().SerializeToString()
    calls = []
    for _ in range(5):
        calls.append(silent(node, path))
        await calls[-1].write(message)
        await until(lambda: _count(node) == len(calls))

    assert await code_of(silent(node, path)) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert _count(node) == 5
    calls.pop().cancel()
    await until(lambda: _count(node) == 4)
    calls.append(silent(node, path))
    await calls[-1].write(message)
    await until(lambda: _count(node) == 5)
    for call in calls:
        call.cancel()


def _count(node: GrpcNode) -> int:
    return sum(node.server._node._calls.values())  # noqa: SLF001


async def test_few_messages_are_read_at_once_of_callers_without_a_login(grpc_node: GrpcNode) -> None:
    stalled = [silent(grpc_node, CHECK) for _ in range(open_services.RECEIVED_AT_ONCE // 2)]
    await until(lambda: _count(grpc_node) == len(stalled))

    assert await code_of(silent(grpc_node, CHECK)) is grpc.StatusCode.RESOURCE_EXHAUSTED
    stalled[0].cancel()
    await until(lambda: _count(grpc_node) == len(stalled) - 1)
    check = grpc_node.channel.unary_unary(CHECK, response_deserializer=health_pb2.HealthCheckResponse.FromString)
    assert (await check(b"", timeout=WAIT_S)).status == health_pb2.HealthCheckResponse.SERVING
    for call in stalled:
        call.cancel()


@pytest.mark.parametrize("path", [CHECK, WATCH, REFLECTION])
async def test_a_long_message_of_a_caller_without_a_login_is_refused(grpc_node: GrpcNode, path: str) -> None:
    """A server would remember the name that a watcher asks for."""
    message = health_pb2.HealthCheckRequest(service="a" * 20_000).SerializeToString()

    assert await code_of(whole(grpc_node, path, message)) is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_reflection_answers_each_request_of_a_call(grpc_node: GrpcNode) -> None:
    call = grpc_node.channel.stream_stream(
        REFLECTION, response_deserializer=reflection_pb2.ServerReflectionResponse.FromString
    )(timeout=WAIT_S)
    names = []
    for _ in range(2):
        await call.write(reflection_pb2.ServerReflectionRequest(list_services="*").SerializeToString())
        answer = await call.read()
        names.append([service.name for service in answer.list_services_response.service])
    await call.done_writing()

    assert await code_of(call) is grpc.StatusCode.OK
    assert names[0] == names[1]
    assert "grpc.health.v1.Health" in names[0]
