"""Reads the headers of Parquet's pages, which pyarrow does not show.

Arrow must understand a header exactly as it is understood here: memory is planned by it, and a writer may be hostile. Thrift skips fields
of another type than it expects, keeps 16 bits of a field's number and 32 of an integer, and takes the last of several values. So a header
with a repeated field, or with a number that does not fit, is refused.

Source: Apache Parquet format, "Data Pages" and `parquet.thrift` (PageHeader); Thrift's compact protocol.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from bearlake.table.compact_protocol import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    INT32,
    INTEGERS,
    STOP,
    STRUCT,
    TRUE,
    Malformed,
    varint,
    zigzag,
)

DATA_PAGE: Final = 0
DICTIONARY_PAGE: Final = 2
DATA_PAGE_V2: Final = 3

PLAIN: Final = 0
PLAIN_DICTIONARY: Final = 2
"""The former name of `RLE_DICTIONARY`, in old files."""
RLE: Final = 3
DELTA_LENGTH_BYTE_ARRAY: Final = 6
DELTA_BYTE_ARRAY: Final = 7
RLE_DICTIONARY: Final = 8

# The fields of a PageHeader, and those of the structs in it
_TYPE, _SIZE, _COMPRESSED_SIZE = 1, 2, 3
_VALUE_COUNT, _LEVEL_ENCODING, _REPETITION_ENCODING = 1, 3, 4
_DEFINITION_BYTES, _REPETITION_BYTES, _IS_COMPRESSED = 5, 6, 7
_HEADERS: Final = {DATA_PAGE: (5, 2), DICTIONARY_PAGE: (7, 2), DATA_PAGE_V2: (8, 4)}
"""By type of the page: the field of its own header, and therein that of the encoding."""

_DEPTH_MAX = 4
_DOUBLE_BYTES = 8
_NUMBER_MAX = 2**15 - 1
_INTEGER_MAX = 2**31 - 1
_FIELDS_MAX = 64
"""Fields of a struct, also unknown ones. Parquet's have at most 11."""

Fields = dict[int, "int | Fields"]
"""The integers of 32 bits and the structs of a struct, by number."""


class UnknownPages(Exception):
    """The pages are not of the kinds that are read here: data pages and dictionaries."""


class Page(NamedTuple):
    """A page in its chunk: its compressed bytes `[start, end)`, its bytes uncompressed, and its number of values."""

    type: int
    start: int
    end: int
    size: int
    value_count: int
    encoding: int
    level_encoding: int
    """Of a data page of version 1, that of the definition levels; else -1."""
    repetition_encoding: int
    """The same of the repetition levels."""
    repetition_bytes: int
    """Of a data page of version 2, those of the repetition levels, with which it begins, uncompressed; else -1."""
    definition_bytes: int
    """The same of the definition levels, which follow."""
    is_compressed: bool
    """Whether the values of a data page of version 2 are compressed if those of the column are; else True."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of the page in memory; of a page that is not compressed, those that it has, whatever its header says."""
        return max(self.size, self.end - self.start)


def pages(chunk: memoryview, value_count: int) -> Iterator[Page]:
    """Yield the pages of a column chunk with `value_count` values, in order. `chunk` has its bytes in the file.

    Raises:
        UnknownPages: a page is of another kind, or its header is damaged.
    """
    at, seen = 0, 0
    while seen < value_count:
        try:
            page = _page(chunk, at)
        except (IndexError, Malformed):
            raise UnknownPages from None
        if page.type != DICTIONARY_PAGE:
            seen += page.value_count
            if page.value_count < 0 or seen > value_count:  # Arrow writes pages without values, in maps
                raise UnknownPages
        yield page
        at = page.end


def _page(chunk: memoryview, at: int) -> Page:
    header, at = _struct(chunk, at, 0)
    found, size, compressed_size = (_number(header, number) for number in (_TYPE, _SIZE, _COMPRESSED_SIZE))
    if found not in _HEADERS:
        raise UnknownPages
    own, encoding = _HEADERS[found]
    of_kind = header.get(own)
    if not isinstance(of_kind, dict):
        raise UnknownPages
    end = at + compressed_size
    if size < 0 or compressed_size < 0 or end > len(chunk):
        raise UnknownPages
    encodings = (_LEVEL_ENCODING, _REPETITION_ENCODING) if found == DATA_PAGE else ()
    level_encoding, repetition_encoding = [_number(of_kind, number) for number in encodings] or (-1, -1)
    sizes = (_REPETITION_BYTES, _DEFINITION_BYTES) if found == DATA_PAGE_V2 else ()
    repetition_bytes, definition_bytes = [_number(of_kind, number) for number in sizes] or (-1, -1)
    return Page(
        type=found,
        start=at,
        end=end,
        size=size,
        value_count=_number(of_kind, _VALUE_COUNT),
        encoding=_number(of_kind, encoding),
        level_encoding=level_encoding,
        repetition_encoding=repetition_encoding,
        repetition_bytes=repetition_bytes,
        definition_bytes=definition_bytes,
        is_compressed=found != DATA_PAGE_V2 or bool(of_kind.get(_IS_COMPRESSED, 1)),
    )


def _number(fields: Fields, number: int) -> int:
    value = fields.get(number)
    if not isinstance(value, int):
        raise UnknownPages
    return value


def _struct(data: memoryview, at: int, depth: int) -> tuple[Fields, int]:
    """Return the fields of the struct at `at`, and the position behind it."""
    if depth > _DEPTH_MAX:
        raise UnknownPages
    fields: Fields = {}
    number = count = 0
    while (head := data[at]) != STOP:
        at, count = at + 1, count + 1
        if count > _FIELDS_MAX:
            raise UnknownPages
        kind = head & 0x0F
        if head >> 4:
            number += head >> 4
        else:
            number, at = zigzag(data, at)
        if not 0 < number <= _NUMBER_MAX or number in fields:
            raise UnknownPages
        if kind == INT32:
            value, at = zigzag(data, at)
            if not -_INTEGER_MAX <= value <= _INTEGER_MAX:
                raise UnknownPages
            fields[number] = value
        elif kind in INTEGERS:
            _, at = varint(data, at)
        elif kind == STRUCT:
            fields[number], at = _struct(data, at, depth + 1)
        elif kind == BINARY:
            size, at = varint(data, at)
            at += size
        elif kind == BYTE:
            at += 1
        elif kind == DOUBLE:
            at += _DOUBLE_BYTES
        elif kind in (TRUE, FALSE):
            fields[number] = int(kind == TRUE)
        else:
            raise UnknownPages
    return fields, at + 1
