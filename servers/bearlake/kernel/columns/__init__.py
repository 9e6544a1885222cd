"""Records as columns, laid out as Arrow does: batches taken apart and put together again.

builder   many batches into one set of columns (C: builder, decode, memory)
encode    columns into batches (C: encode, source)
"""

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Buffer


class DecodeStatus(IntEnum):
    """What `ColumnBuilder.append` made of the batch at the position that it returns with it."""

    OK = 0
    """The position is the end: every batch is in the columns, and comes out of them as consumers saw it."""
    INEXACT = 1
    """The batch's rows were added, but they are not all of it: a header key that is not UTF-8 was replaced, a timestamp was clamped to
    int64 microseconds, a record has attributes, or the batch ends in offsets without records."""
    CONTROL = 2
    """A control batch: no rows."""
    UNDECODABLE = 3
    """The batch contradicts itself, cannot be decompressed, or fits no columns: no rows."""
    OVERFLOW = 4
    """The batch might not fit behind the rows that are there: no rows yet. Take the columns and go on with this batch."""


class Columns(NamedTuple):
    """Records as columns, laid out as Arrow does, native byte order; every field but the first has the buffer protocol.

    Record i, 0 <= i < row_count, has a key if bit i of `key_validity` is set (None: they all have one), and the key is
    `key_data[key_offsets[i]:key_offsets[i + 1]]`; values likewise. Its headers have the numbers `header_list_offsets[i]` up to
    `header_list_offsets[i + 1]`, h of them altogether; a header's key is UTF-8 and never null. `timestamp` is in microseconds. Columns
    from `base_offset` on tell of the record's batch: attributes with the codec as produced, producer fields as in its header.

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
    """A batch that `encode_columns` made: the offsets [base_offset, end_offset) are the bytes [position, position + length).

    `attributes` are as produced, codec bits included, while the batch's own header says uncompressed; `max_timestamp` is in ms.
    """

    partition_id: int
    base_offset: int
    end_offset: int
    position: int
    length: int
    attributes: int
    max_timestamp: int
