"""No message of a client holds a gRPC server's event loop, however many records, headers, rows or fields it claims.

The bound is twice the watchdog's because a test's client and server share the loop.
"""

from typing import Any

import grpc
import grpc.aio
import pyarrow as pa
import pytest

from bearlake import kernel
from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.methods import Method
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.records.batch import Compression
from bearlake.records.codec import Record, encode
from bearlake.telemetry.watchdog import LIMIT_S
from fixtures.grpc_server import GrpcNode
from fixtures.held import held_at_most
from fixtures.waiting import WAIT_S

BOUND_S = 2 * LIMIT_S
COUNT = 200_000


def field(number: int, body: bytes) -> bytes:
    """An encoded field of bytes."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def request(payload: bytes, stream: str = "t") -> bytes:
    return field(1, stream.encode()) + field(3, payload)


def arrow(rows: pa.RecordBatch) -> bytes:
    return pb.Payload(
        arrow=pb.ArrowRecords(schema=rows.schema.serialize().to_pybytes(), record_batch=rows.serialize().to_pybytes())
    ).SerializeToString()


PAYLOADS = {
    "many empty records": (lambda: field(1, field(1, b"") * COUNT), COUNT),
    "a record of many headers": (lambda: field(1, field(1, field(3, field(1, b"")) * COUNT)), 1),
    "records below the size of large messages": (lambda: field(1, field(1, b"") * 30_000), 30_000),
    "a large value": (lambda: field(1, field(1, field(2, bytes(15 * 1024 * 1024)))), 1),
    "many rows": (lambda: arrow(pa.record_batch({"value": pa.array([b"x"] * COUNT)})), COUNT),
}


async def ask(node: GrpcNode, method: Method[Any, Any], message: bytes) -> Any:
    """The response to one message, not parsed."""
    if not method.is_streaming:
        return await node.channel.unary_unary(method.path)(message, timeout=WAIT_S)
    async for answer in node.channel.stream_stream(method.path)(iter([message]), timeout=WAIT_S):
        return answer
    return None


@pytest.mark.parametrize("method", [methods.PRODUCE, methods.PRODUCE_STREAM], ids=lambda method: method.name)
@pytest.mark.parametrize("what", PAYLOADS)
async def test_a_large_payload_does_not_hold_the_loop(grpc_node: GrpcNode, method: Method[Any, Any], what: str) -> None:
    await grpc_node.create("t", max_message_bytes=str(32 * 1024 * 1024))
    await ask(grpc_node, method, request(pb.Payload(records=pb.Records(records=[pb.Record()])).SerializeToString()))
    await ask(grpc_node, method, request(arrow(pa.record_batch({"value": pa.array([b"x"])}))))
    make, count = PAYLOADS[what]
    message = request(make())

    async with held_at_most(BOUND_S):
        await ask(grpc_node, method, message)

    described = await grpc_node.call(methods.DESCRIBE_STREAM, pb.DescribeStreamRequest(name="t"))
    assert [partition.end_offset for partition in described.partitions] == [2 + count]


HOSTILE = {
    "more records than any batch has": (
        methods.PRODUCE,
        lambda: request(field(1, field(1, b"") * (kernel.RECORDS_MAX + 1))),
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "more headers than allowed": (
        methods.PRODUCE,
        lambda: request(field(1, field(1, field(3, b"") * (kernel.RECORDS_MAX + 1)))),
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "4 million payloads": (methods.PRODUCE, lambda: field(3, b"") * 4_000_000, grpc.StatusCode.INTERNAL),
    "4 million fields of Arrow": (
        methods.PRODUCE,
        lambda: request(field(3, field(1, b"") * 4_000_000)),
        grpc.StatusCode.INTERNAL,
    ),
    "4 million partitions to read": (
        methods.FETCH,
        lambda: field(1, b"") * 4_000_000,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    ),
    "300,000 partitions to read": (
        methods.FETCH,
        lambda: field(pb.FetchRequest.ASSIGN_FIELD_NUMBER, b"") * 300_000,
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "configs without end": (
        methods.CREATE_STREAM,
        lambda: field(3, b"") * 4_000_000,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_a_message_of_too_many_parts_is_refused_at_once(grpc_node: GrpcNode, what: str) -> None:
    await grpc_node.create("t")
    method, make, code = HOSTILE[what]
    message = make()
    await ask(grpc_node, methods.PRODUCE, request(field(1, field(1, b""))))

    async with held_at_most(BOUND_S):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await ask(grpc_node, method, message)

    assert error.value.code() is code


async def test_batches_of_a_call_keep_their_order(grpc_node: GrpcNode) -> None:
    """A large payload is encoded in a thread; the small one behind it waits."""
    await grpc_node.create("t")
    large = request(field(1, field(1, field(2, b"large")) * 50_000))
    small = request(field(1, field(1, field(2, b"small"))))

    answers = grpc_node.channel.stream_stream(methods.PRODUCE_STREAM.path)(
        iter([large, small, large, small]), timeout=WAIT_S
    )
    offsets = [
        offset async for answer in answers for offset in pb.ProduceStreamResponse.FromString(answer).base_offsets
    ]

    assert offsets == [0, 50_000, 50_001, 100_001]


@pytest.mark.parametrize("form", [pb.FORM_RECORDS, pb.FORM_ARROW])
async def test_a_read_of_a_bomb_does_not_hold_the_loop(grpc_node: GrpcNode, form: pb.Form) -> None:
    """A batch of less than 1 MiB has 300,000 records."""
    await grpc_node.create("t")
    warm = encode([Record(timestamp=-1)], codec=Compression.ZSTD)
    bomb = encode([Record(timestamp=-1)] * 300_000, codec=Compression.ZSTD)
    await grpc_node.call(methods.PRODUCE, pb.ProduceRequest(stream="t", payload=pb.Payload(record_batches=warm)))
    call = grpc_node.open(methods.FETCH)
    position = pb.Position(stream="t", partition=0, earliest=True)
    credit = pb.Credit(bytes=1 << 40, messages=1)
    await call.write(pb.FetchRequest(form=form, assign=[position], credit=credit))
    assert (await call.read()).next_offset == 1
    await grpc_node.call(methods.PRODUCE, pb.ProduceRequest(stream="t", payload=pb.Payload(record_batches=bomb)))

    async with held_at_most(BOUND_S):
        await call.write(pb.FetchRequest(credit=credit))
        answer = await call.read()

    assert answer.next_offset > 10_000
    call.cancel()


async def test_a_member_of_a_long_subscription_does_not_hold_the_loop(grpc_node: GrpcNode) -> None:
    await grpc_node.create("t")
    warm = grpc_node.open(methods.CONSUME)
    await warm.write(pb.ConsumeRequest(join=pb.Join(group="warm", streams=["t"])))
    await warm.read()
    call = grpc_node.open(methods.CONSUME)
    request = pb.ConsumeRequest(join=pb.Join(group="g", streams=["t"] * 300_000))

    async with held_at_most(LIMIT_S):
        await call.write(request)
        answer = await call.read()

    assert [(position.stream, position.partition) for position in answer.assigned.positions] == [("t", 0)]
    for member in (call, warm):
        member.cancel()
