"""Reads Protobuf messages field by field.

A message is read into a dict by node index before its columns grow, because its fields may come in any order, in pieces, and more than
once. Elements of lists and entries of maps are never changed later, so they become slots as soon as they are read. As Protobuf's parsers
do, the last value of a field counts, pieces of messages are joined, lists are taken packed or not, and a field of another wire type is
unknown. All of these forms are found: they are FORM.

Source: Protocol Buffers, "Encoding".
"""

from abc import ABC, abstractmethod
from typing import Any, Final

from bearlake.kernel.typed import TypedKind, TypedOutcome
from bearlake.kernel.typed.protobuf import (
    MESSAGES,
    PACKABLE,
    ProtoCoding,
    ProtoLabel,
    ProtoWire,
    WireType,
    wire_type_of,
)
from bearlake.kernel.typed.protobuf_parts import ProtobufParts, is_text
from bearlake.kernel.typed.slots import Column

Message = dict[int, Any]
"""What was read of a message, by node index: the content of a column's slot, None if it does not fit; a `Message`; pieces of an OPAQUE; the
keys of a map's entries, None where one does not fit. Of a wrapper or timestamp: contents by field number. Any: it depends on the node."""

_UNKNOWN: Final = -1
"""In a `Message`: a field of it has an unknown number of a closed enum."""
_SIGNED: Final = frozenset({ProtoCoding.SFIXED32, ProtoCoding.SFIXED64, ProtoCoding.FLOAT, ProtoCoding.DOUBLE})
_TIMESTAMP_PARTS: Final = {
    1: ProtoWire(ProtoCoding.INT64, 1, ProtoLabel.IMPLICIT),
    2: ProtoWire(ProtoCoding.INT32, 2, ProtoLabel.IMPLICIT),
}


class _UnknownNumber(Exception):
    """A closed enum does not have the number."""


