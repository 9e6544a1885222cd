"""Plans how a row group that any engine may have written is decoded in bounded memory, by the headers of its pages.

A few bytes of a file can stand for any number of bytes in memory: pages are compressed, runs repeat a value millions of times, and
an index stands for a text of megabytes. So texts with a dictionary are left as indices, and only as many rows are decoded at once as take
the allowed memory at most, whatever their pages contain. `row_slices.py` makes texts of the indices, slice by slice.

Source: Apache Parquet format, "Data Pages", "Encodings".
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bearlake.errors import Corrupt, Invalid
from bearlake.objects import ByteRange
from bearlake.table.compact_protocol import Malformed
from bearlake.table.file_end import UNREADABLE, start_of
from bearlake.table.page_headers import (
    DELTA_BYTE_ARRAY,
    DICTIONARY_PAGE,
    PLAIN_DICTIONARY,
    RLE,
    RLE_DICTIONARY,
    Page,
    UnknownPages,
    pages,
)
from bearlake.table.repetition_levels import row_starts
from bearlake.table.sparse import SparseFile

_INDEXED: Final = (PLAIN_DICTIONARY, RLE_DICTIONARY)
_TEXT: Final = "BYTE_ARRAY"
_VALUE_BYTES: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, _TEXT: 4}
"""Bytes of a value in memory, by physical type; of a text, those of its offset or its index."""
_LEVEL_BYTES: Final = 4
"""Bytes of a value's levels while it is decoded."""
_LENGTH_BYTES: Final = 4


class Plan(NamedTuple):
    """How to decode a row group: `row_count` rows at once, and the Parquet columns `indexed` (paths) as indices into dictionaries."""

    row_count: int
    indexed: Sequence[str]


class _Part(NamedTuple):
    """The memory (bytes) that the content of a page takes, which has parts of the rows from `first` to `last`."""

    first: int
    last: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """The memory (bytes) that a column takes: once, for each row, and for parts, of which rows take all that they touch."""

    path: str
    once: int
    per_row: int
    parts: Sequence[_Part]
    is_indexed: bool

    def of(self, row_count: int) -> int:
        """Return the memory of so many consecutive rows, wherever they begin."""
        most = size = oldest = 0
        for part in self.parts:
            size += part.size
            while part.first - self.parts[oldest].last + 1 > row_count:
                size -= self.parts[oldest].size
                oldest += 1
            most = max(most, size)
        return self.once + row_count * self.per_row + most


def plan(
    file: SparseFile, metadata: pq.FileMetaData, group: int, names: Collection[str] | None, bytes_max: int
) -> Plan:
    """Plan to decode the columns `names` (None: all) of a row group with rows in at most `bytes_max` bytes. `file` has their bytes.

    Raises:
        Corrupt: the headers of pages are damaged, or of an unknown kind.
        Invalid: one row may take more.
    """
    row_group = metadata.row_group(group)
    costs = []
    for at in range(row_group.num_columns):
        column = row_group.column(at)
        if names is None or column.path_in_schema.partition(".")[0] in names:
            try:
                costs.append(_cost(file, column, metadata.schema.column(at), bytes_max))
            except UnknownPages as error:
                reason = f"the column {column.path_in_schema} has pages that cannot be read: {error}"
                raise Corrupt(f"data file, row group {group}: {reason}") from error
    row_count = max(1, row_group.num_rows)
    while (size := sum(cost.of(row_count) for cost in costs)) > bytes_max:
        if row_count == 1:
            largest = max(costs, key=lambda cost: cost.of(1))
            raise too_large(group, largest.path, largest.of(1), size, bytes_max)
        row_count //= 2
    return Plan(row_count, [cost.path for cost in costs if cost.is_indexed])


def too_large(group: int, path: str, column_bytes: int, size_bytes: int, bytes_max: int) -> Invalid:
    """Return the error for rows that may take `size_bytes` in memory, most of them (`column_bytes`) in the column `path`."""
    return Invalid(
        f"data file, row group {group}: a row may take {size_bytes} bytes of memory, {column_bytes} of them in the column {path}; "
        f"the limit is compaction.task.current_bytes, {bytes_max} bytes"
    )


