"""Streams and configs through the admin APIs. KIP-4, KIP-133, KIP-195, KIP-339, KIP-516, KIP-569, KIP-700, KIP-966."""

import asyncio

import pytest

from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.settings import KafkaSettings
from bearlake.streams import configs as stream_configs
from fixtures.kafka_server import batch_of, values_of
from fixtures.waiting import WAIT_S

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


async def create(client, *names, count=1, factor=1, configs=(), assignments=(), version=7, validate_only=False):
    r = m.CreateTopicsRequest
    topics = [
        r.Topic(
            name=name,
            num_partitions=count,
            replication_factor=factor,
            assignments=[r.Assignment(partition_index=at, broker_ids=[0]) for at in assignments],
            configs=[r.Config(name=key, value=value) for key, value in configs],
        )
        for name in names
    ]
    answer = await client.ask(r(topics=topics, timeout_ms=1000, validate_only=validate_only), version)
    return answer.topics[0] if len(answer.topics) == 1 else answer.topics


async def metadata(client, *names, version=12, may_create=False, **more):
    topics = None if not names and version else [m.MetadataRequest.Topic(name=name) for name in names]
    return await client.ask(m.MetadataRequest(topics=topics, allow_auto_topic_creation=may_create, **more), version)


async def describe(client, kind, name, keys=None, synonyms=False):
    r = m.DescribeConfigsRequest
    resource = r.Resource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return (await client.ask(r(resources=[resource], include_synonyms=synonyms), 4)).results[0]


async def alter(client, name, *changes, kind=TOPIC, validate_only=False):
    r = m.IncrementalAlterConfigsRequest
    configs = [r.Config(name=key, config_operation=what, value=value) for key, what, value in changes]
    resource = r.Resource(resource_type=kind, resource_name=name, configs=configs)
    return (await client.ask(r(resources=[resource], validate_only=validate_only), 1)).responses[0]


async def own_configs(client, name):
    return {
        config.name: config.value
        for config in (await describe(client, TOPIC, name)).configs
        if config.config_source == 1
    }


# -- topics --------------------------------------------------------------------------------------------------------


