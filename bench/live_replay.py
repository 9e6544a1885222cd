"""Reads a whole stream with a Kafka consumer, and compares its records with those of the producer."""

import time

import confluent_kafka
from bench.errors import BenchError
from bench.live_truth import Truth

TIMEOUT_S = 600.0


def replay(bootstrap: str, stream: str, truth: Truth) -> tuple[int, int]:
    """Return how many records there are, and how many are not those of the producer. Raises `BenchError` if some do not come."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
    )
    parts = [confluent_kafka.TopicPartition(stream, index, 0) for index in range(truth.partition_count)]
    ends = [consumer.get_watermark_offsets(part, timeout=30)[1] for part in parts]
    consumer.assign(parts)
    seen = [0] * len(parts)
    different_count = 0
    deadline_s = time.monotonic() + TIMEOUT_S
    while seen != ends:
        if time.monotonic() > deadline_s:
            raise BenchError(f"the replay has {seen} of {ends} records")
        for message in consumer.consume(10_000, 1.0):
            if message.error() is not None:
                raise BenchError(f"replay: {message.error()}")
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            number = offset * truth.partition_count + partition
            is_next = offset == seen[partition]
            if not is_next or (message.key(), message.value()) != (truth.key(number), truth.value(number)):
                different_count += 1
            seen[partition] = offset + 1
    consumer.close()
    return sum(ends), different_count
