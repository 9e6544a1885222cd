"""Converts Arrow IPC messages, which clients write as columns, into record batches.

A schema message and record batch messages have these columns, in any order. Only `value` is required; `offset` is ignored.

    key, value   binary or string, also large or fixed size; without the column all null
    timestamp    timestamp of any unit, or int64 (ms since 1970); null or without the column: the time of arrival
    headers      list of struct(key, value), both as above; the key is never null

Columns become the kernel's buffers, so no record is handled in Python. Importing this module needs pyarrow. No pyarrow errors escape.
Source: Apache Arrow, "Serialization and Interprocess Communication (IPC)"; Message.fbs; FlatBuffers, "Internals".
"""

import struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from bearlake import kernel
from bearlake.errors import Corrupt, Invalid
from bearlake.records.codec import Producer

if TYPE_CHECKING:
    from typing_extensions import Buffer

Schema: TypeAlias = pa.Schema

_TIMESTAMP, _KEY, _VALUE, _HEADERS = "timestamp", "key", "value", "headers"
_NAMES: Final = ("offset", _TIMESTAMP, _KEY, _VALUE, _HEADERS)
_MICROSECONDS = 1000
_ROWS_MAX = 1 << 21
"""Row limit of a message. Null columns take no bytes, so the message size is no limit; 16 MiB of minimal records have at most this."""
_TEXT_KINDS = (
    pa.types.is_binary,
    pa.types.is_string,
    pa.types.is_large_binary,
    pa.types.is_large_string,
    pa.types.is_fixed_size_binary,
    pa.types.is_null,
)
"""Excludes view types: many views of one text would expand without limit."""
_UNREADABLE = (pa.ArrowException, OSError, EOFError, struct.error)


def read_schema(message: "Buffer") -> Schema:
    """Read the schema of an IPC message. Raises `Invalid` if it is not a schema, or not one of records."""
    try:
        opened = pa.ipc.read_message(message)
        if opened.type != "schema":  # pyarrow would read the memory of another message as a schema
            raise Invalid(f"not an Arrow schema message: it is a message of type {opened.type}")
        schema = pa.ipc.read_schema(opened)
        names = schema.names
    except UnicodeDecodeError as error:
        raise Invalid("not an Arrow schema message: the name of a column is not UTF-8") from error
    except _UNREADABLE as error:
        raise Invalid(f"not an Arrow schema message: {error}") from error
    if unknown := sorted(set(names) - set(_NAMES)):
        raise Invalid(f"column {unknown[0]!r} is not one of {', '.join(_NAMES)}")
    if len(set(names)) < len(names) or _VALUE not in names:
        raise Invalid("expected a column named value, and unique names")
    for field in schema:
        if pa.types.is_dictionary(field.type):
            raise Invalid(f"column {field.name}: expected plain values, not a dictionary")
    return schema


def encode(schema: Schema, message: "Buffer", producer: Producer, now_ms: int) -> bytearray:
    """Encode the rows (at least one) of an IPC record batch message as one uncompressed record batch.

    Raises:
        Invalid: not a record batch message, the columns are not those of records, or the body is compressed (its decompressed size has
            no limit).
    """
    try:
        opened = pa.ipc.read_message(message)
        if opened.type != "record batch":
            raise Invalid(f"not an Arrow record batch: it is a message of type {opened.type}")
        if _is_compressed(memoryview(opened.metadata)):
            raise Invalid("the body of the Arrow message is compressed")
        rows = pa.ipc.read_record_batch(opened, schema)
        rows.validate(full=True)
        columns = _kernel_columns(rows, producer, now_ms)
    except _UNREADABLE as error:
        raise Invalid(f"not an Arrow record batch of its schema: {error}") from error
    try:
        encoded, _ = kernel.encode_columns(columns, 0, columns.row_count)
    except (Corrupt, ValueError) as error:
        raise Invalid(f"inconsistent Arrow record batch: {error}") from error
    return encoded


