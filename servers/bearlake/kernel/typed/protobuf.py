"""What a Protobuf message's columns need beyond their layout: how each node is written.

The nodes of a message are those of `kernel.typed`: each says what its column holds. A `ProtoWire` per node says how the bytes hold it. The
nodes are a tree, without types outside of it:

    RECORD    a message or group; its children are its fields, by ascending number
    PRESENT   a message without fields; alone below node 0, with the number 0: node 0 has no fields
    ARRAY     a repeated field; its child is an element, whose wire says the coding
    MAP       a map field; its children are the key (number 1) and the value (number 2)
    OPAQUE    a message or group whose content stays as it is; it has no children
    others    a scalar, a wrapper message or a timestamp

Source: Protocol Buffers, "Encoding", "Field Presence".
"""

from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from bearlake.kernel.typed import LEVELS_MAX, NODES_MAX, TypedKind, TypedSchema
from bearlake.kernel.typed.slots import Column, check_node

FIELD_NUMBER_MAX: Final = 2**29 - 1
"""Largest number of a field."""

INT32: Final = range(-(2**31), 2**31)
"""Numbers of enums."""

SKIPPED_LEVELS_MAX: Final = 100
"""Limit of the nesting of unknown groups; parsers of Protobuf have the same default."""


class ProtoCoding(IntEnum):
    """How a value is written. The names are those of Protobuf's types, in lower case."""

    NONE = 0
    """not by itself: node 0, and lists"""
    BOOL = 1
    INT32 = 2
    INT64 = 3
    UINT32 = 4
    UINT64 = 5
    SINT32 = 6
    SINT64 = 7
    FIXED32 = 8
    FIXED64 = 9
    SFIXED32 = 10
    SFIXED64 = 11
    FLOAT = 12
    DOUBLE = 13
    STRING = 14
    BYTES = 15
    ENUM = 16
    MESSAGE = 17
    GROUP = 18
    TIMESTAMP = 19
    """a message of seconds (1, int64) and nanos (2, int32)"""


class ProtoLabel(IntEnum):
    """When a field is written."""

    IMPLICIT = 0
    """unless it has its default: no bit set, or no bytes"""
    EXPLICIT = 1
    """unless it is null"""
    REPEATED = 2
    """once per element"""
    PACKED = 3
    """once, with all elements, unless there are none"""
    ALWAYS = 4
    """an element of a list, a key or a value of a map"""


class WireType(IntEnum):
    """The lower three bits of a tag."""

    VARINT = 0
    I64 = 1
    LEN = 2
    START = 3
    END = 4
    I32 = 5


class ProtoWire(NamedTuple):
    """How one node is written."""

    coding: int = ProtoCoding.NONE
    """A `ProtoCoding`."""
    number: int = 0
    """The field's number; 0 for elements and for node 0."""
    label: int = ProtoLabel.ALWAYS
    """A `ProtoLabel`."""
    oneof: int = -1
    """Equal for fields of a message of which at most one is set, and smaller than the number of its fields; -1: none."""
    is_wrapped: bool = False
    """Whether the value is the field 1, with implicit presence, of a message."""
    numbers: tuple[int, ...] = ()
    """The numbers of an ENUM's symbols, each once."""
    is_closed: bool = False
    """Whether an ENUM has no other numbers."""


KINDS: Final = {
    ProtoCoding.BOOL: TypedKind.BOOLEAN,
    ProtoCoding.INT32: TypedKind.INT,
    ProtoCoding.INT64: TypedKind.LONG,
    ProtoCoding.UINT32: TypedKind.LONG,
    ProtoCoding.UINT64: TypedKind.DECIMAL,
    ProtoCoding.SINT32: TypedKind.INT,
    ProtoCoding.SINT64: TypedKind.LONG,
    ProtoCoding.FIXED32: TypedKind.LONG,
    ProtoCoding.FIXED64: TypedKind.DECIMAL,
    ProtoCoding.SFIXED32: TypedKind.INT,
    ProtoCoding.SFIXED64: TypedKind.LONG,
    ProtoCoding.FLOAT: TypedKind.FLOAT,
    ProtoCoding.DOUBLE: TypedKind.DOUBLE,
    ProtoCoding.STRING: TypedKind.STRING,
    ProtoCoding.BYTES: TypedKind.BYTES,
    ProtoCoding.ENUM: TypedKind.ENUM,
    ProtoCoding.TIMESTAMP: TypedKind.LONG,
}
"""The kind of a scalar's column. Unsigned numbers have the next larger one; those of 64 bits are decimals of 20 digits."""

