"""Kafka's internal topics: listed, empty, read-only, and no streams (decision 198). KIP-848 (patterns match them)."""

import asyncio

import pytest

from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.streams.internal_topics import (
    GROUP_OFFSETS,
    INTERNAL,
    NEVER_CREATED,
    SHARE_GROUPS,
    TRANSACTIONS,
    InternalTopic,
)
from bearlake.streams.principal import ANONYMOUS
from fixtures.kafka_server import batch_of, fetch_request, produce_request, values_of
from fixtures.rights import OnlyRights
from fixtures.waiting import WAIT_S, until
from protocols.kafka.server.test_kafka_admin import SET, TOPIC, alter, create, describe, metadata
from protocols.kafka.server.test_kafka_consumer_groups import Member, settled

IDS = {name: view.id_bytes for name, view in INTERNAL.items()}
NAMES = sorted(INTERNAL)


async def pages(client, *names, limit=2000, cursor=None):
    r = m.DescribeTopicPartitionsRequest
    request = r(topics=[r.Topic(name=name) for name in names], response_partition_limit=limit, cursor=cursor)
    return await client.ask(request, 0)


async def use_transactions(client, name="tx"):
    request = m.InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    answer = await client.ask(request, 4)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


def fetched(answer):
    return [
        (part.error_code, part.high_watermark, part.last_stable_offset, part.log_start_offset, part.records)
        for topic in answer.responses
        for part in topic.partitions
    ]


EMPTY = (0, 0, 0, 0, b"")


# -- lists ---------------------------------------------------------------------------------------------------------


async def test_lists_of_all_topics_have_the_topic_of_group_offsets(kafka):
    client = await kafka.client()
    await kafka.create("Topic")
    await kafka.create("topic")

    everything = (await metadata(client)).topics
    described = (await pages(client)).topics
    sizes = (await client.ask(m.DescribeLogDirsRequest(topics=None), 4)).results[0].topics
    resources = (await client.ask(m.ListConfigResourcesRequest(resource_types=[TOPIC]), 1)).config_resources

    assert [(topic.name, topic.is_internal) for topic in everything] == [
        ("Topic", False),
        (GROUP_OFFSETS, True),
        ("topic", False),
    ]
    assert [(topic.name, topic.is_internal) for topic in described] == [
        (topic.name, topic.is_internal) for topic in everything
    ]
    assert [topic.name for topic in sizes] == ["Topic", GROUP_OFFSETS, "topic"]
    assert [found.resource_name for found in resources] == ["Topic", GROUP_OFFSETS, "topic"]


async def test_the_topic_of_transactions_is_listed_once_there_is_a_transactional_id(kafka):
    client = await kafka.client()
    before = [topic.name for topic in (await metadata(client)).topics]

    await use_transactions(client)
    after = [topic.name for topic in (await metadata(client)).topics]

    assert (before, after) == ([GROUP_OFFSETS], [GROUP_OFFSETS, TRANSACTIONS])


async def test_another_server_learns_that_transactions_are_in_use(any_cluster):
    cluster = await any_cluster(2)
    await use_transactions(await cluster[0].client())
    other = await cluster[1].client()

    await cluster[1].streams.transactions.expire()

    assert [topic.name for topic in (await metadata(other)).topics] == [GROUP_OFFSETS, TRANSACTIONS]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("may_create", [True, False])
async def test_an_internal_topic_has_a_partition_with_a_live_leader(kafka, name, may_create):
    client = await kafka.client()

    answer = await metadata(client, name, may_create=may_create)
    by_id = await client.ask(m.MetadataRequest(topics=[m.MetadataRequest.Topic(name=None, topic_id=IDS[name])]), 12)
    described = (await pages(client, name)).topics

    assert [
        (topic.name, topic.topic_id, topic.is_internal, [(p.partition_index, p.leader_id) for p in topic.partitions])
        for topic in answer.topics + by_id.topics + described
    ] == [(name, IDS[name], True, [(0, answer.brokers[0].node_id)])] * 3


async def test_a_page_of_partitions_may_end_before_or_after_an_internal_topic(kafka):
    client = await kafka.client()
    await kafka.create("Topic", 2)
    await kafka.create("topic")

    first = await pages(client, limit=2)
    second = await pages(client, limit=1, cursor=m.DescribeTopicPartitionsRequest.Cursor(topic_name=GROUP_OFFSETS))
    third = await pages(client, limit=1, cursor=m.DescribeTopicPartitionsRequest.Cursor(topic_name="topic"))

    assert [topic.name for page in (first, second, third) for topic in page.topics] == ["Topic", GROUP_OFFSETS, "topic"]
    assert (first.next_cursor.topic_name, second.next_cursor.topic_name) == (GROUP_OFFSETS, "topic")
    assert third.next_cursor is None


