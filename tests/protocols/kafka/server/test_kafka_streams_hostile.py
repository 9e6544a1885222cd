"""Heartbeats of streams groups that mean no good: floods, refused requests, foreign members, callers without rights (KIP-1071)."""

import pytest

from bearlake.metadata.access_rules import AccessRule, Operation, PatternKind, Permission, Resource
from bearlake.metadata.quotas import QuotaKey
from bearlake.metadata.users import CredentialChange
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.serving.authentication.credentials import create_credential
from bearlake.serving.authentication.settings import AuthenticationSettings
from bearlake.streams.access.control import AccessSettings
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.groups.tasks.settings import StreamsGroupSettings
from bearlake.streams.service import StreamsSettings
from fixtures.held import held_at_most
from fixtures.logins import LOGIN_MS
from fixtures.quotas import LimitedServer

R = m.StreamsGroupHeartbeatRequest
STREAMS = StreamsGroupSettings(initial_rebalance_delay_ms=0, assignment_interval_ms=0)
SETTINGS = StreamsSettings(groups=GroupSettings(streams=STREAMS))
MISSING_INTERNAL_TOPICS = 3


@pytest.fixture
async def node(kafka_cluster):
    node = (await kafka_cluster(1, streams=SETTINGS))[0]
    await node.create("in", 2)
    return node


def topology(*subtopologies):
    return R.Topology(epoch=0, subtopologies=subtopologies or [reading("in")])


def reading(source, **fields):
    return R.Subtopology(**{"subtopology_id": "0", "source_topics": [source]} | fields)


def storing(name="g-store-changelog", **fields):
    return reading("in", state_changelog_topics=[R.TopicInfo(name=name, topic_configs=[], **fields)])


def joining(member="a", group="g", **changes):
    fields = {
        "group_id": group,
        "member_id": member,
        "member_epoch": 0,
        "endpoint_information_epoch": -1,
        "rebalance_timeout_ms": 30_000,
        "topology": topology(),
        "process_id": member,
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
    }
    return R(**fields | changes)


def beating(epoch, member="a", active=None, **changes):
    tasks = None if active is None else [R.TaskIds(subtopology_id=name, partitions=found) for name, found in active]
    rest = None if active is None else []
    fields = {"active_tasks": tasks, "standby_tasks": rest, "warmup_tasks": rest}
    head = {"group_id": "g", "member_id": member, "member_epoch": epoch, "endpoint_information_epoch": -1}
    return R(**head | fields | changes)


# -- sizes -----------------------------------------------------------------------------------------------------------


def flood_of_texts():
    return topology(reading("in", repartition_sink_topics=[""] * (4 * STREAMS.topic_count_max + 1)))


def flood_of_copartition_groups():
    return topology(reading("in", copartition_groups=[R.CopartitionGroup()] * (4 * STREAMS.topic_count_max + 1)))


def flood_of_copartitioned_topics():
    group = R.CopartitionGroup(source_topics=[0] * (4 * STREAMS.topic_count_max + 1))
    return topology(reading("in", copartition_groups=[group]))


def flood_of_names():
    names = [f"{number:0200}" for number in range(1_000)]
    groups = [R.CopartitionGroup(source_topics=list(range(1_000))) for _ in range(6)]
    return topology(reading("in", source_topics=names, copartition_groups=groups))


FLOODS = (flood_of_texts, flood_of_copartition_groups, flood_of_copartitioned_topics, flood_of_names)


@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.__name__)
async def test_a_topology_that_is_too_large_is_refused(node, flood):
    client = await node.client()

    answer = await client.ask(joining(topology=flood()), 0)

    assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert "more than" in answer.error_message