def _kernel_columns(rows: pa.RecordBatch, producer: Producer, now_ms: int) -> kernel.Columns:
    count = rows.num_rows
    if not 0 < count <= _ROWS_MAX:
        raise Invalid(f"expected 1 to {_ROWS_MAX} rows, not {count}")
    keys, values = _binary(rows, _KEY), _binary(rows, _VALUE)
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
    index = rows.schema.get_field_index(_HEADERS)
    if index < 0 or pa.types.is_null(rows.column(index).type):
        none = _texts(pa.nulls(0), _HEADERS)
        return _numbers(0, rows.num_rows + 1, pa.int32()), none, none
    lists = rows.column(index)
    kinds = pa.types
    is_list = kinds.is_list(lists.type) or kinds.is_large_list(lists.type)
    if not is_list or not kinds.is_struct(lists.type.value_type):
        raise Invalid(f"column {_HEADERS}: expected a list of struct(key, value), not {lists.type}")
    entries = lists.flatten()
    struct_type = lists.type.value_type
    if sorted(struct_type.get_field_index(name) for name in (_KEY, _VALUE)) != [0, 1] or struct_type.num_fields != 2:
        raise Invalid(f"column {_HEADERS}: expected key and value, not {struct_type}")
    keys, values = (entries.field(name) for name in (_KEY, _VALUE))
    if entries.null_count or keys.null_count:
        raise Invalid(f"column {_HEADERS}: a header without a key")
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int32())
    ends = pc.cumulative_sum_checked(lengths)
    offsets = _view(_from_its_start(pa.concat_arrays([pa.array([0], pa.int32()), ends])))
    return offsets, _texts(keys, f"{_HEADERS}.key"), _texts(values, f"{_HEADERS}.value")


def _timestamps(rows: pa.RecordBatch, now_ms: int) -> memoryview:
    """Return the timestamps in microseconds for the kernel."""
    index = rows.schema.get_field_index(_TIMESTAMP)
    if index < 0 or pa.types.is_null(rows.column(index).type):
        return _numbers(now_ms * _MICROSECONDS, rows.num_rows, pa.int64())
    times = rows.column(index)
    if pa.types.is_int64(times.type):
        times = times.cast(pa.timestamp("ms"))
    elif not pa.types.is_timestamp(times.type):
        raise Invalid(f"column {_TIMESTAMP}: expected a timestamp or int64, not {times.type}")
    is_finer = times.type.unit == "ns"
    micros = times.cast(pa.timestamp("us", times.type.tz), safe=not is_finer).cast(pa.int64())
    return _view(_from_its_start(pc.fill_null(micros, now_ms * _MICROSECONDS)))


def _is_compressed(metadata: memoryview) -> bool:
    """Return whether the RecordBatch table of a Message (its third field) has `compression` (its fourth)."""

    def field(table: int, number: int) -> int:
        vtable = table - int(struct.unpack_from("<i", metadata, table)[0])
        entry = 4 + 2 * number
        if entry >= struct.unpack_from("<H", metadata, vtable)[0]:
            return 0
        offset = int(struct.unpack_from("<H", metadata, vtable + entry)[0])
        return table + offset if offset else 0

    header = field(struct.unpack_from("<I", metadata, 0)[0], 2)
    return bool(header) and bool(field(header + int(struct.unpack_from("<I", metadata, header)[0]), 3))


def _numbers(value: int, count: int, kind: pa.DataType) -> memoryview:
    return _view(pa.repeat(pa.scalar(value, kind), count))


def _from_its_start(array: pa.Array) -> pa.Array:
    return pa.concat_arrays([array]) if array.offset else array


def _view(array: pa.Array) -> memoryview:
    return memoryview(array.buffers()[1])


def _bytes(buffer: pa.Buffer | None) -> memoryview:
    return memoryview(b"") if buffer is None else memoryview(buffer)
