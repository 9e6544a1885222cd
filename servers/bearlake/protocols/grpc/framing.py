"""Parses produce messages without copying a large payload, and without believing how many fields it has.

protobuf copies a record batch twice, and holds the interpreter's lock until it has made an object of every nested message: 16 MiB of
empty records are 8 million objects. This module gives protobuf only the bytes around the payload of a large message, and returns the
payload as views of the message. `records.py` decodes the records piece by piece.

Source: Protocol Buffers, "Encoding" (tag = field number << 3 | wire type; fields may appear in any order; of a repeated message field,
the fields are merged; of a oneof, the last member counts).
"""

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from google.protobuf.message import DecodeError

from bearlake.protocols.grpc.proto import stream_pb2 as pb

Request = TypeVar("Request", pb.ProduceRequest, pb.ProduceStreamRequest)

LARGE_BYTES = 64 * 1024
"""Below this size, protobuf parses the whole message: its copies are cheaper than this module."""
FIELD_COUNT_MAX = 100
"""Most fields of a large message and its payload, without records. Encoders write each field once; ours has at most 8."""
OTHER_BYTES_MAX = 1024 * 1024
"""Most bytes of a large message outside its payload."""

_BYTES = 2
_PAYLOAD = pb.ProduceStreamRequest.PAYLOAD_FIELD_NUMBER << 3 | _BYTES
_RECORD_BATCHES = pb.Payload.RECORD_BATCHES_FIELD_NUMBER << 3 | _BYTES
_RECORDS = pb.Payload.RECORDS_FIELD_NUMBER << 3 | _BYTES
_ARROW = pb.Payload.ARROW_FIELD_NUMBER << 3 | _BYTES
_SCHEMA = pb.ArrowRecords.SCHEMA_FIELD_NUMBER << 3 | _BYTES
_RECORD_BATCH = pb.ArrowRecords.RECORD_BATCH_FIELD_NUMBER << 3 | _BYTES


class ArrowMessage(NamedTuple):
    """An Arrow payload: the schema message (empty: none), and the record batch message. Copies: Arrow needs aligned memory."""

    schema: bytes
    record_batch: bytes


class Incoming(NamedTuple, Generic[Request]):
    """A message. If `batch`, `records` or `arrow` is set, it is the message's payload, and `request` has no payload."""

    request: Request
    batch: memoryview | None = None
    """A record batch."""
    records: list[memoryview] | None = None
    """Encoded `Records` messages, to be merged."""
    arrow: ArrowMessage | None = None
    size_bytes: int = 0
    """Bytes of the whole message."""


def read_stream(data: bytes) -> Incoming[pb.ProduceStreamRequest]:
    """Parse a message of ProduceStream. Raises protobuf's `DecodeError`."""
    return _read(pb.ProduceStreamRequest, data)


def read_unary(data: bytes) -> Incoming[pb.ProduceRequest]:
    """Parse a message of Produce. Raises protobuf's `DecodeError`."""
    return _read(pb.ProduceRequest, data)


def _read(kind: type[Request], data: bytes) -> Incoming[Request]:
    return _parsed(kind, data)._replace(size_bytes=len(data))


def _parsed(kind: type[Request], data: bytes) -> Incoming[Request]:
    if len(data) < LARGE_BYTES:
        return Incoming(kind.FromString(data))
    view = memoryview(data)
    budget = _Budget()
    rest: list[memoryview] = []
    payloads: list[memoryview] = []
    for field in budget.fields(view):
        if field.tag == _PAYLOAD:
            payloads.append(field.body)
        else:
            rest.append(field.whole)
    if sum(map(len, rest)) > OTHER_BYTES_MAX:
        raise DecodeError(f"more than {OTHER_BYTES_MAX} bytes outside the payload")
    request = kind.FromString(b"".join(rest))
    form, bodies = _form(budget, payloads)
    if form == _RECORD_BATCHES:
        return Incoming(request, batch=bodies[-1])
    if form == _RECORDS:
        return Incoming(request, records=bodies)
    if form == _ARROW:
        return Incoming(request, arrow=_arrow(budget, bodies))
    if payloads:
        request.payload.SetInParent()
    return Incoming(request)


def _form(budget: "_Budget", payloads: list[memoryview]) -> tuple[int, list[memoryview]]:
    """Return the tag of the payload's form (0: none), and the bodies of that field."""
    form, bodies = 0, list[memoryview]()
    for payload in payloads:
        for field in budget.fields(payload):
            if field.tag not in (_RECORDS, _RECORD_BATCHES, _ARROW):
                continue
            if field.tag != form:
                form, bodies = field.tag, []
            bodies.append(field.body)
    return form, bodies


def _arrow(budget: "_Budget", bodies: list[memoryview]) -> ArrowMessage:
    schema = record_batch = memoryview(b"")
    for body in bodies:
        for field in budget.fields(body):
            if field.tag == _SCHEMA:
                schema = field.body
            elif field.tag == _RECORD_BATCH:
                record_batch = field.body
    return ArrowMessage(bytes(schema), bytes(record_batch))


class Field(NamedTuple):
    """One field of an encoded message; `body` is empty unless it is length-delimited."""

    tag: int
    whole: memoryview
    body: memoryview


def fields(data: memoryview) -> Iterator[Field]:
    """Yield the fields of an encoded message. Raises `DecodeError`."""
    at = 0
    try:
        while at < len(data):
            start = at
            tag, at = varint(data, at)
            body = at
            match tag & 7:
                case 0:
                    _, at = varint(data, at)
                case 1:
                    at += 8
                case 2:
                    size, body = varint(data, at)
                    at = body + size
                case 5:
                    at += 4
                case _:
                    raise DecodeError(f"wire type {tag & 7}")
            if at > len(data) or tag < 8:
                raise DecodeError("a field is cut off, or has the number 0")
            yield Field(tag, data[start:at], data[body:at] if tag & 7 == _BYTES else data[:0])
    except IndexError:
        raise DecodeError("the message is cut off") from None


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number at `at`, and where it ends. Raises `DecodeError`, and `IndexError` beyond the end."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise DecodeError("a number has more than 10 bytes")


class _Budget:
    """How many fields a message may still have."""

    def __init__(self) -> None:
        self._left = FIELD_COUNT_MAX

    def fields(self, data: memoryview) -> Iterator[Field]:
        """As `fields`. Raises `DecodeError` for too many."""
        for field in fields(data):
            self._left -= 1
            if self._left < 0:
                raise DecodeError(f"more than {FIELD_COUNT_MAX} fields outside the records")
            yield field
