"""Pulsar entries: stored as record batches, so that Kafka and SQL can read them, and returned to Pulsar clients unchanged.

encode     an entry to a record batch, and the stored form of an entry
decode     a record batch to an entry (with source, known, foreign)
routing    the fields of an entry that a dispatcher needs
sends      SEND commands in a receive buffer, and their receipts
intake     SEND commands in a receive buffer to batches in the write buffer (with send_results, for their receipts)
messages   MESSAGE commands for a consumer
fields     Protocol Buffers fields (with base64 and output, C only: Python has them)
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from bearlake.kernel.log import PartitionKey

DeliveryLike: TypeAlias = tuple[int, int, memoryview, int, Sequence[tuple[int, int]]]
"""(base_offset, record_count, batch, redelivery_count, acknowledged), as `streams.subscriptions.model.Delivery`"""

SendEntry: TypeAlias = tuple[int, int, int | None, int, bytes, int, int, int]
"""(producer_id, sequence_id, highest_sequence_id or None, end, batch, record_count, base_timestamp, max_timestamp) of a Pulsar SEND;
`end` is the end of its frame"""

SendIds: TypeAlias = tuple[int, int | None]
"""(sequence_id, highest_sequence_id or None) of a SEND, echoed in its receipt"""


class SendBinding(NamedTuple):
    """What the next SENDs of a producer have in common: their names, and the limits of the stream."""

    producer_id: int
    """On the connection."""
    partition: PartitionKey
    stream_id: bytes
    """16 bytes."""
    batch_bytes_max: int
    earliest_ms: int
    """Least base timestamp of a batch."""
    latest_ms: int
    """Greatest max timestamp of a batch."""
    stored_id: int
    """Id under which the producer's name is stored; -1: batches name no producer."""
    epoch: int
    newest_sequence: int
    """The greatest sequence that the producer has appended; -1: none."""
    is_deduplicated: int
    """1: a batch has the greater of its SEND's sequence ids; 0: the sequence after the newest one."""
