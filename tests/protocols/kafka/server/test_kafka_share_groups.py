"""Share groups over the wire (KIP-932): membership, offsets, configs."""

import pytest

from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.streams.groups.share.configs import Reset, parse_reset
from bearlake.streams.principal import ANONYMOUS
from fixtures.kafka_server import batch_of
from fixtures.share_groups import ACCEPT, member_of, share_settings


@pytest.fixture
async def node(cluster_of_each_store):
    return (await cluster_of_each_store(1, streams=share_settings()))[0]


@pytest.fixture
async def topic_id(node):
    """A topic `t` of one partition with three batches of two records."""
    topic_id = await node.create("t")
    client = await node.client()
    for start in range(0, 6, 2):
        await client.produce("t", batch_of(b"%d" % start, b"%d" % (start + 1)))
    return topic_id


async def test_members_share_partitions_and_leave(node, topic_id):
    a, b = await member_of(node, topic_id), await member_of(node, topic_id)

    first = await a.beat("t")
    assert (first.error_code, first.heartbeat_interval_ms) == (0, 5_000)
    await b.beat("t")
    await a.beat()

    assert a.has == {topic_id: [0]}
    described = (await a.client.ask(m.ShareGroupDescribeRequest(group_ids=["g"]), 1)).groups[0]
    assert (described.error_code, described.group_state, described.assignor_name) == (0, "Stable", "simple")
    assert {item.member_id for item in described.members} == {a.id, b.id}
    listed = (await a.client.ask(m.ListGroupsRequest(types_filter=["share"]), 5)).groups
    assert [(item.group_id, item.group_type, item.group_state) for item in listed] == [("g", "share", "Stable")]
    for item in (a, b):
        assert (await item.beat(member_epoch=-1)).error_code == 0
    described = (await a.client.ask(m.ShareGroupDescribeRequest(group_ids=["g"]), 1)).groups[0]
    assert (described.group_state, described.members) == ("Empty", [])