async def test_an_internal_topic_needs_the_right_to_describe_it(kafka):
    kafka.streams.authorizer = OnlyRights(())
    client = await kafka.client()

    assert (await metadata(client)).topics == []
    assert (await metadata(client, GROUP_OFFSETS)).topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (await describe(client, TOPIC, GROUP_OFFSETS)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (await client.fetch(GROUP_OFFSETS, 0)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (await client.produce(GROUP_OFFSETS, batch_of())).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (await create(client, GROUP_OFFSETS)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_internal_topics_that_do_not_exist_here_are_not_created_on_demand(kafka):
    client = await kafka.client()

    answer = await metadata(client, *sorted(NEVER_CREATED), may_create=True)

    assert {topic.error_code for topic in answer.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert list(kafka.streams.catalog.names()) == []


async def test_internal_topics_are_no_streams(kafka):
    client = await kafka.client()
    await use_transactions(client)
    await metadata(client, *NAMES, may_create=True)

    assert list(kafka.streams.catalog.names()) == []
    assert await kafka.streams.metadata.streams.list() == []
    assert kafka.streams.catalog.partition_count == 0


@pytest.mark.parametrize("name", NAMES)
async def test_configs_of_an_internal_topic_are_read_only(kafka, name):
    client = await kafka.client()

    answer = await describe(client, TOPIC, name)

    values = {config.name: config.value for config in answer.configs}
    assert (answer.error_code, {config.read_only for config in answer.configs}) == (0, {True})
    policy = "delete" if name == SHARE_GROUPS else "compact"
    assert (values["cleanup.policy"], values["segment.bytes"]) == (policy, "104857600")
    assert values["compression.type"] == ("uncompressed" if name == TRANSACTIONS else "producer")


# -- reads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 19))
async def test_a_fetch_of_an_internal_topic_is_empty(kafka, version):
    client = await kafka.client()
    topic = (lambda name: IDS[name]) if version >= 13 else str

    answer = await client.ask(fetch_request([(topic(name), 0, 0) for name in NAMES]), version)
    beyond = await client.ask(fetch_request([(topic(NAMES[0]), 0, 1), (topic(NAMES[1]), 1, 0)]), version)

    assert [(*item[:4], bytes(item[4])) for item in fetched(answer)] == [
        EMPTY if version >= 5 else (0, 0, 0, -1, b"")
    ] * len(NAMES)
    assert [item[0] for item in fetched(beyond)] == [
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


async def test_a_long_poll_of_an_internal_topic_waits(kafka):
    client = await kafka.client()
    loop = asyncio.get_running_loop()
    begun = loop.time()

    answer = await client.ask(fetch_request([(IDS[GROUP_OFFSETS], 0, 0)], wait_ms=50, bytes_min=1), 16)

    assert round(loop.time() - begun, 3) >= 0.05
    assert fetched(answer) == [EMPTY]


async def test_a_long_poll_of_streams_and_an_internal_topic_ends_with_the_first_record(kafka):
    client, producer = await kafka.client(), await kafka.client()
    topic_id = await kafka.create("t")
    request = fetch_request([(IDS[GROUP_OFFSETS], 0, 0), (topic_id, 0, 0)], wait_ms=int(WAIT_S * 1000), bytes_min=1)
    client.send(request, 16)
    await until(lambda: _has_waiter(kafka))

    await producer.produce("t", batch_of(b"a"))
    answer = await client.receive()

    assert fetched(answer)[0] == EMPTY
    assert [value for _, value in values_of(answer.responses[1].partitions[0].records)] == [b"a"]


def _has_waiter(kafka):
    view = kafka.streams.catalog.peek("t")
    tail = kafka.streams._tail.get(view.partition(0))  # noqa: SLF001 - nothing else shows that a fetch waits
    return tail is not None and bool(tail.waiters)


async def test_a_reader_who_loses_the_right_while_it_waits_gets_no_answer_about_the_topic(kafka):
    client = await kafka.client()
    fetch = kafka.streams.fetch

    async def meanwhile(*arguments, **options):
        found = await fetch(*arguments, **options)
        kafka.streams.authorizer = OnlyRights(())
        return found

    kafka.streams.fetch = meanwhile

    assert (await client.fetch(GROUP_OFFSETS, 0)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("timestamp", "offset"), [(-1, 0), (-2, 0), (-3, -1), (-4, 0), (-5, -1), (-6, -1), (0, -1), (1 << 60, -1)]
)
async def test_an_internal_topic_begins_and_ends_at_offset_0(kafka, name, timestamp, offset):
    client = await kafka.client()

    answer = await client.list_offset(name, timestamp)

    assert (answer.error_code, answer.offset, answer.timestamp) == (0, offset, -1)
    assert answer.leader_epoch == (0 if offset == 0 else -1)


async def test_every_epoch_of_an_internal_topic_ends_at_offset_0(kafka):
    client = await kafka.client()
    r = m.OffsetForLeaderEpochRequest
    partition = r.Partition(partition=0, current_leader_epoch=-1, leader_epoch=0)

    answer = await client.ask(r(replica_id=-1, topics=[r.Topic(topic=GROUP_OFFSETS, partitions=[partition])]), 4)

    found = answer.topics[0].partitions[0]
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 0, 0)


async def test_an_internal_topic_has_no_producers(kafka):
    client = await kafka.client()
    r = m.DescribeProducersRequest

    answer = await client.ask(r(topics=[r.Topic(name=GROUP_OFFSETS, partition_indexes=[0, 1])]), 0)

    assert [(part.error_code, part.active_producers) for part in answer.topics[0].partitions] == [
        (0, []),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
    ]


# -- changes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("name", NAMES)
async def test_nothing_is_appended_to_an_internal_topic(kafka, version, name):
    client = await kafka.client()
    topic = IDS[name] if version >= 13 else name

    answer = await client.ask(produce_request(topic, batch_of(b"a")), version)

    found = answer.responses[0].partition_responses[0]
    assert found.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert version < 8 or found.error_message == f"Cannot append to internal topic {name}"


async def test_requests_to_a_stream_go_on_behind_one_to_an_internal_topic(kafka):
    client = await kafka.client()
    await kafka.create("t")
    for topic in ("t", GROUP_OFFSETS, "t"):
        client.send(produce_request(topic, batch_of(b"a")), 9)

    answers = [await client.receive() for _ in range(3)]

    assert [answer.responses[0].partition_responses[0].error_code for answer in answers] == [
        0,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        0,
    ]


async def test_an_internal_topic_cannot_be_part_of_a_transaction(kafka):
    client = await kafka.client()
    producer_id, epoch = await use_transactions(client)
    r = m.AddPartitionsToTxnRequest
    request = r(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[r.Topic(name=TRANSACTIONS, partitions=[0])],
    )

    answer = await client.ask(request, 3)

    (found,) = answer.results_by_topic_v3_and_below[0].results_by_partition
    assert found.partition_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize("name", NAMES)
async def test_an_internal_topic_exists_already(kafka, name, validate_only):
    client = await kafka.client()

    answer = await create(client, name, validate_only=validate_only)

    assert (answer.error_code, answer.error_message) == (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        f"Topic '{name}' already exists.",
    )


async def test_no_protocol_creates_a_stream_of_an_internal_name(kafka):
    for name in NAMES:
        with pytest.raises(InternalTopic):
            await kafka.streams.create(ANONYMOUS, name, 1, {})


async def test_an_internal_topic_is_not_deleted_and_the_others_are(kafka):
    client = await kafka.client()
    await kafka.create("a")
    await kafka.create("b")
    r = m.DeleteTopicsRequest
    topics = [r.Topic(name=name) for name in ("a", *NAMES, "b")] + [r.Topic(name=None, topic_id=IDS[GROUP_OFFSETS])]

    answer = await client.ask(r(topics=topics), 6)

    refused = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert [topic.error_code for topic in answer.responses] == [0, *[refused] * len(NAMES), 0, refused]
    assert "internal topic" in answer.responses[1].error_message
    assert [topic.name for topic in (await metadata(client)).topics] == [GROUP_OFFSETS]


@pytest.mark.parametrize("offset", [-1, 0, 5])
async def test_no_records_of_an_internal_topic_are_deleted(kafka, offset):
    client = await kafka.client()
    r = m.DeleteRecordsRequest
    partition = r.Partition(partition_index=0, offset=offset)

    answer = await client.ask(r(topics=[r.Topic(name=GROUP_OFFSETS, partitions=[partition])], timeout_ms=1000), 2)

    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_an_internal_topic_keeps_its_partitions_and_configs(kafka):
    client = await kafka.client()
    p, a = m.CreatePartitionsRequest, m.AlterConfigsRequest

    grown = await client.ask(p(topics=[p.Topic(name=GROUP_OFFSETS, count=50, assignments=None)], timeout_ms=1000), 3)
    altered = await alter(client, GROUP_OFFSETS, ("retention.ms", SET, "1"))
    resource = a.Resource(
        resource_type=TOPIC, resource_name=GROUP_OFFSETS, configs=[a.Config(name="retention.ms", value="1")]
    )
    replaced = await client.ask(a(resources=[resource]), 2)

    codes = [grown.results[0].error_code, altered.error_code, replaced.responses[0].error_code]
    assert codes == [ErrorCode.INVALID_TOPIC_EXCEPTION] * 3


# -- streams of older versions -------------------------------------------------------------------------------------


async def test_a_stream_of_an_older_version_under_an_internal_name_is_an_ordinary_stream(kafka):
    client = await kafka.client()
    await kafka.streams.catalog.create(GROUP_OFFSETS, 3, {})

    topics = (await metadata(client)).topics
    produced = await client.produce(GROUP_OFFSETS, batch_of(b"a"))
    read = await client.fetch(GROUP_OFFSETS, 0)
    by_id = await client.ask(fetch_request([(IDS[GROUP_OFFSETS], 0, 0)]), 16)

    assert [(topic.name, topic.is_internal, len(topic.partitions)) for topic in topics] == [(GROUP_OFFSETS, False, 3)]
    assert (produced.error_code, [value for _, value in values_of(read.records)]) == (0, [b"a"])
    assert fetched(by_id)[0][0] == ErrorCode.UNKNOWN_TOPIC_ID
    assert (await create(client, GROUP_OFFSETS)).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert (await alter(client, GROUP_OFFSETS, ("retention.ms", SET, "1"))).error_code == 0

    deleted = await client.ask(m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.Topic(name=GROUP_OFFSETS)]), 6)

    assert deleted.responses[0].error_code == 0
    assert [(topic.name, topic.is_internal) for topic in (await metadata(client)).topics] == [(GROUP_OFFSETS, True)]


# -- consumer groups -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [(".*", {GROUP_OFFSETS, "t"}), ("__.*", {GROUP_OFFSETS}), (r"__consumer_offsets", {GROUP_OFFSETS}), ("t", {"t"})],
)
async def test_a_pattern_matches_internal_topics_as_in_kafka(any_cluster, pattern, expected):
    cluster = await any_cluster(1)
    kafka = cluster[0]
    ids = IDS | {"t": await kafka.create("t")}
    member = Member(await kafka.client(), "m")

    await member.join(subscribed_topic_names=None, subscribed_topic_regex=pattern)
    described = await settled(member)

    assert member.has == {ids[name]: {0} for name in expected}
    assert {topic.topic_name for topic in described.members[0].assignment.topic_partitions} == expected


async def test_a_pattern_follows_the_topic_of_transactions(kafka):
    member = Member(await kafka.client(), "m")
    await member.join(subscribed_topic_names=None, subscribed_topic_regex="__.*")
    await settled(member)

    await use_transactions(member.client)
    async with asyncio.timeout(WAIT_S):
        while set(member.has) != {IDS[GROUP_OFFSETS], IDS[TRANSACTIONS]}:
            await settled(member)


async def test_a_member_of_an_internal_topic_keeps_it_and_its_offset_when_another_server_takes_the_group(any_cluster):
    cluster = await any_cluster(2)
    member = Member(await cluster[0].client(), "m")
    await member.join(GROUP_OFFSETS)
    await settled(member)

    assert await member.commit(IDS[GROUP_OFFSETS], 0) == 0
    assert await member.commit(bytes(16), 0, topic=GROUP_OFFSETS, version=9) == 0
    await cluster[0].streams.coordinator.ownership.drain()
    member.client = await cluster[1].client()
    await settled(member)

    assert member.has == {IDS[GROUP_OFFSETS]: {0}}
    r = m.OffsetFetchRequest
    chosen = [r.GroupTopic(name=GROUP_OFFSETS, topic_id=IDS[GROUP_OFFSETS], partition_indexes=[0])]
    for version in (9, 10):
        for topics in (chosen, None):
            answer = await member.client.ask(r(groups=[r.Group(group_id="g", topics=topics)]), version)
            (topic,) = answer.groups[0].topics
            assert [(p.error_code, p.committed_offset) for p in topic.partitions] == [(0, 0)]


async def test_the_offset_of_an_internal_topic_is_deleted(kafka):
    member = Member(await kafka.client(), "m")
    await member.join(GROUP_OFFSETS)
    await settled(member)
    await member.commit(IDS[GROUP_OFFSETS], 0)
    await member.beat(member_epoch=-1)
    r, o = m.OffsetDeleteRequest, m.OffsetFetchRequest
    topics = [r.Topic(name=GROUP_OFFSETS, partitions=[r.Partition(partition_index=0)])]

    answer = await member.client.ask(r(group_id="g", topics=topics), 0)
    left = await member.client.ask(o(groups=[o.Group(group_id="g", topics=None)]), 9)

    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
    assert left.groups[0].topics == []
