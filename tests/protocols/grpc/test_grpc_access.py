"""Access in every gRPC method: nothing without a right, and everything with exactly the rights that the table names."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest

from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.methods import Method
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.protocols.grpc.rights import NEEDED
from bearlake.protocols.grpc.settings import GrpcSettings
from bearlake.streams.access.rights import Right
from bearlake.streams.principal import Operation, Resource
from fixtures.grpc_server import GrpcNode, MakeGrpc
from fixtures.rights import OnlyRights, all_but

STREAM, ABSENT = "t", "absent"
RECORDS = pb.Payload(records=pb.Records(records=[pb.Record(value=b"v")]))
METHODS = [found for found in vars(methods).values() if isinstance(found, Method)]


def requests(stream: str) -> dict[Method[Any, Any], Any]:
    credit = pb.Credit(bytes=1000, messages=10)
    return {
        methods.CREATE_STREAM: pb.CreateStreamRequest(name=f"new-{stream}", partition_count=1),
        methods.DESCRIBE_STREAM: pb.DescribeStreamRequest(name=stream),
        methods.LIST_STREAMS: pb.ListStreamsRequest(),
        methods.DELETE_STREAM: pb.DeleteStreamRequest(name=stream),
        methods.INIT_PRODUCER: pb.InitProducerRequest(),
        methods.PRODUCE: pb.ProduceRequest(stream=stream, partition=0, payload=RECORDS),
        methods.PRODUCE_STREAM: pb.ProduceStreamRequest(stream=stream, partition=0, payload=RECORDS),
        methods.FETCH: pb.FetchRequest(assign=[pb.Position(stream=stream, partition=0, earliest=True)], credit=credit),
        methods.CONSUME: pb.ConsumeRequest(join=pb.Join(group="g", streams=[stream]), credit=credit),
    }


@pytest.fixture
async def node(grpc_node: GrpcNode) -> GrpcNode:
    await grpc_node.create(STREAM)
    await grpc_node.call(methods.PRODUCE, requests(STREAM)[methods.PRODUCE])
    return grpc_node


async def outcome(node: GrpcNode, method: Method[Any, Any], stream: str = STREAM) -> str:
    """Send a request and wait for the first answer. Returns "refused", "hidden" for an empty list, or "allowed"."""
    try:
        if not method.is_streaming:
            answer = await node.call(method, requests(stream)[method])
            return "hidden" if method is methods.LIST_STREAMS and not answer.streams else "allowed"
        call = node.open(method)
        await call.write(requests(stream)[method])
        answer = await call.read()
        if answer is grpc.aio.EOF:
            raise grpc.aio.AioRpcError(await call.code(), grpc.aio.Metadata(), grpc.aio.Metadata())
        call.cancel()
        is_refused = method is methods.FETCH and answer.error.code == grpc.StatusCode.PERMISSION_DENIED.value[0]
        return "refused" if is_refused else "allowed"
    except grpc.aio.AioRpcError as error:
        return "refused" if error.code() is grpc.StatusCode.PERMISSION_DENIED else str(error)


def test_the_table_of_rights_has_every_method() -> None:
    assert set(NEEDED) == set(METHODS)
    assert set(requests(STREAM)) == set(METHODS)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
async def test_every_method_is_refused_without_any_right(node: GrpcNode, method: Method[Any, Any]) -> None:
    node.streams.authorizer = OnlyRights([])
    assert await outcome(node, method) in ("refused", "hidden")


@pytest.mark.parametrize(
    "method", [m for m in METHODS if m is not methods.LIST_STREAMS], ids=lambda method: method.name
)
async def test_a_refusal_does_not_reveal_whether_a_stream_exists(node: GrpcNode, method: Method[Any, Any]) -> None:
    node.streams.authorizer = OnlyRights([])
    assert await outcome(node, method, ABSENT) == await outcome(node, method)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
async def test_every_method_needs_exactly_the_rights_of_the_table(node: GrpcNode, method: Method[Any, Any]) -> None:
    for right in NEEDED[method]:
        node.streams.authorizer = all_but(right)
        assert await outcome(node, method) in ("refused", "hidden"), right
    node.streams.authorizer = OnlyRights(NEEDED[method])
    assert await outcome(node, method) == "allowed"


@pytest.fixture
async def opened(node: GrpcNode) -> AsyncIterator[Callable[..., Any]]:
    calls: list[Any] = []

    def open_one(method: Method[Any, Any]) -> Any:
        calls.append(node.open(method))
        return calls[-1]

    yield open_one
    for call in calls:
        call.cancel()


async def test_a_produce_stream_ends_when_its_right_is_gone(node: GrpcNode, opened: Callable[..., Any]) -> None:
    call = opened(methods.PRODUCE_STREAM)
    request = requests(STREAM)[methods.PRODUCE_STREAM]
    await call.write(request)
    await call.read()

    node.streams.authorizer = OnlyRights([])
    await call.write(request)
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await call.read()
    assert ended.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_fetch_stream_sends_nothing_once_its_right_is_gone(node: GrpcNode, opened: Callable[..., Any]) -> None:
    call = opened(methods.FETCH)
    await call.write(requests(STREAM)[methods.FETCH])
    first = await call.read()
    assert not first.HasField("error")

    node.streams.authorizer = OnlyRights([Right(Operation.WRITE, Resource.STREAM)])
    await node.call(methods.PRODUCE, requests(STREAM)[methods.PRODUCE])
    second = await asyncio.wait_for(call.read(), 30)
    assert second.error.code == grpc.StatusCode.PERMISSION_DENIED.value[0]


async def test_records_that_wait_for_credit_are_not_sent_once_the_right_is_gone(grpc_cluster: MakeGrpc) -> None:
    """The server has read two records, and the client's credit is for one message of one record."""
    node = (await grpc_cluster(1, settings=GrpcSettings(payload_bytes=1)))[0]
    await node.create(STREAM)
    two = pb.Payload(records=pb.Records(records=[pb.Record(value=b"1"), pb.Record(value=b"2")]))
    await node.call(methods.PRODUCE, pb.ProduceRequest(stream=STREAM, partition=0, payload=two))
    call = node.open(methods.FETCH)
    assign = [pb.Position(stream=STREAM, partition=0, earliest=True)]
    await call.write(pb.FetchRequest(assign=assign, credit=pb.Credit(bytes=1000, messages=1)))
    assert [record.value for record in (await call.read()).payload.records.records] == [b"1"]

    node.streams.authorizer = OnlyRights([])
    await call.write(pb.FetchRequest(credit=pb.Credit(messages=1)))
    second = await asyncio.wait_for(call.read(), 30)
    assert second.error.code == grpc.StatusCode.PERMISSION_DENIED.value[0]
    call.cancel()