async def test_heartbeats_that_do_not_fit_are_refused(node, topic_id):
    a = await member_of(node, topic_id)

    assert (await a.beat(member_epoch=3)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await a.beat("t", member_id="")).error_code == ErrorCode.INVALID_REQUEST
    assert (await a.beat(member_epoch=0)).error_code == ErrorCode.INVALID_REQUEST
    assert (await a.beat("t")).error_code == 0
    assert (await a.beat(member_id="x", member_epoch=1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await a.beat(member_epoch=9)).error_code == ErrorCode.FENCED_MEMBER_EPOCH


async def offsets(client, group="g", topics=None):
    r = m.DescribeShareGroupOffsetsRequest
    if topics is not None:
        topics = [r.Topic(topic_name=name, partitions=indexes) for name, indexes in topics.items()]
    answer = await client.ask(r(groups=[r.Group(group_id=group, topics=topics)]), 1)
    return answer.groups[0]


async def alter(client, offset, group="g", name="t"):
    r = m.AlterShareGroupOffsetsRequest
    topic = r.Topic(topic_name=name, partitions=[r.Partition(partition_index=0, start_offset=offset)])
    return await client.ask(r(group_id=group, topics=[topic]), 0)


async def test_a_group_begins_at_the_start_of_partitions_that_are_added_later(cluster_of_each_store):
    node = (await cluster_of_each_store(1))[0]
    topic_id = await node.create("t")
    a, late = await member_of(node, topic_id), await member_of(node, topic_id, group="late")
    await a.client.produce("t", batch_of(b"before"))
    assert await a.take() == ([], [])

    view = await node.streams.catalog.find("t")
    await node.streams.add_partitions(ANONYMOUS, view.stream, 2)
    await a.client.produce("t", batch_of(b"x", b"y"), index=1)

    assert await a.take(indexes=(0, 1)) == ([(0, 1, 1)], [b"x", b"y"])
    assert await late.take(indexes=(0, 1)) == ([], [])


async def test_offsets_are_altered_described_and_deleted(node, topic_id):
    client = await node.client()

    altered = await alter(client, 4)
    assert (altered.error_code, altered.responses[0].partitions[0].error_code) == (0, 0)
    for topics in (None, {"t": [0]}):
        (topic,) = (await offsets(client, topics=topics)).topics
        assert [(item.start_offset, item.lag) for item in topic.partitions] == [(4, 2)]
    r = m.DeleteShareGroupOffsetsRequest
    deleted = await client.ask(r(group_id="g", topics=[r.Topic(topic_name="t")]), 0)
    assert (deleted.error_code, deleted.responses[0].error_code) == (0, 0)
    assert (await offsets(client)).topics == []
    (topic,) = (await offsets(client, topics={"t": [0, 7]})).topics
    assert [(item.start_offset, item.error_code) for item in topic.partitions] == [(-1, 0), (-1, 3)]


async def test_offsets_of_a_group_with_members_are_not_changed(node, topic_id):
    a = await member_of(node, topic_id)
    await a.beat("t")

    assert (await alter(a.client, 4)).error_code == ErrorCode.NON_EMPTY_GROUP
    r = m.DeleteShareGroupOffsetsRequest
    deleted = await a.client.ask(r(group_id="g", topics=[r.Topic(topic_name="t")]), 0)
    assert deleted.error_code == ErrorCode.NON_EMPTY_GROUP


async def test_a_deleted_group_begins_anew(node, topic_id):
    a = await member_of(node, topic_id)
    await a.beat("t")
    await a.take()
    await a.acknowledge((0, 5, [ACCEPT]))
    assert [item.start_offset for item in (await offsets(a.client)).topics[0].partitions] == [6]
    await a.beat(member_epoch=-1)

    deleted = await a.client.ask(m.DeleteGroupsRequest(groups_names=["g"]), 2)

    assert deleted.results[0].error_code == 0
    b = await member_of(node, topic_id)
    await b.beat("t")
    assert (await b.take())[0] == [(0, 5, 1)]


async def test_the_protocols_of_groups_do_not_mix(node, topic_id):
    a = await member_of(node, topic_id)
    await a.beat("t")
    r = m.ConsumerGroupHeartbeatRequest
    values = {"member_epoch": 0, "rebalance_timeout_ms": 1_000, "subscribed_topic_names": ["t"], "topic_partitions": []}

    joined = await a.client.ask(r(group_id="g", member_id="x", **values), 1)
    assert joined.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    joined = await a.client.ask(r(group_id="h", member_id="x", **values), 1)
    assert joined.error_code == 0
    other = await member_of(node, topic_id, group="h")
    assert (await other.beat("t")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def configure(client, name, value, group="g"):
    r = m.IncrementalAlterConfigsRequest
    config = r.Config(name=name, config_operation=0, value=value)
    resource = r.Resource(resource_type=32, resource_name=group, configs=[config])
    answer = (await client.ask(r(resources=[resource]), 1)).responses[0]
    return answer.error_code, answer.error_message


async def test_a_group_has_configs_of_its_own(node, topic_id):
    a = await member_of(node, topic_id)
    assert await configure(a.client, "share.auto.offset.reset", "latest") == (0, None)
    assert await configure(a.client, "share.record.lock.duration.ms", "15000") == (0, None)

    answer = await a.fetch()

    assert answer.acquisition_lock_timeout_ms == 15_000
    assert answer.responses == []  # the group begins at the end
    r = m.DescribeConfigsRequest
    resource = r.Resource(resource_type=32, resource_name="g", configuration_keys=None)
    described = (await a.client.ask(r(resources=[resource]), 4)).results[0]
    found = {config.name: config.value for config in described.configs if config.name.startswith("share.")}
    assert found == {
        "share.assignment.interval.ms": "1000",
        "share.auto.offset.reset": "latest",
        "share.delivery.count.limit": "5",
        "share.heartbeat.interval.ms": "5000",
        "share.isolation.level": "read_uncommitted",
        "share.partition.max.record.locks": "2000",
        "share.record.lock.duration.ms": "15000",
        "share.renew.acknowledge.enable": "true",
        "share.session.timeout.ms": "45000",
    }


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("share.auto.offset.reset", "middle", "unknown share auto offset reset strategy"),
        ("share.auto.offset.reset", "by_duration:-PT1H", "unknown share auto offset reset strategy"),
        ("share.isolation.level", "serial", "String must be one of: read_committed, read_uncommitted"),
        ("share.renew.acknowledge.enable", "maybe", "either true or false"),
        ("share.delivery.count.limit", "11", "less than or equal to group.share.max.delivery.count.limit"),
        ("share.record.lock.duration.ms", "1", "greater than or equal to group.share.min.record.lock.duration.ms"),
        ("share.session.timeout.ms", "x", "Not a number of type INT"),
    ],
)
async def test_a_bad_config_of_a_group_is_refused(node, name, value, text):
    code, message = await configure(await node.client(), name, value)

    assert code == ErrorCode.INVALID_CONFIG
    assert text in message


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("earliest", Reset()),
        ("LATEST", Reset(is_latest=True)),
        ("by_duration:PT1H", Reset(age_ms=3_600_000)),
        ("by_duration:P1DT2H3M4.5S", Reset(age_ms=(((24 + 2) * 60 + 3) * 60 + 4) * 1000 + 500)),
    ],
)
def test_where_a_group_begins(value, expected):
    assert parse_reset(value) == expected


async def test_a_group_begins_by_a_config_that_was_just_set_at_another_server(cluster_of_each_store):
    cluster = await cluster_of_each_store(2)
    topic_id = await cluster[0].create("t")
    first = await cluster[0].client()
    await first.produce("t", batch_of(b"0"))
    await cluster[1].streams.catalog.find("t")
    await configure(first, "share.auto.offset.reset", "earliest")

    assert (await (await member_of(cluster[1], topic_id)).take())[0] == [(0, 0, 1)]
