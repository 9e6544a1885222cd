"""Values of a schema as typed columns in Arrow's layout: decode values, prove that the columns give the same bytes back, and encode them.

    avro_decode   Avro values to columns: the call, and the proof
    avro_values   one value after the other, appended to the columns
    avro_reader   numbers, texts, blocks, and values below OPAQUE nodes
    avro_encode   columns to Avro values (C: also sources, which checks the columns)
    protobuf      how the nodes of a Protobuf message are written (C: protobuf_wires)
    protobuf_values, protobuf_reader, protobuf_encode   as those of Avro
    protobuf_parts   tags, numbers, lengths, and fields that are passed over
    protobuf_check   whether bytes are messages, without columns
    json_values   JSON values to columns; there is no way back
    json_text, json_cells   tokens of JSON; numbers, dates and times that are written as text
    json_declared   cells of the types that only declared columns have: decimals, bytes, times without an offset
    slots         the growing columns of a decoder (C: also nodes, which reads the schema)

`decode` is the call of all formats (C: also encode). In C, `map_keys` finds keys that a map has twice, and `symbols` those of enums.

A schema is a tuple of `TypedNode`s; `table/typed` makes it from the schema's text. Node 0 is a RECORD. The nodes that are reached from it
are a tree; each has a column, except a NULL that is a branch of a UNION. The columns are in the order of a walk through the tree, parents
first. The only nodes outside of the tree are those below an OPAQUE node, where types may refer to themselves.

A column has one slot per value of its parent. A slot is null where the value is null, where another branch of a union is chosen, and
where the value does not fit the column (`TypedOutcome.DOMAIN`). The bytes of a null slot are zeros.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from bearlake.kernel.buffers import Buffer

LEVELS_MAX = 64
"""Limit of the nesting of a value below an OPAQUE node, and of the tree of nodes."""

NODES_MAX = 65_536
"""Limit of the nodes of a schema."""

OUTCOME_BITS = 8
"""The lower bits of a status: its `TypedOutcome`. The other bits are the node where it was found."""

FIXED_BYTES_MAX = 2**24
"""Limit of the size of a FIXED or DECIMAL_FIXED."""

DECIMAL_DIGITS_MAX = 38
"""Limit of the digits of a decimal: those of an int128."""

BYTES_MAX = 2**31 - 1
"""Largest limit of the bytes of all columns: offsets are int32."""


class TypedKind(IntEnum):
    """How a node is encoded, and what its column holds."""

    NULL = 0
    """no bytes: a bitmap, all slots null"""
    PRESENT = 1
    """a record without columns, no bytes: a bitmap, true"""
    BOOLEAN = 2
    """0 or 1: a bitmap"""
    INT = 3
    """zigzag varint: int32. JSON: a number, as LONG"""
    LONG = 4
    """zigzag varint: int64"""
    FLOAT = 5
    """4 bytes, little-endian: the same. JSON: a number, as DOUBLE"""
    DOUBLE = 6
    """8 bytes, little-endian: the same"""
    BYTES = 7
    """length and bytes: int32 offsets and bytes. JSON: a text in base64"""
    STRING = 8
    """length and UTF-8: int32 offsets and bytes"""
    FIXED = 9
    """`size` bytes: the same"""
    ENUM = 10
    """the index of one of `symbols`: int32 offsets and the symbol's bytes"""
    ARRAY = 11
    """blocks of values of the only child: int32 offsets of the child's slots"""
    MAP = 12
    """blocks of pairs of the two children, the first a STRING: int32 offsets of the children's slots. DOMAIN: a key that appears twice"""
    RECORD = 13
    """the children in order: only validity"""
    UNION = 14
    """the index of a child and its value: only validity; the slots of all other children are null. NULL chosen: the slot is null"""
    DECIMAL = 15
    """length and big-endian two's complement: int128. DOMAIN: more than `precision` digits. JSON: a number, or a text with
    one, of at most `size` digits after the point"""
    DECIMAL_FIXED = 16
    """`size` bytes, big-endian two's complement: int128. DOMAIN: more than `precision` digits"""
    UUID = 17
    """length and text with hyphens: 16 bytes. DOMAIN: not a UUID. FORM: not in lower case"""
    TIME_MILLIS = 18
    """int: int64 in microseconds. DOMAIN: negative, or a day or more"""
    TIME_MICROS = 19
    """long: int64 in microseconds. DOMAIN: negative, or a day or more"""
    TIMESTAMP_MILLIS = 20
    """long: int64 in microseconds. DOMAIN: more than an int64 of microseconds"""
    UINT32 = 21
    """4 bytes, little-endian, unsigned: int64"""
    OPAQUE = 22
    """a value of the node `children[0]`, which is outside of the tree: int32 offsets and the bytes of the value"""
    DATE = 23
    """JSON: a text like 2026-11-28: int32, days since 1970. The kinds from here on are of JSON only"""
    TIMESTAMP = 24
    """JSON: a text like 2026-11-28T09:30:00.5+01:00 (RFC 3339): int64 in microseconds"""
    JSON = 25
    """JSON: a value of any type: int32 offsets and its text, as it is written"""
    LOCAL_TIMESTAMP = 26
    """JSON: a text like 2026-11-28T09:30:00.5, without an offset: int64 in microseconds"""


