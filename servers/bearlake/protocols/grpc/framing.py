"""Parses ProduceStream messages without copying a large record batch.

protobuf copies the batch twice: when it parses the message and when the field is read. This module gives protobuf only the bytes
around the batch, and returns the batch as a view of the message. protobuf parses messages of any other shape in full.

Source: Protocol Buffers, "Encoding" (tag = field number << 3 | wire type; fields may appear in any order).
"""

from typing import NamedTuple

from bearlake.protocols.grpc.proto import stream_pb2 as pb

LARGE_BYTES = 64 * 1024
"""Below this size, protobuf's copies are cheaper than this module."""

_BYTES = 2
_PAYLOAD = pb.ProduceStreamRequest.PAYLOAD_FIELD_NUMBER << 3 | _BYTES
_RECORD_BATCHES = pb.Payload.RECORD_BATCHES_FIELD_NUMBER << 3 | _BYTES


class Incoming(NamedTuple):
    """A message. If `batch` is set, it is the message's payload and `request` has no payload."""

    request: pb.ProduceStreamRequest
    batch: memoryview | None = None


def read(data: bytes) -> Incoming:
    """Parse one message. Raises protobuf's `DecodeError`."""
    if len(data) >= LARGE_BYTES:
        try:
            found = _split(data)
        except IndexError:
            found = None  # truncated: let protobuf report the error
        if found is not None:
            return found
    return Incoming(pb.ProduceStreamRequest.FromString(data))


def _split(data: bytes) -> Incoming | None:
    rest: list[bytes] = []
    batch: memoryview | None = None
    at = 0
    while at < len(data):
        start = at
        tag, at = _varint(data, at)
        body = at
        match tag & 7:
            case 0:
                _, at = _varint(data, at)
            case 1:
                at += 8
            case 2:
                size, body = _varint(data, at)
                at = body + size
            case 5:
                at += 4
            case _:
                return None
        if at > len(data):
            return None
        if tag != _PAYLOAD:
            rest.append(data[start:at])
            continue
        if batch is not None or body == at or data[body] != _RECORD_BATCHES:
            return None
        size, inner = _varint(data, body + 1)
        if inner + size != at:
            return None
        batch = memoryview(data)[inner:at]
    return None if batch is None else Incoming(pb.ProduceStreamRequest.FromString(b"".join(rest)), batch)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
