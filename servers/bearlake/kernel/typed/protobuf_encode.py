"""Typed columns to Protobuf messages: the reverse of `decode_protobuf`.

The messages have the usual form: fields by ascending number, the shortest varints, lists of numbers packed as the schema says, defaults of
fields with implicit presence left out, keys and values of maps always written. A row that `decode_protobuf` gave the status EXACT is
encoded to the bytes that it was decoded from. The encoder trusts nothing in the columns, which may come from a file.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import Final

from bearlake.errors import Corrupt, TooLarge
from bearlake.kernel.buffers import Buffer, view_of
from bearlake.kernel.typed import BYTES_MAX, TypedKind, TypedSchema, TypedSource
from bearlake.kernel.typed.avro_encode import Impossible, Source
from bearlake.kernel.typed.protobuf import (
    INT32,
    ProtoCoding,
    ProtoLabel,
    ProtoWire,
    WireType,
    message_columns,
    wire_type_of,
)
from bearlake.kernel.typed.slots import Column

SECOND_MICROS: Final = 1_000_000
TIMESTAMP_SECONDS: Final = range(-62_135_596_800, 253_402_300_800)
"""The years 1 to 9999: those of `google.protobuf.Timestamp`."""
_UINT32: Final = range(2**32)
_UINT64: Final = range(2**64)
_DIGITS_MAX: Final = 11


def encode_protobuf(
    schema: TypedSchema, wires: tuple[ProtoWire, ...], columns: Sequence[TypedSource], prefix: Buffer, /
) -> tuple[Buffer, Buffer]:
    """Encode all rows, each after `prefix`; return a binary column: offsets, int32[rows + 1], and content.

    `columns` are those of the schema, in its order. A null row gets no bytes, not even the prefix.

    Raises:
        ValueError: the schema or the number of columns is wrong, or a buffer is too short for its slots.
        Corrupt: a row has a null where the message has none, two fields of a oneof, an unknown symbol, a value outside of its type,
            or offsets outside of the columns. Names the first such row.
        TooLarge: the values would have 2 GiB.
    """
    root = message_sources(schema, wires, columns)
    lead = bytes(view_of(prefix))
    content = bytearray()
    offsets = array("i", [0])
    for row in range(root.length):
        if not root.is_null(row):
            try:
                content += lead + encode_message(wires, root, row)
            except Impossible:
                raise Corrupt(f"row {row} of the typed columns is impossible") from None
            if len(content) > BYTES_MAX:
                raise TooLarge("a column of encoded values", len(content), BYTES_MAX)
        offsets.append(len(content))
    return offsets.tobytes(), bytes(content)


def message_sources(schema: TypedSchema, wires: tuple[ProtoWire, ...], columns: Sequence[TypedSource]) -> Source:
    """Return the root of the columns. Raises `ValueError` as `encode_protobuf` does."""
    root = message_columns(schema, wires)
    if len(columns) != len(schema):
        raise ValueError(f"the schema has {len(schema)} columns, {len(columns)} were given")
    return _source(root, iter(columns))


def _source(column: Column, rest: Iterator[TypedSource]) -> Source:
    own = next(rest)
    return Source(column, own, [_source(child, rest) for child in column.children])


def encode_message(wires: Sequence[ProtoWire], source: Source, slot: int) -> bytes:
    """Encode the content of a message. Raises `Impossible`."""
    if source.column.node.kind == TypedKind.OPAQUE:
        return source.text(slot)
    out = bytearray()
    oneofs: set[int] = set()
    for child in source.children:
        wire = wires[child.column.index]
        if wire.oneof >= 0 and not child.is_null(slot):
            if wire.oneof in oneofs:
                raise Impossible
            oneofs.add(wire.oneof)
        if wire.number:
            _encode_field(out, wires, child, slot)
    return bytes(out)


def _encode_field(out: bytearray, wires: Sequence[ProtoWire], source: Source, slot: int) -> None:
    wire = wires[source.column.index]
    if source.is_null(slot):
        if wire.label != ProtoLabel.EXPLICIT:
            raise Impossible
        return
    if wire.label in (ProtoLabel.REPEATED, ProtoLabel.PACKED):
        _encode_list(out, wires, source, slot, wire)
        return
    value = encode_value(wires, source, slot)
    if wire.label == ProtoLabel.IMPLICIT and is_default(wire, value):
        return
    _add(out, wire.number, wire, value)


def _encode_list(out: bytearray, wires: Sequence[ProtoWire], source: Source, slot: int, wire: ProtoWire) -> None:
    low, high = source.items(slot)
    children = source.children
    if any(child.is_null(at) for child in children for at in range(low, high)):
        raise Impossible
    if wire.label == ProtoLabel.PACKED:
        packed = b"".join(encode_value(wires, children[0], at) for at in range(low, high))
        if packed:
            out += tag(wire.number, WireType.LEN) + sized(packed)
        return
    for at in range(low, high):
        if source.column.node.kind == TypedKind.ARRAY:
            _add(out, wire.number, wires[children[0].column.index], encode_value(wires, children[0], at))
            continue
        entry = bytearray()
        for child in children:
            below = wires[child.column.index]
            _add(entry, below.number, below, encode_value(wires, child, at))
        out += tag(wire.number, WireType.LEN) + sized(bytes(entry))


def _add(out: bytearray, number: int, wire: ProtoWire, value: bytes) -> None:
    """Append a field with its value."""
    kind = wire_type_of(wire)
    out += tag(number, kind)
    out += sized(value) if kind == WireType.LEN else value
    if kind == WireType.START:
        out += tag(number, WireType.END)


def encode_value(wires: Sequence[ProtoWire], source: Source, slot: int) -> bytes:
    """Encode a value that is not null, without tag and length. Raises `Impossible`."""
    wire = wires[source.column.index]
    if wire.coding in (ProtoCoding.MESSAGE, ProtoCoding.GROUP):
        return encode_message(wires, source, slot)
    value = _scalar(wire, source, slot)
    if not wire.is_wrapped:
        return value
    inner = wire._replace(is_wrapped=False)
    out = bytearray()
    if not is_default(inner, value):
        _add(out, 1, inner, value)
    return bytes(out)


def _scalar(wire: ProtoWire, source: Source, slot: int) -> bytes:
    coding = ProtoCoding(wire.coding)
    if coding == ProtoCoding.BOOL:
        return bytes([source.bit(slot)])
    if coding in (ProtoCoding.STRING, ProtoCoding.BYTES):
        return source.text(slot)
    if coding == ProtoCoding.ENUM:
        return varint(_enum_number(wire, source.column.node.symbols, source.text(slot)))
    cell = source.cell(slot)
    if coding in (ProtoCoding.FLOAT, ProtoCoding.DOUBLE, ProtoCoding.SFIXED32, ProtoCoding.SFIXED64):
        return cell
    number = int.from_bytes(cell, "little", signed=True)
    if coding in (ProtoCoding.SINT32, ProtoCoding.SINT64):
        return varint(number << 1 ^ number >> 63)
    if coding in (ProtoCoding.UINT32, ProtoCoding.FIXED32) and number not in _UINT32:
        raise Impossible
    if coding in (ProtoCoding.UINT64, ProtoCoding.FIXED64) and number not in _UINT64:
        raise Impossible
    if coding == ProtoCoding.FIXED32:
        return number.to_bytes(4, "little")
    if coding == ProtoCoding.FIXED64:
        return number.to_bytes(8, "little")
    return _timestamp(number) if coding == ProtoCoding.TIMESTAMP else varint(number)


def _timestamp(micros: int) -> bytes:
    seconds, rest = divmod(micros, SECOND_MICROS)
    if seconds not in TIMESTAMP_SECONDS:
        raise Impossible
    out = bytearray()
    if seconds:
        out += tag(1, WireType.VARINT) + varint(seconds)
    if rest:
        out += tag(2, WireType.VARINT) + varint(rest * 1000)
    return bytes(out)


def _enum_number(wire: ProtoWire, symbols: Sequence[bytes], text: bytes) -> int:
    """Return the number of a symbol; an open enum's other numbers are digits."""
    if text in symbols:
        return wire.numbers[symbols.index(text)]
    if wire.is_closed or len(text) > _DIGITS_MAX:
        raise Impossible
    try:
        number = int(text)
    except ValueError:
        raise Impossible from None
    if str(number).encode() != text or number not in INT32 or number in wire.numbers:
        raise Impossible
    return number


def is_default(wire: ProtoWire, value: bytes) -> bool:
    """Whether a scalar's encoded value is the default: no bit set, or no bytes."""
    if wire.coding in (ProtoCoding.STRING, ProtoCoding.BYTES):
        return not value
    return not any(value)


def tag(number: int, wire_type: WireType) -> bytes:
    """Encode the tag of a field."""
    return varint(number << 3 | wire_type)


def sized(value: bytes) -> bytes:
    """Return the bytes after their length."""
    return varint(len(value)) + value


def varint(number: int) -> bytes:
    """Encode the 64 bits of a number, seven at a time, the lowest first."""
    bits = number % 2**64
    out = bytearray()
    while bits > 0x7F:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    out.append(bits)
    return bytes(out)
