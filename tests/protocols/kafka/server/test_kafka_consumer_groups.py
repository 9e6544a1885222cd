"""Consumer groups of KIP-848 over the wire: heartbeats, descriptions, offsets, migration, configs, and hand-over between servers.

The answers are those of Apache Kafka 4.3.1, which got the same requests.
"""

import asyncio
from dataclasses import replace

import pytest

from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.streams.groups import assignment
from bearlake.streams.groups.consumer.settings import ConsumerGroupSettings
from bearlake.streams.groups.model import JoinRequest, MemberRef
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.service import StreamsSettings
from fixtures.rights import OnlyRights
from fixtures.waiting import WAIT_S, until

GROUP = 32
"""The resource type of groups."""


class Member:
    """A member of a group, on one connection at a time."""

    def __init__(self, client, member_id, group="g"):
        self.client, self.id, self.group = client, member_id, group
        self.epoch = 0
        self.has = {}

    async def beat(self, *, version=1, **changes):
        r = m.ConsumerGroupHeartbeatRequest
        owned = [
            r.TopicPartitions(topic_id=topic_id, partitions=sorted(indexes)) for topic_id, indexes in self.has.items()
        ]
        values = {"member_epoch": self.epoch, "topic_partitions": owned} | changes
        answer = await self.client.ask(r(group_id=self.group, member_id=self.id, **values), version)
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.has = {item.topic_id: set(item.partitions) for item in answer.assignment.topic_partitions}
        return answer

    async def join(self, *topics, version=1, **changes):
        values = {
            "member_epoch": 0,
            "rebalance_timeout_ms": 30_000,
            "subscribed_topic_names": list(topics),
            "topic_partitions": [],
        }
        return await self.beat(version=version, **(values | changes))

    async def commit(self, topic_id, offset, *, version=10, topic="", epoch=None, index=0):
        r = m.OffsetCommitRequest
        partition = r.Partition(partition_index=index, committed_offset=offset, committed_metadata="")
        answer = await self.client.ask(
            r(
                group_id=self.group,
                member_id=self.id,
                generation_id_or_member_epoch=self.epoch if epoch is None else epoch,
                topics=[r.Topic(name=topic, topic_id=topic_id, partitions=[partition])],
            ),
            version,
        )
        return answer.topics[0].partitions[0].error_code


async def settled(*members):
    """Beat until every member has its target."""
    async with asyncio.timeout(WAIT_S):
        while True:
            for member in members:
                await member.beat()
            described = await describe(members[0].client, members[0].group)
            if described.group_state == "Stable":
                return described
            await asyncio.sleep(0.02)


async def describe(client, group="g", version=1):
    answer = await client.ask(m.ConsumerGroupDescribeRequest(group_ids=[group]), version)
    return answer.groups[0]


@pytest.fixture
async def pair(kafka):
    """A stream `t` of four partitions, and its two members, settled."""
    topic_id = await kafka.create("t", 4)
    a, b = Member(await kafka.client(), "a"), Member(await kafka.client(), "b")
    await a.join("t")
    await b.join("t")
    await settled(a, b)
    return topic_id, a, b


async def test_members_share_the_partitions(pair):
    topic_id, a, b = pair

    described = await describe(a.client)

    assert a.has[topic_id] | b.has[topic_id] == {0, 1, 2, 3}
    assert not a.has[topic_id] & b.has[topic_id]
    assert (described.group_state, described.assignor_name) == ("Stable", "uniform")
    assert described.group_epoch == described.assignment_epoch == a.epoch == b.epoch
    assert [(item.member_id, item.member_type, item.subscribed_topic_names) for item in described.members] == [
        ("a", 1, ["t"]),
        ("b", 1, ["t"]),
    ]
    first = described.members[0].assignment.topic_partitions[0]
    assert (first.topic_name, first.topic_id, set(first.partitions)) == ("t", topic_id, a.has[topic_id])


