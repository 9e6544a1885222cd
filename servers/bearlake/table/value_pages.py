"""Takes the values of a row group out of its pages, for `kernel.encode_pages`: what most data files hold needs no other decoding.

Arrow would copy each value into a column first, and encode copies it again: the first copy takes half as long as to decompress the values.
Here a value is read where its page was decompressed. `pages_of` handles the pages that `writer.py` writes: data pages of version 1,
compressed with zstd, values in the encoding PLAIN. Arrow decodes all others.

Source: Apache Parquet format, "Data Pages" and `parquet.thrift` (PageHeader); Thrift's compact protocol.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from bearlake.errors import Corrupt
from bearlake.kernel import ValuePage
from bearlake.table.footer import UNREADABLE, ColumnChunk

_ZSTD = pa.Codec("zstd")
_DATA_PAGE = 0
_PLAIN = 0
_RLE = 3

# The fields of a PageHeader, and of the DataPageHeader in its field 5
_TYPE, _SIZE, _COMPRESSED_SIZE, _DATA_PAGE_HEADER = 1, 2, 3, 5
_VALUE_COUNT, _ENCODING, _LEVEL_ENCODING = 1, 2, 3

# Types of the compact protocol
_STOP, _TRUE, _FALSE, _BYTE, _INT16, _INT32, _INT64, _DOUBLE, _BINARY, _STRUCT = 0, 1, 2, 3, 4, 5, 6, 7, 8, 12
_INTEGERS = frozenset({_INT16, _INT32, _INT64})
_DEPTH_MAX = 4
_VARINT_BYTES_MAX = 10

Fields = dict[int, "int | Fields"]
"""The integers and structs of a struct, by number."""


class _Unknown(Exception):
    """The pages are not of the kind that is read here."""


class ValuePages:
    """The pages of a column chunk. Iterating decompresses each page when it is asked for: memory holds one of them."""

    def __init__(self, chunk: memoryview, places: "Sequence[_Place]", size_bytes: int) -> None:
        self._chunk = chunk
        self._places = places
        self.size_bytes = size_bytes
        """Bytes of the pages, uncompressed."""

    def __iter__(self) -> Iterator[ValuePage]:
        """Yield the pages. Raises `Corrupt` if a page cannot be decompressed."""
        for start, end, size, count in self._places:
            yield _decompressed(self._chunk[start:end], size), count


def pages_of(chunk: memoryview, column: ColumnChunk) -> ValuePages | None:
    """Return the pages of a column chunk; None if Arrow must decode the column. `chunk` has its bytes in the file."""
    try:
        places = _places(chunk, column)
    except (_Unknown, IndexError):
        return None
    return ValuePages(chunk, places, sum(place.size for place in places))


class _Place(NamedTuple):
    """A page in its chunk: its compressed bytes `[start, end)`, its bytes uncompressed, and its number of values."""

    start: int
    end: int
    size: int
    value_count: int


def _places(chunk: memoryview, column: ColumnChunk) -> Sequence[_Place]:
    places: list[_Place] = []
    at, row_count, room = 0, 0, column.size_bytes
    while row_count < column.row_count:
        header, at = _struct(chunk, at, 0)
        size, compressed_size = _number(header, _SIZE), _number(header, _COMPRESSED_SIZE)
        of_data = header.get(_DATA_PAGE_HEADER)
        if _number(header, _TYPE) != _DATA_PAGE or not isinstance(of_data, dict):
            raise _Unknown
        if _number(of_data, _ENCODING) != _PLAIN or _number(of_data, _LEVEL_ENCODING) != _RLE:
            raise _Unknown
        count = _number(of_data, _VALUE_COUNT)
        end = at + compressed_size
        room -= size  # a damaged header must not make us take more memory than the footer announces
        if (
            not 0 < count <= column.row_count - row_count
            or compressed_size < 0
            or size < 0
            or room < 0
            or end > len(chunk)
        ):
            raise _Unknown
        places.append(_Place(at, end, size, count))
        at, row_count = end, row_count + count
    return places


def _decompressed(page: memoryview, size: int) -> pa.Buffer:
    try:
        return _ZSTD.decompress(page, decompressed_size=size)
    except UNREADABLE as error:
        raise Corrupt(f"data file: a page of the values: {error}") from error


# -- Thrift -----------------------------------------------------------------------------------------------------


def _number(fields: Fields, number: int) -> int:
    value = fields.get(number)
    if not isinstance(value, int):
        raise _Unknown
    return value


def _struct(data: memoryview, at: int, depth: int) -> tuple[Fields, int]:
    """Return the fields of the struct at `at`, and the position behind it."""
    if depth > _DEPTH_MAX:
        raise _Unknown
    fields: Fields = {}
    number = 0
    while (head := data[at]) != _STOP:
        at += 1
        kind = head & 0x0F
        if head >> 4:
            number += head >> 4
        else:
            number, at = _zigzag(data, at)
        if kind in _INTEGERS:
            fields[number], at = _zigzag(data, at)
        elif kind == _STRUCT:
            fields[number], at = _struct(data, at, depth + 1)
        elif kind == _BINARY:
            size, at = _varint(data, at)
            at += size
        elif kind == _BYTE:
            at += 1
        elif kind == _DOUBLE:
            at += 8
        elif kind not in (_TRUE, _FALSE):
            raise _Unknown
    return fields, at + 1


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _Unknown


def _zigzag(data: memoryview, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return value >> 1 ^ -(value & 1), at
