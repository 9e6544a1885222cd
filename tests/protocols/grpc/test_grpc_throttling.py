"""Quotas of gRPC clients: RESOURCE_EXHAUSTED with RetryInfo for calls of one answer; streams are paced."""

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from bearlake.metadata.quotas import QuotaKey
from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.errors import DETAILS_KEY
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from fixtures.grpc_server import GrpcNode
from fixtures.quotas import ManualQuotas


@pytest.fixture
def quotas(grpc_node: GrpcNode) -> ManualQuotas:
    return ManualQuotas(grpc_node.streams)


def payload(size: int) -> pb.Payload:
    return pb.Payload(records=pb.Records(records=[pb.Record(value=b"x" * size)]))


def retry_s(error: grpc.aio.AioRpcError) -> float:
    """The pause that the server names."""
    metadata = dict(error.trailing_metadata() or ())
    status = Status.FromString(metadata[DETAILS_KEY])  # type: ignore[arg-type]
    for detail in status.details:
        info = RetryInfo()
        if detail.Unpack(info):
            return info.retry_delay.ToMilliseconds() / 1000
    raise AssertionError("no RetryInfo")


async def test_a_produce_call_over_the_quota_says_when_to_come_again(grpc_node: GrpcNode, quotas: ManualQuotas) -> None:
    await grpc_node.create("t")
    await quotas.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0)
    request = pb.ProduceRequest(stream="t", payload=payload(3000))
    await grpc_node.call(methods.PRODUCE, request)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await grpc_node.call(methods.PRODUCE, request)

    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert 2 < retry_s(refused.value) < 2.2
    quotas.now += 2.2
    assert (await grpc_node.call(methods.PRODUCE, request)).base_offset == 1


async def test_a_produce_stream_is_read_at_the_rate_of_the_quota(grpc_node: GrpcNode, quotas: ManualQuotas) -> None:
    await grpc_node.create("t")
    await quotas.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0)
    call = grpc_node.open(methods.PRODUCE_STREAM)
    for _ in range(5):
        await call.write(pb.ProduceStreamRequest(stream="t", payload=payload(2000)))
    await call.done_writing()
    acknowledged = 0
    while acknowledged < 5:
        acknowledged = (await call.read()).acknowledged_count

    assert (
        7 < sum(quotas.waits) < 8
    )  # five of 2 KB at 1 KB/s, of which the first second is free, and the last is not waited for


async def test_a_fetch_is_sent_at_the_rate_of_the_quota(grpc_node: GrpcNode, quotas: ManualQuotas) -> None:
    await grpc_node.create("t")
    for _ in range(4):
        await grpc_node.call(methods.PRODUCE, pb.ProduceRequest(stream="t", payload=payload(2000)))
        await quotas.limit(QuotaKey.CONSUMER_BYTE_RATE, 1000.0)
    call = grpc_node.open(methods.FETCH)
    credit = pb.Credit(bytes=2000, messages=100)
    await call.write(pb.FetchRequest(assign=[pb.Position(stream="t", partition=0, earliest=True)], credit=credit))
    offset = 0
    while offset < 4:
        answer = await call.read()
        offset = max(offset, answer.next_offset)
        await call.write(pb.FetchRequest(credit=pb.Credit(bytes=2000)))
    call.cancel()

    assert sum(quotas.waits) > 3


async def test_streams_are_created_at_the_rate_of_the_quota(grpc_node: GrpcNode, quotas: ManualQuotas) -> None:
    await quotas.limit(QuotaKey.CONTROLLER_MUTATION_RATE, 1.0)
    await grpc_node.call(methods.CREATE_STREAM, pb.CreateStreamRequest(name="a", partition_count=3))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await grpc_node.call(methods.CREATE_STREAM, pb.CreateStreamRequest(name="b", partition_count=1))

    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert retry_s(refused.value) == 2.0
