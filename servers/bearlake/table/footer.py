"""The footer of a data file: the positions of its row groups, and their partitions, offsets and times.

Row groups end at batch boundaries, and rows are sorted by (`_partition_id`, `_offset`). The statistics of those columns show which row
groups may hold an offset. If a row group has several partitions, its offset bounds cover all of them together, so only the partition
bounds apply. Source: Apache Parquet format, "File Format", "Metadata".
"""

from array import array
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import pyarrow.parquet as pq

from bearlake.errors import Corrupt
from bearlake.objects import ByteRange
from bearlake.table import file_end
from bearlake.table.file_end import UNREADABLE, start_of
from bearlake.table.key_chunk import COLUMNS as KEYED_COLUMNS
from bearlake.table.leaves import leaves
from bearlake.table.schema import ARROW_SCHEMA, KEY, OFFSET, PARTITION_ID, SCHEMA_ID, TIMESTAMP, VALUE
from bearlake.table.sparse import SparseFile
from bearlake.table.typed_footer import FOOTER_NAME, TypedFooter, decode_footer

TIME_COLUMNS = (PARTITION_ID, OFFSET, TIMESTAMP)
"""Columns read by a time lookup; the columns with statistics."""

OWN_LEAF_COUNT = sum(1 for _ in leaves(ARROW_SCHEMA))
"""Parquet columns of our columns, which come first."""

_MEMORY_RATIO = 4
"""A parsed footer takes about four times its serialized size."""


class RowGroup(NamedTuple):
    """Rows `[row_start, row_end)` of the file. Bounds are inclusive; `timestamp_max` is in µs.

    `start` and `end` are its byte range in the file; `size_bytes` is its uncompressed size; with typed columns, its size in memory.
    """

    row_start: int
    row_end: int
    partition_min: int
    partition_max: int
    offset_min: int
    offset_max: int
    timestamp_max: int
    start: int
    end: int
    size_bytes: int

    @property
    def is_of_one_partition(self) -> bool:
        """Whether the row group has one partition, so that its offset bounds are those of that partition."""
        return self.partition_min == self.partition_max


class ColumnChunk(NamedTuple):
    """The values of a row group: their bytes `[start, end)` in the file, and their bytes uncompressed."""

    start: int
    end: int
    size_bytes: int
    row_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """A parsed footer: row groups in order, and Parquet's own metadata."""

    groups: Sequence[RowGroup]
    metadata: pq.FileMetaData
    memory_bytes: int
    crcs: "array[int]"
    """CRC-32Cs of the column chunks by row group; empty: the file has none."""
    typed: TypedFooter | None = None
    """The typed columns; None: the file has none."""
    plain_values: int = -1
    """The number of the column of values, if it is an optional column of byte arrays; else -1."""

    def holding(self, partition: int, start: int, end: int) -> Sequence[int]:
        """Return the row groups that may hold rows of the partition with offsets `[start, end)`, in order.

        A row group of several partitions may turn out to have no such rows. If a row group of only this partition has none, it is the last.
        Rows are sorted: where a row group of only this partition begins, those before it are of no use any more.
        """
        found = []
        for at, group in enumerate(self.groups):
            if not group.partition_min <= partition <= group.partition_max:
                continue
            if not group.is_of_one_partition:
                found.append(at)
                continue
            if group.offset_min >= end:
                break
            if group.offset_min <= start:
                found.clear()
            if group.offset_max >= start:
                found.append(at)
            if group.offset_max >= end - 1:
                break  # rows are sorted
        return found

    def offset_end(self, group: int, partition: int, end: int) -> int:
        """Return where the partition's offsets in a row group end: exact if it has only this partition, else at most `end`."""
        found = self.groups[group]
        if found.is_of_one_partition:
            return found.offset_max + 1
        if group + 1 < len(self.groups):
            following = self.groups[group + 1]
            if following.is_of_one_partition and following.partition_min == partition:
                return min(end, following.offset_min)
        return end

    def time_ranges(self, group: int) -> Sequence[ByteRange]:
        """Return the byte ranges of a row group's `TIME_COLUMNS`."""
        return self.ranges_of(group, TIME_COLUMNS)

    def ranges_of(self, group: int, columns: Collection[str]) -> list[ByteRange]:
        """Return the byte ranges of a row group's columns, with what is nested in them; adjacent ranges are joined.

        A column of a struct is named with its path, such as `_batch.attributes`.
        """
        found: list[ByteRange] = []
        for column in self._columns(group, frozenset(columns)):
            start = start_of(column)
            end = start + column.total_compressed_size
            if found and found[-1].end == start:
                found[-1] = ByteRange(found[-1].start, end)
            else:
                found.append(ByteRange(start, end))
        return found

    def range_of_values(self, group: int) -> ByteRange:
        """Return the byte range of what record batches are made of: our columns, and the typed ones if they replace values or keys."""
        found = self.groups[group]
        if self.typed is None or not self.typed.is_complete(group):
            return ByteRange(found.start, found.end)
        row_group = self.metadata.row_group(group)
        ends = (row_group.column(at) for at in range(OWN_LEAF_COUNT))
        return ByteRange(found.start, max(start_of(column) + column.total_compressed_size for column in ends))

    @property
    def key_columns(self) -> Sequence[str]:
        """The columns that `rows.read_keyed` needs."""
        typed = () if self.typed is None else self.typed.key_columns
        return list(dict.fromkeys([*KEYED_COLUMNS, *typed]))

    def key_bytes(self, group: int) -> int:
        """Return the bytes of a row group's keys, uncompressed."""
        if self.typed is not None and self.typed.key_bytes:
            return self.typed.key_bytes[group]
        return sum(column.total_uncompressed_size for column in self._columns(group, {KEY}))

    def values(self, group: int) -> ColumnChunk | None:
        """Return where a row group has its values, if `value_pages.py` may be able to read them; else None."""
        if self.plain_values < 0:
            return None
        row_group = self.metadata.row_group(group)
        column = row_group.column(self.plain_values)
        if column.compression != "ZSTD" or column.has_dictionary_page:
            return None
        start = start_of(column)
        return ColumnChunk(
            start, start + column.total_compressed_size, column.total_uncompressed_size, row_group.num_rows
        )

    def check(self, file: SparseFile, group: int) -> None:
        """Compare what `file` has of a row group with its CRCs. Raises `Corrupt`."""
        file_end.check_chunks(file, self.metadata, self.crcs, group)

    def text(self, name: bytes) -> bytes | None:
        """Return a value of the file's key-value metadata."""
        return (self.metadata.metadata or {}).get(name)

    def _columns(self, group: int, columns: Set[str]) -> list[pq.ColumnChunkMetaData]:
        row_group = self.metadata.row_group(group)
        found = [row_group.column(at) for at in range(row_group.num_columns)]
        return [column for column in found if not columns.isdisjoint(_prefixes(column.path_in_schema))]


