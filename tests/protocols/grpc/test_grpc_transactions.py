"""What gRPC clients see of Kafka's transactions: only committed records, and an end that a reader can reach."""

import asyncio
from typing import Any

import pytest

from bearlake.client.asynchronous import AsyncClient
from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.records import codec as record_codec
from bearlake.records.codec import Record
from fixtures.grpc_server import GrpcNode
from fixtures.transactional import TransactionalWriter
from fixtures.waiting import WAIT_S

PLENTY = pb.Credit(bytes=1 << 40, messages=1 << 20)
FORMS = [pb.FORM_RECORDS, pb.FORM_RECORD_BATCHES, pb.FORM_ARROW]


async def plain(node: GrpcNode, value: bytes) -> None:
    payload = pb.Payload(record_batches=record_codec.encode([Record(value=value, timestamp=1_000)]))
    await node.call(methods.PRODUCE, pb.ProduceRequest(stream="t", partition=0, payload=payload))


async def reading(node: GrpcNode, form: pb.Form = pb.FORM_RECORDS, **start: Any) -> Any:
    call = node.open(methods.FETCH)
    position = pb.Position(stream="t", **start)
    await call.write(pb.FetchRequest(form=form, assign=[position], credit=PLENTY))
    return call


async def read_all(node: GrpcNode) -> list[bytes | None]:
    """What a program reads that stops at the end as of now."""
    async with AsyncClient(node.address) as client, asyncio.timeout(WAIT_S):
        return [record.value async for record in client.read("t", follow=False)]


@pytest.mark.parametrize("form", FORMS)
async def test_a_reader_is_told_that_it_has_passed_what_was_aborted(grpc_node: GrpcNode, form: pb.Form) -> None:
    await grpc_node.create("t")
    writer = await TransactionalWriter.of(grpc_node.streams, "t")
    await plain(grpc_node, b"0")
    await writer.aborted(b"1", b"2")
    call = await reading(grpc_node, form, earliest=True)
    offset = 0
    while offset < 4:
        answer = await call.read()
        offset = answer.next_offset
    end = answer.end_offset
    await writer.aborted(b"4")
    later = await call.read()

    assert (offset, end) == (4, 4)
    assert (later.next_offset, later.end_offset) == (6, 6)


async def test_a_reader_without_credit_is_told_nothing(grpc_node: GrpcNode) -> None:
    await grpc_node.create("t")
    writer = await TransactionalWriter.of(grpc_node.streams, "t")
    await plain(grpc_node, b"0")
    call = grpc_node.open(methods.FETCH)
    credit = pb.Credit(bytes=1 << 20, messages=1)
    await call.write(pb.FetchRequest(assign=[pb.Position(stream="t", earliest=True)], credit=credit))
    first = await call.read()
    await writer.aborted(b"1")
    waiting = asyncio.ensure_future(call.read())
    done, _ = await asyncio.wait({waiting}, timeout=0.1)
    await call.write(pb.FetchRequest(credit=credit))

    assert first.next_offset == 1
    assert not done
    assert (await waiting).next_offset == 3


async def test_a_program_that_reads_to_the_end_ends(grpc_node: GrpcNode) -> None:
    await grpc_node.create("t")
    writer = await TransactionalWriter.of(grpc_node.streams, "t")
    await plain(grpc_node, b"0")
    await writer.aborted(b"1")
    aborted = await read_all(grpc_node)
    await writer.send(b"3")
    await plain(grpc_node, b"4")
    opened = await read_all(grpc_node)
    await writer.end()

    assert (aborted, opened) == ([b"0"], [b"0"])
    assert await read_all(grpc_node) == [b"0", b"3", b"4"]


async def test_the_bounds_name_the_last_stable_offset(grpc_node: GrpcNode) -> None:
    await grpc_node.create("t")
    writer = await TransactionalWriter.of(grpc_node.streams, "t")
    await plain(grpc_node, b"0")
    before = await grpc_node.call(methods.DESCRIBE_STREAM, pb.DescribeStreamRequest(name="t"))
    await writer.send(b"1")
    after = await grpc_node.call(methods.DESCRIBE_STREAM, pb.DescribeStreamRequest(name="t"))

    found = [(item.end_offset, item.stable_end_offset) for item in (before.partitions[0], after.partitions[0])]
    assert found == [(1, 1), (2, 1)]


@pytest.mark.parametrize("start", [{"latest": True}, {"timestamp_ms": 2_000_000}])
async def test_a_reader_from_the_latest_record_on_gets_what_is_committed_later(
    grpc_node: GrpcNode, start: dict[str, Any]
) -> None:
    await grpc_node.create("t")
    writer = await TransactionalWriter.of(grpc_node.streams, "t")
    await plain(grpc_node, b"0")
    await writer.send(b"1", timestamp_ms=2_000_000)
    call = await reading(grpc_node, **start)
    await plain(grpc_node, b"2")
    waiting = asyncio.ensure_future(call.read())
    done, _ = await asyncio.wait({waiting}, timeout=0.1)
    await writer.end()

    assert not done
    assert [record.value for record in (await waiting).payload.records.records] == [b"1", b"2"]
