"""Converts Arrow IPC messages, which clients write as columns, into record batches.

A schema message and record batch messages have these columns, in any order. Only `value` is required; `offset` is ignored.

    key, value   binary or string, also large or fixed size; without the column all null
    timestamp    timestamp of any unit, or int64 (ms since 1970); null or without the column: the time of arrival
    headers      list of struct(key, value), both as above; the key is never null

Columns become the kernel's buffers, so no record is handled in Python. `ipc_message` reads the message; pyarrow gets only arrays whose
buffers lie within the message and are long enough, and checks all their values before it computes with them. Importing this module needs
pyarrow. No pyarrow errors escape.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from bearlake import kernel
from bearlake.errors import Corrupt, Invalid
from bearlake.records.codec import Producer
from bearlake.table import ipc_message
from bearlake.table.ipc_arrays import array_of
from bearlake.table.ipc_message import Column, Kind, Values

if TYPE_CHECKING:
    from typing_extensions import Buffer

Schema: TypeAlias = tuple[Column, ...]

TIMESTAMP, KEY, VALUE, HEADERS = "timestamp", "key", "value", "headers"
_OFFSET = "offset"
_NAMES: Final = (_OFFSET, TIMESTAMP, KEY, VALUE, HEADERS)
_MICROSECONDS = 1000
_FIXED_BYTES_MAX = 1 << 24
_UNITS = ("s", "ms", "us", "ns")
_TEXT_TYPES: Final = {
    Kind.BINARY: pa.binary(),
    Kind.UTF8: pa.string(),
    Kind.LARGE_BINARY: pa.large_binary(),
    Kind.LARGE_UTF8: pa.large_string(),
}
_TEXT_KINDS = (
    pa.types.is_binary,
    pa.types.is_string,
    pa.types.is_large_binary,
    pa.types.is_large_string,
    pa.types.is_fixed_size_binary,
    pa.types.is_null,
)
"""Excludes view types: many views of one text would expand without limit."""
UNREADABLE = (pa.ArrowException, OSError)


def read_schema(message: "Buffer") -> Schema:
    """Read the schema of an IPC message. Raises `Invalid` if it is not a schema, or not one of records."""
    try:
        schema = ipc_message.read_schema(message)
    except Invalid as error:
        raise Invalid(f"not an Arrow schema message: {error}") from error
    names = [column.name for column in schema]
    if unknown := sorted(set(names) - set(_NAMES)):
        raise Invalid(f"column {unknown[0]!r} is not one of {', '.join(_NAMES)}")
    if len(set(names)) < len(names) or VALUE not in names:
        raise Invalid("expected a column named value, and unique names")
    for column in schema:
        if column.is_dictionary or any(child.is_dictionary for child in _nested(column)):
            raise Invalid(f"column {column.name}: expected plain values, not a dictionary")
    return schema


def encode(schema: Schema, message: "Buffer", producer: Producer, now_ms: int) -> bytearray:
    """Encode the rows (at least one) of an IPC record batch message as one uncompressed record batch. May run in any thread.

    Raises:
        Invalid: not a record batch message, the columns are not those of records, or the body is compressed (its decompressed size has
            no limit).
    """
    try:
        count, values = ipc_message.read_rows(schema, message, kernel.RECORDS_MAX)
    except Invalid as error:
        raise Invalid(f"not an Arrow record batch of its schema: {error}") from error
    try:
        rows = _rows(schema, values, count)
    except UNREADABLE as error:
        raise Invalid(f"not an Arrow record batch of its schema: {error}") from error
    return encode_rows(rows, producer, now_ms)


def encode_rows(rows: pa.RecordBatch, producer: Producer, now_ms: int) -> bytearray:
    """Encode rows, whose columns are those of records, as one uncompressed record batch.

    Raises:
        Invalid: the columns are not those of records.
    """
    try:
        columns = _kernel_columns(rows, producer, now_ms)
    except UNREADABLE as error:
        raise Invalid(f"not an Arrow record batch of its schema: {error}") from error
    try:
        encoded, _ = kernel.encode_columns(columns, 0, columns.row_count)
    except (Corrupt, ValueError) as error:
        raise Invalid(f"inconsistent Arrow record batch: {error}") from error
    return encoded


def _nested(column: Column) -> Iterator[Column]:
    for child in column.children:
        yield child
        yield from _nested(child)


def _rows(schema: Schema, values: Mapping[str, Values], count: int) -> pa.RecordBatch:
    """Return the columns of records as arrays whose content is valid: offsets within their content, and texts of UTF-8."""
    arrays = {column.name: array_of(column, values[column.name], _type) for column in schema if column.name != _OFFSET}
    rows = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
    assert rows.num_rows == count
    rows.validate(full=True)
    return rows


def _type(column: Column) -> pa.DataType:
    """Return the type of a column that is not nested."""
    kind, size = column.kind, column.size
    if kind in _TEXT_TYPES:
        return _TEXT_TYPES[kind]
    if kind is Kind.FIXED_BINARY and 0 <= size <= _FIXED_BYTES_MAX:
        return pa.binary(size)
    if kind is Kind.INT and size == 64 and column.is_signed:
        return pa.int64()
    if kind is Kind.TIMESTAMP and 0 <= size < len(_UNITS):
        return pa.timestamp(_UNITS[size])
    expected = "a timestamp or int64" if column.name == TIMESTAMP else "binary or string"
    name = "unknown" if kind is None else kind.name.lower()
    bits = size if kind is Kind.INT else ""
    raise Invalid(f"column {column.name}: expected {expected}, not {name}{bits}")


def _kernel_columns(rows: pa.RecordBatch, producer: Producer, now_ms: int) -> kernel.Columns:
    count = rows.num_rows
    keys, values = _binary(rows, KEY), _binary(rows, VALUE)
    header_lists, header_keys, header_values = _headers(rows)
    return kernel.Columns(
        row_count=count,
        partition_id=_numbers(0, count, pa.int32()),
        offset=_view(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count), start=-1)),
        timestamp=_timestamps(rows, now_ms),
        key_offsets=keys.offsets,
        key_data=keys.content,
        key_validity=keys.validity,
        header_list_offsets=header_lists,
        header_key_offsets=header_keys.offsets,
        header_key_data=header_keys.content,
        header_value_offsets=header_values.offsets,
        header_value_data=header_values.content,
        header_value_validity=header_values.validity,
        value_offsets=values.offsets,
        value_data=values.content,
        value_validity=values.validity,
        base_offset=_numbers(0, count, pa.int64()),
        attributes=_numbers(0, count, pa.int32()),
        producer_id=_numbers(producer.id, count, pa.int64()),
        producer_epoch=_numbers(producer.epoch, count, pa.int32()),
        base_sequence=_numbers(producer.base_sequence, count, pa.int32()),
    )


class _Texts(NamedTuple):
    offsets: memoryview
    content: memoryview
    validity: memoryview | None


def _binary(rows: pa.RecordBatch, name: str) -> _Texts:
    index = rows.schema.get_field_index(name)
    return _texts(pa.nulls(rows.num_rows) if index < 0 else rows.column(index), name)


def _texts(array: pa.Array, name: str) -> _Texts:
    if not any(is_kind(array.type) for is_kind in _TEXT_KINDS):
        raise Invalid(f"column {name}: expected binary or string, not {array.type}")
    array = _from_its_start(array.cast(pa.binary()))
    validity, offsets, content = array.buffers()
    return _Texts(_bytes(offsets), _bytes(content), None if validity is None else memoryview(validity))


def _headers(rows: pa.RecordBatch) -> tuple[memoryview, _Texts, _Texts]:
    """Return list offsets, keys and values."""
    index = rows.schema.get_field_index(HEADERS)
    if index < 0 or pa.types.is_null(rows.column(index).type):
        none = _texts(pa.nulls(0), HEADERS)
        return _numbers(0, rows.num_rows + 1, pa.int32()), none, none
    lists = rows.column(index)
    kinds = pa.types
    is_list = kinds.is_list(lists.type) or kinds.is_large_list(lists.type)
    if not is_list or not kinds.is_struct(lists.type.value_type):
        raise Invalid(f"column {HEADERS}: expected a list of struct(key, value), not {lists.type}")
    entries = lists.flatten()
    struct_type = lists.type.value_type
    if sorted(struct_type.get_field_index(name) for name in (KEY, VALUE)) != [0, 1] or struct_type.num_fields != 2:
        raise Invalid(f"column {HEADERS}: expected key and value, not {struct_type}")
    keys, values = (entries.field(name) for name in (KEY, VALUE))
    if entries.null_count or keys.null_count:
        raise Invalid(f"column {HEADERS}: a header without a key")
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int32())
    ends = pc.cumulative_sum_checked(lengths)
    offsets = _view(_from_its_start(pa.concat_arrays([pa.array([0], pa.int32()), ends])))
    return offsets, _texts(keys, f"{HEADERS}.key"), _texts(values, f"{HEADERS}.value")


def _timestamps(rows: pa.RecordBatch, now_ms: int) -> memoryview:
    """Return the timestamps in microseconds for the kernel."""
    index = rows.schema.get_field_index(TIMESTAMP)
    if index < 0 or pa.types.is_null(rows.column(index).type):
        return _numbers(now_ms * _MICROSECONDS, rows.num_rows, pa.int64())
    times = rows.column(index)
    if pa.types.is_int64(times.type):
        times = times.cast(pa.timestamp("ms"))
    elif not pa.types.is_timestamp(times.type):
        raise Invalid(f"column {TIMESTAMP}: expected a timestamp or int64, not {times.type}")
    is_finer = times.type.unit == "ns"
    micros = times.cast(pa.timestamp("us", times.type.tz), safe=not is_finer).cast(pa.int64())
    return _view(_from_its_start(pc.fill_null(micros, now_ms * _MICROSECONDS)))


def _numbers(value: int, count: int, kind: pa.DataType) -> memoryview:
    return _view(pa.repeat(pa.scalar(value, kind), count))


def _from_its_start(array: pa.Array) -> pa.Array:
    return pa.concat_arrays([array]) if array.offset else array


def _view(array: pa.Array) -> memoryview:
    return memoryview(array.buffers()[1])


def _bytes(buffer: pa.Buffer | None) -> memoryview:
    return memoryview(b"") if buffer is None else memoryview(buffer)
