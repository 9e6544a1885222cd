"""The prefix by which serializers name the schema of a value.

    0       1           5
    ┌───────┬───────────┬───────────────────────────────┬───────
    │ magic │ schema id │ message indexes (Protobuf)    │ value
    │ 0     │ uint32 BE │ count, index … (zigzag varint)│
    └───────┴───────────┴───────────────────────────────┴───────

Message index `[0]` is written as one 0; the general form `02 00` means the same, so that the prefix belongs to the value. A header can name
the schema instead (`__value_schema_id`): the same bytes in the header, and nothing before the value.

Source: Confluent, "Formats, Serializers, and Deserializers", wire format.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from bearlake.table.typed.model import SchemaType

_HEAD = struct.Struct(">BI")
INDEX_COUNT_MAX = 100
"""Deepest nesting of messages; protoc has the same limit."""
_INDEX_BYTES_MAX = 5
PREFIX_BYTES_MAX = _HEAD.size + _INDEX_BYTES_MAX * (INDEX_COUNT_MAX + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a prefix says."""

    schema_id: int
    message_indexes: tuple[int, ...]
    """The path from the file to the message (Protobuf); else empty."""
    length: int
    """Bytes of the prefix."""


def read_head(octets: bytes, schema_type: SchemaType) -> Head | None:
    """Read the prefix at the start of a value, or a header that names a schema; None if there is none."""
    if len(octets) < _HEAD.size or octets[0] != 0:
        return None
    schema_id = _HEAD.unpack_from(octets)[1]
    if schema_type != SchemaType.PROTOBUF:
        return Head(schema_id=schema_id, message_indexes=(), length=_HEAD.size)
    found = _indexes(octets)
    return None if found is None else Head(schema_id=schema_id, message_indexes=found[0], length=found[1])


def written_indexes(indexes: Sequence[int]) -> bytes:
    """Return message indexes as serializers write them."""
    if tuple(indexes) == (0,):
        return b"\0"
    out = bytearray()
    for number in (len(indexes), *indexes):
        bits = number << 1
        while bits > 0x7F:
            out.append(bits & 0x7F | 0x80)
            bits >>= 7
        out.append(bits)
    return bytes(out)


def prefixes(values: pa.BinaryArray, schema_type: SchemaType) -> pa.DictionaryArray:
    """Return the prefix of each value as a dictionary of few entries: empty if a value has none, null if the value is null.

    Rows with the same entry have the same schema: `read_head` reads an entry, and its length is the `skip` of `codec.decode`.
    """
    least = _HEAD.size + (schema_type == SchemaType.PROTOBUF)
    encoded = pc.dictionary_encode(pc.binary_slice(values, 0, least))
    codes: dict[bytes, int] = {}
    is_whole = True
    places: list[int] = []
    for octets in encoded.dictionary.to_pylist():
        head = read_head(octets, schema_type)
        is_whole = is_whole and (head is not None or not _may_go_on(octets, schema_type))
        places.append(codes.setdefault(b"" if head is None else octets[: head.length], len(codes)))
    if not is_whole:
        return _by_value(values, schema_type)
    indices = pa.array(places, pa.int32()).take(encoded.indices)
    return pa.DictionaryArray.from_arrays(indices, pa.array(list(codes), pa.binary()))


def _by_value(values: pa.BinaryArray, schema_type: SchemaType) -> pa.DictionaryArray:
    """Return the prefixes when some are longer than usual."""
    codes: dict[bytes, int] = {}
    places: list[int | None] = []
    for octets in pc.binary_slice(values, 0, PREFIX_BYTES_MAX).to_pylist():
        if octets is None:
            places.append(None)
            continue
        head = read_head(octets, schema_type)
        places.append(codes.setdefault(b"" if head is None else octets[: head.length], len(codes)))
    return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(list(codes), pa.binary()))


def _may_go_on(octets: bytes, schema_type: SchemaType) -> bool:
    """Whether the first bytes of a value may begin a prefix that is longer than they are."""
    return schema_type == SchemaType.PROTOBUF and len(octets) > _HEAD.size and octets[0] == 0


def _indexes(octets: bytes) -> tuple[tuple[int, ...], int] | None:
    """Read message indexes after the schema id; return them and where they end, None if they are malformed."""
    number = _number(octets, _HEAD.size)
    if number is None:
        return None
    count, at = number
    if count == 0:
        return (0,), at
    if not 0 < count <= INDEX_COUNT_MAX:
        return None
    found: list[int] = []
    for _ in range(count):
        number = _number(octets, at)
        if number is None or number[0] < 0:
            return None
        index, at = number
        found.append(index)
    return tuple(found), at


def _number(octets: bytes, at: int) -> tuple[int, int] | None:
    """Read a zigzag varint of an int32; return it and where it ends."""
    number = 0
    for shift in range(0, 7 * _INDEX_BYTES_MAX, 7):
        if at >= len(octets):
            return None
        octet = octets[at]
        at += 1
        number |= (octet & 0x7F) << shift
        if octet < 0x80:
            return (number >> 1 ^ -(number & 1), at)
    return None
