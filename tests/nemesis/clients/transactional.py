"""Transactions of librdkafka over several partitions of one topic, and a reader of committed records."""

import time
from collections.abc import Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import IsolationLevel
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from nemesis.recording import Recording, now
from nemesis.script import TRANSACTIONAL_TOPIC, Script

TIMEOUT_S = 15.0
TRANSACTION_MS = 10_000
RECORDS_MAX = 6
ABORTED = 0.2
"""The part of transactions that the application aborts."""
AGAIN = 0.02
"""The part of polls before which the reader starts over."""
ATTEMPTS = 4
"""Calls of `commit_transaction` until the outcome counts as unknown; each waits for at most `TIMEOUT_S`."""


def produce(script: Script) -> None:
    """Run one transactional producer after another, all with the same transactional id."""
    pace = script.pace()
    while script.is_running:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": ",".join(script.addresses("kafka")),
                "client.id": script.life,
                "transactional.id": script.name,
                "transaction.timeout.ms": TRANSACTION_MS,
                "topic.metadata.refresh.interval.ms": 10_000,
                "log_level": 0,
            }
        )
        try:
            producer.init_transactions(TIMEOUT_S)
        except confluent_kafka.KafkaException as error:
            script.history.note(f"init {error.args[0].name()}")
            continue
        end_s = time.monotonic() + script.lifetime_s()
        while script.is_running and time.monotonic() < end_s and _transact(script, producer):
            pace.step()


def _transact(script: Script, producer: Any) -> bool:
    """Run one transaction; returns whether the producer can go on."""
    history, sequence = script.history, now()
    count = script.random.randint(1, RECORDS_MAX)
    writes = [
        (script.random.randrange(script.partition_count), f"{script.life}.{sequence}.{at}") for at in range(count)
    ]
    operation = history.invoke(
        "transact", topic=TRANSACTIONAL_TOPIC, producer=script.name, sequence=sequence, writes=writes
    )
    try:
        producer.begin_transaction()
        for partition, name in writes:
            producer.produce(TRANSACTIONAL_TOPIC, name.encode(), partition=partition)
        if script.random.random() < ABORTED:
            producer.abort_transaction(TIMEOUT_S)
            history.fail(operation, "aborted by the application")
        else:
            commit(producer)
            history.ok(operation)
    except confluent_kafka.KafkaException as raised:
        return _recover(history, operation, producer, raised.args[0])
    return True


def commit(producer: Any) -> None:
    """Commit; repeat the call while the library allows it. Raises `KafkaException`."""
    for attempt in range(ATTEMPTS):
        try:
            producer.commit_transaction(TIMEOUT_S)
        except confluent_kafka.KafkaException as raised:
            if attempt == ATTEMPTS - 1 or not raised.args[0].retriable():
                raise
        else:
            return


def _recover(history: Recording, operation: int, producer: Any, error: Any) -> bool:
    """Abort if the library requires it: then the transaction was not committed. Otherwise nobody knows, and a new producer is needed."""
    history.note(f"transaction {error.name()}")
    if error.txn_requires_abort():
        try:
            producer.abort_transaction(TIMEOUT_S)
        except confluent_kafka.KafkaException as raised:
            history.note(f"abort {raised.args[0].name()}")
        else:
            history.fail(operation, error.name())
            return True
    history.unknown(operation, error.name())
    return False


def read(script: Script) -> None:
    """Read committed records of all partitions; now and then again from the start."""
    consumer = committed_consumer(script.addresses("kafka"), script.life)
    positions: dict[int, int] = {}
    while script.is_running:
        if not positions or script.random.random() < AGAIN:
            positions = dict.fromkeys(range(script.partition_count), 0)
            _assign(consumer, positions)
        asked = now()
        for partition, records in _values(consumer.consume(500, 0.2), script.history).items():
            operation = script.history.invoke(
                "scan", at=asked, topic=TRANSACTIONAL_TOPIC, partition=partition, start=positions[partition]
            )
            script.history.ok(operation, records=records)
            positions[partition] = records[-1][0] + 1
    consumer.close()


def committed_consumer(addresses: Sequence[str], name: str) -> Any:
    """A consumer of committed records that keeps its own positions and reports the end of each partition."""
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": ",".join(addresses),
            "client.id": name,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "topic.metadata.refresh.interval.ms": 10_000,
            "log_level": 0,
        }
    )


def _assign(consumer: Any, positions: dict[int, int]) -> None:
    parts = [confluent_kafka.TopicPartition(TRANSACTIONAL_TOPIC, at, offset) for at, offset in positions.items()]
    consumer.assign(parts)


def scan_whole(
    consumer: Any, history: Recording, topic: str, partition: int, timeout_s: float
) -> list[tuple[int, str, str]] | None:
    """Read a partition without open transactions from its start to its end; returns its records, None: not read in time."""
    operation = history.invoke("scan", topic=topic, partition=partition, whole=True)
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
    records: list[tuple[int, str, str]] = []
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        messages = consumer.consume(1000, 0.2)
        records += _values(messages, history).get(partition, [])
        if any(message.error() is not None and message.error().name() == "_PARTITION_EOF" for message in messages):
            history.ok(operation, records=records)
            return records
    history.unknown(operation, "not read in time")
    return None


def open_partitions(admin: Any, topic: str, partition_count: int, timeout_s: float) -> list[int]:
    """Return the partitions whose last stable offset is below their end. Raises `KafkaException`."""
    parts = [confluent_kafka.TopicPartition(topic, at) for at in range(partition_count)]
    ends: list[dict[int, int]] = []
    for level in IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED:
        asked = admin.list_offsets(
            dict.fromkeys(parts, OffsetSpec.latest()), isolation_level=level, request_timeout=timeout_s
        )
        ends.append({part.partition: answer.result().offset for part, answer in asked.items()})
    return [at for at in range(partition_count) if not 0 <= ends[1][at] <= ends[0][at]]


def _values(messages: Sequence[Any], history: Recording) -> dict[int, list[tuple[int, str, str]]]:
    """Return (offset, value, "") of messages by partition."""
    found: dict[int, list[tuple[int, str, str]]] = {}
    for message in messages:
        if message.error() is None:
            found.setdefault(message.partition(), []).append((message.offset(), message.value().decode(), ""))
        elif message.error().name() != "_PARTITION_EOF":
            history.note(f"consumer {message.error().name()}")
    return found
