"""Reads the structure of Arrow IPC messages from clients, without pyarrow.

pyarrow's reader runs in the server's process: one bug there, in C++, would end the server. This module therefore reads the metadata of a
message itself, in Python. It checks every offset, count and length against the message before it uses it, and returns columns whose
buffers lie within the message and have the sizes that their types need. `ipc_decode` makes arrays of these columns, and checks their
values.

    message = [0xFFFFFFFF] metadata length (int32), metadata (a FlatBuffer: Message.fbs), body
    Message  → header: Schema (fields: name, type, children) or RecordBatch (length, nodes, buffers)
    table    = int32 distance back to its vtable, then fields;  vtable = uint16 size, uint16 table size, uint16 offset of each field

Source: Apache Arrow, "Serialization and Interprocess Communication (IPC)", "Arrow Columnar Format"; Message.fbs, Schema.fbs;
FlatBuffers, "Internals".
"""

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from bearlake.errors import Invalid

if TYPE_CHECKING:
    from typing_extensions import Buffer

FIELD_COUNT_MAX: Final = 64
"""Most columns of a schema of records, with all nested ones; ours has at most 10."""
ROW_FIELD_COUNT_MAX: Final = 2_500
"""Most columns of a schema of rows, with all nested ones: declared columns are at most 1,000, and an entry of a map is a column here."""
DEPTH_MAX: Final = 8
"""Deepest nesting of columns; ours has 3."""
ROW_DEPTH_MAX: Final = 40
"""The same of rows: declared columns have at most 16 levels, and a map has two here."""

_BYTE, _I16, _U16, _I32, _U32, _I64 = map(struct.Struct, ("<B", "<h", "<H", "<i", "<I", "<q"))
_PAIR = struct.Struct("<qq")
_PREFIX = 0xFFFFFFFF
_COMPRESSION = 3
"""Field of a record batch that says how its body is compressed."""
_HEADERS = {1: "schema", 2: "dictionary", 3: "record batch", 4: "tensor", 5: "sparse tensor"}


class Kind(IntEnum):
    """Types of columns, as numbered in Schema.fbs. Messages with other types (unions, views, runs) are refused."""

    NULL = 1
    INT = 2
    FLOAT = 3
    BINARY = 4
    UTF8 = 5
    BOOL = 6
    DECIMAL = 7
    DATE = 8
    TIME = 9
    TIMESTAMP = 10
    INTERVAL = 11
    LIST = 12
    STRUCT = 13
    FIXED_BINARY = 15
    FIXED_LIST = 16
    MAP = 17
    DURATION = 18
    LARGE_BINARY = 19
    LARGE_UTF8 = 20
    LARGE_LIST = 21


OFFSET_BYTES: Final = {
    Kind.BINARY: 4,
    Kind.UTF8: 4,
    Kind.LIST: 4,
    Kind.MAP: 4,
    Kind.LARGE_BINARY: 8,
    Kind.LARGE_UTF8: 8,
    Kind.LARGE_LIST: 8,
}
"""Types with offsets, and the size of an offset."""
_NESTED = (Kind.LIST, Kind.STRUCT, Kind.FIXED_LIST, Kind.MAP, Kind.LARGE_LIST)
_KINDS = {int(kind): kind for kind in Kind}
_FLOAT_BITS: Final = {0: 16, 1: 32, 2: 64}
_DECIMAL_BITS: Final = 128


class Column(NamedTuple):
    """A column of a schema."""

    name: str
    kind: Kind | None
    """None: a type that this module does not know."""
    size: int
    """Bits of an integer or a float, bytes of a fixed-size binary, digits of a decimal of 128 bits, the unit of a date (0: days, 1: ms) or
    of a timestamp (0: s, 1: ms, 2: us, 3: ns); otherwise 0."""
    is_signed: bool
    is_dictionary: bool
    children: tuple["Column", ...]
    scale: int = 0
    """Digits of a decimal after the point."""
    has_zone: bool = False
    """Whether a timestamp is a moment; otherwise it is a local time."""


class Values(NamedTuple):
    """The values of a column. All views lie within the message; `validity` is None if no value is null."""

    length: int
    validity: memoryview | None
    offsets: memoryview | None
    content: memoryview | None
    children: tuple["Values", ...]


def read_schema(
    message: "Buffer", field_count_max: int = FIELD_COUNT_MAX, depth_max: int = DEPTH_MAX
) -> tuple[Column, ...]:
    """Return the columns of a schema message. Raises `Invalid`, also if they are more than `field_count_max`, or nested deeper."""
    schema = _header(_opened(message)[0], "schema")
    if schema.int16(0):
        raise Invalid("the schema is not little-endian")
    budget = _Budget(field_count_max, depth_max)
    return tuple(_column(table, budget, depth_max) for table in schema.tables(1, budget))


