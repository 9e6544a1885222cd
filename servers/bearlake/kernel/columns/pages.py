"""Values in the pages of a Parquet column: what `encode_pages` takes in place of a decoded column.

A page is the uncompressed content of a data page, version 1, of an optional column of byte arrays in the encoding PLAIN:

    levels_bytes   uint32, little-endian
    levels         runs of bits, 1: the row has a value, 0: it is null
    values         of the rows that have one: size (uint32, little-endian), bytes

A run begins with a varint. If it is even, its half is the number of rows, and one byte 0 or 1 follows. If it is odd, its half is the number
of bytes that follow, with one bit per row, the lowest first; rows behind the last row of the page do not count. Bytes behind the last run
and the last value are ignored, as Arrow does.

Source: Apache Parquet format, "Data Pages", "Encodings" (PLAIN, RLE / bit-packing hybrid).
"""

from collections.abc import Iterable, Iterator

from bearlake.errors import Corrupt
from bearlake.kernel.buffers import Buffer, view_of

ValuePage = tuple[Buffer, int]
"""The content of a page, and its number of rows."""

_BAD = memoryview(b"")
_OTHER_COUNT = "the pages do not have as many values as the columns have rows"
_SIZE_BYTES = 4
_RUN_BITS = 32
_RUN_MAX = 2**_RUN_BITS - 1


def values_of(pages: Iterable[ValuePage], row_count: int) -> Iterator[memoryview | None]:
    """Yield the value of each row. Asks for a page when the values of the one before have been used.

    Raises:
        ValueError: the pages do not have `row_count` rows.
        Corrupt: a page is malformed; names its number.
    """
    left = row_count
    for number, pair in enumerate(pages):
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ValueError("a page is not a tuple of 2")
        page, count = pair
        if not 0 <= count <= left:
            raise ValueError(_OTHER_COUNT)
        left -= count
        for value in _values(view_of(page), count):
            if value is _BAD:
                raise Corrupt(f"page {number} of the values is malformed")
            yield value
    if left:
        raise ValueError(_OTHER_COUNT)


def _values(view: memoryview, count: int) -> Iterator[memoryview | None]:
    """Yield the values of a page, or `_BAD` where it is malformed."""
    at = _SIZE_BYTES
    end = at + int.from_bytes(view[:at], "little")
    if len(view) < at or end > len(view):
        yield _BAD
        return
    content = end
    while count:
        run, at = _read_run(view, at, end)
        size = run >> 1 if run & 1 else 1
        rows = 8 * size if run & 1 else run >> 1
        bits = int.from_bytes(view[at : at + size], "little")
        if rows <= 0 or at + size > end or (not run & 1 and bits > 1):
            yield _BAD
            return
        at += size
        for row in range(min(rows, count)):
            count -= 1
            if not (bits >> row & 1 if run & 1 else bits):
                yield None
                continue
            start = content + _SIZE_BYTES
            content = start + int.from_bytes(view[content:start], "little")
            if start > len(view) or content > len(view):
                yield _BAD
                return
            yield view[start:content]


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
