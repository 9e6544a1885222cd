"""Pulsar entries: stored as record batches, so that Kafka and SQL can read them, and returned to Pulsar clients unchanged.

encode     an entry to a record batch, and the stored form of an entry
decode     a record batch to an entry (with source, known, foreign)
routing    the fields of an entry that a dispatcher needs
sends      SEND commands in a receive buffer, and their receipts
messages   MESSAGE commands for a consumer
fields     Protocol Buffers fields (with base64 and output, C only: Python has them)
"""

from collections.abc import Sequence
from typing import TypeAlias

DeliveryLike: TypeAlias = tuple[int, int, memoryview, int, Sequence[tuple[int, int]]]
"""(base_offset, record_count, batch, redelivery_count, acknowledged), as `streams.subscriptions.model.Delivery`"""

SendEntry: TypeAlias = tuple[int, int, int | None, int, bytes, int, int, int]
"""(producer_id, sequence_id, highest_sequence_id or None, end, batch, record_count, base_timestamp, max_timestamp) of a Pulsar SEND;
`end` is the end of its frame"""

SendIds: TypeAlias = tuple[int, int | None]
"""(sequence_id, highest_sequence_id or None) of a SEND, echoed in its receipt"""
