"""Streams groups over the wire (KIP-1071): membership, internal topics, descriptions, offsets, configs, rights."""

import pytest

from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.groups.tasks.settings import StreamsGroupSettings
from bearlake.streams.service import StreamsSettings

R = m.StreamsGroupHeartbeatRequest
SETTINGS = StreamsSettings(
    groups=GroupSettings(streams=StreamsGroupSettings(initial_rebalance_delay_ms=0, assignment_interval_ms=0))
)


@pytest.fixture
async def node(cluster_of_each_store):
    node = (await cluster_of_each_store(1, streams=SETTINGS))[0]
    await node.create("in", 2)
    return node


def topology(source="in", **fields):
    compact = R.KeyValue(key="cleanup.policy", value="compact")
    repartition = R.TopicInfo(name="g-words-repartition", topic_configs=[])
    return R.Topology(
        epoch=0,
        subtopologies=[
            R.Subtopology(
                **{"subtopology_id": "0", "source_topics": [source], "repartition_sink_topics": ["g-words-repartition"]}
                | fields
            ),
            R.Subtopology(
                subtopology_id="1",
                repartition_source_topics=[repartition],
                state_changelog_topics=[R.TopicInfo(name="g-counts-changelog", topic_configs=[compact])],
            ),
        ],
    )


class Member:
    def __init__(self, client, member_id):
        self.client, self.id, self.epoch = client, member_id, 0

    async def beat(self, **changes):
        fields = {"group_id": "g", "member_id": self.id, "member_epoch": self.epoch, "endpoint_information_epoch": -1}
        if self.epoch == 0:
            fields |= {"rebalance_timeout_ms": 30_000, "topology": topology(), "process_id": self.id}
            fields |= {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
        answer = await self.client.ask(R(**fields | changes), 0)
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
        return answer


def tasks_of(answer):
    return {(item.subtopology_id, index) for item in answer.active_tasks or () for index in item.partitions}


async def described(client, group="g"):
    return (await client.ask(m.StreamsGroupDescribeRequest(group_ids=[group]), 0)).groups[0]


async def test_a_member_creates_internal_topics_and_gets_tasks(node):
    a = Member(await node.client(), "a")

    first = await a.beat()
    second = await a.beat(active_tasks=[], standby_tasks=[], warmup_tasks=[])

    assert (first.error_code, [status.status_code for status in first.status], first.active_tasks) == (0, [3], [])
    assert (second.error_code, second.status) == (0, [])
    assert tasks_of(second) == {("0", 0), ("0", 1), ("1", 0), ("1", 1)}
    changelog = await node.streams.catalog.find("g-counts-changelog")
    assert (changelog.partition_count, changelog.stream.configs["cleanup.policy"]) == (2, "compact")
    group = await described(a.client)
    assert (group.error_code, group.group_state, len(group.members)) == (0, "Stable", 1)
    assert [item.subtopology_id for item in group.topology.subtopologies] == ["0", "1"]
    assert group.topology.subtopologies[1].state_changelog_topics[0].partitions == 2
    listed = (await a.client.ask(m.ListGroupsRequest(types_filter=["streams"]), 5)).groups
    assert [(item.group_id, item.protocol_type, item.group_state) for item in listed] == [("g", "streams", "Stable")]


async def test_requests_that_do_not_fit_are_refused(node):
    a = Member(await node.client(), "a")

    assert (await a.beat(member_epoch=3, topology=None)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    for changes, text in (
        ({"instance_id": "i"}, "Static membership is not yet supported."),
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"active_tasks": None}, "ActiveTasks must be empty when (re-)joining."),
        ({"topology": None}, "Topology must be non-null when (re-)joining."),
        ({"member_epoch": -3, "topology": None}, "MemberEpoch is -3, but must be greater than or equal to -2."),
        (
            {"topology": topology(source_topic_regex=["x"])},
            "Regular expressions for source topics are not supported yet.",
        ),
    ):
        answer = await a.beat(**changes)
        assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, text)
    for broken in (topology("__consumer_offsets"), topology("a b"), topology(repartition_sink_topics=[])):
        assert (await a.beat(topology=broken)).error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    copartition = R.CopartitionGroup(source_topics=[9])
    answer = await a.beat(topology=topology(copartition_groups=[copartition]))
    assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY


