"""A server that follows the log late tells no client that a topic or partition is gone which it does not know yet (decision 157)."""

import asyncio

import pytest

from bearlake.errors import Unavailable
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.streams import catching_up
from bearlake.streams.principal import ANONYMOUS
from fixtures.late_follower import delay, wait_for_question
from fixtures.waiting import WAIT_S
from protocols.kafka.server.test_kafka_consumer_groups import Member
from protocols.kafka.server.test_kafka_groups import commit, committed


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A busy machine must not look like a server that is too far behind."""
    monkeypatch.setattr(catching_up, "WAIT_MS_MAX", WAIT_S * 1000)


async def late_cluster(kafka_cluster):
    """Two servers; the second one knows the topic `old` with one partition, and nothing later until its log is opened."""
    cluster = await kafka_cluster(2)
    await cluster[0].create("old")
    await cluster[1].streams.catalog.find("old")
    return cluster, delay(cluster[1].streams)


async def asked_late(cluster, log, request, version):
    """The second server's answer; its log is opened once the request waits for it."""
    client = await cluster[1].client()
    asking = asyncio.create_task(client.ask(request, version))
    await wait_for_question(cluster[1].streams)
    log.opened.set()
    return await asking


def fetched(answer):
    group = answer.groups[0]
    assert group.error_code == 0
    return [(p.partition_index, p.committed_offset, p.error_code) for topic in group.topics for p in topic.partitions]


async def test_offsets_of_a_topic_id_that_is_new_here_are_read(kafka_cluster):
    cluster, log = await late_cluster(kafka_cluster)
    topic_id = await cluster[0].create("new")
    assert await commit(await cluster[0].client(), 7, topic="new") == 0
    r = m.OffsetFetchRequest
    topic = r.GroupTopic(topic_id=topic_id, partition_indexes=[0])

    answer = await asked_late(cluster, log, r(groups=[r.Group(group_id="g", topics=[topic])]), 10)

    assert fetched(answer) == [(0, 7, 0)]


async def test_the_offset_of_a_partition_that_is_new_here_is_read(kafka_cluster):
    cluster, log = await late_cluster(kafka_cluster)
    streams = cluster[0].streams
    await streams.add_partitions(ANONYMOUS, (await streams.catalog.resolve("old")).stream, 2)
    assert await commit(await cluster[0].client(), 7, topic="old", index=1) == 0
    r = m.OffsetFetchRequest
    topic = r.GroupTopic(name="old", partition_indexes=[0, 1, 2])

    answer = await asked_late(cluster, log, r(groups=[r.Group(group_id="g", topics=[topic])]), 9)

    assert fetched(answer) == [(0, -1, 0), (1, 7, 0), (2, -1, 0)]


async def test_all_offsets_include_those_of_topics_that_are_new_here(kafka_cluster):
    cluster, log = await late_cluster(kafka_cluster)
    await cluster[0].create("new")
    assert await commit(await cluster[0].client(), 7, topic="new") == 0
    r = m.OffsetFetchRequest

    answer = await asked_late(cluster, log, r(groups=[r.Group(group_id="g", topics=None)]), 9)

    assert fetched(answer) == [(0, 7, 0)]