@pytest.mark.parametrize(
    ("client_id", "changes"),
    [
        ("test", {"client_tags": [R.KeyValue(key=str(number), value="") for number in range(101)]}),
        ("test", {"client_tags": [R.KeyValue(key="k", value="v" * 1_400) for number in range(3)]}),
        (
            "test",
            {"rack_id": "r" * 2_000, "process_id": "p" * 2_000, "user_endpoint": R.Endpoint(host="h" * 99, port=1)},
        ),
        ("c" * 4_100, {}),
    ],
    ids=["many tags", "long tags", "long texts", "long client id"],
)
async def test_a_member_that_says_too_much_of_itself_is_refused(node, client_id, changes):
    answer = await (await node.client(client_id)).ask(joining(**changes), 0)

    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert ("client id" if len(changes.get("client_tags", ())) < 100 else "101 tags") in answer.error_message


async def test_a_member_that_reports_more_tasks_than_a_group_may_have_is_refused(node):
    client = await node.client()
    epoch = (await client.ask(joining(), 0)).member_epoch
    too_many = 2 * STREAMS.task_count_max

    answer = await client.ask(beating(epoch, active=[("0", range(too_many))]), 0)

    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert (await client.ask(beating(epoch), 0)).error_code == 0


async def test_a_chain_of_thousands_of_subtopologies_does_not_hold_the_event_loop(kafka_cluster):
    brief = StreamsSettings(groups=GroupSettings(streams=StreamsGroupSettings(topics_create_ms=300)))
    node = (await kafka_cluster(1, streams=brief))[0]
    await node.create("in", 2)
    length = 2_000
    links = [
        R.Subtopology(
            subtopology_id=f"{number:05}",
            repartition_source_topics=[R.TopicInfo(name=f"r{number:05}", topic_configs=[])],
            repartition_sink_topics=[f"r{number - 1:05}"] if number else [],
        )
        for number in range(length)
    ]
    links.append(
        R.Subtopology(subtopology_id="99999", source_topics=["in"], repartition_sink_topics=[f"r{length - 1:05}"])
    )
    client = await node.client()
    await client.ask(joining("warm", "warm"), 0)
    request = joining(topology=R.Topology(epoch=0, subtopologies=links))
    frame = b"".join(codec.request(ApiKey.STREAMS_GROUP_HEARTBEAT, 0).frame(1, "test", request))

    async with held_at_most():
        client.send_bytes(frame)
        await client.receive_frame(60)

    group = (await client.ask(m.StreamsGroupDescribeRequest(group_ids=["g"]), 0)).groups[0]
    assert group.group_state in {"NotReady", "Assigning"}  # by how many internal topics exist already
    assert len(group.topology.subtopologies) == length + 1


# -- foreign members, tasks and groups -------------------------------------------------------------------------------


async def test_tasks_that_do_not_exist_are_refused_and_change_nothing(node):
    client = await node.client()
    joined = await client.ask(joining(), 0)
    assert [item.partitions for item in joined.active_tasks] == [[0, 1]]

    for active in ([("0", [-1])], [("0", [2])], [("0", [2**31 - 1])], [("1", [0])]):
        answer = await client.ask(beating(joined.member_epoch, active=active), 0)
        assert answer.error_code == ErrorCode.INVALID_REQUEST

    answer = await client.ask(beating(joined.member_epoch, active=[("0", [0, 1])]), 0)
    assert (answer.error_code, answer.active_tasks) == (0, None)


