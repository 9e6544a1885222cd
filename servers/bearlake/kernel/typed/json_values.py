"""JSON values to typed columns.

An object becomes a struct: its fields are found by their names, in any order; a field that the object does not have is null, and so is one
that is null. Keys without a column are passed over. A value that does not fit its column ends its row: the first one in the order of the
text is the row's status. Such rows are null as a whole, because SQL cannot tell a part that did not fit from a part that is not there.

No row is EXACT: a text has spaces, an order of keys and spellings of numbers that columns do not have. A row with columns is FORM.

Source: RFC 8259 (I-JSON's rule of unique keys: RFC 7493).
"""

import struct
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from typing_extensions import override

from bearlake.kernel.buffers import Buffer
from bearlake.kernel.typed import (
    JSON_KINDS,
    LEVELS_MAX,
    NODES_MAX,
    TypedKind,
    TypedOutcome,
    TypedSchema,
    TypedSlots,
    TypedSource,
)
from bearlake.kernel.typed import json_cells as cells
from bearlake.kernel.typed import json_declared as declared
from bearlake.kernel.typed.decode import RowDecoder, Stop, decode_values
from bearlake.kernel.typed.json_text import DIGITS, JsonReader, unescaped
from bearlake.kernel.typed.slots import Column, check_node

_OPENINGS: Final = {
    TypedKind.BOOLEAN: b"tf",
    TypedKind.INT: b"-" + DIGITS,
    TypedKind.LONG: b"-" + DIGITS,
    TypedKind.FLOAT: b"-" + DIGITS,
    TypedKind.DOUBLE: b"-" + DIGITS,
    TypedKind.DECIMAL: b'"-' + DIGITS,
    TypedKind.ARRAY: b"[",
    TypedKind.MAP: b"{",
    TypedKind.RECORD: b"{",
}
"""How values of a kind begin; those of others are strings."""
_ANY: Final = b'"{[tf-' + DIGITS


def decode_json(
    schema: TypedSchema,
    validity: Buffer | None,
    offsets: Buffer,
    content: Buffer,
    start: int,
    end: int,
    skip: int,
    bytes_max: int,
    /,
) -> tuple[Buffer, list[TypedSlots]]:
    """Decode the values [start, end) of a binary column into one row each, without the first `skip` bytes of each value.

    The nodes are of `JSON_KINDS`; a RECORD has the names of its fields as symbols. If node 0 has none, values are those of its only field.
    Returns as `decode_avro`; a row with columns is FORM. All columns are nullable. The native kernel releases the GIL for large inputs.

    Raises:
        ValueError: the schema is malformed, or the buffers are too short for the rows.
        TooLarge: the columns would have more than `bytes_max` bytes: decode fewer values at once. One value never raises it.
    """
    if not 0 < len(schema) <= NODES_MAX:
        raise ValueError(f"a schema has 1 to {NODES_MAX} nodes, not {len(schema)}")
    for node in schema:
        check_node(node, len(schema), opaque_children=0, kinds=frozenset(TypedKind))
    if schema[0].kind != TypedKind.RECORD:
        raise ValueError("node 0 is not a RECORD")
    root = _column(schema, 0, set(), 0)
    values = validity, offsets, content, start, end
    return decode_values(root, partial(JsonDecoder, root), _never, values, skip, 0, bytes_max)


T = TypeVar("T")


def _made(index: int, found: T | TypedOutcome) -> T:
    """Return a cell. Raises `Stop`: there is none."""
    if isinstance(found, TypedOutcome):
        raise Stop(index, found)
    return found


def _never(_columns: list[TypedSource]) -> Callable[[int, bytes], bool]:
    """No row is proven."""
    return lambda _row, _value: False


def _column(schema: TypedSchema, index: int, seen: set[int], level: int) -> Column:
    node = schema[index]
    if index in seen or level >= LEVELS_MAX:
        raise ValueError("the nodes are not a tree")
    seen.add(index)
    is_record = node.kind == TypedKind.RECORD
    is_bare = level == 0 and not node.symbols and len(node.children) == 1
    if (
        node.kind not in JSON_KINDS
        or (node.kind == TypedKind.MAP and schema[node.children[0]].kind != TypedKind.STRING)
        or (is_record and len(node.symbols) != len(node.children) and not is_bare)
    ):
        raise ValueError(f"node {index} is none of a JSON value")
    children = [_column(schema, child, seen, level + 1) for child in node.children]
    return Column(index, node, children, is_nullable=True)


