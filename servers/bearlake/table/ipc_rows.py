"""Converts rows of a stream with declared columns, which clients write as Arrow IPC messages, into record batches of JSON values.

A schema message has some of the declared columns, by their names in any order, and these columns of records:

    _key         binary or string, also large or fixed size; without the column null
    _timestamp   timestamp of any unit, or int64 (ms since 1970); null or without the column: the time of arrival
    _headers     list of struct(key, value), both as `_key`

A declared column takes the types that hold its values: whole numbers for int, long and decimal, floats for float and double, text or 16
bytes for uuid. Every value must fit: a row that does not is refused with its batch, as `schema.validation=value` refuses it.

Rows become texts column by column, so that no row is handled in Python. `ipc_message` reads the message; pyarrow gets only arrays whose
buffers lie within the message and are long enough, and checks all their values before it computes with them (decision 127). No pyarrow
errors escape.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from bearlake import kernel
from bearlake.errors import Invalid
from bearlake.records.codec import Producer
from bearlake.table import ipc_message, json_rows
from bearlake.table.declared import declared_columns
from bearlake.table.ipc_arrays import array_of
from bearlake.table.ipc_decode import HEADERS, KEY, TIMESTAMP, UNREADABLE, VALUE, encode_rows
from bearlake.table.ipc_message import Column, Kind
from bearlake.table.typed.validity import ColumnsValidity

if TYPE_CHECKING:
    from typing_extensions import Buffer

RowSchema: TypeAlias = tuple[Column, ...]

_OWN: Final[Mapping[str, str]] = {"_key": KEY, "_timestamp": TIMESTAMP, "_headers": HEADERS}
"""Columns of records, and their names in `ipc_decode`."""
_UNITS: Final = ("s", "ms", "us", "ns")
_INTEGERS: Final[Mapping[tuple[int, bool], pa.DataType]] = {
    (8, True): pa.int8(),
    (16, True): pa.int16(),
    (32, True): pa.int32(),
    (64, True): pa.int64(),
    (8, False): pa.uint8(),
    (16, False): pa.uint16(),
    (32, False): pa.uint32(),
    (64, False): pa.uint64(),
}
_FLOATS: Final = {16: pa.float16(), 32: pa.float32(), 64: pa.float64()}
_PLAIN: Final = {
    Kind.BOOL: pa.bool_(),
    Kind.BINARY: pa.binary(),
    Kind.UTF8: pa.string(),
    Kind.LARGE_BINARY: pa.large_binary(),
    Kind.LARGE_UTF8: pa.large_string(),
}
_DIGITS_MAX: Final = 38


def is_of_rows(message: "Buffer") -> bool:
    """Whether a schema message has columns of rows: one that no schema of records has. Raises `Invalid`."""
    names = {column.name for column in _read(message)}
    return not names <= {KEY, VALUE, TIMESTAMP, HEADERS, "offset"}


def read_row_schema(message: "Buffer") -> RowSchema:
    """Read the schema of an IPC message with rows. Raises `Invalid`."""
    schema = _read(message)
    if len({column.name for column in schema}) < len(schema):
        raise Invalid("two columns have one name")
    for column in _all(schema):
        if column.is_dictionary:
            raise Invalid(f"column {column.name}: expected plain values, not a dictionary")
    return schema


def encode(
    schema: RowSchema, message: "Buffer", producer: Producer, now_ms: int, columns: str, bytes_max: int
) -> bytearray:
    """Encode the rows (at least one) of an IPC record batch message as one uncompressed record batch. May run in any thread.

    `columns`: the text of the stream's declared columns. `bytes_max`: limit of the values.

    Raises:
        Invalid: not a record batch message, it has columns that are not declared, or a value does not fit its column.
        TooLarge: the values would have more than `bytes_max` bytes.
    """
    declared = {column.name: column for column in declared_columns(columns)}
    if unknown := sorted(column.name for column in schema if column.name not in declared and column.name not in _OWN):
        raise Invalid(f"column {unknown[0]!r} is not one of the stream's table: {', '.join([*declared, *_OWN])[:500]}")
    try:
        count, values = ipc_message.read_rows(schema, message, kernel.RECORDS_MAX)
        arrays = {column.name: array_of(column, values[column.name], _type_of) for column in schema}
        for array in arrays.values():
            array.validate(full=True)
        fields = [(found, arrays[name]) for name, found in declared.items() if name in arrays]
        texts = json_rows.texts_of(fields, count, bytes_max)
        _require_fit(columns, texts)
        own = {_OWN[name]: array for name, array in arrays.items() if name in _OWN}
        rows = pa.RecordBatch.from_arrays([texts, *own.values()], names=[VALUE, *own])
    except UNREADABLE as error:
        raise Invalid(f"not an Arrow record batch of its schema: {error}") from error
    return encode_rows(rows, producer, now_ms)


def _require_fit(columns: str, texts: pa.BinaryArray) -> None:
    """Raise `Invalid` unless each text fits the columns: a map may have a key twice, a date a year that JSON's texts do not have."""
    validity = ColumnsValidity(columns)
    values = texts.to_pylist()
    if failures := validity.failures(values, 0):
        raise Invalid(f"row {failures[0]} {validity.reason(values[failures[0]], 0)}")


def _read(message: "Buffer") -> RowSchema:
    try:
        return ipc_message.read_schema(message, ipc_message.ROW_FIELD_COUNT_MAX, ipc_message.ROW_DEPTH_MAX)
    except Invalid as error:
        raise Invalid(f"not an Arrow schema message: {error}") from error


def _all(columns: Sequence[Column]) -> Iterator[Column]:
    for column in columns:
        yield column
        yield from _all(column.children)


def _type_of(column: Column) -> pa.DataType:
    """Return the type of a column that is not nested."""
    found: pa.DataType | None = _PLAIN.get(column.kind) if column.kind is not None else None
    match column.kind:
        case Kind.INT:
            found = _INTEGERS.get((column.size, column.is_signed))
        case Kind.FLOAT:
            found = _FLOATS.get(column.size)
        case Kind.DATE:
            found = pa.date32() if column.size == 0 else pa.date64()
        case Kind.TIMESTAMP if 0 <= column.size < len(_UNITS):
            found = pa.timestamp(_UNITS[column.size], "UTC" if column.has_zone else None)
        case Kind.FIXED_BINARY if 0 <= column.size <= 1 << 24:
            found = pa.binary(column.size)
        case Kind.DECIMAL if 0 < column.size <= _DIGITS_MAX and 0 <= column.scale <= column.size:
            found = pa.decimal128(column.size, column.scale)
    if found is None:
        raise Invalid(f"column {column.name}: its type is not supported")
    return found
