"""Writes rows as Parquet data files: one row group per call, and the `DataFile` from the footer just written.

Omits what costs the writer much and helps readers little: payload columns have neither dictionary nor statistics. Pages are compressed
with zstd at level 1, offsets and timestamps are delta-coded, and the fields of `_batch`, which repeat in every row of a batch, are
run-length coded dictionary indices. Typed columns of texts have dictionaries, those of integers and times are delta-coded, and so are
decimals of up to 18 digits, which are integers in the file (decision 314). Files contain field ids, but not Arrow's own copy of the schema.
Measured (`bench/compaction.py`): the encoder dominates the cost of compaction; level 3 or default dictionaries would halve its speed.

A file grows in memory as a list of parts, which is uploaded without another copy: its size bounds a writer's memory.
Source: Apache Parquet format (encodings, row groups); Apache Iceberg table spec, "Parquet" and "Appendix D".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from bearlake import kernel
from bearlake.table import file_end
from bearlake.table.file_tail import CRCS_NAME
from bearlake.table.leaves import delta_paths, dictionary_paths, leaves
from bearlake.table.model import DataFile
from bearlake.table.schema import (
    ARROW_SCHEMA,
    BATCH,
    BATCH_FIELDS,
    BOUNDED_COLUMNS,
    FIELD_IDS,
    HEADERS,
    OFFSET,
    PARTITION_ID,
    TIMESTAMP,
)
from bearlake.table.typed_rows import TypedFileRows
from bearlake.table.value_plan import FileColumns

if TYPE_CHECKING:
    from typing_extensions import Buffer

COMPRESSION_LEVEL: Final = 1

_DELTA_COLUMNS: Final = (OFFSET, TIMESTAMP, f"{BATCH}.base_offset", f"{BATCH}.base_sequence")
_DICTIONARY_COLUMNS: Final = (
    PARTITION_ID,
    f"{HEADERS}.list.element.key",
    f"{BATCH}.attributes",
    f"{BATCH}.producer_id",
    f"{BATCH}.producer_epoch",
)
_BOUND_FORMATS: Final = {PARTITION_ID: Struct("<i"), OFFSET: Struct("<q"), TIMESTAMP: Struct("<q")}
_MICROSECONDS = 1000


Rows: TypeAlias = pa.RecordBatch | pa.Table
"""Rows of the table in Arrow, with the columns of `schema.ARROW_SCHEMA`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedFile:
    """A data file's bytes, to be stored under `file.key`, and its manifest entry."""

    parts: Sequence[bytes]
    file: DataFile


class OutputFile:
    """A data file that grows in memory: how all our data files are opened, compressed and finished."""

    def __init__(self, key: str, columns: pa.Schema, *, dictionaries: Sequence[str], deltas: Sequence[str]) -> None:
        """`key`: under which the file will be stored. `dictionaries`, `deltas`: paths of the columns with these encodings, beside those of
        the typed columns, which follow from their types."""
        self._key = key
        self._columns = columns
        self._sink = Parts()
        self._output = pa.PythonFile(self._sink, mode="w")
        self._footers: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._output,
            columns,
            version="2.6",
            compression="zstd",
            compression_level=COMPRESSION_LEVEL,
            use_dictionary=[*dictionaries, *dictionary_paths(columns)],
            column_encoding=dict.fromkeys([*deltas, *delta_paths(columns)], "DELTA_BINARY_PACKED"),
            write_statistics=list(BOUNDED_COLUMNS),
            store_schema=False,
            store_decimal_as_integer=True,
            metadata_collector=self._footers,
        )
        self.row_count = 0
        """Rows written so far."""

    @property
    def size_bytes(self) -> int:
        """Bytes written so far, without the footer."""
        return self._sink.size

    def write(self, rows: pa.Table) -> None:
        """Write one row group of at least one row."""
        assert rows.num_rows > 0
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self.row_count += rows.num_rows

    def finish(self, metadata: Mapping[str, str]) -> FinishedFile:
        """Write the footer, with `metadata` as key-value metadata. The file cannot be used afterwards."""
        self._writer.add_key_value_metadata({**metadata, CRCS_NAME.decode(): str(self._sink.size)})
        page_count = len(self._sink.parts)
        self._writer.close()
        self._output.close()
        (footer,) = self._footers
        self._sink.insert(page_count, file_end.crcs_of(self._sink.parts, page_count, footer))
        file = data_file(self._key, self._sink.size, footer, self._columns)
        assert file.row_count == self.row_count
        return FinishedFile(parts=self._sink.parts, file=file)


class DataFileWriter:
    """Writes one data file. Rows must be sorted by (`_partition_id`, `_offset`), in row groups that end at batch boundaries."""

    def __init__(self, key: str, columns: FileColumns | None = None) -> None:
        """`columns`: the file's typed columns; None: it has none."""
        self._typed = None if columns is None else TypedFileRows(columns)
        schema = ARROW_SCHEMA if self._typed is None else self._typed.schema
        self._file = OutputFile(key, schema, dictionaries=_DICTIONARY_COLUMNS, deltas=_DELTA_COLUMNS)

    @property
    def row_count(self) -> int:
        """Rows written so far."""
        return self._file.row_count

    @property
    def size_bytes(self) -> int:
        """Bytes written so far, without the footer."""
        return self._file.size_bytes

    def write(self, rows: Rows) -> None:
        """Write one row group of at least one row, with the columns of `schema.ARROW_SCHEMA`, or those of `typed_rows.memory_schema`."""
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        if self._typed is not None:
            table = self._typed.elided(table)
        self._file.write(table)

    def finish(self, metadata: Mapping[str, str] | None = None) -> FinishedFile:
        """Write the footer, with `metadata` as key-value metadata. The writer cannot be used afterwards."""
        assert self.row_count > 0
        return self._file.finish({**(metadata or {}), **(self._typed.footer() if self._typed is not None else {})})


