"""Estimates the memory that a column of a row group takes while Arrow decodes it, from the headers of its pages. Never too little.

Source: Apache Parquet format, "Data Pages", "Encodings"; what Arrow keeps of each value was measured.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

import pyarrow.parquet as pq

from bearlake.table.file_budget import FileBudget
from bearlake.table.page_contents import Levels, delta_text_bytes, longest_text, rows_of
from bearlake.table.page_headers import (
    DELTA_BYTE_ARRAY,
    DELTA_LENGTH_BYTE_ARRAY,
    DICTIONARY_PAGE,
    PLAIN_DICTIONARY,
    RLE_DICTIONARY,
    Page,
    UnknownPages,
    pages,
)

_INDEXED: Final = (PLAIN_DICTIONARY, RLE_DICTIONARY)
_TEXT: Final = "BYTE_ARRAY"
_VALUE_BYTES: Final = {"BOOLEAN": 2, "INT32": 4, "INT64": 8, "INT96": 20, "FLOAT": 4, "DOUBLE": 8, _TEXT: 4}
"""Bytes of a value in memory, by physical type; of a text, those of its offset or its index."""
_DECIMAL_BYTES: Final = 32
"""Bytes of a decimal besides the value of which Arrow makes it."""
_LEVEL_BYTES: Final = 4
"""Bytes of a value's levels while it is decoded."""
_OFFSET_BYTES: Final = 4
"""Bytes of the offset that a value has in each of the lists in which it is."""
_ENTRY_BYTES: Final = 64
"""Bytes of a dictionary's value besides its text: where the text is, and its place in Arrow's hash table."""
_TEXT_LENGTH_BYTES: Final = 4
_DELTA_BYTES: Final = {DELTA_LENGTH_BYTE_ARRAY: 4, DELTA_BYTE_ARRAY: 8}
"""Bytes of lengths that Arrow keeps of each value of a page, by encoding."""
_VIEW_BYTES: Final = 16
"""Bytes of a text's place, if its encoding has deltas."""
_PAGE_STEPS: Final = 40
"""Steps in whose time the header of a page is read twice."""
_PARTS_MAX: Final = 8_192
"""Parts of a column. Those of more pages are joined, since a page may be tiny."""


class _Part(NamedTuple):
    """The memory (bytes) that the content of a page takes, which has parts of the rows from `first` to `last`."""

    first: int
    last: int
    size: int


class _Parts:
    """The parts of a column, in order. Neighbours are joined if there are many."""

    def __init__(self) -> None:
        self.all: list[_Part] = []
        self._next = _Part(0, 0, 0)
        self._joined_count = 1
        self._count = 0

    def add(self, first: int, last: int, size: int) -> None:
        """Add the part behind the others."""
        before = self._next
        self._next = _Part(before.first, last, before.size + size) if self._count else _Part(first, last, size)
        self._count += 1
        if self._count == self._joined_count:
            self.end()
            if len(self.all) == _PARTS_MAX:
                pairs = zip(self.all[::2], self.all[1::2], strict=True)
                self.all = [_Part(left.first, right.last, left.size + right.size) for left, right in pairs]
                self._joined_count *= 2

    def end(self) -> list[_Part]:
        """Return all parts."""
        if self._count:
            self.all.append(self._next)
            self._count = 0
        return self.all


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The memory (bytes) that a column takes: once, for each row, and for parts, of which rows take all that they touch.

    `decompressed`: bytes of all its pages, which are in memory one after the other. `copied`: bytes that Arrow copies with each slice.
    """

    path: str
    once: int
    per_row: int = 0
    parts: list[_Part]
    page_count: int
    decompressed: int = 0
    copied: int = 0
    is_indexed: bool
    """Whether texts are to be decoded as indices into the column's dictionary."""

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


class _Summary(NamedTuple):
    """What is known of a column's pages at first."""

    page_count: int
    dictionary: Page | None
    largest: int
    """Bytes of the largest page in memory."""
    decompressed: int
    """Bytes of all pages in memory."""
    once: int
    """Bytes of the largest data page, and of what Arrow keeps of its values."""
    has_plain: bool
    """Whether values are not indices."""
    has_deltas: bool


