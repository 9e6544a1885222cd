"""Imports from a real Apache Kafka: consumers of the source and of the target see the same."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.peer_kafka import KafkaPeer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bearlake import kernel
from bearlake.importing.cluster import SourceCluster
from bearlake.importing.copying import Copy
from bearlake.importing.reach import Reach
from bearlake.importing.selection import Selection
from bearlake.importing.settings import CopySettings, SourceSettings
from bearlake.importing.source import Connection
from bearlake.importing.target import Target
from bearlake.protocols.kafka import messages
from fixtures.copied_records import Seen, read_all
from fixtures.kafka_server import Make, Node

pytestmark = [
    pytest.mark.skipif(
        shutil.which("java") is None or shutil.which("mvn") is None, reason="Kafka needs Java and Maven"
    ),
    pytest.mark.timeout(240),
]

TIMEOUT_S = 30.0
POLLS_MAX = 600
CLEANER = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": "10485760",
    "log.retention.check.interval.ms": "200",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0",
    "segment.ms": "100",
    "delete.retention.ms": "86400000",
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaPeer]:
    """A Kafka that cleans at once."""
    with tempfile.TemporaryDirectory() as folder:
        peer = KafkaPeer(Path(folder) / "kafka", settings=CLEANER)
        peer.start()
        yield peer
        peer.stop()


def create(peer: KafkaPeer, name: str, partition_count: int = 1, **configs: str) -> None:
    """Create a topic of the source."""
    named = {key.replace("_", "."): value for key, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": peer.address})
    admin.create_topics([NewTopic(name, partition_count, 1, config=named)])[name].result(TIMEOUT_S)


def producer(peer: KafkaPeer, **settings: Any) -> Producer:
    """A producer for the source."""
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return Producer({"bootstrap.servers": peer.address, "linger.ms": 5, **named})


async def imported(peer: KafkaPeer, target: Node, *names: str) -> Copy:
    """Import these topics."""
    cluster = SourceCluster(peer.address, SourceSettings(fetch_wait_ms=20))
    selection = Selection(cluster, names)
    await selection.look()
    copy = Copy(cluster, Target(target.streams, cluster.cluster_id), selection, CopySettings(pause_ms=10))
    await copy.run(follow=False)
    return copy


async def same(peer: KafkaPeer, target: Node, topic: str, partition_count: int = 1) -> list[Seen]:
    """Assert that consumers see the same in all partitions; return what they see."""
    found = []
    for index in range(partition_count):
        there = await asyncio.to_thread(read_all, peer.address, topic, index)
        here = await asyncio.to_thread(read_all, target.address, topic, index)
        assert here == there
        found.append(here)
    return found


async def fetched(address: str, topic: str, isolation: int) -> list[tuple[int, int, bytes]]:
    """(offset, record count, bytes after the leader epoch) of each batch of partition 0 that one response has."""
    kind = messages.FetchRequest
    partition = kind.Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 26)
    request = kind(
        replica_id=-1, max_wait_ms=100, min_bytes=1, max_bytes=1 << 26, isolation_level=isolation, session_id=0,
        session_epoch=-1, topics=[kind.Topic(topic=topic, partitions=[partition])],
    )  # fmt: skip
    async with await Connection.open(address, SourceSettings(), Reach("Kafka").named_by_user) as connection:
        records = (await connection.ask(request, newest=12)).responses[0].partitions[0].records
    return [
        (base, header.record_count, bytes(records[position + 16 : position + header.length]))
        for position, base, header in kernel.batches(records, 0, len(records))
    ]


async def test_plain_records_of_many_codecs_and_sizes_are_the_same_bytes(kafka: KafkaPeer, kafka_cluster: Make) -> None:
    create(kafka, "plain", 3)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        sender = producer(kafka, compression_type=codec)
        for number in range(60):
            headers = [("n", b"%d" % number), ("n", None), ("codec", codec.encode())]
            sender.produce("plain", b"v" * (number * 37), b"%d" % number, headers=headers, partition=number % 3)
        assert sender.flush(TIMEOUT_S) == 0
    target = (await kafka_cluster())[0]

    copy = await imported(kafka, target, "plain")

    seen = await same(kafka, target, "plain", 3)
    assert [len(part) for part in seen] == [100, 100, 100]
    assert await fetched(target.address, "plain", 0) == await fetched(kafka.address, "plain", 0)
    assert [item.lag for item in copy.partitions] == [0, 0, 0]


async def test_transactions_keep_their_markers_and_aborted_records_are_hidden(
    kafka: KafkaPeer, kafka_cluster: Make
) -> None:
    create(kafka, "transactions")
    sender, other = (producer(kafka, transactional_id=name) for name in ("one", "two"))
    for who in (sender, other):
        who.init_transactions(TIMEOUT_S)
    for number in range(12):
        sender.begin_transaction()
        other.begin_transaction()
        sender.produce("transactions", b"one-%d" % number)
        other.produce("transactions", b"two-%d" % number)
        for who in (sender, other):
            assert who.flush(TIMEOUT_S) == 0
        (sender.commit_transaction if number % 3 else sender.abort_transaction)(TIMEOUT_S)
        (other.commit_transaction if number % 2 else other.abort_transaction)(TIMEOUT_S)
    target = (await kafka_cluster())[0]

    await imported(kafka, target, "transactions")

    (seen,) = await same(kafka, target, "transactions")
    assert len(seen) == 8 + 6
    there, here = await fetched(kafka.address, "transactions", 0), await fetched(target.address, "transactions", 0)
    kept = [batch for batch in here if batch[1]]
    assert set(kept) <= set(there)  # markers and committed batches, byte for byte
    assert len(there) - len(kept) == 4 + 6


async def test_an_open_transaction_is_waited_for(kafka: KafkaPeer, kafka_cluster: Make) -> None:
    create(kafka, "open")
    plain, sender = producer(kafka), producer(kafka, transactional_id="open")
    sender.init_transactions(TIMEOUT_S)
    plain.produce("open", b"before")
    plain.flush(TIMEOUT_S)
    sender.begin_transaction()
    sender.produce("open", b"undecided")
    sender.flush(TIMEOUT_S)
    plain.produce("open", b"after")
    plain.flush(TIMEOUT_S)
    target = (await kafka_cluster())[0]

    await imported(kafka, target, "open")
    (first,) = await same(kafka, target, "open")
    sender.commit_transaction(TIMEOUT_S)
    for _ in range(POLLS_MAX):  # Kafka answers before it has written the marker
        if len(await asyncio.to_thread(read_all, kafka.address, "open")) == 3:
            break
    await imported(kafka, target, "open")
    (second,) = await same(kafka, target, "open")

    assert [row[3] for row in first] == [b"before"]
    assert [row[3] for row in second] == [b"before", b"undecided", b"after"]


async def test_gaps_of_a_compacted_topic_stay_gaps(kafka: KafkaPeer, kafka_cluster: Make) -> None:
    create(kafka, "compacted", **COMPACTED)
    sender = producer(kafka)
    for number in range(400):
        sender.produce("compacted", b"%d" % number, b"%d" % (number % 7))
        if number % 20 == 0:
            assert sender.flush(TIMEOUT_S) == 0
    assert sender.flush(TIMEOUT_S) == 0
    for number in range(POLLS_MAX):  # Kafka begins a segment with a record, and cleans all segments before it
        sender.produce("compacted", b"roll", b"roll-%d" % (number % 2))
        assert sender.flush(TIMEOUT_S) == 0
        if len(seen := await asyncio.to_thread(read_all, kafka.address, "compacted")) < 100:
            break
    assert len(seen) < 100
    target = (await kafka_cluster())[0]

    await imported(kafka, target, "compacted")

    (found,) = await same(kafka, target, "compacted")
    assert found[-1][0] >= 400