class JsonDecoder(JsonReader, RowDecoder):
    """Appends one row per value."""

    @override
    def _append_row(self, value: bytes, skip: int) -> None:
        self._data, self._at = value, skip
        is_bare = not self._root.node.symbols
        self._value(self._root.children[0] if is_bare else self._root, 0)
        if is_bare:
            self._root.add()
        self._space()
        if self._at != len(self._data):
            raise Stop(0, TypedOutcome.SYNTAX)
        self._found(0, TypedOutcome.FORM)

    def _value(self, column: Column, level: int) -> None:
        """Append a value, below `level` objects and arrays."""
        octet, kind = self._peek(column.index), TypedKind(column.node.kind)
        if octet == ord("n"):
            self._word(column.index, b"null")
            column.add_null()
        elif kind == TypedKind.JSON:
            start = self._at
            self._pass(column.index, level)
            self._add_text(column, self._data[start : self._at])
        elif octet not in _OPENINGS.get(kind, b'"'):
            raise Stop(column.index, TypedOutcome.TYPE if octet in _ANY else TypedOutcome.SYNTAX)
        elif kind == TypedKind.BOOLEAN:
            self._word(column.index, b"true" if octet == ord("t") else b"false")
            column.add(bytes([octet == ord("t")]))
        elif kind == TypedKind.RECORD:
            self._object(column, level)
        elif kind == TypedKind.MAP:
            self._map(column, level)
        elif kind == TypedKind.ARRAY:
            self._array(column, level)
        elif kind == TypedKind.STRING:
            self._add_text(column, self._text(column.index))
        elif kind == TypedKind.BYTES:
            self._add_text(column, _made(column.index, declared.octets(self._text(column.index))))
        elif kind == TypedKind.DECIMAL:
            column.add(self._decimal(column, is_text=octet == ord('"')))
        else:
            column.add(self._cell(column.index, kind))

    def _add_text(self, column: Column, text: bytes) -> None:
        self._use(len(text))
        column.add(text)

    def _text(self, index: int) -> bytes:
        text = unescaped(self._string(index))
        if text is None:
            raise Stop(index, TypedOutcome.TEXT)
        return text

    def _cell(self, index: int, kind: TypedKind) -> bytes:
        """Move past a number, or a text that stands for one; return its cell."""
        found: int | float | bytes | TypedOutcome
        if kind in (TypedKind.INT, TypedKind.LONG):
            found, form = cells.integer(self._number(index)), "<q" if kind == TypedKind.LONG else "<i"
        elif kind in (TypedKind.FLOAT, TypedKind.DOUBLE):
            found, form = cells.double(self._number(index)), "<d" if kind == TypedKind.DOUBLE else "<f"
        elif kind == TypedKind.DATE:
            found, form = cells.days(self._text(index)), "<i"
        elif kind == TypedKind.TIMESTAMP:
            found, form = cells.micros(self._text(index)), "<q"
        elif kind == TypedKind.LOCAL_TIMESTAMP:
            found, form = declared.local_micros(self._text(index)), "<q"
        else:
            found, form = cells.uuid(self._text(index)), "16s"
        try:
            return struct.pack(form, _made(index, found))
        except (struct.error, OverflowError):  # an int32 or a float that does not hold the number
            raise Stop(index, TypedOutcome.RANGE) from None

    def _decimal(self, column: Column, *, is_text: bool) -> bytes:
        """Move past a decimal; return its cell."""
        node = column.node
        if is_text:
            return _made(column.index, declared.decimal_text(self._text(column.index), node.precision, node.size))
        return _made(column.index, declared.decimal(self._number(column.index), node.precision, node.size))

    def _is_open(self, index: int, closing: bytes) -> bool:
        """Move past a comma, or past the end of an object or array; return whether a value follows."""
        octet = self._peek(index)
        self._next(index, b"," + closing)
        return octet == ord(",")

    def _enter(self, index: int, closing: bytes) -> bool:
        """Move into an object or array; return whether it has values, else move out of it."""
        self._at += 1
        is_empty = self._peek(index) == ord(closing)
        self._at += is_empty
        return not is_empty

    def _object(self, column: Column, level: int) -> None:
        slot = column.length
        by_name = dict(zip(reversed(column.node.symbols), reversed(column.children), strict=True))
        is_open = self._enter(column.index, b"}")
        while is_open:
            name = unescaped(self._key(column.index))
            child = None if name is None else by_name.get(name)
            if child is None:
                self._pass(column.index, level + 1)
            elif child.length > slot:
                raise Stop(child.index, TypedOutcome.REPEATED)
            else:
                self._value(child, level + 1)
            is_open = self._is_open(column.index, b"}")
        for child in column.children:
            if child.length == slot:
                child.add_null()
        column.add()

    def _map(self, column: Column, level: int) -> None:
        keys, values = column.children
        texts = set()
        count = 0
        is_open = self._enter(column.index, b"}")
        while is_open:
            self._use(keys.slot_bytes + values.slot_bytes)
            text = unescaped(self._key(column.index))
            if text is None:
                raise Stop(keys.index, TypedOutcome.TEXT)
            self._add_text(keys, text)
            texts.add(text)
            count += 1
            self._value(values, level + 1)
            is_open = self._is_open(column.index, b"}")
        if len(texts) < count:
            raise Stop(column.index, TypedOutcome.REPEATED)
        column.add()

    def _array(self, column: Column, level: int) -> None:
        child = column.children[0]
        is_open = self._enter(column.index, b"]")
        while is_open:
            self._use(child.slot_bytes)
            self._value(child, level + 1)
            is_open = self._is_open(column.index, b"]")
        column.add()
