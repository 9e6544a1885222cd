"""Exports to a real Apache Kafka: consumers of the target see what consumers of the source see."""

import asyncio
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.peer_kafka import KafkaPeer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]

from bearlake.app.exporting import Exported, ExportOptions, export_topics
from bearlake.errors import Conflict, Fenced, Invalid
from bearlake.exporting.settings import ExportSettings, ExportSourceSettings, ExportTargetSettings
from bearlake.exporting.target import ExportTarget
from bearlake.importing.batches import Piece, gap
from bearlake.importing.cluster import Connections, SourceCluster, SourceTopic
from bearlake.importing.settings import CopySettings
from bearlake.importing.target import Target
from bearlake.records import codec as record_codec
from bearlake.records.batch import Compression
from bearlake.settings.document import Settings
from fixtures import copied_records
from fixtures.copied_records import Seen, read_all
from fixtures.kafka_server import Make, Node

pytestmark = [
    pytest.mark.skipif(
        shutil.which("java") is None or shutil.which("mvn") is None, reason="Kafka needs Java and Maven"
    ),
    pytest.mark.timeout(240),
]

TIMEOUT_S = 30.0
SETTINGS = Settings(
    exports=ExportSettings(
        source=ExportSourceSettings(fetch_wait_ms=20),
        target=ExportTargetSettings(fetch_wait_ms=20),
        copy=CopySettings(pause_ms=10),
    )
)


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaPeer]:
    """The target."""
    with tempfile.TemporaryDirectory() as folder:
        peer = KafkaPeer(Path(folder) / "kafka")
        peer.start()
        yield peer
        peer.stop()


