"""Takes the values of a row group out of its pages, for `kernel.encode_pages`: what most data files hold needs no other decoding.

Arrow would copy each value into a column first, and encode copies it again: the first copy takes half as long as to decompress the values.
Here a value is read where its page was decompressed. `pages_of` handles the pages that `writer.py` writes: data pages of version 1,
compressed with zstd, values in the encoding PLAIN. Arrow decodes all others.

Source: Apache Parquet format, "Data Pages".
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from bearlake.errors import Corrupt
from bearlake.kernel import ValuePage
from bearlake.table.file_end import UNREADABLE
from bearlake.table.footer import ColumnChunk
from bearlake.table.page_headers import DATA_PAGE, PLAIN, RLE, Page, UnknownPages, pages

_ZSTD = pa.Codec("zstd")


class ValuePages:
    """The pages of a column chunk. Iterating decompresses each page when it is asked for: memory holds one of them."""

    def __init__(self, chunk: memoryview, places: Sequence[Page], size_bytes: int) -> None:
        self._chunk = chunk
        self._places = places
        self.size_bytes = size_bytes
        """Bytes of the pages, uncompressed."""

    def __iter__(self) -> Iterator[ValuePage]:
        """Yield the pages. Raises `Corrupt` if a page cannot be decompressed."""
        for page in self._places:
            yield _decompressed(self._chunk[page.start : page.end], page.size), page.value_count


def pages_of(chunk: memoryview, column: ColumnChunk) -> ValuePages | None:
    """Return the pages of a column chunk; None if Arrow must decode the column. `chunk` has its bytes in the file."""
    try:
        places = _places(chunk, column)
    except UnknownPages:
        return None
    return ValuePages(chunk, places, sum(place.size for place in places))


def _places(chunk: memoryview, column: ColumnChunk) -> Sequence[Page]:
    places: list[Page] = []
    room = column.size_bytes
    for page in pages(chunk, column.row_count):
        if (page.type, page.encoding, page.level_encoding) != (DATA_PAGE, PLAIN, RLE):
            raise UnknownPages
        if not page.value_count:
            raise UnknownPages
        room -= page.size
        if room < 0:  # a damaged header must not make us take more memory than the footer announces
            raise UnknownPages
        places.append(page)
    return places


def _decompressed(page: memoryview, size: int) -> pa.Buffer:
    try:
        return _ZSTD.decompress(page, decompressed_size=size)
    except UNREADABLE as error:
        raise Corrupt(f"data file: a page of the values: {error}") from error
