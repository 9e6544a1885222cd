"""A topic with key compaction: producers that write few keys again and again, and readers of whole partitions, by librdkafka."""

import time
from typing import Any

import confluent_kafka

from fixtures.kafka_bounds import bounds
from nemesis.clients.kafka import TIMEOUT_S, by_partition, produce_keyed
from nemesis.recording import Recording
from nemesis.script import CLEANED_TOPIC, Script

CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.3",
    "table.on_compaction": "latest",
    "table.freshness_ms": "3000",
}
"""The configs of the topic: it is cleaned every few seconds."""
PAUSE_S = 1.0
READ_S = 60.0
"""Longest time for one partition."""
produce = produce_keyed


def read(script: Script) -> None:
    """Read one partition after another from its start to its end."""
    while script.is_running:
        consumer = whole_consumer(script.addresses("kafka"), script.life)
        try:
            bootstrap = ",".join(script.addresses("kafka"))
            survey(consumer, bootstrap, script.history, script.random.randrange(script.partition_count), READ_S)
        finally:
            consumer.close()
        script.pause(PAUSE_S)


def whole_consumer(addresses: Any, name: str) -> Any:
    """A consumer without a group that reports the end of each partition."""
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": ",".join(addresses),
            "client.id": name,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "topic.metadata.refresh.interval.ms": 10_000,
            "log_level": 0,
        }
    )


def survey(consumer: Any, bootstrap: str, history: Recording, partition: int, timeout_s: float) -> int | None:
    """Read a partition from its start to its end; returns the number of its records, None: not read in time.

    The end is asked for when a server has shown one. What a cleaning removed before the reader came by was superseded before then.
    """
    operation = history.invoke("survey", log=(CLEANED_TOPIC, partition))
    part = confluent_kafka.TopicPartition(CLEANED_TOPIC, partition, 0)
    consumer.assign([part])
    records: list[tuple[int, str, str]] = []
    end: int | None = None
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        messages = consumer.consume(1000, 0.2)
        is_end = any(message.error() is not None and message.error().name() == "_PARTITION_EOF" for message in messages)
        records += by_partition([found for found in messages if found.error() is None], history.note).get(partition, [])
        try:
            if is_end and end is None:
                end = bounds(bootstrap, part, TIMEOUT_S)[1]
        except confluent_kafka.KafkaException as error:
            history.note(f"bounds {error.args[0].name()}")
            break
        if end is not None and (end == 0 or (records and records[-1][0] >= end - 1)):
            history.ok(operation, records=records)
            return len(records)
    history.unknown(operation, "not read in time")
    return None