class TypedOutcome(IntEnum):
    """What became of a value. From TRUNCATED on, its row is null."""

    EXACT = 0
    """Encoding the row gives the same bytes."""
    NULL = 1
    """The value is null, and so is its row."""
    FORM = 2
    """The row has the value, but encoding it gives other bytes: the value was not written in the usual form, or bytes follow it."""
    DOMAIN = 3
    """The value does not fit a column, which is null there: the row cannot be encoded."""
    TRUNCATED = 16
    """The bytes end inside the value."""
    VARINT = 17
    """A number has more than 64 bits (Protobuf: more than ten bytes)."""
    COUNT = 18
    """A length or a count is negative, or larger than the bytes left. Elements without bytes count as a byte each."""
    TEXT = 19
    """A string is not UTF-8, or has half of a surrogate pair (JSON)."""
    BRANCH = 20
    """A union has no such branch."""
    SYMBOL = 21
    """An enum has no such symbol."""
    BOOLEAN = 22
    """A boolean is neither 0 nor 1."""
    RANGE = 23
    """An int has more than 32 bits. JSON: a number that its column does not hold, a time outside of the years 1 to 9999."""
    DEPTH = 24
    """A value below an OPAQUE node is nested deeper than `LEVELS_MAX`; JSON: deeper than `json_text.LEVELS_MAX`."""
    SIZE = 25
    """The columns of this value alone exceed the limit of bytes."""
    TAG = 26
    """A tag names field 0 or an unknown wire type, or ends a group that it is not in (Protobuf)."""
    SYNTAX = 27
    """Not JSON."""
    TYPE = 28
    """A value is of another type than its column; a number with a fraction in a column of integers (JSON)."""
    FORMAT = 29
    """A text is no date, time or UUID, no number for a decimal, or not base64 (JSON)."""
    REPEATED = 30
    """An object has a key twice (JSON)."""


class TypedNode(NamedTuple):
    """One type of a schema."""

    kind: int
    """A `TypedKind`."""
    null_branch: int = -1
    """The index of null in a union of null and this type; -1: no such union. 0 for a NULL: a union of null alone."""
    size: int = 0
    """Bytes of a FIXED or DECIMAL_FIXED; digits after the point of a DECIMAL of JSON."""
    precision: int = 0
    """Digits of a decimal, 1 to 38."""
    children: tuple[int, ...] = ()
    """Indices of nodes; those of the tree are larger than the node's own."""
    symbols: tuple[bytes, ...] = ()
    """Symbols of an ENUM, in order; of a RECORD of JSON the names of the fields, none for node 0 if values are its only field."""


