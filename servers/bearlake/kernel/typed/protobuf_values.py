"""Protobuf messages to typed columns.

The reader takes memory only for what the bytes prove: a length never exceeds the bytes left, and each element of a list or map takes a byte
at least. Columns with many fields multiply nulls and defaults, so that `bytes_max` bounds the columns of a call.

Source: Protocol Buffers, "Encoding", "Field Presence".
"""

from array import array
from typing import Any

from typing_extensions import override

from bearlake.errors import TooLarge
from bearlake.kernel.buffers import Buffer
from bearlake.kernel.typed import BYTES_MAX, TEXTS, TypedKind, TypedOutcome, TypedSchema, TypedSlots, TypedSource
from bearlake.kernel.typed.avro_decode import values_of
from bearlake.kernel.typed.avro_encode import Impossible, Source
from bearlake.kernel.typed.protobuf import MESSAGES, ProtoCoding, ProtoLabel, ProtoWire, message_columns
from bearlake.kernel.typed.protobuf_encode import SECOND_MICROS, TIMESTAMP_SECONDS, encode_message, message_sources
from bearlake.kernel.typed.protobuf_reader import Message, ProtobufReader, Stop
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
    if not 0 <= start <= end:
        raise ValueError(f"[{start}, {end}) are no rows")
    if not 0 <= bytes_max <= BYTES_MAX:
        raise ValueError(f"{bytes_max} bytes are no limit of columns")
    if skip < 0:
        raise ValueError(f"{skip} bytes cannot be skipped")
    values = values_of(validity, offsets, content, start, end)
    decoder = _Decoder(wires, root, len(values), bytes_max)
    statuses = [decoder.append(value, skip) for value in values]
    taken = list(root.take())
    if is_verified:
        columns = [TypedSource(0, slots.length, slots.validity, slots.offsets, slots.content) for slots in taken]
        source = message_sources(schema, wires, columns)
        for row, value in enumerate(values):
            is_exact = statuses[row] == TypedOutcome.EXACT and value is not None
            if is_exact and value is not None and not _is_same(wires, source, row, value[skip:]):
                statuses[row] = TypedOutcome.FORM
    return array("i", statuses).tobytes(), taken


def _is_same(wires: tuple[ProtoWire, ...], source: Source, row: int, value: bytes) -> bool:
    """Whether encoding the row gives the value's bytes."""
    try:
        return encode_message(wires, source, row) == value
    except Impossible:
        return False


class _Full(Exception):
    """The columns would exceed their limit."""


class _Decoder(ProtobufReader):
    """Appends one row per message."""

    def __init__(self, wires: tuple[ProtoWire, ...], root: Column, row_count: int, bytes_max: int) -> None:
        super().__init__(wires)
        self._root = root
        self._row_count = row_count
        self._bytes_max = bytes_max
        self._used = row_count * root.slot_bytes
        if self._used > bytes_max and row_count > 1:
            raise TooLarge("a set of typed columns", self._used, bytes_max)

    def append(self, value: bytes | None, skip: int) -> int:
        """Append the row of a value; return its status."""
        if value is None:
            self._root.add_null()
            return TypedOutcome.NULL
        row, used = self._root.length, self._used
        try:
            self._data, self._at, self._end, self._status = value, skip, len(value), TypedOutcome.EXACT
            if skip > len(value):
                raise Stop(0, TypedOutcome.TRUNCATED)
            self._use(0)
            message: Message = {}
            self._message(self._root, message)
            self._add(self._root, message)
        except Stop as stop:
            self._status = stop.status
        except _Full:
            if self._row_count > 1:
                raise TooLarge("a set of typed columns", self._used, self._bytes_max) from None
            self._status = TypedOutcome.SIZE
        else:
            return self._status
        self._used = used
        self._root.cut(row)
        self._root.add_null()
        return self._status

    def _use(self, size: int) -> None:
        self._used += size
        if self._used > self._bytes_max:
            raise _Full

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
