"""Values that the kernel returns: a record batch's header, what is wrong with a batch, and records as columns.

The byte layout is in the docstring of `bearlake.kernel`. Source: Apache Kafka, "Message format"; KIP-98.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import Buffer

HEADER_BYTES = 61
"""Bytes of a record batch before its records."""


class BatchHeader(NamedTuple):
    """The header of one record batch v2.

    `length` is the whole batch in bytes, header included (the stored length field plus 12). Timestamps are in ms. A batch
    without a producer id reads -1 in all three producer fields, whatever the last two held (some clients write zeros).
    """

    length: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


class BatchStatus(IntEnum):
    """Whether a producer's bytes are one record batch in good order; 0 is good, everything else is negative.

    Checks run in the order of the numbers, but `ZSTD_TOO_EARLY`, which only `parse_produce` reports, comes last. Sources: Kafka's
    broker (ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator.validateBatch), by its documented errors.
    """

    OK = 0
    """One whole record batch in good order."""
    EMPTY = -1
    """There is no batch at all."""
    TRUNCATED = -2
    """The bytes end before the batch does, or its length field is smaller than a header."""
    OLD_MAGIC = -3
    """A message set of magic 0 or 1, which producers stopped writing with Kafka 0.11."""
    UNKNOWN_MAGIC = -4
    """The magic byte is none of 0, 1, 2."""
    MANY_BATCHES = -5
    """More bytes follow behind the first batch."""
    BAD_CRC = -6
    """The CRC32C does not match the bytes."""
    UNKNOWN_COMPRESSION = -7
    """The compression codec is none of 0-4 (none, gzip, snappy, lz4, zstd)."""
    CONTROL = -8
    """A control batch, which only servers may write."""
    BAD_COUNT = -9
    """The record count is not positive, or more than the uncompressed bytes could hold (a record has at least 7)."""
    BAD_OFFSETS = -10
    """The base offset is not 0, or the last offset delta is not the record count - 1."""
    BAD_PRODUCER = -11
    """There is a producer id, but the epoch or the sequence is negative."""
    BAD_TIMESTAMP = -12
    """The base or max timestamp is below -1, or the batch claims log append time, which only servers may set."""
    ZSTD_TOO_EARLY = -13
    """Zstd in a Produce request below version 7 (KIP-110)."""


ProduceEntry: TypeAlias = tuple[str | bytes, int, int, int, int, int, int, int, int, int, int, int]
"""(topic, index, start, end, status, attributes, record_count, base_timestamp, max_timestamp, producer_id, producer_epoch,
base_sequence)"""

ProduceRequestPlace: TypeAlias = tuple[int, int, int]
"""(end, correlation_id, entry_count) of one Produce request among several; `end` is where its frame ends"""

ProduceResult: TypeAlias = tuple[str | bytes, int, int, int, int, int]
"""(topic, index, error_code, base_offset, log_append_time_ms, log_start_offset)"""

DeliveryLike: TypeAlias = "tuple[int, int, memoryview, int, Sequence[tuple[int, int]]]"
"""(base_offset, record_count, batch, redelivery_count, acknowledged), as `streams.subscriptions.model.Delivery`"""

SendEntry: TypeAlias = tuple[int, int, int | None, int, bytes, int, int, int]
"""(producer_id, sequence_id, highest_sequence_id or None, end, batch, record_count, base_timestamp, max_timestamp) of a Pulsar SEND;
`end` is where its frame ends"""

SendIds: TypeAlias = tuple[int, int | None]
"""(sequence_id, highest_sequence_id or None) of a SEND, echoed in its receipt"""

SliceLike: TypeAlias = tuple[int, int, int, int, int, int]
"""(partition, base_offset, record_count, position, length, max_timestamp), as `metadata.model.Slice`"""

RecordFields: TypeAlias = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""(offset_delta, timestamp, key, value, headers)"""


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


class HoldLike(Protocol):
    """Memory that stays unchanged while it is held, as `streams.append.Hold`."""

    def acquire(self, count: int = 1) -> None:
        """`count` more holders."""

    def release(self, count: int = 1) -> None:
        """`count` holders less."""


ProduceOutcome: TypeAlias = tuple[int, int, int]
"""(verdict, base_offset, start_offset) of one batch; verdict 0: it was appended"""

AppendLike: TypeAlias = (
    "tuple[int, bytes, bytes | bytearray | memoryview, HoldLike | None, int, int, int, int, int, int, int, int]"
)
"""(partition, stream_id, batch, hold, record_count, max_timestamp, producer_id, producer_epoch, base_sequence, flags,
expected_offset, after_sequence), as `streams.append.Append`"""

CommitLike: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int]
"""(partition, position, length, record_count, max_timestamp, producer_id, producer_epoch, base_sequence, flags,
expected_offset, after_sequence), as `metadata.model.BatchCommit`"""

PlainRules: TypeAlias = tuple[bytes, int, int, int, int, int]
"""(stream_id, key of the stream's partition 0, partition_count, batch_bytes_max, earliest base timestamp, latest max timestamp)"""


class Call(Protocol):
    """What waits for the outcomes of its batches, as `streams.append.AppendCall`."""

    results: list[ProduceOutcome]
    waiting: int


QueuedBatch: TypeAlias = tuple[Call, int, AppendLike]
"""A batch on its way: its call, its place in the call, and itself"""