async def test_the_coordinator_chooses_member_ids_before_version_1(kafka):
    await kafka.create("t")
    member = Member(await kafka.client(), "")

    assert (await member.join("t", version=1)).error_code == ErrorCode.INVALID_REQUEST
    answer = await member.join("t", version=0)

    assert answer.error_code == 0
    assert answer.member_id


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"group_id": ""}, 42, "GroupId can't be empty."),
        ({"member_id": ""}, 42, "MemberId can't be empty."),
        ({"instance_id": ""}, 42, "InstanceId can't be empty."),
        ({"rack_id": ""}, 42, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, 42, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, 42, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            42,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -3}, 42, "MemberEpoch is invalid."),
        ({"member_epoch": -2}, 42, "InstanceId can't be null."),
        ({"server_assignor": "x"}, 112, "ServerAssignor x is not supported. Supported assignors: uniform, range."),
        ({"member_epoch": 1}, 69, "Consumer group g not found."),
        ({"member_epoch": -1}, 69, "Group g not found."),
        ({"subscribed_topic_regex": "("}, 128, None),
        ({"subscribed_topic_regex": "(?=a)b"}, 128, None),
        ({"subscribed_topic_regex": "x" * 2_000}, 128, None),
        ({"subscribed_topic_regex": "((((x{1,99}){1,99}){1,99}){1,99})"}, 128, None),
    ],
)
async def test_a_malformed_request_is_refused(kafka, changes, code, text):
    values = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 3_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    client = await kafka.client()

    answer = await client.ask(m.ConsumerGroupHeartbeatRequest(**(values | changes)), 1)

    assert answer.error_code == code
    assert answer.error_message
    assert text in (None, answer.error_message)
    assert not (await client.ask(m.ListGroupsRequest(), 5)).groups


async def test_a_pattern_matches_whole_names_and_topics_that_come_later(kafka):
    await kafka.create("ab")
    member = Member(await kafka.client(), "m")

    await member.join(subscribed_topic_names=None, subscribed_topic_regex="a.?")
    assert len(member.has) == 1
    await kafka.create("a")
    await kafka.create("abc")
    async with asyncio.timeout(WAIT_S):
        while len(member.has) < 2:
            await asyncio.sleep(0.1)
            await member.beat()

    assert len(member.has) == 2
    described = await describe(member.client)
    assert (described.members[0].subscribed_topic_regex, described.members[0].subscribed_topic_names) == ("a.?", [])


async def test_metadata_by_topic_id_ignores_the_empty_name_that_javas_consumers_send_beside_it(kafka):
    topic_id = await kafka.create("t")
    client = await kafka.client()
    r = m.MetadataRequest

    async def ask(topic_id, version):
        topic = (await client.ask(r(topics=[r.Topic(name="", topic_id=topic_id)]), version)).topics[0]
        return topic.error_code, topic.name

    assert await ask(topic_id, 12) == (0, "t")
    assert await ask(b"x" * 16, 12) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    assert await ask(topic_id, 11) == (ErrorCode.INVALID_REQUEST, "")
    assert await ask(bytes(16), 12) == (ErrorCode.INVALID_TOPIC_EXCEPTION, "")


