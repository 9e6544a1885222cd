"""Names for the attribute bits and special values of a record batch's header.

The kernel parses the header (`bearlake.kernel` has the byte layout).
Source: Apache Kafka, "Message format"; KIP-98 (transactional and control batches), KIP-110 (zstd).
"""

from enum import IntEnum

from bearlake.kernel import HEADER_BYTES, BatchHeader, BatchStatus

__all__ = [
    "ATTRIBUTE_CONTROL",
    "ATTRIBUTE_LOG_APPEND_TIME",
    "ATTRIBUTE_TRANSACTIONAL",
    "COMPRESSION_MASK",
    "HEADER_BYTES",
    "NO_LEADER_EPOCH",
    "NO_PRODUCER",
    "NO_TIMESTAMP",
    "BatchHeader",
    "BatchStatus",
    "Compression",
    "TimestampType",
    "compression",
    "is_control",
    "is_transactional",
    "timestamp_type",
]

COMPRESSION_MASK = 0x07
ATTRIBUTE_LOG_APPEND_TIME = 0x08
ATTRIBUTE_TRANSACTIONAL = 0x10
ATTRIBUTE_CONTROL = 0x20

NO_LEADER_EPOCH = -1
"""The leader epoch of every batch and partition: a leaderless log has no elections (KIP-320)."""
NO_PRODUCER = -1
"""Producer id, epoch and base sequence of a batch that is not idempotent."""
NO_TIMESTAMP = -1
"""Timestamp of a record for which the producer set none."""


class Compression(IntEnum):
    """Codec of a batch's records section: attribute bits 0-2."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """Who set the timestamps: attribute bit 3. With LOG_APPEND_TIME every record's timestamp is the batch's max timestamp."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


def compression(attributes: int) -> Compression:
    """Return the batch's codec.

    Raises:
        ValueError: the codec is unknown (`kernel.inspect` refuses such batches).
    """
    return Compression(attributes & COMPRESSION_MASK)


def timestamp_type(attributes: int) -> TimestampType:
    """Whether the producer or the server set the timestamps."""
    return TimestampType.LOG_APPEND_TIME if attributes & ATTRIBUTE_LOG_APPEND_TIME else TimestampType.CREATE_TIME


def is_transactional(attributes: int) -> bool:
    """Whether the batch is part of a transaction (a control batch is, too)."""
    return bool(attributes & ATTRIBUTE_TRANSACTIONAL)


def is_control(attributes: int) -> bool:
    """Whether the batch holds a transaction marker instead of a producer's records."""
    return bool(attributes & ATTRIBUTE_CONTROL)
