"""Converts row groups back to record batches: the bytes that consumers get from data files (I6).

A *block* is one encoded row group: a buffer of consecutive record batches and, per partition, its *runs* of batches with contiguous
offsets. Batches keep their boundaries, offsets, timestamps and producer fields. Batches are uncompressed, except large batches that
were compressed originally: they are compressed again with the producer's codec.

Pure functions for a thread: pyarrow releases the GIL while it decodes, the kernel while it encodes. No pyarrow errors escape.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bearlake import kernel
from bearlake.errors import Corrupt
from bearlake.records import compression
from bearlake.records.batch import COMPRESSION_MASK, HEADER_BYTES, Compression
from bearlake.table.dictionaries import dictionary_columns
from bearlake.table.file_end import UNREADABLE
from bearlake.table.footer import TIME_COLUMNS, Footer
from bearlake.table.schema import (
    BATCH,
    BATCH_FIELDS,
    COLUMNS,
    HEADER_KEY,
    HEADER_VALUE,
    HEADERS,
    KEY,
    OFFSET,
    PARTITION_ID,
    TIMESTAMP,
    VALUE,
)
from bearlake.table.sparse import SparseFile
from bearlake.table.typed_footer import TypedFooter
from bearlake.table.typed_rows import completed, file_schema, restored_keys
from bearlake.table.value_pages import ValuePages, pages_of

_OTHER_COLUMNS = tuple(name for name in COLUMNS if name != VALUE)
_MICROSECONDS = 1000
_LENGTH = Struct(">i")
_LENGTH_AT = 8
_LENGTH_END = 12
_CRC = Struct(">I")
_CRC_AT = 17
_CRC_START = 21
_ATTRIBUTES = Struct(">h")


class Run(NamedTuple):
    """Batches with the offsets `[start, end)`: the batches `[first, last)` of a block, in its bytes `[position, position_end)`."""

    start: int
    end: int
    first: int
    last: int
    position: int
    position_end: int


_run_end = attrgetter("end")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """An encoded row group; `runs` by partition index, in offset order.

    `bases` and `positions` are of each batch: where a fetch begins is found in them, since to walk the batches themselves would load a line
    of the processor's cache for each.
    """

    buffer: memoryview
    runs: Mapping[int, Sequence[Run]]
    bases: "array[int]"
    positions: "array[int]"

    @property
    def memory_bytes(self) -> int:
        """The bytes of the batches, and of their index."""
        return len(self.buffer) + len(self.bases) * self.bases.itemsize + len(self.positions) * self.positions.itemsize

    def views(self, partition: int, start: int, end: int) -> Iterator[tuple[int, int, memoryview]]:
        """Yield (start offset, end offset, batches) of the runs with offsets in `[start, end)`, in order.

        The first batch may begin before `start` if `start` lies inside the batch; `end` is a batch boundary.
        """
        runs = self.runs.get(partition, ())
        for at in range(bisect_right(runs, start, key=_run_end), len(runs)):
            run = runs[at]
            if run.start >= end:
                return
            low, high = run.position, run.position_end
            if run.start < start:
                low = self._position(run, start)
            if run.end > end:
                high = self._position(run, end)
            if low < high:
                yield max(run.start, start), min(run.end, end), self.buffer[low:high]

    def _position(self, run: Run, offset: int) -> int:
        """Where the batch that holds `offset` begins."""
        return self.positions[bisect_right(self.bases, offset, run.first, run.last) - 1]


def decode(file: SparseFile, footer: Footer, group: int, compressed_bytes_min: int) -> Block:
    """Encode the row group in `file`. Recompresses batches above `compressed_bytes_min` that were compressed originally.

    Raises:
        Corrupt: the rows cannot be decoded, or do not have our format.
    """
    footer.check(file, group)
    columns, pages = _columns(file, footer, group)
    buffer: bytearray | memoryview
    try:
        if pages is None:
            buffer, batches = kernel.encode_columns(columns, 0, columns.row_count)
        else:
            buffer, batches = kernel.encode_pages(columns, pages, pages.size_bytes)
    except ValueError as error:
        raise Corrupt(f"data file, row group {group}: {error}") from error
    if any(batch.attributes & COMPRESSION_MASK and batch.length > compressed_bytes_min for batch in batches):
        buffer, batches = _compress(buffer, batches, compressed_bytes_min)
    return Block(
        buffer=memoryview(buffer).toreadonly(),
        runs=_runs(batches),
        bases=array("q", [batch.base_offset for batch in batches]),
        positions=array("q", [batch.position for batch in batches]),
    )


class Rows(NamedTuple):
    """Rows of one partition with offsets `[start, end)`."""

    partition: int
    start: int
    end: int


def first_at(file: SparseFile, footer: Footer, group: int, rows: Rows, timestamp: int | None) -> tuple[int, int] | None:
    """Return (offset, timestamp in ms) of the first row at or after `timestamp` (ms), or, if None, of the first row with the largest.

    Returns None if there is no such row. `file` has `TIME_COLUMNS` of the row group.

    Raises:
        Corrupt: the rows cannot be decoded.
    """
    footer.check(file, group)
    table = _read(file, footer, group, TIME_COLUMNS)
    try:
        return _first_row(table, rows, timestamp)
    except UNREADABLE as error:
        raise Corrupt(f"data file, row group {group}: {error}") from error


def _first_row(table: pa.Table, rows: Rows, timestamp: int | None) -> tuple[int, int] | None:
    offsets, times = table[OFFSET], table[TIMESTAMP].cast(pa.int64())
    in_range = pc.and_(pc.equal(table[PARTITION_ID], rows.partition), pc.greater_equal(offsets, rows.start))
    in_range = pc.and_(in_range, pc.less(offsets, rows.end))
    if timestamp is None:
        timestamp_us = pc.max(times.filter(in_range)).as_py()
        if timestamp_us is None:
            return None
    else:
        timestamp_us = timestamp * _MICROSECONDS
    at = pc.index(pc.and_(in_range, pc.greater_equal(times, timestamp_us)), True).as_py()
    return (offsets[at].as_py(), times[at].as_py() // _MICROSECONDS) if at >= 0 else None


def columns_of(table: pa.Table, names: Sequence[str] = COLUMNS) -> kernel.Columns:
    """Convert the columns `names` for the kernel, without a copy if a column is contiguous. Only the values may be missing.

    Raises:
        Corrupt: a column does not match `schema.ARROW_SCHEMA`, or rows lack their batch.
    """
    try:
        pieces = {name: _one_piece(table[name]) for name in names}
        headers = pieces[HEADERS].values
        batch = {name: pieces[BATCH].field(name) for name in BATCH_FIELDS}
        header_key, header_value = headers.field(HEADER_KEY), headers.field(HEADER_VALUE)
    except (pa.ArrowException, KeyError, AttributeError) as error:
        raise Corrupt(f"data file: the columns are not those of a stream: {error}") from error
    if pieces[BATCH].null_count:
        raise Corrupt("data file: rows without the columns that name their batch")
    _, list_offsets, *_ = pieces[HEADERS].buffers()
    key_validity, key_offsets, key_data = pieces[KEY].buffers()
    value_validity, value_offsets, value_data = pieces[VALUE].buffers() if VALUE in pieces else (None, None, None)
    _, header_key_offsets, header_key_data = header_key.buffers()
    header_value_validity, header_value_offsets, header_value_data = header_value.buffers()
    return kernel.Columns(
        row_count=table.num_rows,
        partition_id=_values(pieces[PARTITION_ID]),
        offset=_values(pieces[OFFSET]),
        timestamp=_values(pieces[TIMESTAMP]),
        key_offsets=_view(key_offsets),
        key_data=_view(key_data),
        key_validity=_bitmap(key_validity),
        header_list_offsets=_view(list_offsets),
        header_key_offsets=_view(header_key_offsets),
        header_key_data=_view(header_key_data),
        header_value_offsets=_view(header_value_offsets),
        header_value_data=_view(header_value_data),
        header_value_validity=_bitmap(header_value_validity),
        value_offsets=_view(value_offsets),
        value_data=_view(value_data),
        value_validity=_bitmap(value_validity),
        **{name: _values(batch[name]) for name in BATCH_FIELDS},
    )


def _columns(file: SparseFile, footer: Footer, group: int) -> tuple[kernel.Columns, ValuePages | None]:
    """Return our columns of a row group, complete; values as pages where possible, then without the column of values."""
    typed = footer.typed
    if typed is not None and not typed.has_values(group):
        return columns_of(_complete(file, footer, typed, group)), None
    pages = _value_pages(file, footer, group)
    names = COLUMNS if pages is None else _OTHER_COLUMNS
    if typed is None or typed.has_keys(group):
        return columns_of(_read(file, footer, group, names), names), pages
    dictionaries = dictionary_columns(file, footer, group, typed.key_columns)
    rows = _read(file, footer, group, list(dict.fromkeys([*names, *typed.key_columns])), dictionaries)
    try:
        keys = restored_keys(rows, typed, group)
        rows = rows.set_column(rows.schema.get_field_index(KEY), KEY, keys)
    except UNREADABLE as error:
        raise Corrupt(f"data file, row group {group}: {error}") from error
    return columns_of(rows, names), pages


def _complete(file: SparseFile, footer: Footer, typed: TypedFooter, group: int) -> pa.Table:
    """Read our columns of a row group, with the values and keys that the file leaves out."""
    dictionaries = dictionary_columns(file, footer, group, typed.typed_columns)
    rows = _read(file, footer, group, file_schema(typed.columns.book).names, dictionaries)
    try:
        return completed(rows, typed, group)
    except UNREADABLE as error:
        raise Corrupt(f"data file, row group {group}: {error}") from error


def _value_pages(file: SparseFile, footer: Footer, group: int) -> ValuePages | None:
    """The pages of the values; None if Arrow must decode them."""
    chunk = footer.values(group)
    if chunk is None:
        return None
    file.seek(chunk.start)
    try:
        return pages_of(file.read(chunk.end - chunk.start), chunk)
    except OSError as error:
        raise Corrupt(f"data file, row group {group}: {error}") from error


def _read(
    file: SparseFile, footer: Footer, group: int, columns: Sequence[str], dictionaries: Sequence[str] = ()
) -> pa.Table:
    """Read columns of a row group, the Parquet columns `dictionaries` of them as dictionaries."""
    try:
        source = pq.ParquetFile(
            pa.PythonFile(file, mode="r"),
            metadata=footer.metadata,
            pre_buffer=False,
            read_dictionary=list(dictionaries),
        )
        return source.read_row_group(group, columns=list(columns), use_threads=False)
    except UNREADABLE as error:
        raise Corrupt(f"data file, row group {group}: {error}") from error


def _one_piece(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1 and column.chunk(0).offset == 0:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks)


def _values(array: pa.Array) -> memoryview:
    return _view(array.buffers()[1])


def _view(buffer: pa.Buffer | None) -> memoryview:
    return memoryview(b"") if buffer is None else memoryview(buffer)


def _bitmap(buffer: pa.Buffer | None) -> memoryview | None:
    return None if buffer is None else memoryview(buffer)


def _compress(
    buffer: bytearray | memoryview, batches: Sequence[kernel.EncodedBatch], compressed_bytes_min: int
) -> tuple[bytearray, list[kernel.EncodedBatch]]:
    """Compress the large batches that were compressed originally, and close the gaps."""
    out = bytearray()
    moved = []
    view = memoryview(buffer)
    for batch in batches:
        position = len(out)
        whole = view[batch.position : batch.position + batch.length]
        codec = Compression(batch.attributes & COMPRESSION_MASK)
        if codec is Compression.NONE or batch.length <= compressed_bytes_min:
            out += whole
        else:
            out += whole[:HEADER_BYTES]
            out += compression.compress(codec, whole[HEADER_BYTES:])
            (attributes,) = _ATTRIBUTES.unpack_from(out, position + _CRC_START)
            _ATTRIBUTES.pack_into(out, position + _CRC_START, attributes | codec)
            _LENGTH.pack_into(out, position + _LENGTH_AT, len(out) - position - _LENGTH_END)
            _CRC.pack_into(out, position + _CRC_AT, kernel.crc32c(out, position + _CRC_START, len(out)))
        moved.append(batch._replace(position=position, length=len(out) - position))
    return out, moved


def _runs(batches: Sequence[kernel.EncodedBatch]) -> dict[int, list[Run]]:
    runs: dict[int, list[Run]] = {}
    partition, start, end, first, position, position_end = -1, 0, -1, 0, 0, 0
    for number, (next_partition, base_offset, end_offset, at, length, _, _) in enumerate(batches):
        if next_partition != partition or base_offset != end:
            if partition >= 0:
                runs.setdefault(partition, []).append(Run(start, end, first, number, position, position_end))
            partition, start, first, position = next_partition, base_offset, number, at
        end, position_end = end_offset, at + length
    if partition >= 0:
        runs.setdefault(partition, []).append(Run(start, end, first, len(batches), position, position_end))
    return runs
