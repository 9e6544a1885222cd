"""Connections and calls that are silent, idle or old: how the server handles them without failing calls."""

import asyncio
import socket
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from bearlake.protocols.grpc import listening, methods
from bearlake.protocols.grpc.errors import DETAILS_KEY
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.protocols.grpc.settings import GrpcSettings
from bearlake.telemetry.exposition import REGISTRY
from fixtures.grpc_server import GrpcNode, MakeGrpc
from fixtures.grpc_server import call as call_on
from fixtures.waiting import WAIT_S, until

READY = grpc.ChannelConnectivity.READY
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""Source: RFC 9113, 3.4 and 6.5."""
PING = 6


async def lists(node: GrpcNode) -> int:
    return len((await node.call(methods.LIST_STREAMS, pb.ListStreamsRequest())).streams)


@pytest.mark.parametrize("limit", ["connection_age_ms", "connection_idle_ms"])
async def test_an_old_or_idle_connection_is_replaced_and_no_call_fails(grpc_cluster: MakeGrpc, limit: str) -> None:
    node = (await grpc_cluster(1, settings=GrpcSettings(**{limit: 50})))[0]

    async with asyncio.timeout(WAIT_S):
        for _ in range(3):
            assert await lists(node) == 0
            while node.channel.get_state() == READY:
                await node.channel.wait_for_state_change(READY)
        for _ in range(50):
            assert await lists(node) == 0


@pytest.mark.parametrize("method", [methods.FETCH, methods.PRODUCE_STREAM, methods.CONSUME], ids=lambda item: item.name)
async def test_an_old_call_gets_drain_and_is_then_ended(
    grpc_cluster: MakeGrpc, method: "methods.Method[object, object]"
) -> None:
    node = (await grpc_cluster(1, settings=GrpcSettings(call_age_ms=50, call_drain_ms=70)))[0]
    await node.create("one")
    call = node.open(method)
    if method is methods.CONSUME:
        await call.write(pb.ConsumeRequest(join=pb.Join(group="g", streams=["one"])))

    while not (told := await call.read()).HasField("drain"):
        pass
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await read_to_end(call)

    assert told.drain.deadline_ms == 70
    info = ErrorInfo()
    assert Status.FromString(dict(caught.value.trailing_metadata() or ())[DETAILS_KEY]).details[0].Unpack(info)
    assert (caught.value.code(), info.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")


async def read_to_end(call: Any) -> None:
    """Read the answers from before the end of the call; raises its error."""
    while await call.read() is not grpc.aio.EOF:
        pass


async def test_a_client_that_answers_no_probe_is_disconnected(grpc_cluster: MakeGrpc) -> None:
    settings = GrpcSettings(keepalive_ms=1_000, keepalive_timeout_ms=100)
    node = (await grpc_cluster(1, settings=settings))[0]
    reader, writer = await asyncio.open_connection("127.0.0.1", node.server.endpoint.port, family=socket.AF_INET)
    writer.write(PREFACE + SETTINGS)
    kinds: list[int] = []

    try:
        async with asyncio.timeout(WAIT_S):
            while not reader.at_eof():
                head = await reader.readexactly(9)  # header of a frame: length, kind, flags, stream
                kinds.append(head[3])
                await reader.readexactly(int.from_bytes(head[:3], "big"))
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # disconnected, even inside a frame
    finally:
        writer.close()

    assert PING in kinds


async def test_more_calls_than_the_limit_are_refused_with_the_reason(grpc_cluster: MakeGrpc) -> None:
    node = (await grpc_cluster(1, settings=GrpcSettings(calls_max=1)))[0]
    await node.create("one")
    held = node.open(methods.PRODUCE_STREAM)
    record = pb.Record(value=b"v")
    payload = pb.Payload(records=pb.Records(records=[record]))
    await held.write(pb.ProduceStreamRequest(stream="one", payload=payload))
    assert (await held.read()).acknowledged_count == 1

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await lists(node)
    await held.done_writing()
    assert await held.read() is grpc.aio.EOF

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await lists(node) == 1


async def test_calls_above_a_connections_limit_are_refused_and_other_connections_are_not_affected(
    grpc_cluster: MakeGrpc,
) -> None:
    node = (await grpc_cluster(1, settings=GrpcSettings(connection_call_count_max=2)))[0]
    await node.create("one")
    payload = pb.Payload(records=pb.Records(records=[pb.Record(value=b"v")]))
    held = [node.open(methods.PRODUCE_STREAM) for _ in range(2)]
    for call in held:
        await call.write(pb.ProduceStreamRequest(stream="one", payload=payload))
        assert (await call.read()).acknowledged_count == 1

    with pytest.raises(grpc.aio.AioRpcError) as unary:
        await lists(node)
    with pytest.raises(grpc.aio.AioRpcError) as streaming:
        await read_to_end(node.open(methods.PRODUCE_STREAM))
    async with grpc.aio.insecure_channel(node.address, [("grpc.use_local_subchannel_pool", 1)]) as other:
        assert (await call_on(other, methods.LIST_STREAMS, pb.ListStreamsRequest())).streams
    for call in held:
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF

    assert unary.value.code() is streaming.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await lists(node) == 1


async def test_the_limit_applies_to_a_messages_decompressed_size(grpc_cluster: MakeGrpc) -> None:
    node = (await grpc_cluster(1, settings=GrpcSettings(message_bytes_max=100_000)))[0]
    await node.create("one")

    def request(size_bytes: int) -> pb.ProduceRequest:
        records = pb.Records(records=[pb.Record(value=bytes(size_bytes))])
        return pb.ProduceRequest(stream="one", payload=pb.Payload(records=records))

    gzip = grpc.Compression.Gzip
    taken = await node.call(methods.PRODUCE, request(90_000), compression=gzip)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await node.call(methods.PRODUCE, request(5_000_000), compression=gzip)

    assert taken.record_count == 1
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await lists(node) == 1


def connections(node: GrpcNode, count: int, address: str) -> list[socket.socket]:
    """Connections from this address that send nothing."""
    port = node.server.endpoint.port
    return [socket.create_connection(("127.0.0.1", port), WAIT_S, (address, 0)) for _ in range(count)]


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has closed a connection; its greeting is read before."""
    connection.setblocking(False)
    try:
        while connection.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


