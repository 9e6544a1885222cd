"""Quotas of gRPC clients: RESOURCE_EXHAUSTED with RetryInfo for calls of one answer; streams are paced."""

import asyncio
from collections.abc import Callable

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from bearlake.metadata.quotas import QuotaKey
from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.errors import DETAILS_KEY
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.streams.principal import ANONYMOUS, Principal
from bearlake.streams.reservations import Reservation
from bearlake.telemetry import metrics
from fixtures.grpc_server import GrpcNode
from fixtures.quotas import ManualQuotas
from fixtures.waiting import until


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
        9 < sum(quotas.waits) < 10
    )  # five of 2 KB at 1 KB/s, of which the first second is free; the end of the call is read like a message


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


async def test_produce_calls_that_began_together_keep_to_the_quota(
    grpc_node: GrpcNode, quotas: ManualQuotas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All begin while nothing is owed. Those that the first one leaves nothing are refused, and store nothing."""
    await grpc_node.create("t")
    await quotas.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0)
    begun: list[None] = []
    may_go_on = asyncio.Event()

    room = grpc_node.streams.room

    async def held(who: Principal, wait_ms: int) -> Reservation:
        begun.append(None)
        await may_go_on.wait()
        return await room(who, wait_ms)

    monkeypatch.setattr(grpc_node.streams, "room", held)
    request = pb.ProduceRequest(stream="t", payload=payload(3000))
    calls = [asyncio.ensure_future(grpc_node.call(methods.PRODUCE, request)) for _ in range(5)]
    await until(lambda: len(begun) == 5)
    may_go_on.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)

    refused = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
    assert [error.code() for error in refused] == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 4
    assert all(retry_s(error) > 2 for error in refused)
    found = await grpc_node.call(methods.DESCRIBE_STREAM, pb.DescribeStreamRequest(name="t"))
    assert found.partitions[0].end_offset == 1


async def test_fetch_calls_that_go_on_together_keep_to_the_quota(
    grpc_node: GrpcNode, quotas: ManualQuotas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All wait for the same debt. When it is paid, the first one owes again, and the others go on waiting."""
    await grpc_node.create("t")
    for _ in range(2):
        await grpc_node.call(methods.PRODUCE, pb.ProduceRequest(stream="t", payload=payload(3000)))
    await quotas.limit(QuotaKey.CONSUMER_BYTE_RATE, 1000.0)
    quotas.control.charge(ANONYMOUS, QuotaKey.CONSUMER_BYTE_RATE, 10_000)
    due: list[Callable[[], None]] = []
    lines = quotas.control.lines

    def call_later(_: float, callback: Callable[[], None]) -> asyncio.Handle:
        due.append(callback)
        return asyncio.Handle(callback, (), asyncio.get_running_loop())

    monkeypatch.setattr(lines, "call_later", call_later)
    calls = [grpc_node.open(methods.FETCH) for _ in range(5)]
    for call in calls:
        position = pb.Position(stream="t", partition=0, earliest=True)
        await call.write(pb.FetchRequest(assign=[position], credit=pb.Credit(bytes=1_000_000, messages=100)))
    await until(lambda: lines.waiting_count == 5)
    sent = metrics.FETCH_BYTES.value
    quotas.now += 100
    due.pop()()
    await until(lambda: lines.waiting_count == 5 and due)

    assert 0 < metrics.FETCH_BYTES.value - sent < 2 * 3000 + 1000  # both records of one call
    for call in calls:
        call.cancel()
