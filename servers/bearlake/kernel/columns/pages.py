"""Values in the pages of a Parquet column: what `encode_columns` takes in place of a decoded column.

A page is the uncompressed content of a data page, version 1, of an optional column of byte arrays in the encoding PLAIN:

    levels_bytes   uint32, little-endian
    levels         runs of bits, 1: the row has a value, 0: it is null
    values         of the rows that have one: size (uint32, little-endian), bytes

A run begins with a varint. If it is even, its half is the number of rows, and one byte 0 or 1 follows. If it is odd, its half is the number
of bytes that follow, with one bit per row, the lowest first; rows behind the last row of the page do not count. Bytes behind the last run
and the last value are ignored, as Arrow does.

Source: Apache Parquet format, "Data Pages", "Encodings" (PLAIN, RLE / bit-packing hybrid).
"""

from collections.abc import Sequence

from bearlake.errors import Corrupt
from bearlake.kernel.buffers import Buffer, view_of

ValuePage = tuple[Buffer, int]
"""The content of a page, and its number of rows."""

_SIZE_BYTES = 4
_RUN_BITS = 32
_RUN_MAX = 2**_RUN_BITS - 1


def read_values(pages: Sequence[ValuePage], row_count: int) -> list[memoryview | None]:
    """Return the value of each row.

    Raises:
        ValueError: the pages do not have `row_count` rows.
        Corrupt: a page is malformed; names its number.
    """
    views = _views(pages, row_count)
    values: list[memoryview | None] = []
    for number, (view, count) in enumerate(views):
        found = _read_page(view, count)
        if found is None:
            raise Corrupt(f"page {number} of the values is malformed")
        values += found
    return values


def check_pages(pages: Sequence[ValuePage], row_count: int) -> None:
    """Raise `ValueError` unless the pages have `row_count` rows."""
    _views(pages, row_count)


def _views(pages: Sequence[ValuePage], row_count: int) -> list[tuple[memoryview, int]]:
    if not isinstance(pages, list):
        raise ValueError("pages is not a list")  # noqa: TRY004 - as the native kernel
    left = row_count
    views = []
    for pair in pages:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ValueError("a page is not a tuple of 2")
        page, count = pair
        if not 0 <= count <= left:
            break
        views.append((view_of(page), count))
        left -= count
    if len(views) < len(pages) or left:
        raise ValueError(f"the pages do not have {row_count} values")
    return views


def _read_page(view: memoryview, count: int) -> list[memoryview | None] | None:
    """Return the values of a page, or None if it is malformed."""
    at = _SIZE_BYTES
    if len(view) < at:
        return None
    end = at + int.from_bytes(view[:at], "little")
    if end > len(view):
        return None
    content = end
    values: list[memoryview | None] = []
    while len(values) < count:
        run, at = _read_run(view, at, end)
        size = run >> 1 if run & 1 else 1
        rows = 8 * size if run & 1 else run >> 1
        if rows <= 0 or at + size > end:
            return None
        bits = int.from_bytes(view[at : at + size], "little")
        at += size
        if not run & 1 and bits > 1:
            return None
        for row in range(min(rows, count - len(values))):
            if not (bits >> row & 1 if run & 1 else bits):
                values.append(None)
                continue
            start = content + _SIZE_BYTES
            content = start + int.from_bytes(view[content:start], "little")
            if start > len(view) or content > len(view):
                return None
            values.append(view[start:content])
    return values


def _read_run(view: memoryview, at: int, end: int) -> tuple[int, int]:
    """Return a run's header and the position behind it; the header is 0 if it is malformed."""
    value = 0
    for shift in range(0, _RUN_BITS, 7):
        if at >= end:
            return 0, at
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value, at) if value <= _RUN_MAX else (0, at)
    return 0, at