@pytest.mark.parametrize("epoch", [1, 3, 2**31 - 1])
async def test_a_late_or_invented_epoch_is_fenced(node, epoch):
    client = await node.client()
    assert (await client.ask(joining(), 0)).member_epoch == 2

    assert (await client.ask(beating(epoch), 0)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert (await client.ask(beating(2), 0)).error_code == 0


async def test_a_zombie_that_was_replaced_cannot_come_back(node):
    client = await node.client()
    joined = await client.ask(joining(), 0)
    assert (await client.ask(beating(-1), 0)).error_code == 0

    answer = await client.ask(beating(joined.member_epoch, active=[("0", [0, 1])]), 0)

    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def commit(client, group, offset=7):
    r = m.OffsetCommitRequest
    topic = r.Topic(name="in", partitions=[r.Partition(partition_index=0, committed_offset=offset)])
    request = r(group_id=group, member_id="", generation_id_or_member_epoch=-1, topics=[topic])
    return (await client.ask(request, 9)).topics[0].partitions[0].error_code


async def listed(client):
    return {item.group_id: item.group_type for item in (await client.ask(m.ListGroupsRequest(), 5)).groups}


async def test_a_refused_heartbeat_neither_creates_a_group_nor_changes_its_protocol(node):
    client = await node.client()
    assert await commit(client, "kept") == 0
    broken = topology(R.Subtopology(subtopology_id="0"))

    for group in ("kept", "new"):
        answer = await client.ask(joining(group=group, topology=broken), 0)
        assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY

    assert await listed(client) == {"kept": "classic"}
    r = m.ConsumerGroupHeartbeatRequest
    fields = {
        "member_epoch": 0,
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": ["in"],
        "topic_partitions": [],
    }
    assert (await client.ask(r(group_id="kept", member_id="x", **fields), 1)).error_code == 0


async def test_an_empty_classic_group_becomes_a_streams_group_and_keeps_its_offsets(node):
    client = await node.client()
    assert await commit(client, "g") == 0

    assert (await client.ask(joining(), 0)).error_code == 0

    group = m.OffsetFetchRequest.Group(group_id="g", topics=None)
    found = (await client.ask(m.OffsetFetchRequest(groups=[group]), 9)).groups[0]
    assert [item.committed_offset for item in found.topics[0].partitions] == [7]


async def test_groups_of_other_kinds_are_left_alone(node):
    client = await node.client()
    r = m.ConsumerGroupHeartbeatRequest
    fields = {
        "member_epoch": 0,
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": ["in"],
        "topic_partitions": [],
    }
    assert (await client.ask(r(group_id="c", member_id="x", **fields), 1)).error_code == 0
    share = m.ShareGroupHeartbeatRequest(group_id="s", member_id="x", member_epoch=0, subscribed_topic_names=["in"])
    assert (await client.ask(share, 1)).error_code == 0

    for group in ("c", "s"):
        answer = await client.ask(joining(group=group), 0)
        assert (answer.error_code, answer.error_message) == (69, f"Group {group} is not a streams group.")

    assert await listed(client) == {"c": "consumer", "s": "share"}


# -- internal topics -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["__consumer_offsets", "__transaction_state", "__share_group_state", "a b", "..", "x" * 250, ""]
)
async def test_hostile_names_of_internal_topics_are_refused(node, name):
    answer = await (await node.client()).ask(joining(topology=topology(storing(name))), 0)

    assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"replication_factor": -2}, "negative number"),
        ({"partitions": 3}, "must have an undefined partition count"),
    ],
)
async def test_hostile_counts_of_changelogs_are_refused(node, fields, why):
    answer = await (await node.client()).ask(joining(topology=topology(storing(**fields))), 0)

    assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert why in answer.error_message


async def test_a_config_that_topics_do_not_have_is_told_to_the_member(node):
    config = R.KeyValue(key="cleanup.policy", value="nonsense")
    changelog = R.TopicInfo(name="g-store-changelog", topic_configs=[config])

    answer = await (await node.client()).ask(
        joining(topology=topology(reading("in", state_changelog_topics=[changelog]))), 0
    )

    assert answer.error_code == 0
    (status,) = answer.status
    assert status.status_code == MISSING_INTERNAL_TOPICS
    assert "Creation failed: g-store-changelog (" in status.status_detail
    assert node.streams.catalog.peek("g-store-changelog") is None


async def test_topics_that_heartbeats_create_count_against_the_quota_of_mutations(node):
    limited = LimitedServer(node)
    await limited.limit(QuotaKey.CONTROLLER_MUTATION_RATE, 1.0)
    client = await node.client()
    stores = [R.TopicInfo(name=f"g-{name}-changelog", topic_configs=[]) for name in "abc"]
    first = await client.ask(joining(topology=topology(reading("in", state_changelog_topics=stores))), 0)

    assert "the quota of this client is used up" in first.status[0].status_detail
    made = [topic.name for topic in stores if node.streams.catalog.peek(topic.name) is not None]
    assert len(made) == 1
    answer = first
    for _ in range(3):
        await limited.pass_time(2)
        answer = await client.ask(beating(answer.member_epoch), 0)
        assert answer.error_code == 0
    assert all(node.streams.catalog.peek(topic.name) is not None for topic in stores)
    assert answer.status == []


