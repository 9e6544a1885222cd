"""Record batches v2: checksum, headers and records.

    checksum   CRC32C
    batches    check one batch, iterate over many, write their offsets
    records    the records of a batch: check, decode, find by time
    compressed the records of a whole batch: check them, also if they are compressed
    lz4        the form of LZ4 that all clients read; its decoder (C only: Python has cramjam)
    text       UTF-8 (C only: Python has it)

A record batch v2 (magic 2) begins with this header, big-endian (source: Apache Kafka, "Message format"; KIP-98):

    offset  0  int64   base offset            (not covered by the CRC: assigned at commit)
    offset  8  int32   batch length           (bytes after this field)
    offset 12  int32   partition leader epoch (not covered by the CRC)
    offset 16  int8    magic = 2
    offset 17  uint32  CRC32C of everything from offset 21 on
    offset 21  int16   attributes: 0-2 compression, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon
    offset 23  int32   last offset delta
    offset 27  int64   base timestamp (ms)
    offset 35  int64   max timestamp (ms)
    offset 43  int64   producer id
    offset 51  int16   producer epoch
    offset 53  int32   base sequence
    offset 57  int32   record count
    offset 61  …       records
"""

from enum import IntEnum
from typing import NamedTuple, TypeAlias

HEADER_BYTES = 61
"""Bytes of a record batch before its records."""
RECORDS_MAX = 1_000_000
"""Records that one batch may claim. Compression makes a record cost almost no bytes, so the bytes alone do not bound their number."""


class BatchHeader(NamedTuple):
    """The header of one record batch v2.

    `length` is the size of the whole batch in bytes, header included (the stored length field plus 12). Timestamps are in ms. In a
    batch without a producer id, all three producer fields are -1, whatever the last two fields held (some clients write zeros).
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
    """The result of checking that a producer's bytes are exactly one valid record batch: 0 if valid, else negative.

    Checks run in the order of the numbers, except that `ZSTD_TOO_EARLY`, which only `parse_produce` reports, is checked last. Sources:
    Kafka's broker (ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator.validateBatch) and its
    documented errors.
    """

    OK = 0
    """Exactly one whole, valid record batch."""
    EMPTY = -1
    """There are no bytes."""
    TRUNCATED = -2
    """The bytes end before the batch does, or its length field is smaller than a header."""
    OLD_MAGIC = -3
    """A message set of magic 0 or 1, which producers stopped writing with Kafka 0.11."""
    UNKNOWN_MAGIC = -4
    """The magic byte is not 0, 1 or 2."""
    MANY_BATCHES = -5
    """More bytes follow the first batch."""
    BAD_CRC = -6
    """The CRC32C does not match the bytes."""
    UNKNOWN_COMPRESSION = -7
    """The compression codec is not one of 0-4 (none, gzip, snappy, lz4, zstd)."""
    CONTROL = -8
    """A control batch, which only servers may write."""
    BAD_COUNT = -9
    """The record count is not positive, or exceeds `RECORDS_MAX` or what uncompressed bytes can hold (a record has at least 7 bytes)."""
    BAD_OFFSETS = -10
    """The base offset is not 0, or the last offset delta is not the record count - 1."""
    BAD_PRODUCER = -11
    """There is a producer id, but the epoch or the sequence is negative."""
    BAD_TIMESTAMP = -12
    """The base or max timestamp is below -1, or the batch claims log append time, which only servers may set."""
    ZSTD_TOO_EARLY = -13
    """Zstd in a Produce request below version 7 (KIP-110)."""


SliceLike: TypeAlias = tuple[int, int, int, int, int, int]
"""(partition, base_offset, record_count, position, length, max_timestamp), as `metadata.model.Slice`"""

RecordFields: TypeAlias = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""(offset_delta, timestamp, key, value, headers)"""
