"""Kafka's Produce: requests parsed, admitted to the log and answered.

    produce     the body of a request, or of many that follow each other
    admission   entries that enter the log as they are
    respond     the frame of a response

Source: Apache Kafka, ProduceRequest.json and ProduceResponse.json; KIP-482 (flexible versions from 9 on), KIP-516 (topic ids, 13).
"""

from typing import TypeAlias

ProduceEntry: TypeAlias = tuple[str | bytes, int, int, int, int, int, int, int, int, int, int, int]
"""(topic, index, start, end, status, attributes, record_count, base_timestamp, max_timestamp, producer_id, producer_epoch,
base_sequence)"""

ProduceRequestPlace: TypeAlias = tuple[int, int, int]
"""(end, correlation_id, entry_count) of one Produce request among several; `end` is where its frame ends"""

ProduceResult: TypeAlias = tuple[str | bytes, int, int, int, int, int]
"""(topic, index, error_code, base_offset, log_append_time_ms, log_start_offset)"""

PlainRules: TypeAlias = tuple[bytes, int, int, int, int, int]
"""(stream_id, key of the stream's partition 0, partition_count, batch_bytes_max, earliest base timestamp, latest max timestamp)"""
