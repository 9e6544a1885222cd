"""Consumer groups over the wire: membership, offsets, administration, and a crash of their coordinator."""

import asyncio
import struct
import threading

import pytest
from confluent_kafka import Consumer, Producer

from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode
from fixtures.kafka_server import batch_of
from fixtures.waiting import WAIT_S, until


def subscription(*topics):
    """Metadata of a consumer's protocol, version 0."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def join(group="g", member_id="", version=9, instance=None, topics=("t",), kind="consumer", session_ms=10_000):
    protocol = m.JoinGroupRequest.Protocol(name="range", metadata=subscription(*topics))
    return m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=kind,
        protocols=[protocol],
    )


async def stable(client, group="g", instance=None, **options):
    """The only member of a group; its id."""
    joined = await client.ask(join(group, instance=instance, **options), 9)
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        joined = await client.ask(join(group, joined.member_id, **options), 9)
    r = m.SyncGroupRequest
    sync = r(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance,
        protocol_type=options.get("kind", "consumer"),
        protocol_name="range",
        assignments=[r.Assignment(member_id=joined.member_id, assignment=b"mine")],
    )
    assert (await client.ask(sync, 5)).assignment == b"mine"
    return joined.member_id


def commit_of(
    offset, *, group="g", member_id="", generation=-1, topic="t", index=0, text="", epoch=-1, topic_id=bytes(16)
):
    r = m.OffsetCommitRequest
    partition = r.Partition(
        partition_index=index, committed_offset=offset, committed_leader_epoch=epoch, committed_metadata=text
    )
    return r(
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        topics=[r.Topic(name=topic, topic_id=topic_id, partitions=[partition])],
    )


async def commit(client, offset, version=8, **options):
    return (await client.ask(commit_of(offset, **options), version)).topics[0].partitions[0].error_code


async def committed(client, group="g", version=8, topic="t", indexes=(0,), topic_id=bytes(16)):
    r = m.OffsetFetchRequest
    asked = r.Group(
        group_id=group, topics=[r.GroupTopic(name=topic, topic_id=topic_id, partition_indexes=list(indexes))]
    )
    return (await client.ask(r(groups=[asked]), version)).groups[0].topics[0].partitions


# -- membership ----------------------------------------------------------------------------------------------------


async def test_two_members_share_and_one_leaves(kafka):
    first_client, second_client = await kafka.client(), await kafka.client()
    first = await stable(first_client)
    second = (await second_client.ask(join(), 9)).member_id
    second_client.send(join(member_id=second), 9)
    r = m.HeartbeatRequest
    beat = r(group_id="g", generation_id=1, member_id=first)
    await until(lambda: kafka.streams.coordinator.owned()["g"].state.value == "PreparingRebalance")
    assert (await first_client.ask(beat, 4)).error_code == ErrorCode.REBALANCE_IN_PROGRESS

    again = await first_client.ask(join(member_id=first), 9)
    other = await second_client.receive()

    assert again.generation_id == other.generation_id == 2
    assert again.leader == other.leader == first
    assert {member.member_id for member in again.members} == {first, second}
    assert {member.metadata for member in again.members} == {subscription("t")}
    assert other.members == []
    leave = m.LeaveGroupRequest(group_id="g", members=[m.LeaveGroupRequest.Member(member_id=second)])
    assert (await second_client.ask(leave, 5)).members[0].error_code == 0
    assert set(kafka.streams.coordinator.owned()["g"].members) == {first}


async def test_many_members_leave_with_one_request_each_with_its_code_kip_345(kafka):
    client = await kafka.client()
    await stable(client, instance="i1")
    r = m.LeaveGroupRequest
    members = [r.Member(member_id="", group_instance_id="i1"), r.Member(member_id="nobody")]

    answer = await client.ask(r(group_id="g", members=members), 5)

    assert answer.error_code == 0
    assert [member.error_code for member in answer.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert (await client.ask(r(group_id="g", member_id="nobody"), 0)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_restarted_static_member_skips_the_assignment_kip_814(kafka):
    client = await kafka.client()
    old = await stable(client, instance="i1")

    again = await client.ask(join(instance="i1"), 9)
    older = await client.ask(join(instance="i1"), 8)
    beat = m.HeartbeatRequest(group_id="g", generation_id=1, member_id=old, group_instance_id="i1")

    assert (again.error_code, again.generation_id, again.skip_assignment) == (0, 1, True)
    assert (older.error_code, older.generation_id) == (0, 1)
    assert older.leader != older.member_id
    assert (await client.ask(beat, 4)).error_code == ErrorCode.FENCED_INSTANCE_ID


async def test_membership_needs_a_group_name_and_a_sane_session(kafka):
    client = await kafka.client()

    assert (await client.ask(join(group=""), 9)).error_code == ErrorCode.INVALID_GROUP_ID
    assert (await client.ask(join(session_ms=1), 9)).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert (await client.ask(join(kind=""), 9)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# -- offsets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [8, 9])
async def test_offsets_are_returned_as_they_were_committed(kafka, version):
    client = await kafka.client()
    await kafka.create("t", 3)

    assert await commit(client, 7, text="note", epoch=12) == 0
    found = await committed(client, version=version, indexes=(0, 1, 9))

    assert [partition.committed_leader_epoch for partition in found] == [12, -1, -1]
    assert [(partition.committed_offset, partition.metadata, partition.error_code) for partition in found] == [
        (7, "note", 0),
        (-1, "", 0),  # never committed: no error
        (-1, "", 0),
    ]


async def test_offsets_are_committed_and_read_by_topic_id(kafka):
    client = await kafka.client()
    topic_id = await kafka.create("t")

    assert await commit(client, 7, version=10, topic_id=topic_id) == 0
    assert (await committed(client, version=10, topic_id=topic_id))[0].committed_offset == 7
    assert await commit(client, 7, version=10, topic_id=bytes(15) + b"\1") == ErrorCode.UNKNOWN_TOPIC_ID
    found = await committed(client, version=10, topic_id=bytes(15) + b"\1")
    assert found[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_commits_are_refused_by_stream_partition_text_and_member(kafka):
    client = await kafka.client()
    await kafka.create("t")
    member = await stable(client)

    assert await commit(client, 1, topic="none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await commit(client, 1, index=5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await commit(client, 1, text="x" * 5000) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert await commit(client, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await commit(client, 1, member_id=member, generation=2) == ErrorCode.ILLEGAL_GENERATION
    assert await commit(client, 1, member_id="nobody", generation=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await commit(client, 1, group="never", member_id="nobody", generation=1) == ErrorCode.ILLEGAL_GENERATION
    assert (await committed(client))[0].committed_offset == -1
    assert await commit(client, 1, member_id=member, generation=1) == 0


async def test_a_commit_is_carried_through_though_its_client_goes_at_once(kafka):
    client, other = await kafka.client(), await kafka.client()
    await kafka.create("t")

    client.send(commit_of(7), 8)
    await client.close()

    async with asyncio.timeout(WAIT_S):
        while (await committed(other))[0].committed_offset != 7:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_pipelined_commits_keep_their_order_and_precede_a_leave(kafka):
    client, other = await kafka.client(), await kafka.client()
    await kafka.create("t")
    member = await stable(client)
    commits = []
    for at in range(1, 30):
        request = commit_of(at, member_id=member, generation=1)
        if at == 1:  # a stream that must be looked up in the store first
            request.topics.insert(0, commit_of(1, topic="unknown").topics[0])
        commits.append(request)
        client.send(request, 8)
    client.send(m.LeaveGroupRequest(group_id="g", members=[m.LeaveGroupRequest.Member(member_id=member)]), 5)

    answers = [await client.receive() for _ in range(30)]

    assert {answer.topics[-1].partitions[0].error_code for answer in answers[:-1]} == {0}
    assert answers[-1].members[0].error_code == 0
    assert (await committed(other))[0].committed_offset == 29


async def test_a_client_that_commits_leaves_and_closes_at_once_has_done_so(kafka):
    client, other = await kafka.client(), await kafka.client()
    await kafka.create("t")
    member = await stable(client)

    client.send(commit_of(7, member_id=member, generation=1), 8)
    client.send(join(member_id=member), 9)  # the round waits for no member, or is dropped
    client.send(m.LeaveGroupRequest(group_id="g", members=[m.LeaveGroupRequest.Member(member_id=member)]), 5)
    await client.close()

    await until(lambda: kafka.streams.coordinator.owned()["g"].state.value == "Empty")
    assert (await committed(other))[0].committed_offset == 7


async def test_offsets_are_read_from_any_server(any_cluster):
    cluster = await any_cluster(2)
    clients = [await node.client() for node in cluster.nodes]
    await cluster[0].create("t")
    assert await commit(clients[0], 7) == 0

    assert (await committed(clients[1]))[0].committed_offset == 7
    assert await commit(clients[1], 8) == ErrorCode.NOT_COORDINATOR


async def test_offsets_of_all_streams_are_listed(kafka):
    client = await kafka.client()
    await kafka.create("a")
    await kafka.create("b", 2)
    await commit(client, 1, topic="a")
    await commit(client, 2, topic="b", index=1)
    r = m.OffsetFetchRequest

    old = await client.ask(r(group_id="g", topics=None), 7)
    new = await client.ask(r(groups=[r.Group(group_id="g", topics=None), r.Group(group_id="none", topics=None)]), 8)

    expected = [("a", 0, 1), ("b", 1, 2)]
    for answer in (old, new.groups[0]):
        found = [(t.name, p.partition_index, p.committed_offset) for t in answer.topics for p in t.partitions]
        assert sorted(found) == expected
    assert new.groups[1].topics == []


async def test_offsets_of_streams_without_subscribers_are_deleted_kip_496(kafka):
    client = await kafka.client()
    await kafka.create("t")
    await kafka.create("u")
    member = await stable(client)
    for topic in ("t", "u"):
        assert await commit(client, 3, topic=topic, member_id=member, generation=1) == 0
    r = m.OffsetDeleteRequest
    topics = [r.Topic(name=name, partitions=[r.Partition(partition_index=0)]) for name in ("t", "u", "none")]

    answer = await client.ask(r(group_id="g", topics=topics), 0)

    codes = [topic.partitions[0].error_code for topic in answer.topics]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (await committed(client, topic="t"))[0].committed_offset == 3
    assert (await committed(client, topic="u"))[0].committed_offset == -1
    assert (await client.ask(r(group_id="none", topics=topics), 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


# -- administration ------------------------------------------------------------------------------------------------


async def test_groups_are_described_by_state(kafka):
    client = await kafka.client()
    await kafka.create("t")
    member = await stable(client)
    await commit(client, 1, group="offsets")
    r = m.DescribeGroupsRequest

    found, offsets, missing = (await client.ask(r(groups=["g", "offsets", "none"]), 5)).groups

    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
    (only,) = found.members
    assert (only.member_id, only.client_id, only.client_host) == (member, "test", "/127.0.0.1")
    assert (only.member_metadata, only.member_assignment) == (subscription("t"), b"mine")
    assert (offsets.group_state, offsets.protocol_type, offsets.members) == ("Empty", "", [])
    assert (missing.group_state, missing.error_code) == ("Dead", 0)
    (missing,) = (await client.ask(r(groups=["none"]), 6)).groups
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_groups_are_listed_by_all_servers_together_each_once(any_cluster):
    cluster = await any_cluster(2)
    clients = [await node.client() for node in cluster.nodes]
    await cluster[0].create("t")
    for at in range(20):
        assert await commit(clients[at % 2], 1, group=f"g{at:02}") == 0
    await stable(clients[0], "live")
    await cluster[1].streams.coordinator.ownership.release_all()  # ten groups without a coordinator

    lists = [(await client.ask(m.ListGroupsRequest(), 5)).groups for client in clients]

    names = [group.group_id for listed in lists for group in listed]
    assert sorted(names) == sorted([f"g{at:02}" for at in range(20)] + ["live"])
    states = {group.group_id: group.group_state for listed in lists for group in listed}
    assert states["live"] == "Stable"
    assert states["g01"] == "Empty"


async def test_groups_are_listed_by_state_and_type_kip_518(kafka):
    client = await kafka.client()
    await kafka.create("t")
    await commit(client, 1, group="offsets")
    await stable(client, "live")

    async def listed(**filters):
        return [group.group_id for group in (await client.ask(m.ListGroupsRequest(**filters), 5)).groups]

    assert await listed() == ["live", "offsets"]
    assert await listed(states_filter=["stable"]) == ["live"]
    assert await listed(states_filter=["Empty"]) == ["offsets"]
    assert await listed(states_filter=["Nonsense"]) == []
    assert await listed(types_filter=["Classic"]) == ["live", "offsets"]
    assert await listed(types_filter=["consumer"]) == []


async def test_only_empty_groups_are_deleted(kafka):
    client = await kafka.client()
    await kafka.create("t")
    await commit(client, 1, group="offsets")
    await stable(client, "live")

    answer = await client.ask(m.DeleteGroupsRequest(groups_names=["live", "offsets", "none"]), 2)

    codes = {result.group_id: result.error_code for result in answer.results}
    assert codes == {"live": ErrorCode.NON_EMPTY_GROUP, "offsets": 0, "none": ErrorCode.GROUP_ID_NOT_FOUND}
    assert (await committed(client, "offsets"))[0].committed_offset == -1


# -- the coordinator's death ---------------------------------------------------------------------------------------


async def test_a_second_server_takes_over_and_members_keep_id_and_generation(any_cluster):
    cluster = await any_cluster(2)
    clients = [await node.client() for node in cluster.nodes]
    await cluster[0].create("t")
    member = await stable(clients[0])
    assert await commit(clients[0], 5, member_id=member, generation=1) == 0
    beat = m.HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
    assert (await clients[1].ask(beat, 4)).error_code == ErrorCode.NOT_COORDINATOR

    await cluster.kill(0)
    async with asyncio.timeout(WAIT_S):
        while (code := (await clients[1].ask(beat, 4)).error_code) == ErrorCode.NOT_COORDINATOR:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    assert code == 0
    found = (await clients[1].ask(m.FindCoordinatorRequest(coordinator_keys=["g"]), 4)).coordinators[0]
    assert found.node_id == cluster[1].member.node_id
    assert await commit(clients[1], 6, member_id=member, generation=1) == 0
    described = (await clients[1].ask(m.DescribeGroupsRequest(groups=["g"]), 5)).groups[0]
    assert (described.group_state, described.members[0].member_assignment) == ("Stable", b"mine")


@pytest.mark.integration
async def test_a_librdkafka_consumer_continues_without_a_rebalance_when_its_coordinator_dies(any_cluster):
    cluster = await any_cluster(2)
    await cluster[0].create("t", 2)
    client = await cluster[0].client()
    for at in range(50):
        await client.produce("t", batch_of(b"%d" % at), index=at % 2)
    loop = asyncio.get_running_loop()
    reader = Reader(",".join(node.address for node in cluster.nodes))
    reading = loop.run_in_executor(None, reader.run)
    try:
        await until(lambda: len(reader.values) == 50)
        holder = await cluster[0].streams.coordinator.holder("g")
        dying = next(index for index, node in enumerate(cluster.nodes) if node.member.server == holder)
        other = cluster[1 - dying]

        await cluster.kill(dying)
        writer = await other.client()
        for at in range(50, 100):
            await writer.produce("t", batch_of(b"%d" % at), index=at % 2)
        await until(lambda: len(reader.values) >= 100)
        async with asyncio.timeout(WAIT_S):
            while sum(partition.committed_offset for partition in await committed(writer, indexes=(0, 1))) < 100:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    finally:
        reader.stop.set()
        await reading

    assert sorted(reader.values) == list(range(100))
    assert reader.assignments == 1


class Reader:
    """A confluent consumer in a thread of its own."""

    def __init__(self, addresses):
        self.consumer = Consumer(
            {
                "bootstrap.servers": addresses,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                "session.timeout.ms": 60_000,
                "heartbeat.interval.ms": 500,
            }
        )
        self.values, self.assignments, self.stop = [], 0, threading.Event()

    def run(self):
        self.consumer.subscribe(["t"], on_assign=self.on_assign)
        while not self.stop.is_set():
            message = self.consumer.poll(0.1)
            if message is not None and not message.error():
                self.values.append(int(message.value()))
        self.consumer.close()

    def on_assign(self, consumer, partitions):
        self.assignments += 1


@pytest.mark.integration
async def test_librdkafka_consumers_join_and_leave_and_every_record_is_read(kafka):
    await kafka.create("t", 6)
    loop = asyncio.get_running_loop()
    readers = [Reader(kafka.address) for _ in range(3)]
    running = [loop.run_in_executor(None, readers[0].run)]
    producer = Producer({"bootstrap.servers": kafka.address, "linger.ms": 1})

    def produce(start, end):
        for at in range(start, end):
            producer.produce("t", b"%d" % at, key=b"%d" % at)
        producer.flush(30)

    await loop.run_in_executor(None, produce, 0, 300)
    await until(lambda: len(readers[0].values) == 300)
    running += [loop.run_in_executor(None, reader.run) for reader in readers[1:]]
    await until(lambda: all(reader.assignments for reader in readers[1:]))
    await until(lambda: kafka.streams.coordinator.owned()["g"].state.value == "Stable")
    readers[0].stop.set()
    await running[0]
    await loop.run_in_executor(None, produce, 300, 600)
    await until(lambda: len({value for reader in readers for value in reader.values}) == 600)
    for reader in readers:
        reader.stop.set()
    await asyncio.gather(*running)

    assert {value for reader in readers for value in reader.values} == set(range(600))
    assert kafka.streams.coordinator.owned()["g"].state.value == "Empty"


@pytest.mark.parametrize("group", ["a\0b", "g" * 1025, "é" * 513], ids=["nul", "long", "long in bytes"])
async def test_a_group_name_that_a_store_cannot_keep_is_refused_for_good(kafka, group):
    """PostgreSQL has no NUL, and no such long keys; a retriable error would make clients repeat their request forever."""
    await kafka.create("t")
    client = await kafka.client()

    joined = await client.ask(join(group), 9)
    committed = await client.ask(commit_of(1, group=group), 8)
    beat = await client.ask(
        m.ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_epoch=0,
            member_id="m",
            rebalance_timeout_ms=1,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        ),
        0,
    )
    fetched = await client.ask(
        m.OffsetFetchRequest(groups=[m.OffsetFetchRequest.Group(group_id=group, topics=None)]), 8
    )
    described = await client.ask(m.DescribeGroupsRequest(groups=[group]), 5)
    deleted = await client.ask(m.DeleteGroupsRequest(groups_names=[group]), 2)
    found = await client.ask(m.FindCoordinatorRequest(coordinator_keys=[group]), 4)

    assert joined.error_code == ErrorCode.INVALID_GROUP_ID
    assert committed.topics[0].partitions[0].error_code == ErrorCode.INVALID_GROUP_ID
    assert beat.error_code == ErrorCode.INVALID_GROUP_ID
    assert fetched.groups[0].error_code == ErrorCode.INVALID_GROUP_ID
    assert described.groups[0].error_code == ErrorCode.INVALID_GROUP_ID
    assert deleted.results[0].error_code == ErrorCode.INVALID_GROUP_ID
    assert found.coordinators[0].error_code == ErrorCode.NONE  # any server refuses the name


async def test_a_group_may_have_the_longest_name_that_all_stores_keep(kafka):
    await kafka.create("t")
    client = await kafka.client()
    group = "g" * 1024

    committed = await client.ask(commit_of(1, group=group), 8)

    assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE


async def test_metadata_and_protocol_types_with_nul_are_refused(kafka):
    await kafka.create("t")
    client = await kafka.client()

    committed = await client.ask(commit_of(1, text="a\0b"), 8)
    joined = await client.ask(join(kind="a\0b"), 9)

    assert committed.topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
    assert joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