def read_rows(columns: Sequence[Column], message: "Buffer", row_count_max: int) -> tuple[int, dict[str, Values]]:
    """Return the row count and the columns' values of a record batch message.

    The buffers of the values are aligned to 8 bytes if the message is, as a `bytes` object is.

    Raises:
        Invalid: the message is malformed, does not fit the columns, is compressed, or has too many rows for its bytes.
    """
    table, body = _opened(message)
    batch = _header(table, "record batch")
    if batch.position(_COMPRESSION):
        raise Invalid("the body of the Arrow message is compressed")
    count = batch.int64(0)
    # A row has at least a byte somewhere: a column that takes none would multiply the message's size.
    most = min(row_count_max, len(body) + 4096)
    if not 0 < count <= most:
        raise Invalid(f"expected 1 to {most} rows, not {count}")
    layout = _Layout(batch.pairs(1), batch.pairs(2), body)
    found = {column.name: layout.values(column, count) for column in columns}
    layout.end()
    return count, found


def is_compressed(metadata: "Buffer") -> bool:
    """Return whether the body of the record batch message with this metadata (a FlatBuffer) is compressed. Raises `Invalid`."""
    reader = _Reader(memoryview(metadata).cast("B"))
    return bool(_header(_Table(reader, reader.number(_U32, 0)), "record batch").position(_COMPRESSION))


def _opened(message: "Buffer") -> tuple["_Table", memoryview]:
    """Return the Message table and the body."""
    view = memoryview(message).cast("B")
    reader = _Reader(view)
    start = 8 if reader.number(_U32, 0) == _PREFIX else 4
    size = reader.number(_I32, start - 4)
    if not 0 < size <= len(view) - start:
        raise Invalid(f"{len(view)} bytes cannot hold {size} bytes of metadata")
    if (start + size) % 8:
        raise Invalid("its body is not aligned to 8 bytes")
    metadata = _Reader(view[start : start + size])
    table = _Table(metadata, metadata.number(_U32, 0))
    rest = view[start + size :]
    body_length = table.int64(3)
    if not 0 <= body_length <= len(rest):
        raise Invalid(f"{len(rest)} bytes cannot hold a body of {body_length} bytes")
    return table, rest[:body_length]


def _header(message: "_Table", kind: str) -> "_Table":
    found = _HEADERS.get(message.byte(1), "unknown")
    if found != kind:
        raise Invalid(f"it is a message of type {found}")
    header = message.table(2)
    if header is None:
        raise Invalid("it has no header")
    return header


def _column(field: "_Table", budget: "_Budget", depth: int) -> Column:
    if depth == 0:
        raise Invalid(f"columns are nested more than {budget.depth_max} levels deep")
    number = field.byte(2)
    kind = _KINDS.get(number)
    size, scale, is_signed, has_zone = 0, 0, True, False
    type_ = field.table(3)
    if type_ is None:
        raise Invalid("a column has no type")
    if kind is Kind.INT:
        size, is_signed = type_.int32(0), bool(type_.byte(1))
    elif kind is Kind.FIXED_BINARY:
        size = type_.int32(0)
    elif kind is Kind.TIMESTAMP:
        size, has_zone = type_.int16(0), bool(type_.text(1))
    elif kind is Kind.FLOAT:
        size = _FLOAT_BITS.get(type_.int16(0), 0)
    elif kind is Kind.DATE:
        size = type_.int16(0) if type_.position(0) else 1  # the default of Schema.fbs is milliseconds
    elif kind is Kind.DECIMAL and (not type_.position(2) or type_.int32(2) == _DECIMAL_BITS):
        size, scale = type_.int32(0), type_.int32(1)
    children = tuple(_column(child, budget, depth - 1) for child in field.tables(5, budget))
    return Column(field.text(0), kind, size, is_signed, bool(field.position(4)), children, scale, has_zone)


class _Budget:
    """How many columns a schema may still have."""

    def __init__(self, count_max: int, depth_max: int) -> None:
        self.left = self.count_max = count_max
        self.depth_max = depth_max


