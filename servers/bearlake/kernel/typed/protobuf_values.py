"""Protobuf messages to typed columns.

The reader takes memory only for what the bytes prove: a length never exceeds the bytes left, and each element of a list or map takes a byte
at least. Columns with many fields multiply nulls and defaults, so that `bytes_max` bounds the columns of a call.

Source: Protocol Buffers, "Encoding", "Field Presence".
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from typing_extensions import override

from bearlake.kernel.buffers import Buffer
from bearlake.kernel.typed import TEXTS, TypedKind, TypedOutcome, TypedSchema, TypedSlots, TypedSource
from bearlake.kernel.typed.avro_encode import Impossible, Source
from bearlake.kernel.typed.decode import RowDecoder, decode_values
from bearlake.kernel.typed.protobuf import MESSAGES, ProtoCoding, ProtoLabel, ProtoWire, message_columns
from bearlake.kernel.typed.protobuf_encode import SECOND_MICROS, TIMESTAMP_SECONDS, encode_message, message_sources
from bearlake.kernel.typed.protobuf_reader import Message, ProtobufReader
from bearlake.kernel.typed.slots import Column

_SECOND_NANOS = 1_000_000_000


def decode_protobuf(
    schema: TypedSchema,
    wires: tuple[ProtoWire, ...],
    validity: Buffer | None,
    offsets: Buffer,
    content: Buffer,
    start: int,
    end: int,
    skip: int,
    is_verified: int,
    bytes_max: int,
    /,
) -> tuple[Buffer, list[TypedSlots]]:
    """Decode the values [start, end) of a binary column into one row each, without the first `skip` bytes of each value.

    Returns statuses and columns as `decode_avro` does. A text that is not UTF-8, a timestamp outside of the years 1 to 9999, and a map with
    a repeated key are DOMAIN. A timestamp with a part of a microsecond is FORM, and its column has the microsecond in which it is. A field
    that the message does not have, or a number that a closed enum does not have, is FORM. The content of an OPAQUE is not looked into.

    Raises:
        ValueError: the schema is malformed, or the buffers are too short for the rows.
        TooLarge: the columns would have more than `bytes_max` bytes: decode fewer values at once. One value never raises it.
    """
    root = message_columns(schema, wires)

    def encoded(columns: list[TypedSource]) -> Callable[[int, bytes], bool]:
        return partial(_is_same, wires, message_sources(schema, wires, columns))

    values = validity, offsets, content, start, end
    return decode_values(root, partial(_Decoder, wires, root), encoded, values, skip, is_verified, bytes_max)


def _is_same(wires: tuple[ProtoWire, ...], source: Source, row: int, value: bytes) -> bool:
    """Whether encoding the row gives the value's bytes."""
    try:
        return encode_message(wires, source, row) == value
    except Impossible:
        return False


class _Decoder(ProtobufReader, RowDecoder):
    """Appends one row per message."""

    def __init__(self, wires: tuple[ProtoWire, ...], root: Column, row_count: int, bytes_max: int) -> None:
        ProtobufReader.__init__(self, wires)
        RowDecoder.__init__(self, root, row_count, bytes_max)

    @override
    def _append_row(self, value: bytes, skip: int) -> None:
        self._data, self._at, self._end = value, skip, len(value)
        message: Message = {}
        self._message(self._root, message)
        self._add(self._root, message)

    @override
    def _append_element(self, column: Column, value: Any) -> None:
        self._use(column.slot_bytes)
        self._add(column, value)

    @override
    def _append_entry(self, column: Column, entry: Message) -> Any:
        self._use(sum(child.slot_bytes for child in column.children))
        for child in column.children:
            self._add_field(child, entry)
        key = column.children[0]
        return entry[key.index] if key.index in entry else self._zero(key)

    def _add_field(self, column: Column, message: Message) -> None:
        """Append the slot of a field, whether the message has the field or not."""
        kind = TypedKind(column.node.kind)
        if kind == TypedKind.ARRAY:
            column.add()
        elif kind == TypedKind.MAP:
            self._add_map(column, message.get(column.index, []))
        elif column.index in message:
            self._add(column, message[column.index])
        elif self._wires[column.index].label == ProtoLabel.EXPLICIT:
            column.add_null()
        else:
            self._add(column, self._default(column))

    def _default(self, column: Column) -> Any:
        """Return what a field has that was not written."""
        kind, wire = TypedKind(column.node.kind), self._wires[column.index]
        if kind == TypedKind.OPAQUE:
            return b""
        if kind in (TypedKind.RECORD, TypedKind.PRESENT) or wire.is_wrapped or wire.coding == ProtoCoding.TIMESTAMP:
            return {}
        return self._zero(column)

    def _zero(self, column: Column) -> bytes:
        """Return the default of a scalar; that of an enum is its first symbol."""
        kind = TypedKind(column.node.kind)
        if kind == TypedKind.ENUM:
            return column.node.symbols[0] if column.node.symbols else b"0"
        return b"" if kind in TEXTS else b"\0" if kind == TypedKind.BOOLEAN else bytes(column.width)

    def _add(self, column: Column, value: Any) -> None:  # Any: what the reader made for the node
        kind, wire = TypedKind(column.node.kind), self._wires[column.index]
        if kind == TypedKind.RECORD:
            for child in column.children:
                self._add_field(child, value)
            column.add()
        elif kind == TypedKind.PRESENT:
            column.add(b"\1")
        else:
            self._add_scalar(column, self._scalar_content(column, wire, value))

    def _add_scalar(self, column: Column, content: bytes | None) -> None:
        if content is None:
            column.add_null()
            return
        if column.node.kind in TEXTS:
            self._use(len(content))
        column.add(content)

    def _scalar_content(self, column: Column, wire: ProtoWire, value: Any) -> bytes | None:
        content: bytes | None
        if wire.coding in MESSAGES or not (wire.is_wrapped or wire.coding == ProtoCoding.TIMESTAMP):
            content = value
        elif wire.is_wrapped:
            content = value[1] if 1 in value else self._zero(column)
        else:
            content = self._timestamp(column.index, value)
        return content

    def _timestamp(self, index: int, parts: Message) -> bytes | None:
        """Return the microseconds since 1970, rounded down; None outside of the years 1 to 9999."""
        seconds, nanos = (int.from_bytes(parts.get(number, b""), "little", signed=True) for number in (1, 2))
        if seconds not in TIMESTAMP_SECONDS or not 0 <= nanos < _SECOND_NANOS:
            self._found(index, TypedOutcome.DOMAIN)
            return None
        micros, rest = divmod(nanos, 1000)
        if rest:
            self._found(index, TypedOutcome.FORM)
        return (seconds * SECOND_MICROS + micros).to_bytes(8, "little", signed=True)

    def _add_map(self, column: Column, keys: list[Any]) -> None:
        """End a map whose entries are there; it is null if a key appears twice, or is not UTF-8."""
        if None not in keys and len(set(keys)) == len(keys):
            column.add()
            return
        self._found(column.index, TypedOutcome.DOMAIN)
        for child in column.children:
            child.cut(column.offsets[-1])
        column.add_null()