def record_batch(columns: kernel.Columns) -> pa.RecordBatch:
    """Convert the kernel's columns to Arrow without a copy; the kernel's buffers live as long as the result."""
    count = columns.row_count
    header_type = ARROW_SCHEMA.field(HEADERS).type.value_type
    header_count = len(memoryview(columns.header_key_offsets).cast("B")) // 4 - 1
    headers = pa.StructArray.from_arrays(
        [
            _binary(pa.string(), header_count, columns.header_key_offsets, columns.header_key_data, None),
            _binary(
                pa.binary(),
                header_count,
                columns.header_value_offsets,
                columns.header_value_data,
                columns.header_value_validity,
            ),
        ],
        fields=list(header_type),
    )
    batch_type = ARROW_SCHEMA.field(BATCH).type
    batches = pa.StructArray.from_arrays(
        [_fixed(batch_type.field(name).type, count, getattr(columns, name)) for name in BATCH_FIELDS],
        fields=list(batch_type),
    )
    return pa.RecordBatch.from_arrays(
        [
            _fixed(pa.int32(), count, columns.partition_id),
            _fixed(pa.int64(), count, columns.offset),
            _fixed(ARROW_SCHEMA.field(TIMESTAMP).type, count, columns.timestamp),
            _binary(pa.binary(), count, columns.key_offsets, columns.key_data, columns.key_validity),
            pa.Array.from_buffers(
                ARROW_SCHEMA.field(HEADERS).type,
                count,
                [None, pa.py_buffer(columns.header_list_offsets)],
                children=[headers],
            ),
            _binary(pa.binary(), count, columns.value_offsets, columns.value_data, columns.value_validity),
            batches,
        ],
        schema=ARROW_SCHEMA,
    )


def data_file(key: str, size: int, footer: pq.FileMetaData, columns: pa.Schema = ARROW_SCHEMA) -> DataFile:
    """Build a file's manifest entry from its footer. Only columns with statistics have bounds, and only if there are rows."""
    field_ids = [leaf.field_id for leaf in leaves(columns)]
    column_sizes: dict[int, int] = {}
    value_counts: dict[int, int] = {}
    nulls: dict[int, int] = {}
    bounds: dict[int, tuple[int, int]] = {}
    split_offsets = []
    for at in range(footer.num_row_groups):
        group = footer.row_group(at)
        split_offsets.append(_start_of(group.column(0)))
        for position in range(group.num_columns):
            column = group.column(position)
            path = column.path_in_schema
            field = field_ids[position]
            column_sizes[field] = column_sizes.get(field, 0) + column.total_compressed_size
            value_counts[field] = value_counts.get(field, 0) + column.num_values
            if path not in _BOUND_FORMATS:
                continue
            statistics = column.statistics
            nulls[field] = 0  # the column is required
            low, high = bounds.get(field, (statistics.min_raw, statistics.max_raw))
            bounds[field] = min(low, statistics.min_raw), max(high, statistics.max_raw)
    known = {name: form for name, form in _BOUND_FORMATS.items() if FIELD_IDS[name] in bounds}
    return DataFile(
        key=key,
        size=size,
        row_count=footer.num_rows,
        max_timestamp_ms=bounds.get(FIELD_IDS[TIMESTAMP], (0, 0))[1] // _MICROSECONDS,
        split_offsets=split_offsets,
        column_sizes=column_sizes,
        value_counts=value_counts,
        null_value_counts=nulls,
        lower_bounds={FIELD_IDS[name]: form.pack(bounds[FIELD_IDS[name]][0]) for name, form in known.items()},
        upper_bounds={FIELD_IDS[name]: form.pack(bounds[FIELD_IDS[name]][1]) for name, form in known.items()},
    )


def _start_of(column: pq.ColumnChunkMetaData) -> int:
    """Return where a column chunk starts: at its dictionary, if any."""
    if column.has_dictionary_page:
        return int(min(column.dictionary_page_offset, column.data_page_offset))
    return int(column.data_page_offset)


def _fixed(arrow_type: pa.DataType, count: int, values: "Buffer") -> pa.Array:
    return pa.Array.from_buffers(arrow_type, count, [None, pa.py_buffer(values)])


def _binary(
    arrow_type: pa.DataType,
    count: int,
    offsets: "Buffer",
    content: "Buffer",
    validity: "Buffer | None",
) -> pa.Array:
    bitmap = None if validity is None else pa.py_buffer(validity)
    return pa.Array.from_buffers(arrow_type, count, [bitmap, pa.py_buffer(offsets), pa.py_buffer(content)])


class Parts:
    """A write-only file, written from front to back."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self.closed = False

    def write(self, content: bytes) -> int:
        """Append."""
        self.parts.append(content)
        self.size += len(content)
        return len(content)

    def insert(self, at: int, content: bytes) -> None:
        """Put a part before the part `at`."""
        self.parts.insert(at, content)
        self.size += len(content)

    def tell(self) -> int:
        """Return the size so far."""
        return self.size

    def flush(self) -> None:
        """Do nothing; nothing is buffered."""

    def close(self) -> None:
        """Take no more."""
        self.closed = True

    def readable(self) -> bool:
        """Return False."""
        return False

    def seekable(self) -> bool:
        """Return False."""
        return False

    def writable(self) -> bool:
        """Return True."""
        return True
