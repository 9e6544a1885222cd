"""Topics for the runs: created and deleted through an ordinary client, on the peer and on Bearlake alike."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from bench.errors import BenchError
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

TIMEOUT_S = 30
ATTEMPT_TIMEOUT_S = 5
"""For one question: librdkafka waits for a broker that a later answer, of a broker that has not seen it yet, did not name."""


def create(
    address: str,
    topic: str,
    partition_count: int,
    config: Mapping[str, str],
    *,
    replicas: Sequence[Sequence[int]] | None = None,
) -> None:
    """Create `topic` and wait until every partition is usable. Raises BenchError if that fails or takes too long.

    `replicas`: brokers of each partition, its preferred leader first; by default one replica anywhere.
    """
    client = _client(address)
    placed = {"replication_factor": 1} if replicas is None else {"replica_assignment": [list(ids) for ids in replicas]}
    new = NewTopic(topic, num_partitions=partition_count, config=dict(config), **placed)
    _result(client.create_topics([new], request_timeout=TIMEOUT_S)[topic], f"cannot create topic {topic}")
    end = time.monotonic() + TIMEOUT_S
    while not _is_usable(client, topic, partition_count):
        if time.monotonic() > end:
            raise BenchError(f"topic {topic} is not usable after {TIMEOUT_S} s")
        time.sleep(0.05)


def delete(address: str, topic: str) -> None:
    """Delete `topic`; its space is freed later (see `prepare_next_run` of the servers)."""
    client = _client(address)
    _result(client.delete_topics([topic], request_timeout=TIMEOUT_S)[topic], f"cannot delete topic {topic}")


def _is_usable(client: AdminClient, topic: str, partition_count: int) -> bool:
    """Whether each partition's end offset is available: its leader is elected, and knows that it leads."""
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    questions = {TopicPartition(topic, index): latest for index in range(partition_count)}
    try:
        for answer in client.list_offsets(questions, request_timeout=ATTEMPT_TIMEOUT_S).values():
            answer.result(ATTEMPT_TIMEOUT_S)
    except (KafkaException, TimeoutError):
        return False
    return True


def _client(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address, "log_level": 0, "socket.timeout.ms": TIMEOUT_S * 1000})


def _result(answer: "Future[None]", failure: str) -> None:
    try:
        answer.result(TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        raise BenchError(f"{failure}: {error}") from error
