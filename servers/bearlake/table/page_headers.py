"""Reads the headers of Parquet's pages, which pyarrow does not show.

Source: Apache Parquet format, "Data Pages" and `parquet.thrift` (PageHeader); Thrift's compact protocol.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from bearlake.table.compact_protocol import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
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
DELTA_BYTE_ARRAY: Final = 7
RLE_DICTIONARY: Final = 8

# The fields of a PageHeader, and those of the structs in it
_TYPE, _SIZE, _COMPRESSED_SIZE = 1, 2, 3
_VALUE_COUNT, _LEVEL_ENCODING, _REPETITION_ENCODING, _REPETITION_BYTES = 1, 3, 4, 6
_HEADERS: Final = {DATA_PAGE: (5, 2), DICTIONARY_PAGE: (7, 2), DATA_PAGE_V2: (8, 4)}
"""By type of the page: the field of its own header, and therein that of the encoding."""

_DEPTH_MAX = 4
_DOUBLE_BYTES = 8

Fields = dict[int, "int | Fields"]
"""The integers and structs of a struct, by number."""


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
            if page.value_count <= 0 or seen > value_count:
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
    levels = (_LEVEL_ENCODING, _REPETITION_ENCODING) if found == DATA_PAGE else ()
    level_encoding, repetition_encoding = [_number(of_kind, number) for number in levels] or (-1, -1)
    return Page(
        type=found,
        start=at,
        end=end,
        size=size,
        value_count=_number(of_kind, _VALUE_COUNT),
        encoding=_number(of_kind, encoding),
        level_encoding=level_encoding,
        repetition_encoding=repetition_encoding,
        repetition_bytes=_number(of_kind, _REPETITION_BYTES) if found == DATA_PAGE_V2 else -1,
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
    number = 0
    while (head := data[at]) != STOP:
        at += 1
        kind = head & 0x0F
        if head >> 4:
            number += head >> 4
        else:
            number, at = zigzag(data, at)
        if kind in INTEGERS:
            fields[number], at = zigzag(data, at)
        elif kind == STRUCT:
            fields[number], at = _struct(data, at, depth + 1)
        elif kind == BINARY:
            size, at = varint(data, at)
            at += size
        elif kind == BYTE:
            at += 1
        elif kind == DOUBLE:
            at += _DOUBLE_BYTES
        elif kind not in (TRUE, FALSE):
            raise UnknownPages
    return fields, at + 1