# -- rights ----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def closed(kafka_cluster):
    """A server where only root may do anything; alice has a login."""
    access = AccessSettings(super_users=["User:root"], allow_if_no_rule=False)
    authentication = AuthenticationSettings(mechanisms=["PLAIN"], login_ms=LOGIN_MS)
    cluster = await kafka_cluster(1, streams=SETTINGS, authentication=authentication, access=access)
    made = create_credential("SCRAM-SHA-512", "secret", 4096)
    await cluster.metadata.users.change(
        [CredentialChange(name, made.mechanism, made) for name in ("root", "alice")], revision=0
    )
    await cluster[0].create("in", 2)
    return cluster[0]


async def alice_of(node, *rights):
    """Log in as alice with these rights."""
    rules = [
        AccessRule(resource, name, PatternKind.LITERAL, "User:alice", "*", operation, Permission.ALLOW)
        for operation, resource, name in rights
    ]
    await node.streams.access.create(rules)
    client = await node.client()
    await client.ask(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert (await client.ask(m.SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2)).error_code == 0
    return client


READ_GROUP = (Operation.READ, Resource.GROUP, "g")
DESCRIBE_IN = (Operation.DESCRIBE, Resource.STREAM, "in")
DESCRIBE_STORE = (Operation.DESCRIBE, Resource.STREAM, "g-store-changelog")
CREATE_STORE = (Operation.CREATE, Resource.STREAM, "g-store-changelog")
CREATE_ANY = (Operation.CREATE, Resource.CLUSTER, "kafka-cluster")


@pytest.mark.parametrize(
    ("rights", "code"),
    [
        ((), ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ((READ_GROUP,), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ((READ_GROUP, DESCRIBE_IN), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ((DESCRIBE_IN, DESCRIBE_STORE, CREATE_ANY), ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
)
async def test_a_caller_without_rights_joins_no_group(closed, rights, code):
    alice = await alice_of(closed, *rights)

    answer = await alice.ask(joining(topology=topology(storing())), 0)

    assert (answer.error_code, answer.member_epoch) == (code, 0)
    assert closed.streams.catalog.peek("g-store-changelog") is None


@pytest.mark.parametrize(("creating", "is_made"), [((), False), ((CREATE_STORE,), True), ((CREATE_ANY,), True)])
async def test_a_member_creates_internal_topics_with_its_own_right_to_create(closed, creating, is_made):
    alice = await alice_of(closed, READ_GROUP, DESCRIBE_IN, DESCRIBE_STORE, *creating)

    answer = await alice.ask(joining(topology=topology(storing())), 0)

    assert answer.error_code == 0
    assert (closed.streams.catalog.peek("g-store-changelog") is not None) is is_made
    assert ("Unauthorized to CREATE on topics g-store-changelog." in answer.status[0].status_detail) is not is_made


async def test_who_may_not_describe_the_topics_sees_no_members(closed):
    alice = await alice_of(closed, READ_GROUP, DESCRIBE_IN, DESCRIBE_STORE, CREATE_ANY)
    assert (await alice.ask(joining(topology=topology(storing())), 0)).error_code == 0
    operation, resource, name = DESCRIBE_STORE
    rule = AccessRule(resource, name, PatternKind.LITERAL, "User:alice", "*", operation, Permission.DENY)
    await closed.streams.access.create([rule])

    group = (await alice.ask(m.StreamsGroupDescribeRequest(group_ids=["g"]), 0)).groups[0]

    assert group.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (group.members, group.topology, group.group_epoch) == ([], None, 0)
