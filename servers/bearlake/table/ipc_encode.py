"""Converts record batches into Arrow IPC messages, which clients read as columns (see `SCHEMA`).

The buffers are the kernel's, so no record is handled in Python, except in batches that the buffers cannot represent exactly. Importing
this module needs pyarrow. Source: Apache Arrow, "Serialization and Interprocess Communication (IPC)".
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from bearlake import kernel
from bearlake.errors import Corrupt
from bearlake.kernel import HEADER_BYTES, DecodeStatus
from bearlake.records import batch as record_batch
from bearlake.records import codec as record_codec
from bearlake.records import compression

if TYPE_CHECKING:
    from typing_extensions import Buffer

_HEADER_TYPE = pa.struct([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary())])
SCHEMA: Final[pa.Schema] = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.field("item", _HEADER_TYPE, nullable=False)), nullable=False),
    ]
)
"""A timestamp is null if the record has none; header keys are usually UTF-8."""

_MICROSECONDS = 1000


@cache
def schema_message() -> bytes:
    """Return `SCHEMA` as an IPC message."""
    return bytes(SCHEMA.serialize())


class Piece(NamedTuple):
    """Rows as an IPC record batch message (None: no rows), and the next offset."""

    message: memoryview | None
    end: int


def pieces(views: Sequence[memoryview], start: int, bytes_max: int, uncompressed_bytes_max: int) -> Iterator[Piece]:
    """Yield the records of these runs of whole batches from the offset `start` on, in messages of about `bytes_max` bytes each.

    Only the last piece may be without rows. Skips control batches. Raises `Corrupt`, `TooLarge`.
    """
    gathered = _Gathered(uncompressed_bytes_max)
    end = start
    for view in views:
        for position, base_offset, header in kernel.batches(view, 0, len(view)):
            batch_end = base_offset + header.last_offset_delta + 1
            if batch_end <= start:
                continue
            end = batch_end
            if header.record_count > 0 and not record_batch.is_control(header.attributes):
                gathered.add(base_offset, view[position : position + header.length], header.attributes)
            if gathered.size_bytes >= bytes_max:
                yield from gathered.take(start, end, bytes_max)
                start = end
    if gathered.size_bytes or end > start:
        yield from gathered.take(start, end, bytes_max)


class _Gathered:
    """Batches collected for one message."""

    def __init__(self, uncompressed_bytes_max: int) -> None:
        self._bytes_max = uncompressed_bytes_max
        self._builder = kernel.ColumnBuilder()
        self._batches: list[tuple[int, memoryview]] = []
        self._is_exact = True

    @property
    def size_bytes(self) -> int:
        return self._builder.size_bytes

    def add(self, base_offset: int, batch: memoryview, attributes: int) -> None:
        bodies: list[compression.Buffer | None] = []
        if attributes & record_batch.COMPRESSION_MASK:
            bodies.append(_open(batch, attributes, self._bytes_max))
        _, status = self._builder.append(0, base_offset, batch, 0, len(batch), bodies)
        if status not in (DecodeStatus.OK, DecodeStatus.INEXACT):
            raise Corrupt(f"the record batch at offset {base_offset} does not decode: {status.name}")
        self._is_exact &= status is DecodeStatus.OK
        self._batches.append((base_offset, batch))

    def take(self, start: int, end: int, bytes_max: int) -> Iterator[Piece]:
        columns = self._builder.take()
        batches, is_exact = self._batches, self._is_exact
        self._batches, self._is_exact = [], True
        if not columns.row_count:
            yield Piece(None, end)
            return
        rows = _rows(columns) if is_exact else _rows_of_records(batches, self._bytes_max)
        rows = rows.slice(pc.sum(pc.less(rows.column(0), start)).as_py())
        *firsts, last = _cut(rows, bytes_max)
        for piece in firsts:
            yield Piece(memoryview(piece.serialize()), piece.column(0)[-1].as_py() + 1)
        yield Piece(memoryview(last.serialize()) if last.num_rows else None, end)


def _open(batch: memoryview, attributes: int, bytes_max: int) -> compression.Buffer:
    try:
        codec = record_batch.compression(attributes)
    except ValueError as error:
        raise Corrupt(f"record batch with {error}") from error
    return compression.decompress(codec, batch[HEADER_BYTES:], bytes_max)


def _rows(columns: kernel.Columns) -> pa.RecordBatch:
    """Convert the kernel's columns, copying only the timestamps."""
    count = columns.row_count
    header_count = memoryview(columns.header_key_offsets).nbytes // 4 - 1
    keys = _binary(header_count, columns.header_key_offsets, columns.header_key_data, None)
    values = _binary(
        header_count, columns.header_value_offsets, columns.header_value_data, columns.header_value_validity
    )
    headers = pa.StructArray.from_arrays([keys, values], fields=list(_HEADER_TYPE))
    times = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.timestamp)])
    return pa.RecordBatch.from_arrays(
        [
            pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.offset)]),
            _times(pc.divide(times, _MICROSECONDS)),
            _binary(count, columns.key_offsets, columns.key_data, columns.key_validity),
            _binary(count, columns.value_offsets, columns.value_data, columns.value_validity),
            pa.Array.from_buffers(
                SCHEMA.field("headers").type,
                count,
                [None, pa.py_buffer(columns.header_list_offsets)],
                children=[headers],
            ),
        ],
        schema=SCHEMA,
    )


def _binary(count: int, offsets: "Buffer", content: "Buffer", validity: "Buffer | None") -> pa.Array:
    bitmap = None if validity is None else pa.py_buffer(validity)
    return pa.Array.from_buffers(pa.binary(), count, [bitmap, pa.py_buffer(offsets), pa.py_buffer(content)])


def _rows_of_records(batches: Sequence[tuple[int, memoryview]], bytes_max: int) -> pa.RecordBatch:
    """Convert record by record, for header keys that are not UTF-8 and times beyond the microsecond range."""
    records = [
        (base_offset + (record.offset_delta or 0), record)
        for base_offset, batch in batches
        for record in record_codec.decode(batch, bytes_max)
    ]
    headers = [
        [{"key": key.encode("utf-8", "surrogateescape"), "value": value} for key, value in record.headers]
        for _, record in records
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([offset for offset, _ in records], pa.int64()),
            _times(pa.array([record.timestamp for _, record in records], pa.int64())),
            pa.array([record.key for _, record in records], pa.binary()),
            pa.array([record.value for _, record in records], pa.binary()),
            pa.array(headers, SCHEMA.field("headers").type),
        ],
        schema=SCHEMA,
    )


def _times(times_ms: pa.Array) -> pa.Array:
    """Convert timestamps to Arrow; null for records without one."""
    is_missing = pc.equal(times_ms, record_batch.NO_TIMESTAMP)
    return pc.if_else(is_missing, None, times_ms).cast(SCHEMA.field("timestamp").type)


def _cut(rows: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Split the rows into pieces of at most `bytes_max` bytes, or of one row."""
    if rows.num_rows <= 1 or rows.nbytes <= bytes_max:
        yield rows
        return
    half = rows.num_rows // 2
    yield from _cut(rows.slice(0, half), bytes_max)
    yield from _cut(rows.slice(half), bytes_max)