class _Layout:
    """Takes nodes and buffers in the order of the columns."""

    def __init__(self, nodes: Iterator[tuple[int, int]], buffers: Iterator[tuple[int, int]], body: memoryview) -> None:
        self._nodes = nodes
        self._buffers = buffers
        self._body = body

    def values(self, column: Column, length: int | None) -> Values:
        """Return the values of the next column, which has `length` values; None: as many as its node says."""
        found, null_count = self._next(self._nodes, "columns")
        if found < 0 or not 0 <= null_count <= found or (length is not None and found != length):
            raise Invalid(f"column {column.name}: {found} values with {null_count} nulls do not fit")
        kind = column.kind
        if kind is None:
            raise Invalid(f"column {column.name}: its type is not supported")
        if kind is Kind.NULL:
            return Values(found, None, None, None, ())
        validity: memoryview | None = self._buffer()
        if not null_count:
            validity = None
        elif validity is None or len(validity) < (found + 7) // 8:
            raise Invalid(f"column {column.name}: the bitmap of nulls is too short")
        offsets = content = None
        if kind in OFFSET_BYTES:
            offsets = self._buffer()
            if found and len(offsets) < (found + 1) * OFFSET_BYTES[kind]:
                raise Invalid(f"column {column.name}: the offsets are too short")
        if kind not in _NESTED:
            content = self._buffer()
        is_struct = kind is Kind.STRUCT
        children = tuple(self.values(child, found if is_struct else None) for child in column.children)
        return Values(found, validity, offsets, content, children)

    def end(self) -> None:
        """Raise `Invalid` if nodes or buffers are left."""
        if next(self._nodes, None) or next(self._buffers, None):
            raise Invalid("it has more columns or buffers than its schema")

    def _buffer(self) -> memoryview:
        at, length = self._next(self._buffers, "buffers")
        if at < 0 or length < 0 or at % 8 or at + length > len(self._body):
            raise Invalid(f"a buffer of {length} bytes at {at} lies outside the body, or is not aligned")
        return self._body[at : at + length]

    def _next(self, found: Iterator[tuple[int, int]], what: str) -> tuple[int, int]:
        pair = next(found, None)
        if pair is None:
            raise Invalid(f"it has fewer {what} than its schema")
        return pair


class _Reader:
    """Numbers of a FlatBuffer, checked against its end."""

    def __init__(self, view: memoryview) -> None:
        self.view = view

    def number(self, form: struct.Struct, at: int) -> int:
        """Return the number at a place. Raises `Invalid`."""
        if not 0 <= at <= len(self.view) - form.size:
            raise Invalid("an offset lies outside the metadata")
        return int(form.unpack_from(self.view, at)[0])


class _Table:
    """A table of a FlatBuffer. Fields are addressed by their number in the schema; an absent field is 0."""

    def __init__(self, reader: _Reader, at: int) -> None:
        self._reader = reader
        self._at = at
        self._vtable = at - reader.number(_I32, at)
        self._vtable_size = reader.number(_U16, self._vtable)

    def position(self, field: int) -> int:
        """Return where a field lies; 0: it is absent."""
        entry = 4 + 2 * field
        if entry + 2 > self._vtable_size:
            return 0
        offset = self._reader.number(_U16, self._vtable + entry)
        return self._at + offset if offset else 0

    def _number(self, form: struct.Struct, field: int) -> int:
        at = self.position(field)
        return self._reader.number(form, at) if at else 0

    def int16(self, field: int) -> int:
        """Return a field of type short."""
        return self._number(_I16, field)

    def int32(self, field: int) -> int:
        """Return a field of type int."""
        return self._number(_I32, field)

    def int64(self, field: int) -> int:
        """Return a field of type long."""
        return self._number(_I64, field)

    def byte(self, field: int) -> int:
        """Return a field of type ubyte or bool."""
        return self._number(_BYTE, field)

    def table(self, field: int) -> "_Table | None":
        """Return a field that is a table."""
        at = self.position(field)
        return _Table(self._reader, at + self._reader.number(_U32, at)) if at else None

    def tables(self, field: int, budget: "_Budget") -> Iterator["_Table"]:
        """Yield the tables of a vector; each uses one of the budget. Raises `Invalid` if it is used up."""
        start, count = self._vector(field, 4)
        budget.left -= count
        if budget.left < 0:
            raise Invalid(f"expected at most {budget.count_max} columns, with all nested ones")
        for at in range(start, start + 4 * count, 4):
            yield _Table(self._reader, at + self._reader.number(_U32, at))

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """Return the pairs of longs of a vector of structs."""
        start, count = self._vector(field, _PAIR.size)
        return _PAIR.iter_unpack(self._reader.view[start : start + count * _PAIR.size])

    def text(self, field: int) -> str:
        """Return a field that is text. Raises `Invalid` if it is not UTF-8."""
        start, count = self._vector(field, 1)
        try:
            return bytes(self._reader.view[start : start + count]).decode()
        except UnicodeDecodeError as error:
            raise Invalid("the name of a column is not UTF-8") from error

    def _vector(self, field: int, size: int) -> tuple[int, int]:
        """Return where the items of a vector start, and how many it has."""
        at = self.position(field)
        if not at:
            return 0, 0
        at += self._reader.number(_U32, at)
        count = self._reader.number(_U32, at)
        if count * size > len(self._reader.view) - at - 4:
            raise Invalid("a list lies outside the metadata")
        return at + 4, count
