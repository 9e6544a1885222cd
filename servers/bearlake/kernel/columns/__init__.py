"""Records as columns in Arrow's layout: decode batches into columns, and encode columns into batches.

builder   decode many batches into one set of columns (C: builder, decode, memory)
encode    encode columns into batches (C: encode, source)
encode_pages   the same with values in pages, one page after the other
pages     values in the pages of a Parquet column
"""

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Buffer


class DecodeStatus(IntEnum):
    """Why `ColumnBuilder.append` stopped at the position that it returns."""

    OK = 0
    """The position is the end: the columns hold every batch, and encoding them gives the batches as consumers saw them."""
    INEXACT = 1
    """The batch's rows were added but lose part of the batch: a header key that is not UTF-8 was replaced, a timestamp was clamped to
    the years 1 to 9999, a record has attributes, or the batch ends with offsets that have no records."""
    CONTROL = 2
    """A control batch: no rows."""
    UNDECODABLE = 3
    """The batch is inconsistent, cannot be decompressed, or is too large even for empty columns: no rows."""
    OVERFLOW = 4
    """The batch might not fit after the existing rows: no rows yet. Take the columns, then append this batch again."""


class Columns(NamedTuple):
    """Records as columns in Arrow's layout and native byte order; every field except the first supports the buffer protocol.

    Record i, 0 <= i < row_count, has a key if bit i of `key_validity` is set (None: every record has a key), and the key is
    `key_data[key_offsets[i]:key_offsets[i + 1]]`; values likewise. Its headers are those numbered `header_list_offsets[i]` up to
    `header_list_offsets[i + 1]`; the columns hold h headers in total. A header's key is UTF-8 and never null. `timestamp` is in
    microseconds. The columns from `base_offset` on describe the record's batch: its attributes with the codec as produced, and the
    producer fields of its header.

    Source: https://arrow.apache.org/docs/format/Columnar.html, "Variable-size Binary Layout", "Validity bitmaps" (least significant
    bit first).
    """

    row_count: int
    partition_id: "Buffer"
    """int32[row_count]"""
    offset: "Buffer"
    """int64[row_count]"""
    timestamp: "Buffer"
    """int64[row_count]"""
    key_offsets: "Buffer"
    """int32[row_count + 1]"""
    key_data: "Buffer"
    key_validity: "Buffer | None"
    header_list_offsets: "Buffer"
    """int32[row_count + 1]"""
    header_key_offsets: "Buffer"
    """int32[h + 1]"""
    header_key_data: "Buffer"
    header_value_offsets: "Buffer"
    """int32[h + 1]"""
    header_value_data: "Buffer"
    header_value_validity: "Buffer | None"
    value_offsets: "Buffer"
    """int32[row_count + 1]"""
    value_data: "Buffer"
    value_validity: "Buffer | None"
    base_offset: "Buffer"
    """int64[row_count]"""
    attributes: "Buffer"
    """int32[row_count]"""
    producer_id: "Buffer"
    """int64[row_count]"""
    producer_epoch: "Buffer"
    """int32[row_count]"""
    base_sequence: "Buffer"
    """int32[row_count]"""


class EncodedBatch(NamedTuple):
    """A batch that `encode_columns` or `encode_pages` made: offsets [base_offset, end_offset), bytes [position, position + length).

    `attributes` are as produced, codec bits included, although the batch's own header says uncompressed; `max_timestamp` is in ms.
    """

    partition_id: int
    base_offset: int
    end_offset: int
    position: int
    length: int
    attributes: int
    max_timestamp: int
