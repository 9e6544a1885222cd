"""Reads from the content of Parquet's pages what bounds their memory: the rows in them, and the bytes that their texts may have.

Source: Apache Parquet format, "Data Pages", "Encodings".
"""

from typing import Final, NamedTuple

import pyarrow as pa

from bearlake.table.compact_protocol import Malformed
from bearlake.table.delta_integers import sum_of
from bearlake.table.file_budget import FileBudget
from bearlake.table.file_end import UNREADABLE
from bearlake.table.page_headers import RLE, Page, UnknownPages
from bearlake.table.repetition_levels import row_starts

_LENGTH_BYTES: Final = 4


class Levels(NamedTuple):
    """The largest levels of a column."""

    repetition: int
    definition: int


def longest_text(chunk: memoryview, page: Page, compression: str, budget: FileBudget) -> int:
    """Return the most bytes that a text in a dictionary may have."""
    content = _content(chunk, page, compression, budget)
    if content is None:
        return page.memory_bytes
    at = longest = 0
    while budget.steps(1):
        if at + _LENGTH_BYTES > len(content):
            return min(longest, page.memory_bytes)
        size = int.from_bytes(content[at : at + _LENGTH_BYTES], "little")
        longest = max(longest, size)
        at += _LENGTH_BYTES + size
    return min(max(longest, len(content) - at), page.memory_bytes)


def rows_of(
    chunk: memoryview, page: Page, compression: str, levels: Levels, budget: FileBudget
) -> tuple[bool, int] | None:
    """Return whether a page begins with a new row, and how many rows begin in it; None: only Arrow can tell, or the budget has no steps.

    The levels say so. The number of rows that a page of version 2 claims may be wrong. Raises `UnknownPages`.
    """
    if page.repetition_bytes >= 0:
        packed = chunk[page.start : min(page.end, page.start + page.repetition_bytes)]
    elif page.repetition_encoding != RLE:
        raise UnknownPages("its levels have an old encoding")
    else:
        content = _content(chunk, page, compression, budget)
        if content is None:
            return None
        packed = content[_LENGTH_BYTES : _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")]
    try:
        return row_starts(packed, page.value_count, levels.repetition.bit_length(), budget)
    except (IndexError, Malformed):
        raise UnknownPages("its levels are damaged") from None


def delta_text_bytes(chunk: memoryview, page: Page, compression: str, levels: Levels, budget: FileBudget) -> int:
    """Return the bytes of the texts of a page in DELTA_BYTE_ARRAY, or more: each has a part of the one before it. Raises `UnknownPages`."""
    values = _values(chunk, page, compression, levels, budget)
    try:
        prefixes = None if values is None else sum_of(values, 0, page.value_count, budget)
    except (IndexError, Malformed):
        raise UnknownPages("its lengths are damaged") from None
    return page.value_count * page.memory_bytes if prefixes is None else prefixes.total + page.memory_bytes


def _values(chunk: memoryview, page: Page, compression: str, levels: Levels, budget: FileBudget) -> memoryview | None:
    """Return a page's content behind its levels; None: only Arrow can tell where it is, or the budget has no steps."""
    if page.repetition_bytes >= 0:
        level_bytes = page.repetition_bytes + max(0, page.definition_bytes)
        inner = page._replace(start=min(page.end, page.start + level_bytes), size=max(0, page.size - level_bytes))
        return _content(chunk, inner, compression, budget) if page.is_compressed else None
    content = _content(chunk, page, compression, budget)
    if content is None or page.level_encoding != RLE:
        return None
    for level in levels:
        if level:
            content = content[_LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little") :]
    return content


def _content(chunk: memoryview, page: Page, compression: str, budget: FileBudget) -> memoryview | None:
    """Return the bytes of a dictionary, or of a data page of version 1.

    None: only Arrow can decompress it, such as Hadoop's LZ4, or the budget has no steps.
    """
    content = chunk[page.start : page.end]
    if compression == "UNCOMPRESSED":
        return content
    if not budget.decompression(page.size):
        return None
    try:
        codec = pa.Codec("lz4_raw" if compression == "LZ4" else compression.lower())
        return memoryview(codec.decompress(content, decompressed_size=page.size)).cast("B")
    except UNREADABLE:
        return None