def parse(tail: memoryview) -> Footer:
    """Parse the footer; `tail` has the last bytes of the file, as many as are `file_end.needed`.

    Raises:
        Corrupt: not the footer of one of our data files.
    """
    metadata, crcs = file_end.read(tail)
    try:
        groups = []
        row_start = 0
        for at in range(metadata.num_row_groups):
            groups.append(_row_group(metadata.row_group(at), row_start))
            row_start = groups[-1].row_end
    except UNREADABLE as error:
        raise Corrupt(f"footer of a data file: {error}") from error
    text = (metadata.metadata or {}).get(FOOTER_NAME)
    if text is None and groups and _has_column(metadata, SCHEMA_ID):
        raise Corrupt("data file: it has typed columns, but its footer does not describe them")
    typed = None if text is None else decode_footer(text)
    if typed is not None:
        typed.check_groups(len(groups))
        groups = [
            group._replace(size_bytes=max(group.size_bytes, size))
            for group, size in zip(groups, typed.sizes, strict=True)
        ]
    return Footer(
        groups=groups,
        metadata=metadata,
        memory_bytes=metadata.serialized_size * _MEMORY_RATIO + len(crcs) * crcs.itemsize,
        crcs=crcs,
        plain_values=_plain_values(metadata.schema),
        typed=typed,
    )


def _prefixes(path: str) -> Iterator[str]:
    """Yield the names of a Parquet column: its own path, and those of what it is nested in."""
    return accumulate(path.split("."), "{}.{}".format)


def _has_column(metadata: pq.FileMetaData, name: str) -> bool:
    return any(metadata.schema.column(at).path == name for at in range(len(metadata.schema)))


def _plain_values(schema: pq.ParquetSchema) -> int:
    for at in range(len(schema)):
        column = schema.column(at)
        if column.path == VALUE:
            is_plain = column.physical_type == "BYTE_ARRAY" and column.max_definition_level == 1
            return at if is_plain and column.max_repetition_level == 0 else -1
    return -1


def _row_group(group: pq.RowGroupMetaData, row_start: int) -> RowGroup:
    columns = [group.column(at) for at in range(group.num_columns)]
    bounds = {}
    for column in columns:
        if column.path_in_schema in TIME_COLUMNS:
            statistics = column.statistics
            if statistics is None or not statistics.has_min_max:
                raise Corrupt(f"data file: no statistics of {column.path_in_schema}")
            bounds[column.path_in_schema] = statistics.min_raw, statistics.max_raw
    if len(bounds) != len(TIME_COLUMNS):
        raise Corrupt(f"data file: it has no columns {', '.join(sorted(set(TIME_COLUMNS) - set(bounds)))}")
    start = min(map(start_of, columns))
    return RowGroup(
        row_start,
        row_start + group.num_rows,
        *bounds[PARTITION_ID],
        *bounds[OFFSET],
        bounds[TIMESTAMP][1],
        start,
        max(start_of(column) + column.total_compressed_size for column in columns),
        group.total_byte_size,
    )