async def test_offsets_are_committed_and_read_in_the_members_epoch(pair):
    topic_id, a, _b = pair
    r = m.OffsetFetchRequest

    async def read(member_id, epoch):
        topic = r.GroupTopic(topic_id=topic_id, partition_indexes=[0])
        group = r.Group(group_id="g", member_id=member_id, member_epoch=epoch, topics=[topic])
        return (await a.client.ask(r(groups=[group]), 10)).groups[0].error_code

    assert await a.commit(topic_id, 3) == 0
    assert await a.commit(topic_id, 3, epoch=a.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert await a.commit(topic_id, 3, version=8, topic="t") == ErrorCode.UNSUPPORTED_VERSION
    assert await Member(a.client, "").commit(topic_id, 3, epoch=-1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await read("a", a.epoch) == 0
    assert await read("a", a.epoch - 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert await read("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await read(None, -1) == 0


async def test_the_apis_of_each_protocol_know_only_their_own_groups(pair):
    _, a, _ = pair
    ask = a.client.ask
    r = m.LeaveGroupRequest

    new = (await ask(m.DescribeGroupsRequest(groups=["g"]), 6)).groups[0]
    old = (await ask(m.DescribeGroupsRequest(groups=["g"]), 5)).groups[0]
    assert (new.error_code, new.error_message, new.group_state) == (69, "Group g is not a classic group.", "Dead")
    assert (old.error_code, old.group_state) == (0, "Dead")
    assert (await ask(m.HeartbeatRequest(group_id="g", member_id="a", generation_id=a.epoch), 4)).error_code == 25
    listed = (await ask(m.ListGroupsRequest(types_filter=["consumer"]), 5)).groups[0]
    assert (listed.group_id, listed.protocol_type, listed.group_state, listed.group_type) == (
        "g",
        "consumer",
        "Stable",
        "consumer",
    )
    assert not (await ask(m.ListGroupsRequest(types_filter=["classic"]), 5)).groups
    assert (await ask(m.DeleteGroupsRequest(groups_names=["g"]), 2)).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    assert (await describe(a.client, "none")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    removed = await ask(r(group_id="g", members=[r.Member(member_id="a")]), 5)
    assert removed.members[0].error_code == 0
    assert (await a.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_an_empty_group_is_deleted_with_its_offsets(pair):
    topic_id, a, b = pair
    await a.commit(topic_id, 3)
    await a.beat(member_epoch=-1)
    await b.beat(member_epoch=-1)
    assert (await describe(a.client)).group_state == "Empty"

    deleted = await a.client.ask(m.DeleteGroupsRequest(groups_names=["g"]), 2)

    assert deleted.results[0].error_code == 0
    assert (await describe(a.client)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def join_request(member_id, owned=None):
    metadata = b"\0\1" + assignment.encode_subscription(["t"])[2:] + assignment.encode_assignment(owned or {})[2:-4]
    return m.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequest.Protocol(name="range", metadata=metadata)],
    )


async def test_a_classic_group_moves_to_the_new_protocol_and_back_with_its_members(kafka):
    topic_id = await kafka.create("t", 4)
    client = await kafka.client()
    first = await client.ask(join_request(""), 9)
    joined = await client.ask(join_request(first.member_id), 9)
    old = joined.member_id
    r = m.SyncGroupRequest
    everything = r.Assignment(member_id=old, assignment=assignment.encode_assignment({"t": [0, 1, 2, 3]}))
    await client.ask(r(group_id="g", generation_id=1, member_id=old, assignments=[everything]), 5)

    new = Member(await kafka.client(), "new")
    await new.join("t")
    assert new.has == {}
    described = await describe(client)
    assert {item.member_id: item.member_type for item in described.members} == {old: 0, "new": 1}
    assert (await client.ask(m.HeartbeatRequest(group_id="g", member_id=old, generation_id=1), 4)).error_code == 27
    await client.ask(join_request(old, {"t": [0, 1, 2, 3]}), 9)
    joined = await client.ask(join_request(old, {"t": [0, 1]}), 9)
    synced = await client.ask(r(group_id="g", generation_id=joined.generation_id, member_id=old), 5)
    assert assignment.decode_assignment(synced.assignment) == {"t": [0, 1]}
    await new.beat()
    assert new.has == {topic_id: {2, 3}}

    await new.beat(member_epoch=-1)

    described = (await client.ask(m.DescribeGroupsRequest(groups=["g"]), 6)).groups[0]
    assert (described.error_code, described.group_state) == (0, "PreparingRebalance")
    joined = await client.ask(join_request(old), 9)
    assert (joined.error_code, joined.leader) == (0, old)
    assert joined.generation_id > new.epoch


async def test_a_member_subscribes_to_a_limited_number_of_topics(kafka_cluster):
    limited = StreamsSettings(groups=GroupSettings(consumer=ConsumerGroupSettings(topic_count_max=2)))
    cluster = await kafka_cluster(1, streams=limited)
    a = Member(await cluster.client(), "a")

    answer = await a.join("t", "u", "v")

    assert (answer.error_code, answer.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "SubscribedTopicNames has 3 names, the limit is 2.",
    )
    assert (await a.join("t", "u")).error_code == 0


async def test_members_keep_id_epoch_and_partitions_when_their_coordinator_dies(any_cluster):
    cluster = await any_cluster(2)
    topic_id = await cluster[0].create("t", 4)
    a, b = Member(await cluster[0].client(), "a"), Member(await cluster[0].client(), "b")
    await a.join("t")
    await b.join("t")
    await settled(a, b)
    epoch, has = a.epoch, a.has
    a.client = b.client = await cluster[1].client()
    assert (await a.beat()).error_code == ErrorCode.NOT_COORDINATOR

    await cluster.kill(0)
    async with asyncio.timeout(WAIT_S):
        while (answer := await a.beat()).error_code == ErrorCode.NOT_COORDINATOR:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    assert (answer.error_code, a.epoch, a.has) == (0, epoch, has)
    assert await a.commit(topic_id, 1, index=next(iter(has[topic_id]))) == 0
    await b.beat(member_epoch=-1)
    await settled(a)
    assert a.has == {topic_id: {0, 1, 2, 3}}


async def test_a_draining_server_hands_its_groups_over(any_cluster):
    cluster = await any_cluster(2)
    topic_id = await cluster[0].create("t", 4)
    a = Member(await cluster[0].client(), "a")
    await a.join("t")
    epoch = a.epoch

    await cluster[0].streams.drain()
    assert (await a.beat()).error_code == ErrorCode.NOT_COORDINATOR
    a.client = await cluster[1].client()

    assert (await a.beat()).error_code == 0
    assert (a.epoch, a.has) == (epoch, {topic_id: {0, 1, 2, 3}})


async def test_another_server_describes_the_group_for_rest_and_grpc(any_cluster):
    cluster = await any_cluster(2)
    await cluster[0].create("t", 4)
    a = Member(await cluster[0].client(), "a")
    await a.join("t")

    group = await cluster[0].streams.groups.describe("g")

    assert (group.kind.value, group.protocol_type, group.state.value) == ("consumer", "consumer", "Stable")
    assert assignment.decode_assignment(group.members["a"].assignment) == {"t": [0, 1, 2, 3]}


async def test_a_member_that_lives_in_the_server_joins_as_a_classic_member(kafka):
    topic_id = await kafka.create("t", 4)
    a = Member(await kafka.client(), "a")
    await a.join("t")
    groups = kafka.streams.groups
    request = JoinRequest(
        member_id="",
        instance_id=None,
        client_id="rest",
        client_host="/h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        protocol_type="consumer",
        protocols=(("range", assignment.encode_subscription(["t"])),),
        requires_known_id=False,
        can_skip_assignment=False,
    )

    joined = await groups.join("g", request)
    partitions = {}
    async with asyncio.timeout(WAIT_S):
        while len(partitions.get("t", [])) < 2:
            await a.beat()
            ref = MemberRef(group="g", member_id=joined.member_id, generation=joined.generation)
            try:
                await groups.heartbeat(ref)
                synced = await groups.sync(ref, ("consumer", "range"), {})
                partitions = assignment.decode_assignment(synced.assignment)
            except GroupRefusal:  # REBALANCE_IN_PROGRESS
                joined = await groups.join("g", replace(request, member_id=joined.member_id))
            await asyncio.sleep(0.05)

    assert not set(partitions["t"]) & a.has[topic_id]
    described = await describe(a.client)
    assert {item.member_id: item.member_type for item in described.members} == {"a": 1, joined.member_id: 0}


async def change(client, name, value, *, group="g", operation=0):
    r = m.IncrementalAlterConfigsRequest
    config = r.Config(name=name, config_operation=operation, value=value)
    resource = r.Resource(resource_type=GROUP, resource_name=group, configs=[config])
    answer = (await client.ask(r(resources=[resource]), 1)).responses[0]
    return answer.error_code, answer.error_message


async def test_a_group_has_configs_of_its_own(kafka):
    await kafka.create("t")
    client = await kafka.client()
    member = Member(client, "m")
    assert (await member.join("t")).heartbeat_interval_ms == 5_000

    assert (await change(client, "consumer.heartbeat.interval.ms", "9000"))[0] == 0

    assert (await member.beat()).heartbeat_interval_ms == 9_000
    r = m.DescribeConfigsRequest
    resource = r.Resource(resource_type=GROUP, resource_name="g", configuration_keys=None)
    described = (await client.ask(r(resources=[resource], include_synonyms=True), 4)).results[0]
    found = {config.name: (config.value, config.config_source, len(config.synonyms)) for config in described.configs}
    assert {name: values for name, values in found.items() if name.startswith("consumer.")} == {
        "consumer.assignment.interval.ms": ("1000", 5, 1),
        "consumer.heartbeat.interval.ms": ("9000", 8, 2),
        "consumer.session.timeout.ms": ("45000", 5, 1),
    }
    listed = await client.ask(m.ListConfigResourcesRequest(resource_types=[GROUP]), 1)
    assert [item.resource_name for item in listed.config_resources] == ["g"]
    assert (await change(client, "consumer.heartbeat.interval.ms", None, operation=1))[0] == 0
    assert (await member.beat()).heartbeat_interval_ms == 5_000


async def test_other_servers_learn_a_groups_configs(kafka_cluster):
    cluster = await kafka_cluster(2)
    await change(await cluster[0].client(), "consumer.session.timeout.ms", "50000")

    await until(lambda: cluster[1].streams.group_configs.of("g").session_timeout_ms == 50_000)


@pytest.mark.parametrize(
    ("group", "name", "value", "expected"),
    [
        ("g", "x", "1", (40, "Unknown group config name: x")),
        (
            "g",
            "consumer.heartbeat.interval.ms",
            "x",
            (40, "Invalid value x for configuration consumer.heartbeat.interval.ms: Not a number of type INT"),
        ),
        (
            "g",
            "consumer.session.timeout.ms",
            "70000",
            (40, "consumer.session.timeout.ms must be less than or equal to group.consumer.max.session.timeout.ms"),
        ),
        ("", "consumer.session.timeout.ms", "50000", (42, "Default group resources are not allowed.")),
    ],
)
async def test_a_bad_config_of_a_group_is_refused(kafka, group, name, value, expected):
    assert await change(await kafka.client(), name, value, group=group) == expected


async def test_members_need_rights_on_the_group_and_its_topics(kafka):
    await kafka.create("t")
    member = Member(await kafka.client(), "m")
    kafka.streams.authorizer = OnlyRights([])

    assert (await member.join("t")).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert (await describe(member.client)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert (await change(member.client, "consumer.session.timeout.ms", "50000"))[0] == 30