async def create(address: str, name: str, partition_count: int = 1, **configs: str) -> None:
    """Create a topic."""
    named = {key.replace("_", "."): value for key, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": address})
    made = admin.create_topics([NewTopic(name, partition_count, 1, config=named)])[name]
    await asyncio.to_thread(made.result, TIMEOUT_S)


def producer(address: str, **settings: Any) -> Producer:
    """A producer for this cluster."""
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return Producer({"bootstrap.servers": address, "linger.ms": 5, **named})


async def send(address: str, topic: str, values: list[bytes], **settings: Any) -> None:
    """Produce these values to partition 0, each with a key, a header and a timestamp."""

    def work() -> None:
        sender = producer(address, **settings)
        for number, value in enumerate(values):
            headers: Any = [("n", b"%d" % number), ("n", None)]
            sender.produce(topic, value, b"k%d" % number, 0, headers=headers, timestamp=1_700_000_000_000 + number)
        assert sender.flush(TIMEOUT_S) == 0

    await asyncio.to_thread(work)


async def read(address: str, topic: str, partition: int = 0) -> Seen:
    """`read_all` in a thread."""
    return await asyncio.to_thread(read_all, address, topic, partition)


async def exported(source: Node, target: KafkaPeer, *names: str, **options: Any) -> Exported:
    """Export these topics."""
    wanted = {"verify": True, **options}
    return await export_topics(
        SETTINGS, ExportOptions(source=source.address, target=target.address, patterns=names, **wanted)
    )


async def commit(address: str, group: str, topic: str, offset: int) -> None:
    """Commit an offset of a group without members."""
    await asyncio.to_thread(copied_records.commit, address, group, topic, 0, offset)


async def committed(address: str, group: str, topic: str) -> int:
    """The group's offset; -1001: none."""
    return (await asyncio.to_thread(copied_records.committed, address, group, topic))[0]


def without_offsets(seen: Seen) -> list[Any]:
    """The records without their offsets."""
    return [row[1:] for row in seen]


async def test_plain_records_get_the_same_offsets_in_topics_with_the_same_configs(
    kafka: KafkaPeer, kafka_cluster: Make
) -> None:
    source = (await kafka_cluster())[0]
    await create(source.address, "plain", 3, retention_ms="-1", table_enable="false")

    def work() -> None:
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            sender = producer(source.address, compression_type=codec)
            for number in range(60):
                headers: Any = [("n", b"%d" % number), ("n", None), ("codec", codec.encode())]
                sender.produce("plain", b"v" * (number * 37), b"%d" % number, number % 3, headers=headers)
            assert sender.flush(TIMEOUT_S) == 0

    await asyncio.to_thread(work)

    found = await exported(source, kafka, "pla.*")

    for index in range(3):
        there, here = await read(kafka.address, "plain", index), await read(source.address, "plain", index)
        assert there == here
        assert len(here) == 100
    assert [row["offsets"] for row in found.progress.partitions] == ["same"] * 3
    assert [(item.different, item.missing, item.same_records) for item in found.compared] == [(0, 0, 0)] * 3
    resource = ConfigResource("topic", "plain")
    admin = AdminClient({"bootstrap.servers": kafka.address})
    configs = await asyncio.to_thread(admin.describe_configs([resource])[resource].result, TIMEOUT_S)
    assert configs["retention.ms"].value == "-1"
    assert found.left_configs == {"plain": ["table.enable"]}


async def test_an_export_goes_on_where_the_last_one_ended(kafka: KafkaPeer, kafka_cluster: Make) -> None:
    source = (await kafka_cluster())[0]
    await create(source.address, "again")
    for number in range(3):
        await send(source.address, "again", [b"%d-%d" % (number, index) for index in range(50)])
        found = await exported(source, kafka, "again")
        assert found.progress.lag == 0
        assert [item.different for item in found.compared] == [0]

    assert await read(kafka.address, "again") == await read(source.address, "again")


async def test_transactions_leave_gaps_through_which_groups_are_moved(kafka: KafkaPeer, kafka_cluster: Make) -> None:
    source = (await kafka_cluster())[0]
    await create(source.address, "paid")

    def work() -> None:
        sender = producer(source.address, transactional_id="one")
        sender.init_transactions(TIMEOUT_S)
        for number in range(12):
            sender.begin_transaction()
            for part in range(5):
                sender.produce("paid", b"%d-%d" % (number, part))
            assert sender.flush(TIMEOUT_S) == 0
            (sender.commit_transaction if number % 3 else sender.abort_transaction)(TIMEOUT_S)

    await asyncio.to_thread(work)
    here = await read(source.address, "paid")
    for index in (0, 7, 20, 39):
        await commit(source.address, f"group-{index}", "paid", here[index][0])
    await commit(source.address, "end", "paid", here[-1][0] + 1)

    found = await exported(source, kafka, "paid", groups=True)

    there = await read(kafka.address, "paid")
    assert without_offsets(there) == without_offsets(here)
    assert [row[0] for row in there] == list(range(40))
    assert [row["offsets"] for row in found.progress.partitions] == ["other"]
    assert [(item.different, item.missing) for item in found.compared] == [(0, 0)]
    for index in (0, 7, 20, 39):
        assert await committed(kafka.address, f"group-{index}", "paid") == index
    assert await committed(kafka.address, "end", "paid") == 40
    assert found.refused_groups == {}


async def test_batches_with_gaps_are_sent_without_them_and_other_gaps_are_left_out(
    kafka: KafkaPeer, kafka_cluster: Make
) -> None:
    source = (await kafka_cluster())[0]
    target = Target(source.streams, "elsewhere")
    topic = SourceTopic(name="holes", id=uuid.UUID(int=7), leaders=[""])
    view = await target.ensure(topic, {"cleanup.policy": "compact"})
    for base in (
        0,
        10,
        20,
    ):  # as key compaction leaves batches: record 0 and 3 to 4 of 5, then nothing up to the next one
        batch = record_codec.encode(
            [
                record_codec.Record(key=b"k%d" % (base + delta), value=b"v", timestamp=1_000 + base, offset_delta=delta)
                for delta in (0, 3, 4)
            ],
            codec=Compression.ZSTD,
        )
        piece = Piece(base, base + 5, memoryview(batch), 1_000 + base, False)
        await target.append([(view, 0, piece), *((view, 0, item) for item in gap(base + 5, base + 10))])
    here = await read(source.address, "holes")
    for index in (1, 5, 8):
        await commit(source.address, f"hole-{index}", "holes", here[index][0])
    await commit(source.address, "in-a-gap", "holes", 6)

    found = await exported(source, kafka, "holes", groups=True)
    again = await exported(source, kafka, "holes", groups=True)

    assert [row[0] for row in here] == [0, 3, 4, 10, 13, 14, 20, 23, 24]
    there = await read(kafka.address, "holes")
    assert [row[0] for row in there] == list(range(9))
    assert without_offsets(there) == without_offsets(here)
    for index in (1, 5, 8):
        assert await committed(kafka.address, f"hole-{index}", "holes") == index
    assert await committed(kafka.address, "in-a-gap", "holes") == 3
    for result in (found, again):
        assert result.refused_groups == {}
        assert [(item.same_records, item.missing, item.different) for item in result.compared] == [(9, 0, 0)]
        assert [row["offsets"] for row in result.progress.partitions] == ["other"]


async def test_a_target_that_has_forgotten_the_producer_gets_each_record_once(kafka_cluster: Make) -> None:
    source, target = (await kafka_cluster())[0], (await kafka_cluster())[0]
    await create(source.address, "forgotten")
    await send(source.address, "forgotten", [b"1", b"2"])
    options = ExportOptions(source=source.address, target=target.address, patterns=["forgotten"], verify=True)
    await export_topics(SETTINGS, options)
    await target.streams.metadata.producers.expire(idle_ms=0, limit=100)
    await send(source.address, "forgotten", [b"3", b"4"])

    found = await export_topics(SETTINGS, options)

    assert await read(target.address, "forgotten") == await read(source.address, "forgotten")
    assert [(item.same_batches, item.different) for item in found.compared] == [(2, 0)]


async def test_offsets_of_groups_are_never_moved_back(kafka: KafkaPeer, kafka_cluster: Make) -> None:
    source = (await kafka_cluster())[0]
    await create(source.address, "moving")
    await send(source.address, "moving", [b"%d" % number for number in range(30)])
    await commit(source.address, "ahead", "moving", 10)
    await exported(source, kafka, "moving", groups=True)
    first = await committed(kafka.address, "ahead", "moving")
    await commit(kafka.address, "ahead", "moving", 20)
    await commit(source.address, "ahead", "moving", 15)
    await exported(source, kafka, "moving", groups=True)

    assert first == 10
    assert await committed(kafka.address, "ahead", "moving") == 20


async def test_records_that_were_deleted_first_shift_the_offsets(kafka: KafkaPeer, kafka_cluster: Make) -> None:
    source = (await kafka_cluster())[0]
    await create(source.address, "trimmed")
    await send(source.address, "trimmed", [b"%d" % number for number in range(30)])
    admin = AdminClient({"bootstrap.servers": source.address})
    (deleted,) = admin.delete_records([TopicPartition("trimmed", 0, 12)]).values()
    await asyncio.to_thread(deleted.result, TIMEOUT_S)

    found = await exported(source, kafka, "trimmed")

    (row,) = found.progress.partitions
    assert (row["source_start"], row["target_start"], row["target_end"], row["offsets"]) == (12, 0, 18, "-12")
    there, here = await read(kafka.address, "trimmed"), await read(source.address, "trimmed")
    assert without_offsets(there) == without_offsets(here)
    assert [item.different for item in found.compared] == [0]


async def test_records_of_somebody_else_are_added_to_only_if_asked_for(kafka: KafkaPeer, kafka_cluster: Make) -> None:
    source = (await kafka_cluster())[0]
    await create(source.address, "shared")
    await create(kafka.address, "shared")
    await send(source.address, "shared", [b"ours"])
    await send(kafka.address, "shared", [b"theirs"])

    with pytest.raises(Conflict, match="records that no export has written"):
        await exported(source, kafka, "shared")
    found = await exported(source, kafka, "shared", may_append=True)

    assert [row[3] for row in await read(kafka.address, "shared")] == [b"theirs", b"ours"]
    assert [row["offsets"] for row in found.progress.partitions] == ["+1"]
    assert [(item.start, item.end, item.different) for item in found.compared] == [(1, 2, 0)]


async def test_a_topic_to_which_somebody_else_writes_is_given_up(kafka: KafkaPeer, kafka_cluster: Make) -> None:
    source = (await kafka_cluster())[0]
    await create(source.address, "mixed")
    await create(source.address, "clean")
    for name in ("mixed", "clean"):
        await send(source.address, name, [b"1", b"2"])
    await exported(source, kafka, "mixed", "clean")
    await send(kafka.address, "mixed", [b"foreign"])
    for name in ("mixed", "clean"):
        await send(source.address, name, [b"3", b"4", b"5"])

    found = await exported(source, kafka, "mixed", "clean")

    assert list(found.ended) == ["mixed"]
    assert "somebody else" in found.ended["mixed"]
    assert [row[3] for row in await read(kafka.address, "mixed")] == [b"1", b"2", b"foreign"]
    assert await read(kafka.address, "clean") == await read(source.address, "clean")


async def test_partitions_that_are_added_later_are_added_at_the_target(kafka: KafkaPeer, kafka_cluster: Make) -> None:
    source = (await kafka_cluster())[0]
    await create(source.address, "growing")
    await send(source.address, "growing", [b"1"])
    await exported(source, kafka, "growing")
    await source.streams.catalog.add_partitions((await source.streams.catalog.resolve("growing")).stream, 3)

    found = await exported(source, kafka, "growing")

    assert [row["partition"] for row in found.progress.partitions] == [0, 1, 2]
    assert set(
        AdminClient({"bootstrap.servers": kafka.address}).list_topics("growing").topics["growing"].partitions
    ) == {0, 1, 2}


async def test_a_stream_that_was_created_anew_is_not_mixed_with_the_old_one(
    kafka: KafkaPeer, kafka_cluster: Make
) -> None:
    source = (await kafka_cluster())[0]
    await create(source.address, "anew")
    await send(source.address, "anew", [b"old"])
    await exported(source, kafka, "anew")
    admin = AdminClient({"bootstrap.servers": source.address})
    await asyncio.to_thread(admin.delete_topics(["anew"])["anew"].result, TIMEOUT_S)
    await create(source.address, "anew")
    await send(source.address, "anew", [b"new"])

    with pytest.raises(Conflict, match="an older topic of this name"):
        await exported(source, kafka, "anew")

    assert [row[3] for row in await read(kafka.address, "anew")] == [b"old"]


async def test_a_group_with_members_at_the_target_is_refused_and_others_are_moved(
    kafka: KafkaPeer, kafka_cluster: Make
) -> None:
    source = (await kafka_cluster())[0]
    await create(source.address, "busy")
    await send(source.address, "busy", [b"%d" % number for number in range(10)])
    await exported(source, kafka, "busy")
    for group in ("active", "idle"):
        await commit(source.address, group, "busy", 5)
    member = Consumer({"bootstrap.servers": kafka.address, "group.id": "active", "enable.auto.commit": False})
    member.subscribe(["busy"])
    try:
        while not member.assignment():
            await asyncio.to_thread(member.poll, 0.2)
        found = await exported(source, kafka, "busy", groups=True)
    finally:
        member.close()

    assert list(found.refused_groups) == ["active"]
    assert found.groups == ["idle"]
    assert await committed(kafka.address, "idle", "busy") == 5


async def test_a_cluster_is_not_exported_to_itself(kafka: KafkaPeer, kafka_cluster: Make) -> None:
    source = (await kafka_cluster())[0]
    await create(source.address, "own")

    with pytest.raises(Invalid, match="the same cluster"):
        await export_topics(SETTINGS, ExportOptions(source=source.address, target=source.address, patterns=["own"]))

    assert kafka.address != source.address


async def test_a_newer_export_ends_an_older_one(kafka: KafkaPeer, kafka_cluster: Make) -> None:
    source = (await kafka_cluster())[0]
    await create(source.address, "fenced")
    cluster = SourceCluster(kafka.address, SETTINGS.exports.target)
    async with Connections(cluster) as connections:
        old = ExportTarget(cluster, cluster, SETTINGS.exports.target, connections, may_append=False)
        new = ExportTarget(cluster, cluster, SETTINGS.exports.target, connections, may_append=False)
        await old.begin("one-source")
        await new.begin("one-source")

        with pytest.raises(Fenced):
            await old.ledger.load()
        await new.ledger.load()
