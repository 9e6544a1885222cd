"""Kafka's Produce and Fetch: parse requests, admit batches to the log and encode the responses.

    produce     parse the body of a request
    admission   admit entries that need no further checks
    intake      take many consecutive requests at once
    binding     the same for one client and one topic, whose rights and rules were asked before
    respond     encode the frame of a response
    fetch       ordinary Fetch requests and their responses

Source: Apache Kafka, ProduceRequest.json and ProduceResponse.json; KIP-482 (flexible versions from 9 on), KIP-516 (topic ids, 13).
"""

from typing import TypeAlias

ELEMENTS_MAX = 20_000
"""Topics, partitions and tagged fields of one Produce request, and partitions of requests that are parsed together. A malformed partition
takes 8 bytes, and its error as much time as a batch."""

ProduceEntry: TypeAlias = tuple[str | bytes, int, int, int, int, int, int, int, int, int, int, int]
"""(topic, index, start, end, status, attributes, record_count, base_timestamp, max_timestamp, producer_id, producer_epoch,
base_sequence)"""

ProducePlace: TypeAlias = tuple[str | bytes, int]
"""(topic, index) of a batch"""

ProduceResult: TypeAlias = tuple[str | bytes, int, int, int, int, int]
"""(topic, index, error_code, base_offset, log_append_time_ms, log_start_offset)"""

PlainRules: TypeAlias = tuple[bytes, int, int, int, int, int, int]
"""(stream_id, key of the stream's partition 0, partition_count, batch_bytes_max, earliest base timestamp, latest max timestamp,
1 if records are checked)"""

FetchEntry: TypeAlias = tuple[str | bytes, int, int, int, int]
"""(topic, index, current leader epoch or -1, offset, bytes_max) of a partition in a Fetch request"""

FetchAnswer: TypeAlias = tuple[int, int, int, list[memoryview]]
"""(start, end, last stable offset, views of whole batches): what a partition's reader gets"""
