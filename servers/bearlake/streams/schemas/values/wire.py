"""The prefix that serializers write before a value, to identify its schema.

    0       1           5
    ┌───────┬───────────┬───────────────────────────────┬───────
    │ magic │ schema id │ message indexes (Protobuf)    │ value
    │ 0     │ uint32 BE │ count, index … (zigzag varint)│
    └───────┴───────────┴───────────────────────────────┴───────

The indexes are the path from the file to the message: index of the top-level message, then of each nested message. `[0]`, the first
message of the file, is written as a single 0.

Source: Confluent, "Formats, Serializers, and Deserializers", wire format.
"""

import struct
from collections.abc import Sequence

from bearlake.streams.schemas.values.model import Unfit

_HEAD = struct.Struct(">BI")
ID_MAX = 0xFFFF_FFFF
"""Largest id of a schema."""
_INDEX_COUNT_MAX = 100
"""Deepest nesting of messages; protoc has the same limit."""


def head(schema_id: int) -> bytes:
    """Encode the magic byte and the schema id: five bytes."""
    return _HEAD.pack(0, schema_id)


def split(octets: bytes) -> tuple[int, bytes]:
    """Split bytes into the schema id and the rest. Raises `Unfit`."""
    if len(octets) < _HEAD.size or octets[0] != 0:
        raise Unfit("not written by a schema serializer: expected byte 0 and a schema id at the start")
    return _HEAD.unpack_from(octets)[1], octets[_HEAD.size :]


def write_indexes(indexes: Sequence[int]) -> bytes:
    """Encode the path to a message."""
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(_varint(number << 1) for number in (len(indexes), *indexes))


def read_indexes(octets: bytes) -> tuple[list[int], bytes]:
    """Decode the path to a message; returns the path and the rest of the bytes. Raises `Unfit`."""
    count, at = _number(octets, 0)
    if count == 0:
        return [0], octets[at:]
    if not 0 < count <= _INDEX_COUNT_MAX:
        raise Unfit(f"a path of {count} message indexes")
    indexes = []
    for _ in range(count):
        index, at = _number(octets, at)
        indexes.append(index)
    return indexes, octets[at:]


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _number(octets: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while shift < 35:
        if at >= len(octets):
            raise Unfit("the message indexes are truncated")
        octet = octets[at]
        at += 1
        number |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise Unfit("a message index is too long")
