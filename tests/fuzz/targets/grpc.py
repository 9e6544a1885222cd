"""Payloads of gRPC calls: ProduceStream messages, records, record batches and Arrow columns."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pyarrow as pa
from google.protobuf.message import DecodeError

from bearlake.errors import Invalid
from bearlake.protocols.grpc import framing
from bearlake.protocols.grpc.batches import PayloadReader, check_batch
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.records import codec
from fuzz.target import Choices, Target
from fuzz.targets.kernel import batches, repair

NOW_MS = 1_700_000_000_000
SEQUENCE = pb.ProducerSequence(producer_id=7, producer_epoch=1, base_sequence=3)
RECORDS = [
    pb.Record(key=b"k", value=b"v", headers=[pb.Header(key=b"h", value=b"x"), pb.Header(key=b"\xff")]),
    pb.Record(timestamp_ms=5),
    pb.Record(value=b""),
]


def payloads() -> Iterator[pb.Payload]:
    """Payloads of every form."""
    for count in (1, 3, 9):
        yield pb.Payload(records=pb.Records(records=(RECORDS * 3)[:count]))
    for batch in batches():
        yield pb.Payload(record_batches=batch)
    for columns in (
        {"value": pa.array([b"a", None, b"c"], pa.binary())},
        {
            "key": pa.array(["a", "b", None]),
            "value": pa.array(["a", "é", None], pa.large_string()),
            "timestamp": pa.array([1, None, 3], pa.timestamp("us")),
            "headers": pa.array(
                [[{"key": "k", "value": b"v"}], [], None],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        },
    ):
        rows = pa.record_batch(columns)
        yield pb.Payload(
            arrow=pb.ArrowRecords(
                schema=rows.schema.serialize().to_pybytes(), record_batch=rows.serialize().to_pybytes()
            )
        )


def _seeds() -> list[bytes]:
    return [bytes([at % 2]) + payload.SerializeToString() for at, payload in enumerate(payloads())]


async def at_once(work: Callable[..., object], *arguments: object) -> object:
    """Do work that a server does in a thread."""
    return work(*arguments)


@asynccontextmanager
async def reader() -> AsyncIterator[Callable[[bytes], Awaitable[object]]]:
    """Read a payload as one record batch, whose records are readable."""

    async def run(data: bytes) -> object:
        choices = Choices(data)
        request = pb.ProduceRequest(sequence=SEQUENCE if choices.byte() % 2 else None)
        payload = pb.Payload.FromString(choices.rest)
        request.payload.CopyFrom(payload)
        batch = await PayloadReader(at_once, 1 << 20).batch(framing.Incoming(request), NOW_MS)
        check_batch(batch.buffer)
        if batch.known:
            assert len(codec.decode(batch.buffer, 2**20)) == batch.header.record_count
        return payload.WhichOneof("form"), batch.header.record_count

    yield run


def framed(data: bytes) -> object:
    """Split a large ProduceStream message without protobuf; its known fields read the same as with protobuf."""
    padded = data + _PADDING
    found = framing.read_stream(padded)
    whole = pb.ProduceStreamRequest.FromString(padded)
    request = merged(found)
    request.DiscardUnknownFields()
    whole.DiscardUnknownFields()
    assert request.SerializeToString(deterministic=True) == whole.SerializeToString(deterministic=True)
    return found.batch is not None, found.records is not None, found.arrow is not None


def merged(found: framing.Incoming[pb.ProduceStreamRequest]) -> pb.ProduceStreamRequest:
    """The message as protobuf reads it. Raises `DecodeError` if its records are malformed."""
    request = pb.ProduceStreamRequest()
    request.CopyFrom(found.request)
    if found.batch is not None:
        request.payload.record_batches = bytes(found.batch)
    if found.records is not None:
        request.payload.records.SetInParent()
        request.payload.records.MergeFromString(b"".join(found.records))
    if found.arrow is not None:
        request.payload.arrow.SetInParent()
        request.payload.arrow.schema, request.payload.arrow.record_batch = found.arrow
    return request


_PADDING = b"\xfa\x7f\x80\x80\x04" + bytes(framing.LARGE_BYTES)
"""An unknown field that makes every message a large one."""


def _framed_seeds() -> list[bytes]:
    made = [pb.ProduceStreamRequest(payload=payload, sequence=SEQUENCE) for payload in payloads()]
    return [request.SerializeToString() for request in made]


TARGETS = [
    Target(
        name="gRPC payloads",
        seeds=_seeds,
        session=reader,
        errors=(Invalid, DecodeError),
        change=lambda random, data: repair(random, data, 4),
        change_share=0.2,
        processor_s=0.1,
    ),
    Target(
        name="gRPC messages",
        seeds=_framed_seeds,
        run=framed,
        errors=(DecodeError,),
        memory_bytes=8 * 1024 * 1024,  # copies of the padding
        memory_factor=100,
        short_inputs=750,
    ),
]