@pytest.mark.parametrize("topics", [[("old", [0, 5])], [("none", [0])], None], ids=["partition", "name", "all"])
async def test_a_member_is_not_told_that_it_has_no_offset_while_the_store_does_not_answer(
    kafka_cluster, monkeypatch, topics
):
    cluster, _ = await late_cluster(kafka_cluster)
    await cluster[0].create("new")
    assert await commit(await cluster[0].client(), 7, topic="new") == 0

    async def fails(*_):
        raise Unavailable("no")

    catalog = cluster[1].streams.catalog
    monkeypatch.setattr(catalog, "catch_up", fails)
    monkeypatch.setattr(catalog._store, "get", fails)  # noqa: SLF001 - the store of this server only
    r = m.OffsetFetchRequest
    asked = topics and [r.GroupTopic(name=name, partition_indexes=indexes) for name, indexes in topics]

    answer = await (await cluster[1].client()).ask(r(groups=[r.Group(group_id="g", topics=asked)]), 9)

    assert answer.groups[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert answer.groups[0].topics == []


@pytest.mark.parametrize("version", [9, 10])
async def test_an_offset_of_a_partition_that_is_new_here_is_committed(kafka_cluster, version):
    cluster, log = await late_cluster(kafka_cluster)
    streams = cluster[0].streams
    old = (await streams.catalog.resolve("old")).stream
    await streams.add_partitions(ANONYMOUS, old, 2)
    r = m.OffsetCommitRequest
    partition = r.Partition(partition_index=1, committed_offset=7, committed_metadata="")
    topic = r.Topic(name="old", topic_id=old.id.bytes, partitions=[partition])
    request = r(group_id="late", generation_id_or_member_epoch=-1, member_id="", topics=[topic])

    if version == 9:  # a topic's name is looked up in the store
        answer = await (await cluster[1].client()).ask(request, version)
    else:
        answer = await asked_late(cluster, log, request, version)

    assert answer.topics[0].partitions[0].error_code == 0


async def test_a_topic_that_is_new_here_is_described_and_deleted_by_its_id(kafka_cluster):
    cluster, log = await late_cluster(kafka_cluster)
    topic_id = await cluster[0].create("new")
    r = m.MetadataRequest
    d = m.DeleteTopicsRequest

    described = await asked_late(cluster, log, r(topics=[r.Topic(topic_id=topic_id, name=None)]), 12)
    log = delay(cluster[1].streams)
    other_id = await cluster[0].create("other")
    deleted = await asked_late(cluster, log, d(topics=[d.Topic(name=None, topic_id=other_id)], timeout_ms=1_000), 6)

    assert [(topic.error_code, topic.name) for topic in described.topics] == [(0, "new")]
    assert [(topic.error_code, topic.name) for topic in deleted.responses] == [(0, "other")]


async def test_a_coordinator_that_takes_over_catches_up_before_it_answers_a_member(kafka_cluster):
    cluster, log = await late_cluster(kafka_cluster)
    topic_id = await cluster[0].create("new", 4)
    a = Member(await cluster[0].client(), "a")
    await a.join("new")
    epoch = a.epoch
    await cluster[0].streams.drain()
    a.client = await cluster[1].client()

    beating = asyncio.create_task(
        a.beat(rebalance_timeout_ms=30_000, subscribed_topic_names=["new"])  # a full request gets its partitions
    )
    await wait_for_question(cluster[1].streams)
    log.opened.set()
    answer = await beating

    assert (answer.error_code, a.epoch, a.has) == (0, epoch, {topic_id: {0, 1, 2, 3}})


async def recreated(cluster, partition_count=1):
    """Delete `old` and create it again on the first server; the second server still knows the deleted topic."""
    streams = cluster[0].streams
    await streams.delete(ANONYMOUS, (await streams.catalog.resolve("old")).stream)
    return await cluster[0].create("old", partition_count)


async def test_the_offset_of_a_topic_that_was_created_again_is_read_by_name(kafka_cluster):
    cluster, _ = await late_cluster(kafka_cluster)
    await recreated(cluster)
    assert await commit(await cluster[0].client(), 7, topic="old") == 0

    found = await committed(await cluster[1].client(), topic="old")

    assert [(item.committed_offset, item.error_code) for item in found] == [(7, 0)]


async def test_an_offset_of_the_deleted_topic_is_not_read_for_the_one_that_was_created_again(kafka_cluster):
    cluster, _ = await late_cluster(kafka_cluster)
    assert await commit(await cluster[0].client(), 500, topic="old") == 0
    await recreated(cluster)

    found = await committed(await cluster[1].client(), topic="old")

    assert [(item.committed_offset, item.error_code) for item in found] == [(-1, 0)]


async def test_an_offset_that_is_committed_by_name_belongs_to_the_topic_that_exists(kafka_cluster):
    cluster, _ = await late_cluster(kafka_cluster)
    await recreated(cluster)

    assert await commit(await cluster[1].client(), 7, topic="old") == 0

    found = await committed(await cluster[0].client(), topic="old")
    assert [(item.committed_offset, item.error_code) for item in found] == [(7, 0)]


async def test_an_offset_of_a_topic_that_was_deleted_elsewhere_is_not_committed(kafka_cluster):
    cluster, _ = await late_cluster(kafka_cluster)
    streams = cluster[0].streams
    await streams.delete(ANONYMOUS, (await streams.catalog.resolve("old")).stream)

    code = await commit(await cluster[1].client(), 7, topic="old")

    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_offsets_of_topics_that_may_be_deleted_are_not_read_or_committed_while_the_store_does_not_answer(
    kafka_cluster, monkeypatch
):
    cluster, _ = await late_cluster(kafka_cluster)
    client = await cluster[1].client()

    async def fails(*_):
        raise Unavailable("no")

    catalog = cluster[1].streams.catalog
    monkeypatch.setattr(catalog._store, "by_numbers", fails)  # noqa: SLF001 - the store of this server only
    r = m.OffsetFetchRequest
    topic = r.GroupTopic(name="old", partition_indexes=[0])

    answer = await client.ask(r(groups=[r.Group(group_id="g", topics=[topic])]), 9)
    code = await commit(client, 7, topic="old")

    assert answer.groups[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
