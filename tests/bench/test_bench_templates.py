"""Templates of the benchmarks: batches that real clients read, frames that an independent codec decodes."""

import json
import warnings
from datetime import timedelta
from importlib import import_module

import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from bench.templates import BatchShape, Codec
from kio.schema.request_header.v1.header import RequestHeader as RequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as RequestHeaderV2
from kio.serial import entity_reader

from bench import templates

with warnings.catch_warnings():  # kafka-python 3.0 reads its schemas through a deprecated function
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords as KafkaPythonRecords

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_batch_is_read_by_kafka_python_with_its_checksum_timestamps_and_values(codec: Codec) -> None:
    octets = templates.record_batch(BatchShape(record_count=5, record_bytes=200, codec=codec), now_ms=NOW_MS)

    batch = KafkaPythonRecords(octets).next_batch()
    assert batch.validate_crc()
    records = list(batch)

    assert [record.offset for record in records] == [0, 1, 2, 3, 4]
    assert [record.timestamp for record in records] == [NOW_MS + delta for delta in range(5)]
    assert all(len(record.value) == 200 and json.loads(record.value)["event"] == "click" for record in records)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_batch_is_read_by_aiokafka_with_its_checksum(codec: Codec) -> None:
    octets = templates.record_batch(BatchShape(record_count=64, record_bytes=1024, codec=codec))

    batch = AiokafkaRecords(octets).next_batch()
    assert batch is not None
    assert batch.validate_crc()

    assert [len(record.value) for record in batch] == [1024] * 64


def test_a_codec_makes_the_batch_smaller() -> None:
    sizes = {
        codec: len(templates.record_batch(BatchShape(record_count=100, record_bytes=1024, codec=codec)))
        for codec in templates.CODEC_BITS
    }

    assert sizes["zstd"] < sizes["lz4"] < sizes["none"]


def test_the_1_mib_request_stays_below_the_largest_batch_that_a_broker_takes_by_default() -> None:
    batch = templates.record_batch(BatchShape(record_count=1000, record_bytes=1024))

    assert 1_000_000 < len(batch) <= 1_048_588  # Kafka's message.max.bytes


def test_records_of_another_size_than_asked_for_are_refused() -> None:
    with pytest.raises(ValueError, match="a record of 20 bytes"):
        templates.record_batch(BatchShape(record_count=1, record_bytes=20))


def test_the_checksum_is_crc32c() -> None:
    assert templates.crc32c(b"123456789") == 0xE3069283  # RFC 3720, check value of the polynomial


@pytest.mark.parametrize("version", [7, 8, 9])
def test_a_produce_frame_carries_the_batch_once_for_each_partition(version: int) -> None:
    batch = templates.record_batch(BatchShape(record_count=2, record_bytes=128))
    frame = templates.produce_request(batch, [3, 7, 200], topic="events", version=version)

    request = _decode(frame, "produce", version, "ProduceRequest")

    assert (request.transactional_id, request.acks, request.timeout) == (None, -1, timedelta(seconds=30))
    (topic,) = request.topic_data
    assert topic.name == "events"
    assert [(part.index, part.records) for part in topic.partition_data] == [(3, batch), (7, batch), (200, batch)]


@pytest.mark.parametrize("version", [4, 12])
def test_a_fetch_frame_shares_its_bytes_among_the_partitions(version: int) -> None:
    frame = templates.fetch_request([1, 2], topic="events", bytes_max=2_000_000, start=17, version=version)

    request = _decode(frame, "fetch", version, "FetchRequest")

    assert request.max_bytes == 2_000_000
    (topic,) = request.topics
    assert topic.topic == "events"
    assert [(part.partition, part.fetch_offset) for part in topic.partitions] == [(1, 17), (2, 17)]
    assert {part.partition_max_bytes for part in topic.partitions} == {1_000_000}


def test_connections_share_no_partition() -> None:
    owned = [set(templates.partitions_of(connection, 100)) for connection in range(10)]

    assert set.union(*owned) == set(range(1000))


def _decode(frame, api: str, version: int, name: str):
    """Decode a frame to its last byte with kio."""
    module = import_module(f"kio.schema.{api}.v{version}.request")
    kind = getattr(module, name)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header = RequestHeaderV2 if kind.__flexible__ else RequestHeaderV1
    head, head_bytes = entity_reader(header)(frame, 4)
    assert (head.request_api_version, head.client_id) == (version, templates.CLIENT_ID)
    request, body_bytes = entity_reader(kind)(frame, 4 + head_bytes)
    assert 4 + head_bytes + body_bytes == len(frame)
    return request