class ProtobufReader(ProtobufParts, ABC):
    """Reads one message after the other. Methods take the index of the node that errors name; they raise `Stop`."""

    @abstractmethod
    def _append_element(self, column: Column, value: Any) -> None:
        """Append an element to its column."""

    @abstractmethod
    def _append_entry(self, column: Column, entry: Message) -> Any:
        """Append an entry of a map to the columns of key and value; return the key, None if it does not fit."""

    def __init__(self, wires: tuple[ProtoWire, ...]) -> None:
        super().__init__()
        self._wires = wires
        self._columns: dict[int, Column] = {}
        """Fields of the messages in `_tables`, by node index."""
        self._tables: dict[int, dict[int, Column]] = {}

    def _message(self, column: Column, message: Message, group: int = 0) -> None:
        """Read the fields of a message up to the end, or up to the end of the group with this number."""
        last = 0
        for number, wire_type in self._tags(column.index, group):
            child = self._table(column).get(number)
            if child is None or not self._is_taken(child, wire_type, message):
                self._found(column.index, TypedOutcome.FORM)
                self._skip(column.index, number, wire_type, 0)
            elif number < last or (number == last and not self._may_repeat(child)):
                self._found(child.index, TypedOutcome.FORM)
            last = number

    def _table(self, column: Column) -> dict[int, Column]:
        """Return the fields of a message by number."""
        found = self._tables.get(column.index)
        if found is None:
            found = {self._wires[child.index].number: child for child in column.children}
            found.pop(0, None)
            self._columns |= {child.index: child for child in column.children}
            self._tables[column.index] = found
        return found

    def _may_repeat(self, column: Column) -> bool:
        return self._wires[column.index].label == ProtoLabel.REPEATED

    def _is_taken(self, column: Column, wire_type: int, message: Message) -> bool:
        """Read a field into its message; False: the field is of another wire type, and was not read."""
        wire = self._wires[column.index]
        kind = TypedKind(column.node.kind)
        if kind == TypedKind.MAP:
            if wire_type != WireType.LEN:
                return False
            self._entry(column, message)
            return True
        if kind == TypedKind.ARRAY:
            return self._is_element_taken(column, wire_type)
        if wire_type != wire_type_of(wire):
            return False
        try:
            value = self._value(column, wire.number, message.get(column.index))
        except _UnknownNumber:
            self._found(column.index, TypedOutcome.FORM)
            message[_UNKNOWN] = True
            return True
        if wire.oneof >= 0:
            self._take_oneof(column, message)
        message[column.index] = value
        return True

    def _take_oneof(self, column: Column, message: Message) -> None:
        """Forget the other fields of a field's oneof, with the elements of their lists."""
        oneof = self._wires[column.index].oneof
        others = [index for index in message if index not in (_UNKNOWN, column.index)]
        for index in [index for index in others if self._wires[index].oneof == oneof]:
            self._found(column.index, TypedOutcome.FORM)
            del message[index]
            other = self._columns[index]
            other.cut(other.length)

    def _is_element_taken(self, column: Column, wire_type: int) -> bool:
        label, element = self._wires[column.index].label, column.children[0]
        below = self._wires[element.index]
        is_packed = wire_type == WireType.LEN and below.coding in PACKABLE and not below.is_wrapped
        if not is_packed and wire_type != wire_type_of(below):
            return False
        if is_packed != (label == ProtoLabel.PACKED):
            self._found(column.index, TypedOutcome.FORM)
        before = self._open(column.index) if is_packed else self._end
        if is_packed and self._at == self._end:
            self._found(column.index, TypedOutcome.FORM)
        while True:
            if is_packed and self._at == self._end:
                break
            try:
                value = self._value(element, self._wires[column.index].number, None)
            except _UnknownNumber:
                self._found(element.index, TypedOutcome.FORM)
            else:
                self._append_element(element, value)
            if not is_packed:
                break
        self._end = before
        return True

    def _entry(self, column: Column, message: Message) -> None:
        """Read an entry of a map. An entry whose value has an unknown number of a closed enum is unknown as a whole."""
        before = self._open(column.index)
        entry: Message = {}
        self._message(column, entry)
        self._end = before
        key, value = (child.index for child in column.children)
        if key not in entry or value not in entry:
            self._found(column.index, TypedOutcome.FORM)
        if _UNKNOWN not in entry:
            message.setdefault(column.index, []).append(self._append_entry(column, entry))

    def _value(self, column: Column, number: int, former: Any) -> Any:
        """Read a value after its tag; `former` is what an earlier piece of the same message held."""
        wire = self._wires[column.index]
        coding = ProtoCoding(wire.coding)
        if coding in MESSAGES:
            return self._submessage(column, number, former, is_group=coding == ProtoCoding.GROUP)
        if wire.is_wrapped or coding == ProtoCoding.TIMESTAMP:
            inner = wire._replace(is_wrapped=False, number=1, label=ProtoLabel.IMPLICIT)
            parts = {1: inner} if wire.is_wrapped else _TIMESTAMP_PARTS
            return self._parts(column, parts, {} if former is None else former)
        return self._scalar(column, wire)

    def _submessage(self, column: Column, number: int, former: Any, *, is_group: bool) -> Any:
        group = number if is_group else 0
        before = self._end if is_group else self._open(column.index)
        if column.node.kind == TypedKind.OPAQUE:
            start, status = self._at, self._status
            if is_group:
                for inner, wire_type in self._tags(column.index, group):
                    self._skip(column.index, inner, wire_type, 0)
                content = self._data[start : self._tag_at]
            else:
                content = self._data[start : self._end]
                self._at = self._end
            self._status = status  # the bytes are kept as they are
            found: Any = (former or b"") + content
        else:
            found = {} if former is None else former
            self._message(column, found, group)
        self._end = before
        return found

    def _parts(self, column: Column, parts: dict[int, ProtoWire], found: Message) -> Message:
        """Read the scalars of a wrapper or timestamp."""
        before = self._open(column.index)
        last = 0
        for number, wire_type in self._tags(column.index, 0):
            part = parts.get(number)
            if part is None or wire_type != wire_type_of(part):
                self._found(column.index, TypedOutcome.FORM)
                self._skip(column.index, number, wire_type, 0)
                continue
            if number <= last:
                self._found(column.index, TypedOutcome.FORM)
            last = number
            found[number] = self._scalar(column, part)
        self._end = before
        return found

    def _scalar(self, column: Column, wire: ProtoWire) -> bytes | None:
        """Read a scalar; return its content in the column, None if it does not fit."""
        index, coding = column.index, ProtoCoding(wire.coding)
        kind = wire_type_of(wire)
        is_zero = False
        content: bytes | None
        if kind == WireType.LEN:
            before = self._open(index)
            text = self._data[self._at : self._end]
            self._at, self._end = self._end, before
            is_zero = not text
            content = text
            if coding == ProtoCoding.STRING and not is_text(text):
                self._found(index, TypedOutcome.DOMAIN)
                content = None
        elif kind in (WireType.I32, WireType.I64):
            octets = self._take(index, 4 if kind == WireType.I32 else 8)
            is_zero = not any(octets)
            content = octets if coding in _SIGNED else octets + bytes(4 if kind == WireType.I32 else 8)
        else:
            bits = self._varint(index)
            is_zero = bits == 0
            content = self._number(column, wire, coding, bits)
        if is_zero and wire.label == ProtoLabel.IMPLICIT:
            self._found(index, TypedOutcome.FORM)
        return content

    def _number(self, column: Column, wire: ProtoWire, coding: ProtoCoding, bits: int) -> bytes:
        """Return the content of a varint; bits that the type does not have are dropped."""
        index, low = column.index, bits & 0xFFFFFFFF
        if coding == ProtoCoding.BOOL:
            if bits > 1:
                self._found(index, TypedOutcome.FORM)
            return b"\1" if bits else b"\0"
        if coding == ProtoCoding.UINT64:
            return bits.to_bytes(16, "little")
        if coding == ProtoCoding.INT64:
            return bits.to_bytes(8, "little")
        if coding == ProtoCoding.SINT64:
            return (bits >> 1 ^ -(bits & 1)).to_bytes(8, "little", signed=True)
        number = low - 2**32 if low >> 31 else low
        is_signed = coding in (ProtoCoding.INT32, ProtoCoding.ENUM)
        if bits != (number % 2**64 if is_signed else low):
            self._found(index, TypedOutcome.FORM)
        if coding == ProtoCoding.UINT32:
            return low.to_bytes(8, "little")
        if coding == ProtoCoding.SINT32:
            return (low >> 1 ^ -(low & 1)).to_bytes(4, "little", signed=True)
        if coding == ProtoCoding.INT32:
            return number.to_bytes(4, "little", signed=True)
        if number in wire.numbers:
            return column.node.symbols[wire.numbers.index(number)]
        if wire.is_closed:
            raise _UnknownNumber
        return str(number).encode()