def cost_of(
    chunk: memoryview,
    column: pq.ColumnChunkMetaData,
    leaf: pq.ColumnSchema,
    *,
    row_count: int,
    bytes_max: int,
    page_count_max: int,
    budget: FileBudget,
) -> Cost:
    """Return the memory of the column `leaf` with at most `page_count_max` pages. Its path is that of the schema, as Arrow's.

    If a page alone takes more than `bytes_max`, nothing is decompressed: it takes that at least.

    Raises:
        UnknownPages: pages are damaged, or of an unknown kind, or more, or have fewer than `row_count` rows.
    """
    path, levels = leaf.path, Levels(leaf.max_repetition_level, leaf.max_definition_level)
    if column.num_values < row_count:
        raise UnknownPages(f"{column.num_values} values are fewer than {row_count} rows")
    found = _summary(islice(pages(chunk, column.num_values), page_count_max + 1), budget)
    if found.page_count > page_count_max:
        raise UnknownPages("the row group has more pages than any engine writes")
    is_text = column.physical_type == _TEXT
    value_bytes = _value_bytes(column, leaf)
    dictionary_bytes = 0
    if (dictionary := found.dictionary) is not None:
        bytes_min = _TEXT_LENGTH_BYTES if is_text else 1
        if not 0 <= dictionary.value_count * bytes_min <= dictionary.memory_bytes:
            raise UnknownPages("a dictionary has more values than bytes")
        dictionary_bytes = 2 * dictionary.memory_bytes + _ENTRY_BYTES * dictionary.value_count
    if max(found.largest, found.once, dictionary_bytes) > bytes_max:
        once = max(found.largest, found.once, dictionary_bytes)
        return Cost(
            path=path,
            once=once,
            parts=[],
            page_count=found.page_count,
            decompressed=found.decompressed,
            is_indexed=False,
        )
    # Arrow refuses columns inside of others if only some of their pages have indices
    is_indexed = is_text and dictionary is not None and ("." not in path or not found.has_plain)
    longest = 0
    if is_text and not is_indexed and dictionary is not None:
        longest = longest_text(chunk, dictionary, column.compression, budget)
    per_value = value_bytes + _LEVEL_BYTES + _OFFSET_BYTES * levels.repetition + levels.definition // 8
    per_value += _VIEW_BYTES if is_text and found.has_deltas else 0
    if levels.repetition:
        data = _data(pages(chunk, column.num_values))
        parts = _parts_of_lists(
            chunk, column, levels, data, row_count, per_value, longest, bytes_max, budget, is_indexed=is_indexed
        )
        per_value = longest = 0
    else:
        data = _data(pages(chunk, column.num_values)) if is_text and found.has_plain else iter(())
        parts = _parts_of_texts(chunk, column, levels, data, budget, is_indexed=is_indexed)
    return Cost(
        path=path,
        once=found.once + dictionary_bytes,
        per_row=per_value + longest,
        parts=parts,
        page_count=found.page_count,
        decompressed=found.decompressed,
        copied=dictionary.memory_bytes if is_indexed and dictionary is not None else 0,
        is_indexed=is_indexed,
    )


def _parts_of_texts(
    chunk: memoryview,
    column: pq.ColumnChunkMetaData,
    levels: Levels,
    data: Iterator[Page],
    budget: FileBudget,
    *,
    is_indexed: bool,
) -> list[_Part]:
    """Return the parts of a column outside of lists, of which a row is a value."""
    parts = _Parts()
    first = 0
    for page in data:
        size = _text_bytes(chunk, page, column.compression, levels, budget, longest=0, is_hashed=is_indexed)
        parts.add(first, max(first, first + page.value_count - 1), size)
        first += page.value_count
    return parts.end()


def _parts_of_lists(
    chunk: memoryview,
    column: pq.ColumnChunkMetaData,
    levels: Levels,
    data: Iterator[Page],
    row_count: int,
    per_value: int,
    longest: int,
    bytes_max: int,
    budget: FileBudget,
    *,
    is_indexed: bool,
) -> list[_Part]:
    """Return the parts of a column inside of lists, whose levels say where rows begin. Raises `UnknownPages`.

    The rows of a page that takes more than `bytes_max` are not looked for: a row takes as much as its page.
    """
    parts = _Parts()
    next_row = 0
    is_counted = True
    for page in data:
        size = page.value_count * per_value
        if column.physical_type == _TEXT:
            size += _text_bytes(chunk, page, column.compression, levels, budget, longest=longest, is_hashed=is_indexed)
        rows = rows_of(chunk, page, column.compression, levels, budget) if size <= bytes_max else None
        if rows is None:
            is_counted = False
            parts.add(0, column.num_values, size)
            continue
        begins_row, count = rows
        first = next_row if begins_row else max(0, next_row - 1)
        next_row += count
        parts.add(first, max(first, next_row - 1), size)
    if is_counted and next_row < row_count:
        raise UnknownPages(f"its levels have {next_row} rows, not {row_count}")
    return parts.end()


def _summary(found: Iterator[Page], budget: FileBudget) -> _Summary:
    dictionary = None
    page_count = largest = once = decompressed = 0
    has_plain = has_deltas = False
    for page in found:
        page_count += 1
        if not budget.steps(_PAGE_STEPS):
            raise UnknownPages("the file has more pages than any engine writes")
        largest = max(largest, page.memory_bytes)
        decompressed += page.memory_bytes
        if page.type == DICTIONARY_PAGE:
            if dictionary is not None:
                raise UnknownPages("it has two dictionaries")
            dictionary = page
        else:
            lengths = _DELTA_BYTES.get(page.encoding, 0)
            once = max(once, page.memory_bytes + lengths * page.value_count)
            has_plain = has_plain or page.encoding not in _INDEXED
            has_deltas = has_deltas or bool(lengths)
    return _Summary(page_count, dictionary, largest, decompressed, once, has_plain, has_deltas)


def _data(found: Iterator[Page]) -> Iterator[Page]:
    return (page for page in found if page.type != DICTIONARY_PAGE)


def _value_bytes(column: pq.ColumnChunkMetaData, leaf: pq.ColumnSchema) -> int:
    """Return the bytes of a value as Arrow decodes it, without those of a text."""
    found = _VALUE_BYTES.get(column.physical_type, leaf.length)
    return int(found) + (_DECIMAL_BYTES if leaf.logical_type.type == "DECIMAL" else 0)


def _text_bytes(
    chunk: memoryview,
    page: Page,
    compression: str,
    levels: Levels,
    budget: FileBudget,
    *,
    longest: int,
    is_hashed: bool,
) -> int:
    """Return the bytes of a page's texts. `longest`: of an index's text. `is_hashed`: the texts go into a dictionary."""
    if page.encoding in _INDEXED:
        return page.value_count * longest
    if page.encoding == DELTA_BYTE_ARRAY:
        return 2 * delta_text_bytes(chunk, page, compression, levels, budget)
    return page.memory_bytes + (page.memory_bytes + page.value_count * _ENTRY_BYTES if is_hashed else 0)