class TypedSlots(NamedTuple):
    """One column that was decoded: `length` slots in Arrow's layout, little-endian."""

    length: int
    null_count: int
    validity: Buffer | None
    """Bit i: slot i is not null; None: no slot is null."""
    offsets: Buffer | None
    """int32[length + 1]; None: the kind has no offsets."""
    content: Buffer | None
    """None: the kind has none."""


class TypedSource(NamedTuple):
    """One column to encode: slots [start, start + length) of buffers in Arrow's layout.

    With `indices`, a column of texts in Arrow's dictionary layout: `offsets` and `content` are those of the dictionary.
    """

    start: int
    length: int
    validity: Buffer | None
    offsets: Buffer | None
    content: Buffer | None
    indices: Buffer | None = None
    """int32 of each slot: which text of the dictionary it has; None: slot i has text i."""
    entry_count: int = 0
    """Texts of the dictionary."""


TypedSchema: TypeAlias = Sequence[TypedNode]

BITMAPS = frozenset({TypedKind.NULL, TypedKind.PRESENT, TypedKind.BOOLEAN})
"""Kinds whose content is a bitmap."""

TEXTS = frozenset({TypedKind.BYTES, TypedKind.STRING, TypedKind.ENUM, TypedKind.OPAQUE, TypedKind.JSON})
"""Kinds with offsets into bytes."""

LISTS = frozenset({TypedKind.ARRAY, TypedKind.MAP})
"""Kinds with offsets into their children's slots."""

STRUCTS = frozenset({TypedKind.RECORD, TypedKind.UNION})
"""Kinds without offsets and content, whose children have as many slots."""

WIDTHS = {
    TypedKind.INT: 4,
    TypedKind.LONG: 8,
    TypedKind.FLOAT: 4,
    TypedKind.DOUBLE: 8,
    TypedKind.DECIMAL: 16,
    TypedKind.DECIMAL_FIXED: 16,
    TypedKind.UUID: 16,
    TypedKind.TIME_MILLIS: 8,
    TypedKind.TIME_MICROS: 8,
    TypedKind.TIMESTAMP_MILLIS: 8,
    TypedKind.UINT32: 8,
    TypedKind.DATE: 4,
    TypedKind.TIMESTAMP: 8,
    TypedKind.LOCAL_TIMESTAMP: 8,
}
"""Bytes of a slot of the kinds with a fixed width; a FIXED has its `size`."""

BINARY_KINDS = frozenset(TypedKind) - {
    TypedKind.DATE,
    TypedKind.TIMESTAMP,
    TypedKind.JSON,
    TypedKind.LOCAL_TIMESTAMP,
}
"""Kinds of Avro and Protobuf."""

JSON_KINDS = frozenset(
    {
        TypedKind.BOOLEAN,
        TypedKind.INT,
        TypedKind.LONG,
        TypedKind.FLOAT,
        TypedKind.DOUBLE,
        TypedKind.BYTES,
        TypedKind.STRING,
        TypedKind.DECIMAL,
        TypedKind.UUID,
        TypedKind.ARRAY,
        TypedKind.MAP,
        TypedKind.RECORD,
        TypedKind.DATE,
        TypedKind.TIMESTAMP,
        TypedKind.JSON,
        TypedKind.LOCAL_TIMESTAMP,
    }
)
"""Kinds of JSON."""

CHECKED_KINDS = frozenset(
    {
        TypedKind.MAP,
        TypedKind.DECIMAL,
        TypedKind.DECIMAL_FIXED,
        TypedKind.UUID,
        TypedKind.TIME_MILLIS,
        TypedKind.TIME_MICROS,
        TypedKind.TIMESTAMP_MILLIS,
    }
)
"""Kinds whose values may not fit their column."""