WIRE_TYPES: Final = (
    dict.fromkeys(KINDS, WireType.VARINT)
    | dict.fromkeys((ProtoCoding.FIXED64, ProtoCoding.SFIXED64, ProtoCoding.DOUBLE), WireType.I64)
    | dict.fromkeys((ProtoCoding.FIXED32, ProtoCoding.SFIXED32, ProtoCoding.FLOAT), WireType.I32)
    | dict.fromkeys((ProtoCoding.STRING, ProtoCoding.BYTES, ProtoCoding.MESSAGE, ProtoCoding.TIMESTAMP), WireType.LEN)
    | {ProtoCoding.GROUP: WireType.START}
)
"""The wire type of a value that is neither packed nor wrapped."""

MESSAGES: Final = frozenset({ProtoCoding.MESSAGE, ProtoCoding.GROUP})
"""Codings of RECORD, PRESENT and OPAQUE nodes."""

PACKABLE: Final = frozenset(
    coding for coding, wire_type in WIRE_TYPES.items() if wire_type in (WireType.VARINT, WireType.I32, WireType.I64)
)

KEYS: Final = frozenset(KINDS) - {
    ProtoCoding.FLOAT,
    ProtoCoding.DOUBLE,
    ProtoCoding.BYTES,
    ProtoCoding.ENUM,
    ProtoCoding.TIMESTAMP,
}
"""Codings of a map's keys."""

CHECKED_MAX: Final = 64
"""Schemas that are known to be those of messages."""

_CODINGS = frozenset(ProtoCoding)
_LABELS = frozenset(ProtoLabel)
_MAY_NOT_FIT = frozenset({ProtoCoding.STRING, ProtoCoding.TIMESTAMP})
"""Text that is not UTF-8, and times outside of the years 1 to 9999."""
_LISTS = (TypedKind.ARRAY, TypedKind.MAP)
_WHOLE = frozenset({ProtoCoding.MESSAGE, ProtoCoding.GROUP, ProtoCoding.TIMESTAMP})
"""Codings of values that always have presence."""


def wire_type_of(wire: ProtoWire) -> WireType:
    """Return the wire type of a value that is not packed."""
    return WireType.LEN if wire.is_wrapped else WIRE_TYPES[ProtoCoding(wire.coding)]


def message_columns(schema: TypedSchema, wires: Sequence[ProtoWire]) -> Column:
    """Return the empty columns of a message. Raises `ValueError` if the nodes and wires are not those of a message."""
    _check(schema, tuple(wires))
    return _column(schema, wires, 0, 0, set(), is_nullable=True)


@lru_cache(maxsize=CHECKED_MAX)
def _check(schema: TypedSchema, wires: tuple[ProtoWire, ...]) -> None:
    """Raise `ValueError` unless the nodes and wires are those of a message. Calls come with the same few schemas, over and over."""
    if not 0 < len(schema) <= NODES_MAX:
        raise ValueError(f"a schema has 1 to {NODES_MAX} nodes, not {len(schema)}")
    for node in schema:
        check_node(node, len(schema), opaque_children=0)
    if schema[0].kind != TypedKind.RECORD:
        raise ValueError("node 0 is not a RECORD")
    if len(wires) != len(schema):
        raise ValueError(f"there is not one wire for each of {len(schema)} nodes")
    checks = _Checks(schema, wires)
    for index in range(len(schema)):
        checks.check_values(index)
    for index in range(len(schema)):
        checks.check(index)
    seen: set[int] = set()
    _column(schema, wires, 0, 0, seen, is_nullable=True)
    if len(seen) != len(schema):
        raise ValueError("the nodes are not a tree")


def _column(
    schema: TypedSchema, wires: Sequence[ProtoWire], index: int, level: int, seen: set[int], *, is_nullable: bool
) -> Column:
    if index in seen or level >= LEVELS_MAX:
        raise ValueError("the nodes are not a tree")
    seen.add(index)
    children = []
    for child in schema[index].children:
        wire = wires[child]
        may_not_fit = wire.coding in _MAY_NOT_FIT or schema[child].kind == TypedKind.MAP
        may_be_null = may_not_fit or wire.label == ProtoLabel.EXPLICIT
        children.append(_column(schema, wires, child, level + 1, seen, is_nullable=may_be_null))
    return Column(index, schema[index], children, is_nullable=is_nullable)