def _cost(file: SparseFile, column: pq.ColumnChunkMetaData, leaf: pq.ColumnSchema, bytes_max: int) -> _Cost:
    """Raises `UnknownPages`."""
    path, start = column.path_in_schema, start_of(column)
    chunk = file.loaded(ByteRange(start, start + column.total_compressed_size))
    if chunk is None:
        raise UnknownPages(f"bytes from {start} were not loaded")
    found = list(pages(chunk, column.num_values))
    if (largest := max((page.size for page in found), default=0)) > bytes_max:  # nothing is decompressed then
        return _Cost(path=path, once=largest, per_row=0, parts=(), is_indexed=False)
    dictionaries = [page for page in found if page.type == DICTIONARY_PAGE]
    values = [page for page in found if page.type != DICTIONARY_PAGE]
    is_text = column.physical_type == _TEXT
    plain = [page for page in values if is_text and page.encoding not in _INDEXED]
    # Arrow refuses columns inside of others if only some of their pages have indices
    is_indexed = is_text and bool(dictionaries) and ("." not in path or not plain)
    per_value = _LEVEL_BYTES + _VALUE_BYTES.get(column.physical_type, leaf.length)
    longest = 0
    if is_text and not is_indexed:
        longest = max((_longest(chunk, page, column.compression) for page in dictionaries), default=0)
    if any(page.encoding == DELTA_BYTE_ARRAY for page in plain):  # a text can have all of the one before it
        longest = max(longest, *(page.size for page in plain))
    once = max((page.size for page in values), default=0) + 2 * sum(page.size for page in dictionaries)
    if not leaf.max_repetition_level:
        firsts = accumulate((page.value_count for page in values), initial=0)
        parts = [
            _Part(first, first + page.value_count - 1, 0 if page.encoding in _INDEXED else page.size)
            for first, page in zip(firsts, values if plain else (), strict=False)
        ]
        return _Cost(path=path, once=once, per_row=per_value + longest, parts=parts, is_indexed=is_indexed)
    parts = []
    next_row = 0
    for page in values:
        is_plain = is_text and page.encoding not in _INDEXED
        is_long = not is_plain or page.encoding == DELTA_BYTE_ARRAY
        size = page.value_count * (per_value + (longest if is_long else 0)) + (page.size if is_plain else 0)
        rows = _rows_of(chunk, page, column.compression, leaf.max_repetition_level)
        if rows is None:
            parts.append(_Part(0, column.num_values, size))
            continue
        begins_row, row_count = rows
        first = next_row if begins_row else max(0, next_row - 1)
        next_row += row_count
        parts.append(_Part(first, max(first, next_row - 1), size))
    return _Cost(path=path, once=once, per_row=0, parts=parts, is_indexed=is_indexed)


def _content(chunk: memoryview, page: Page, compression: str) -> memoryview | None:
    """Return the bytes of a dictionary, or of a data page of version 1; None: only Arrow can decompress it, such as Hadoop's LZ4."""
    content = chunk[page.start : page.end]
    if compression == "UNCOMPRESSED":
        return content
    try:
        codec = pa.Codec("lz4_raw" if compression == "LZ4" else compression.lower())
        return memoryview(codec.decompress(content, decompressed_size=page.size)).cast("B")
    except UNREADABLE:
        return None


def _longest(chunk: memoryview, page: Page, compression: str) -> int:
    """Return the most bytes that a text in a dictionary may have."""
    content = _content(chunk, page, compression)
    if content is None:
        return page.size
    at = longest = 0
    while at + _LENGTH_BYTES <= len(content):
        size = int.from_bytes(content[at : at + _LENGTH_BYTES], "little")
        longest = max(longest, size)
        at += _LENGTH_BYTES + size
    return min(longest, page.size)


def _rows_of(chunk: memoryview, page: Page, compression: str, level_max: int) -> tuple[bool, int] | None:
    """Return whether a page begins with a new row, and how many rows begin in it; None: only Arrow can tell.

    The levels say so. The number of rows that a page of version 2 claims may be wrong. Raises `UnknownPages`.
    """
    if page.repetition_bytes >= 0:
        levels = chunk[page.start : min(page.end, page.start + page.repetition_bytes)]
    elif page.repetition_encoding != RLE:
        raise UnknownPages("its levels have an old encoding")
    else:
        content = _content(chunk, page, compression)
        if content is None:
            return None
        levels = content[_LENGTH_BYTES : _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")]
    try:
        return row_starts(levels, page.value_count, level_max.bit_length())
    except (IndexError, Malformed):
        raise UnknownPages("its levels are damaged") from None