async def test_a_flood_of_one_address_leaves_the_other_clients_alone(grpc_cluster: MakeGrpc) -> None:
    node = (await grpc_cluster(1, settings=GrpcSettings(address_connections_max=5)))[0]
    with ExitStack() as stack:
        first = [stack.enter_context(connection) for connection in connections(node, 4, "127.0.0.2")]
        other = [stack.enter_context(connection) for connection in connections(node, 5, "127.0.0.3")]
        assert await lists(node) == 0  # the connection of the channel
        await until(lambda: listening.connection_count(node.server.endpoint.port) >= 10)
        await node.server.check_addresses()
        flood = [stack.enter_context(connection) for connection in connections(node, 40, "127.0.0.2")]
        await until(lambda: listening.connection_count(node.server.endpoint.port) >= 50)

        await node.server.check_addresses()

        await until(lambda: sum(map(is_closed, flood)) == 39)
        assert not any(map(is_closed, first + other))
        assert await lists(node) == 0


@pytest.mark.parametrize("limit", [0, 5])
async def test_the_metrics_count_the_connections(grpc_cluster: MakeGrpc, limit: int) -> None:
    quiet = GrpcSettings(address_connections_max=limit, address_check_ms=WAIT_S * 1000)
    node = (await grpc_cluster(1, settings=quiet))[0]
    with ExitStack() as stack:
        for connection in connections(node, 3, "127.0.0.2") + connections(node, 7, "127.0.0.3"):
            stack.enter_context(connection)
        await until(lambda: listening.connection_count(node.server.endpoint.port) == 10)

        await node.server.check_addresses()

        assert REGISTRY.get_sample_value("bearlake_grpc_open_connections") == (8 if limit else 10)
        assert REGISTRY.get_sample_value("bearlake_grpc_open_connections_limit") == 10_000
    await until(lambda: listening.connection_count(node.server.endpoint.port) == 0)
    await node.server.check_addresses()
    assert REGISTRY.get_sample_value("bearlake_grpc_open_connections") == 0


async def test_without_a_limit_no_connection_is_closed(grpc_cluster: MakeGrpc) -> None:
    node = (await grpc_cluster(1, settings=GrpcSettings(address_connections_max=0)))[0]
    with ExitStack() as stack:
        flood = [stack.enter_context(connection) for connection in connections(node, 20, "127.0.0.2")]
        await until(lambda: listening.connection_count(node.server.endpoint.port) >= 20)

        await node.server.check_addresses()

        assert not any(map(is_closed, flood))


def test_the_connections_that_were_there_first_stay() -> None:
    peers = {("a", port): "a" for port in range(6)} | {("b", port): "b" for port in range(2)}

    assert listening.admitted(peers, {("a", 4), ("a", 5)}, 3) == {("a", 4), ("a", 5), ("a", 0), ("b", 0), ("b", 1)}
