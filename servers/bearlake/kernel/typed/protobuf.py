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

from enum import IntEnum
from typing import Final, NamedTuple

from bearlake.kernel.typed import (
    FIXED_BYTES_MAX,
    LEVELS_MAX,
    NODES_MAX,
    STRUCTS,
    TypedKind,
    TypedNode,
    TypedSchema,
)
from bearlake.kernel.typed.slots import Column

FIELD_NUMBER_MAX: Final = 2**29 - 1
"""Largest number of a field."""

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
    """Equal for fields of a message of which at most one is set; -1: none."""
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

_MAY_NOT_FIT = frozenset({ProtoCoding.STRING, ProtoCoding.TIMESTAMP})
"""Text that is not UTF-8, and times outside of the years 1 to 9999."""


def wire_type_of(wire: ProtoWire) -> WireType:
    """Return the wire type of a value that is not packed."""
    return WireType.LEN if wire.is_wrapped else WIRE_TYPES[ProtoCoding(wire.coding)]


def message_columns(schema: TypedSchema, wires: "tuple[ProtoWire, ...]") -> Column:
    """Return the empty columns of a message. Raises `ValueError` if the nodes and wires are not those of a message."""
    if not 0 < len(schema) <= NODES_MAX or len(wires) != len(schema):
        raise ValueError(f"{len(schema)} nodes and {len(wires)} wires are no message")
    if schema[0].kind != TypedKind.RECORD:
        raise ValueError("node 0 is not a RECORD")
    return _Tree(schema, wires).column(0, 0, is_nullable=True)


class _Tree:
    """Makes the columns of a message, each node once."""

    def __init__(self, schema: TypedSchema, wires: "tuple[ProtoWire, ...]") -> None:
        self._schema = schema
        self._wires = wires
        self._seen: set[int] = set()

    def column(self, index: int, level: int, *, is_nullable: bool) -> Column:
        if not 0 <= index < len(self._schema) or index in self._seen or level >= LEVELS_MAX:
            raise ValueError("the nodes are not a tree")
        self._seen.add(index)
        node, wire = self._schema[index], self._wires[index]
        self._check(index, node, wire)
        children = [self.column(child, level + 1, is_nullable=self._is_nullable(child)) for child in node.children]
        return Column(index, node, children, is_nullable=is_nullable)

    def _is_nullable(self, index: int) -> bool:
        wire = self._wires[index]
        may_not_fit = wire.coding in _MAY_NOT_FIT or self._schema[index].kind == TypedKind.MAP
        return may_not_fit or wire.label == ProtoLabel.EXPLICIT

    def _check(self, index: int, node: TypedNode, wire: ProtoWire) -> None:
        kind, coding, label = TypedKind(node.kind), ProtoCoding(wire.coding), ProtoLabel(wire.label)
        numbers = [self._wires[child].number for child in node.children if 0 <= child < len(self._wires)]
        is_right = not node.size and node.null_branch == -1 and 0 <= wire.number <= FIELD_NUMBER_MAX
        if kind in (TypedKind.ARRAY, TypedKind.MAP):
            labels = (ProtoLabel.REPEATED, ProtoLabel.PACKED) if kind == TypedKind.ARRAY else (ProtoLabel.REPEATED,)
            is_right &= coding == ProtoCoding.NONE and label in labels
            is_right &= numbers == ([0] if kind == TypedKind.ARRAY else [1, 2])
            if is_right and label == ProtoLabel.PACKED:
                below = self._wires[node.children[0]]
                is_right = below.coding in PACKABLE and not below.is_wrapped
        elif kind in STRUCTS or kind in (TypedKind.PRESENT, TypedKind.OPAQUE):
            is_right &= kind != TypedKind.UNION and (coding in MESSAGES or coding == ProtoCoding.NONE)
            is_right &= bool(node.children) == (kind == TypedKind.RECORD) and not wire.is_wrapped
            is_right &= numbers == sorted(set(numbers)) and (0 not in numbers or numbers == [0])
        else:
            is_right &= KINDS.get(coding) == kind and not node.children
            is_right &= len(node.symbols) == len(wire.numbers) == len(set(wire.numbers))
        if not is_right or node.size > FIXED_BYTES_MAX:
            raise ValueError(f"node {index} of kind {kind.name} is malformed")