class _Checks:
    """Whether kinds, wires and children fit. Methods raise `ValueError`."""

    def __init__(self, schema: TypedSchema, wires: Sequence[ProtoWire]) -> None:
        self._schema = schema
        self._wires = wires

    def check_values(self, index: int) -> None:
        """Check the values of a wire by themselves."""
        node, wire = self._schema[index], self._wires[index]
        if (
            wire.coding not in _CODINGS
            or wire.label not in _LABELS
            or not 0 <= wire.number <= FIELD_NUMBER_MAX
            or not -1 <= wire.oneof < NODES_MAX
            or len(wire.numbers) != len(node.symbols)
            or (wire.numbers and node.kind != TypedKind.ENUM)
            or any(number not in INT32 for number in wire.numbers)
        ):
            raise ValueError(f"the wire of node {index} is malformed")

    def check(self, index: int) -> None:
        """Check a node, its wire and its children together."""
        if self._schema[index].null_branch >= 0 or not self._is_right(index):
            raise ValueError(f"the wire of node {index} is malformed")

    def _is_right(self, index: int) -> bool:
        node, wire = self._schema[index], self._wires[index]
        kind, coding = TypedKind(node.kind), ProtoCoding(wire.coding)
        is_message = coding in MESSAGES and not wire.is_wrapped
        if kind == TypedKind.ARRAY:
            below = self._wires[node.children[0]]
            is_packable = below.coding in PACKABLE and not below.is_wrapped
            is_labelled = wire.label == ProtoLabel.REPEATED or (wire.label == ProtoLabel.PACKED and is_packable)
            return coding == ProtoCoding.NONE and self._is_element(node.children[0], 0) and is_labelled
        if kind == TypedKind.MAP:
            key, value = node.children
            is_key = self._wires[key].coding in KEYS and not self._wires[key].is_wrapped
            is_list = coding == ProtoCoding.NONE and wire.label == ProtoLabel.REPEATED
            return is_list and is_key and self._is_element(key, 1) and self._is_element(value, 2)
        if kind == TypedKind.RECORD:
            is_root = index == 0 and coding == ProtoCoding.NONE and not wire.is_wrapped
            return (is_message or is_root) and self._has_fields(index)
        if kind == TypedKind.PRESENT:
            return is_message or (coding == ProtoCoding.NONE and not wire.is_wrapped)
        if kind == TypedKind.OPAQUE:
            return is_message
        is_plain = coding in (ProtoCoding.ENUM, ProtoCoding.TIMESTAMP)
        return KINDS.get(coding) == kind and not (wire.is_wrapped and is_plain)

    def _is_element(self, index: int, number: int) -> bool:
        """Whether a node is an element, a key or a value: always written, and no list."""
        wire = self._wires[index]
        is_single = wire.coding != ProtoCoding.NONE and wire.oneof < 0
        return is_single and wire.number == number and wire.label == ProtoLabel.ALWAYS

    def _has_fields(self, index: int) -> bool:
        children = self._schema[index].children
        only = self._wires[children[0]]
        is_present = len(children) == 1 and self._schema[children[0]].kind == TypedKind.PRESENT
        if index == 0 and is_present and only.number == 0:
            return only._replace(is_wrapped=False, is_closed=False) == ProtoWire()
        numbers = [0, *(self._wires[child].number for child in children)]
        is_ascending = all(before < after for before, after in pairwise(numbers))
        return is_ascending and all(self._is_field(child, len(children)) for child in children)

    def _is_field(self, index: int, field_count: int) -> bool:
        wire = self._wires[index]
        if self._schema[index].kind in _LISTS:
            return wire.oneof < 0
        has_presence = wire.is_wrapped or wire.coding in _WHOLE
        is_labelled = wire.label == ProtoLabel.EXPLICIT or (wire.label == ProtoLabel.IMPLICIT and not has_presence)
        return wire.oneof < field_count and wire.coding != ProtoCoding.NONE and is_labelled