async def test_a_stream_is_created_and_described(kafka):
    client = await kafka.client()

    made = await create(client, "t", count=3, factor=5, configs=[("retention.ms", "1000")])
    found = (await metadata(client, "t")).topics[0]

    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 3, 1)
    assert {config.name: config.value for config in made.configs}["retention.ms"] == "1000"
    assert {config.name for config in made.configs} == set(stream_configs.BY_NAME)
    assert found.topic_id == made.topic_id != bytes(16)
    assert [partition.partition_index for partition in found.partitions] == [0, 1, 2]
    assert {partition.leader_epoch for partition in found.partitions} == {-1}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"count": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"count": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"count": 2_000_000}, ErrorCode.INVALID_PARTITIONS),
        ({"factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"configs": [("no.such", "1")]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [("retention.ms", "soon")]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [("retention.ms", None)]}, ErrorCode.INVALID_CONFIG),
        ({"count": 1, "assignments": (0,)}, ErrorCode.INVALID_REQUEST),
        ({"count": -1, "factor": -1, "assignments": (0, 2)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_impossible_topics_are_refused_with_their_code_and_reason(kafka, options, code):
    client = await kafka.client()

    answer = await create(client, "t", **options)

    assert answer.error_code == code
    assert answer.error_message
    assert (await metadata(client, "t")).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "x" * 250, "é"])
async def test_illegal_names_are_refused(kafka, name):
    client = await kafka.client()

    assert (await create(client, name)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (await metadata(client, name, may_create=True)).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_assignments_only_determine_the_number_of_partitions(kafka):
    client = await kafka.client()

    answer = await create(client, "t", count=-1, factor=-1, assignments=(0, 1, 2))

    assert (answer.error_code, answer.num_partitions) == (0, 3)


async def test_taken_and_repeated_names_fail_and_the_others_are_created(kafka):
    client = await kafka.client()
    await create(client, "t")

    answers = await create(client, "t", "u", "v", "v")

    assert [(answer.name, answer.error_code) for answer in answers] == [
        ("t", 36),
        ("u", 0),
        ("v", ErrorCode.INVALID_REQUEST),
    ]


async def test_validate_only_creates_nothing(kafka):
    client = await kafka.client()

    assert (await create(client, "t", validate_only=True)).error_code == 0
    assert (await create(client, "t", count=0, validate_only=True)).error_code == ErrorCode.INVALID_PARTITIONS
    assert (await create(client, "t")).error_code == 0
    assert (await create(client, "t", validate_only=True)).error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_recreated_stream_is_empty_with_another_id_and_without_offsets(kafka):
    client = await kafka.client()
    first = await create(client, "t")
    await client.produce("t", batch_of(b"old"))
    r = m.OffsetCommitRequest
    commit = r(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[r.Topic(name="t", partitions=[r.Partition(partition_index=0, committed_offset=1)])],
    )
    assert (await client.ask(commit, 8)).topics[0].partitions[0].error_code == 0

    deleted = await client.ask(m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    second = await create(client, "t")

    assert deleted.responses[0].error_code == 0
    assert second.topic_id != first.topic_id
    assert (await client.list_offset("t", -1)).offset == 0
    assert (await client.fetch(first.topic_id, 0)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (await client.fetch("t", 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    o = m.OffsetFetchRequest
    single = await client.ask(
        o(groups=[o.Group(group_id="g", topics=[o.GroupTopic(name="t", partition_indexes=[0])])]), 8
    )
    everything = await client.ask(o(groups=[o.Group(group_id="g", topics=None)]), 8)
    assert single.groups[0].topics[0].partitions[0].committed_offset == -1
    assert everything.groups[0].topics == []


async def test_streams_are_deleted_by_name_or_by_id(kafka):
    client = await kafka.client()
    made = await create(client, "t")
    r = m.DeleteTopicsRequest

    both = r.Topic(name="t", topic_id=made.topic_id)
    answer = await client.ask(r(topics=[both, r.Topic(name="none"), r.Topic(name=None, topic_id=bytes(15) + b"\1")]), 6)
    assert [response.error_code for response in answer.responses] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]

    answer = await client.ask(r(topics=[r.Topic(name=None, topic_id=made.topic_id)]), 6)
    assert (answer.responses[0].error_code, answer.responses[0].name) == (0, "t")


async def test_partitions_are_added_and_never_taken(kafka):
    client = await kafka.client()
    await create(client, "t", count=2)
    r = m.CreatePartitionsRequest

    async def grow(count, name="t", assignments=None, **options):
        topic = r.Topic(name=name, count=count, assignments=assignments)
        return (await client.ask(r(topics=[topic], timeout_ms=1000, **options), 3)).results[0].error_code

    assert await grow(1) == ErrorCode.INVALID_PARTITIONS
    assert await grow(2) == ErrorCode.INVALID_PARTITIONS
    assert await grow(2_000_000) == ErrorCode.INVALID_PARTITIONS
    assert await grow(3, name="none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await grow(4, assignments=[r.Assignment(broker_ids=[0])]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await grow(4, validate_only=True) == 0
    assert len((await metadata(client, "t")).topics[0].partitions) == 2
    assert await grow(4) == 0
    assert len((await metadata(client, "t")).topics[0].partitions) == 4
    assert (await client.produce("t", batch_of(b"v"), index=3)).error_code == 0


async def test_log_dirs_report_sizes(kafka):
    client = await kafka.client()
    await create(client, "t", count=2)
    batch = batch_of(b"x" * 1000)
    await client.produce("t", batch)
    r = m.DescribeLogDirsRequest

    answer = await client.ask(r(topics=[r.Topic(topic="t", partitions=[0, 1, 9]), r.Topic(topic="none")]), 4)

    sizes = {
        partition.partition_index: partition.partition_size for partition in answer.results[0].topics[0].partitions
    }
    assert sizes == {0: len(batch), 1: 0}


# -- metadata ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 3, 4, 9, 12, 13])
async def test_streams_are_created_on_demand_unless_the_client_forbids_it(kafka, version):
    client = await kafka.client()

    answer = await metadata(client, f"t{version}", version=version, may_create=True)

    assert answer.topics[0].error_code == 0
    assert len(answer.topics[0].partitions) == 4
    if version >= 4:
        refused = await metadata(client, "other", version=version, may_create=False)
        assert refused.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_streams_are_not_created_on_demand_when_the_setting_forbids_it(kafka_cluster):
    cluster = await kafka_cluster(1, settings=KafkaSettings(auto_create_streams=False))
    client = await cluster.client()

    answer = await metadata(client, "t", may_create=True)

    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_stream_that_many_ask_for_at_once_is_created_once(any_cluster):
    cluster = await any_cluster(2)
    clients = [await cluster[at % 2].client() for at in range(10)]

    answers = await asyncio.gather(*(metadata(client, "t", may_create=True) for client in clients))

    assert {answer.topics[0].error_code for answer in answers} == {0}
    assert len({answer.topics[0].topic_id for answer in answers}) == 1


async def test_all_streams_or_none_are_listed(kafka):
    client = await kafka.client()
    await create(client, "a", "b")

    listed = {"__consumer_offsets", "a", "b"}
    assert {topic.name for topic in (await metadata(client)).topics} == listed
    assert {topic.name for topic in (await client.ask(m.MetadataRequest(topics=[]), 0)).topics} == listed
    assert (await client.ask(m.MetadataRequest(topics=[]), 1)).topics == []


@pytest.mark.parametrize("version", [0, 1, 8, 9, 12, 13])
async def test_the_metadata_of_all_streams_is_kept_and_follows_every_change(kafka_cluster, version):
    cluster = await kafka_cluster(1)
    client = await cluster.client()

    async def listed():
        answers = [(await metadata(client, version=version)) for _ in range(2)]
        assert answers[0] == answers[1]
        sizes = {topic.name: len(topic.partitions) for topic in answers[0].topics}
        assert sizes.pop("__consumer_offsets") == 1
        return sizes, len(answers[0].brokers)

    await create(client, "a")
    assert await listed() == ({"a": 1}, 1)
    await create(client, "b")
    assert await listed() == ({"a": 1, "b": 1}, 1)
    await cluster[0].streams.catalog.add_partitions((await cluster[0].streams.catalog.resolve("a")).stream, 3)
    await cluster.add()
    assert await listed() == ({"a": 3, "b": 1}, 2)
    await cluster[0].streams.catalog.delete((await cluster[0].streams.catalog.resolve("a")).stream)
    assert await listed() == ({"b": 1}, 2)
    if version >= 8:
        asked = await metadata(client, version=version, include_topic_authorized_operations=True)
        plain = await metadata(client, version=version)
        assert asked.topics[0].topic_authorized_operations > 0 > plain.topics[0].topic_authorized_operations


async def test_a_repeated_name_is_answered_once_and_many_unknown_names_in_order(kafka):
    client = await kafka.client()
    await create(client, "t")
    names = ["t", "x1", "t", "bad name", *[f"u{at}" for at in range(50)]]

    answer = await metadata(client, *names)

    assert [topic.name for topic in answer.topics] == list(dict.fromkeys(names))
    assert [topic.error_code for topic in answer.topics] == [0, 3, 17, *[3] * 50]


async def test_the_cluster_is_the_same_by_all_servers(any_cluster):
    cluster = await any_cluster(2)
    answers = [await metadata(await node.client()) for node in cluster.nodes]
    described = await (await cluster.client()).ask(m.DescribeClusterRequest(), 0)

    expected = [(node.member.node_id, "127.0.0.1", node.port) for node in cluster.nodes]
    for answer in answers:
        assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == expected
        assert answer.cluster_id == described.cluster_id
    assert [(broker.broker_id, broker.host, broker.port) for broker in described.brokers] == expected
    assert described.controller_id in {node for node, _, _ in expected}


async def test_describe_topic_partitions_pages_with_a_cursor_kip_966(kafka):
    client = await kafka.client()
    await create(client, "a", count=3)
    await create(client, "b", count=2)
    r = m.DescribeTopicPartitionsRequest
    cursor, pages = None, []

    while True:
        answer = await client.ask(r(topics=[], response_partition_limit=2, cursor=cursor), 0)
        pages.append([(t.name, p.partition_index) for t in answer.topics for p in t.partitions])
        if answer.next_cursor is None:
            break
        c = answer.next_cursor
        cursor = r.Cursor(topic_name=c.topic_name, partition_index=c.partition_index)

    assert pages == [[("__consumer_offsets", 0), ("a", 0)], [("a", 1), ("a", 2)], [("b", 0), ("b", 1)]]


@pytest.mark.parametrize("index", [1_000_000, 2**31 - 1, -1, -(2**31)])
async def test_a_page_begins_inside_the_stream_of_its_cursor_and_keeps_its_limit(kafka, index):
    """Otherwise an index past the end would lift the limit of the page, and a negative one would list partitions that do not exist."""
    client = await kafka.client()
    for name in ("a", "b", "c"):
        await create(client, name, count=3)
    r = m.DescribeTopicPartitionsRequest
    cursor = r.Cursor(topic_name="a", partition_index=index)

    answer = await client.ask(r(topics=[], response_partition_limit=4, cursor=cursor), 0)

    found = [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
    everything = [(name, at) for name in ("a", "b", "c") for at in range(3)]
    first = 0 if index < 0 else 3
    assert found == everything[first : first + 4]


async def test_a_page_whose_stream_was_deleted_begins_with_the_first_partition_of_the_next(kafka):
    client = await kafka.client()
    for name in ("a", "b"):
        await create(client, name, count=3)
    r = m.DescribeTopicPartitionsRequest
    topics = [r.Topic(name="a"), r.Topic(name="b")]
    page = await client.ask(r(topics=topics, response_partition_limit=2), 0)
    await client.ask(m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.Topic(name="a")], timeout_ms=1000), 6)
    cursor = r.Cursor(topic_name=page.next_cursor.topic_name, partition_index=page.next_cursor.partition_index)

    answer = await client.ask(r(topics=topics, response_partition_limit=10, cursor=cursor), 0)

    found = {t.name: (t.error_code, [p.partition_index for p in t.partitions]) for t in answer.topics}
    assert found == {"a": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []), "b": (0, [0, 1, 2])}


# -- configs -------------------------------------------------------------------------------------------------------


async def test_all_configs_are_described_with_their_defaults(kafka):
    client = await kafka.client()
    await create(client, "t", configs=[("retention.ms", "1000")])

    found = {config.name: config for config in (await describe(client, TOPIC, "t", synonyms=True)).configs}

    assert set(found) == set(stream_configs.BY_NAME)
    assert (found["retention.ms"].value, found["retention.ms"].config_source) == ("1000", 1)
    assert [(synonym.value, synonym.source) for synonym in found["retention.ms"].synonyms] == [
        ("1000", 1),
        ("604800000", 5),
    ]
    assert (found["cleanup.policy"].value, found["cleanup.policy"].config_source) == ("delete", 5)


async def test_only_requested_configs_are_described(kafka):
    client = await kafka.client()
    await create(client, "t")

    found = await describe(client, TOPIC, "t", keys=["retention.ms", "no.such"])

    assert [config.name for config in found.configs] == ["retention.ms"]


async def test_values_that_describe_configs_returns_can_be_set_again(kafka):
    client = await kafka.client()
    await create(client, "t", configs=[("retention.ms", "1000")])
    described = (await describe(client, TOPIC, "t")).configs
    r = m.AlterConfigsRequest
    configs = [r.Config(name=config.name, value=config.value) for config in described]
    resource = r.Resource(resource_type=TOPIC, resource_name="t", configs=configs)

    answer = await client.ask(r(resources=[resource]), 2)

    assert answer.responses[0].error_code == 0
    after = (await describe(client, TOPIC, "t")).configs
    assert {config.name: config.value for config in after} == {config.name: config.value for config in described}


async def test_alter_configs_replaces_all_of_them(kafka):
    client = await kafka.client()
    await create(client, "t", configs=[("retention.ms", "1000"), ("segment.bytes", "1000")])
    r = m.AlterConfigsRequest

    async def replace(*configs, validate_only=False):
        given = [r.Config(name=key, value=value) for key, value in configs]
        resource = r.Resource(resource_type=TOPIC, resource_name="t", configs=given)
        return (await client.ask(r(resources=[resource], validate_only=validate_only), 2)).responses[0].error_code

    assert await replace(("retention.ms", "no")) == ErrorCode.INVALID_CONFIG
    assert await replace(("no.such", "1")) == ErrorCode.INVALID_CONFIG
    assert await replace(("retention.ms", "5"), validate_only=True) == 0
    assert await own_configs(client, "t") == {"retention.ms": "1000", "segment.bytes": "1000"}
    assert await replace(("retention.ms", "2000")) == 0
    assert await own_configs(client, "t") == {"retention.ms": "2000"}
    assert await replace() == 0
    assert await own_configs(client, "t") == {}


async def test_configs_are_altered_one_by_one_kip_339(kafka):
    client = await kafka.client()
    await create(client, "t", configs=[("segment.bytes", "1000")])

    assert (await alter(client, "t", ("retention.ms", SET, "5"))).error_code == 0
    assert (await alter(client, "t", ("cleanup.policy", APPEND, "compact"))).error_code == 0
    assert await own_configs(client, "t") == {
        "segment.bytes": "1000",
        "retention.ms": "5",
        "cleanup.policy": "delete,compact",
    }
    assert (await alter(client, "t", ("cleanup.policy", APPEND, "compact"))).error_code == 0
    assert (await alter(client, "t", ("cleanup.policy", SUBTRACT, "delete"))).error_code == 0
    assert (await alter(client, "t", ("retention.ms", DELETE, None))).error_code == 0
    assert await own_configs(client, "t") == {"segment.bytes": "1000", "cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
        ([("no.such", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("no.such", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("cleanup.policy", APPEND, "shred")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
        ([("segment.bytes", SET, "5000"), ("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
    ],
)
async def test_wrong_changes_are_refused_whole(kafka, changes, code):
    client = await kafka.client()
    await create(client, "t", configs=[("segment.bytes", "1000")])

    answer = await alter(client, "t", *changes)

    assert answer.error_code == code
    assert answer.error_message
    assert await own_configs(client, "t") == {"segment.bytes": "1000"}


@pytest.mark.parametrize("validate_only", [False, True])
async def test_to_delete_a_config_that_does_not_exist_has_no_effect(kafka, validate_only):
    """As Apache Kafka 4.3.1 answers. The other changes of the request are made."""
    client = await kafka.client()
    await create(client, "t", configs=[("segment.bytes", "1000")])

    answer = await alter(client, "t", ("no.such", DELETE, None), validate_only=validate_only)
    assert (answer.error_code, answer.error_message) == (0, None)
    answer = await alter(client, "t", ("no.such", DELETE, None), ("retention.ms", SET, "5"))
    assert (answer.error_code, answer.error_message) == (0, None)
    answer = await alter(client, "g", ("no.such", DELETE, None), kind=GROUP, validate_only=validate_only)
    assert (answer.error_code, answer.error_message) == (0, None)

    assert await own_configs(client, "t") == {"segment.bytes": "1000", "retention.ms": "5"}


async def test_configs_of_missing_resources_are_refused(kafka):
    client = await kafka.client()

    assert (await describe(client, TOPIC, "none")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await alter(client, "none", ("retention.ms", SET, "5"))).error_code == 3
    assert (await describe(client, BROKER, "99")).error_code == ErrorCode.INVALID_REQUEST
    assert (await describe(client, BROKER, "x")).error_code == ErrorCode.INVALID_REQUEST
    assert (await describe(client, 77, "x")).error_code == ErrorCode.INVALID_REQUEST
    assert (await describe(client, BROKER, "")).configs == []


async def test_a_servers_configs_are_its_settings_and_read_only(kafka):
    client = await kafka.client()
    node = str(kafka.member.node_id)

    found = {config.name: config for config in (await describe(client, BROKER, node)).configs}

    assert found["num.partitions"].value == "4"
    assert all(config.read_only for config in found.values())
    assert (await alter(client, node, ("num.partitions", SET, "9"), kind=BROKER)).error_code == 42


async def test_an_altered_limit_counts_on_all_servers(any_cluster):
    cluster = await any_cluster(2)
    client, other = await cluster[0].client(), await cluster[1].client()
    await create(client, "t")
    assert (await other.produce("t", batch_of(b"x" * 1000))).error_code == 0

    await alter(client, "t", ("max.message.bytes", SET, "500"))

    async with asyncio.timeout(WAIT_S):
        while (await other.produce("t", batch_of(b"x" * 1000))).error_code == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (await other.produce("t", batch_of(b"x" * 1000))).error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_resources_with_configs_are_listed(kafka):
    client = await kafka.client()
    await create(client, "t")
    r = m.ListConfigResourcesRequest

    everything = (await client.ask(r(resource_types=[]), 1)).config_resources
    topics = (await client.ask(r(resource_types=[TOPIC]), 1)).config_resources

    assert {(config.resource_name, config.resource_type) for config in everything} == {
        ("__consumer_offsets", TOPIC),
        ("t", TOPIC),
        (str(kafka.member.node_id), BROKER),
    }
    assert [topic.resource_name for topic in topics] == ["__consumer_offsets", "t"]
    assert (await client.ask(r(), 0)).config_resources == []


async def test_records_survive_administration_of_their_topic(kafka):
    client = await kafka.client()
    await create(client, "t")
    await client.produce("t", batch_of(b"a"))
    await alter(client, "t", ("retention.ms", SET, "999999"))
    r = m.CreatePartitionsRequest
    await client.ask(r(topics=[r.Topic(name="t", count=2, assignments=None)], timeout_ms=1000), 3)

    assert values_of((await client.fetch("t", 0)).records) == [(0, b"a")]