async def test_offsets_are_committed_by_members_in_their_epoch_alone(node):
    a = Member(await node.client(), "a")
    await a.beat()
    await a.beat()

    async def commit(epoch, member="a"):
        r = m.OffsetCommitRequest
        topic = r.Topic(name="in", partitions=[r.Partition(partition_index=0, committed_offset=5)])
        request = r(group_id="g", member_id=member, generation_id_or_member_epoch=epoch, topics=[topic])
        return (await a.client.ask(request, 9)).topics[0].partitions[0].error_code

    assert await commit(a.epoch) == 0
    assert await commit(a.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert await commit(a.epoch, "b") == ErrorCode.UNKNOWN_MEMBER_ID
    r = m.OffsetFetchRequest

    async def fetched(epoch):
        group = r.Group(group_id="g", member_id="a", member_epoch=epoch, topics=None)
        return (await a.client.ask(r(groups=[group]), 9)).groups[0]

    assert [item.committed_offset for item in (await fetched(a.epoch)).topics[0].partitions] == [5]
    assert (await fetched(a.epoch - 1)).error_code == ErrorCode.STALE_MEMBER_EPOCH


async def test_an_empty_group_is_deleted_and_one_with_members_is_not(node):
    a = Member(await node.client(), "a")
    await a.beat()
    delete = m.DeleteGroupsRequest(groups_names=["g"])

    assert (await a.client.ask(delete, 2)).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    assert (await a.beat(member_epoch=-1, topology=None)).error_code == 0
    assert (await described(a.client)).group_state == "Empty"
    assert (await a.client.ask(delete, 2)).results[0].error_code == 0
    assert (await described(a.client)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_the_protocols_of_groups_do_not_mix(node):
    a = Member(await node.client(), "a")
    await a.beat()
    r = m.ConsumerGroupHeartbeatRequest
    values = {
        "member_epoch": 0,
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": ["in"],
        "topic_partitions": [],
    }

    joined = await a.client.ask(r(group_id="g", member_id="x", **values), 1)

    assert joined.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await a.client.ask(r(group_id="h", member_id="x", **values), 1)).error_code == 0
    answer = await a.beat(
        group_id="h",
        member_epoch=0,
        rebalance_timeout_ms=1,
        topology=topology(),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    assert (answer.error_code, answer.error_message) == (69, "Group h is not a streams group.")


async def test_a_config_of_the_group_changes_its_heartbeats(node):
    a = Member(await node.client(), "a")
    r = m.IncrementalAlterConfigsRequest

    async def alter(name, value):
        config = r.Config(name=name, config_operation=0, value=value)
        resource = r.Resource(resource_type=32, resource_name="g", configs=[config])
        return (await a.client.ask(r(resources=[resource], validate_only=False), 1)).responses[0].error_code

    assert await alter("streams.heartbeat.interval.ms", "9000") == 0
    assert await alter("streams.num.standby.replicas", "3") == ErrorCode.INVALID_CONFIG
    assert (await a.beat()).heartbeat_interval_ms == 9_000


@pytest.fixture
async def pair(cluster_of_each_store):
    cluster = await cluster_of_each_store(2, streams=SETTINGS)
    await cluster[0].create("in", 2)
    return cluster


async def test_another_server_goes_on_in_the_middle_of_a_reconciliation(pair):
    """The coordinator dies when a member was told to give a task up: nobody else gets it before the member did so."""
    reading = R.Topology(epoch=0, subtopologies=[R.Subtopology(subtopology_id="0", source_topics=["in"])])
    a, b = Member(await pair[0].client(), "a"), Member(await pair[0].client(), "b")
    assert tasks_of(await a.beat(topology=reading)) == {("0", 0), ("0", 1)}
    assert tasks_of(await b.beat(topology=reading)) == set()
    kept = tasks_of(await a.beat())
    assert len(kept) == 1
    await pair.kill(0)
    a.client, b.client = await pair[1].client(), await pair[1].client()

    assert tasks_of(await b.beat()) == set()
    owned = [R.TaskIds(subtopology_id=name, partitions=[index]) for name, index in kept]
    reported = await a.beat(active_tasks=owned, standby_tasks=[], warmup_tasks=[])
    given = await b.beat()

    assert (reported.error_code, given.error_code) == (0, 0)
    assert tasks_of(given) == {("0", 0), ("0", 1)} - kept
    assert (await described(b.client)).group_state == "Stable"


async def test_an_internal_topic_that_is_deleted_is_created_again(node):
    a = Member(await node.client(), "a")
    await a.beat()
    assert len(tasks_of(await a.beat(active_tasks=[], standby_tasks=[], warmup_tasks=[]))) == 4
    deleted = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.Topic(name="g-counts-changelog")], timeout_ms=1_000)
    assert (await a.client.ask(deleted, 6)).responses[0].error_code == 0

    missing = await a.beat()
    assert ([status.status_code for status in missing.status], tasks_of(missing)) == ([3], set())
    assert (await node.streams.catalog.find("g-counts-changelog")).partition_count == 2
    again = await a.beat(active_tasks=[], standby_tasks=[], warmup_tasks=[])

    assert (again.status, len(tasks_of(again))) == ([], 4)


async def test_a_source_that_gains_partitions_does_not_fit_to_its_changelog(node):
    a = Member(await node.client(), "a")
    await a.beat()
    await a.beat(active_tasks=[], standby_tasks=[], warmup_tasks=[])
    r = m.CreatePartitionsRequest
    grown = r(topics=[r.Topic(name="in", count=3, assignments=None)], timeout_ms=1_000, validate_only=False)
    assert (await a.client.ask(grown, 3)).results[0].error_code == 0

    answer = await a.beat()

    (status,) = answer.status
    assert status.status_code == 2
    assert "has different number of partitions: expected 3, found 2" in status.status_detail
    assert tasks_of(answer) == set()
