"""Members of the classic protocol in a consumer group, and groups that change their protocol (KIP-848, online migration)."""

import asyncio
from dataclasses import replace

from bearlake.metadata.model import PartitionKey
from bearlake.serving.groups import packing
from bearlake.streams.groups import assignment
from bearlake.streams.groups.consumer import migration, view
from bearlake.streams.groups.consumer.model import LEAVES, Heartbeat
from bearlake.streams.groups.model import Group, GroupKind, GroupState, Member, MemberRef
from bearlake.streams.groups.problems import Problem
from fixtures.consumer_groups import REBALANCE_MS, ConsumerScene, Topics
from simulator.loop import virtual_time


def classic_group(**assigned: list[int]) -> Group:
    """A stable classic group in generation 7 whose members subscribe to `t`."""
    group = Group(
        name="g", state=GroupState.STABLE, generation=7, protocol_type="consumer", protocol_name="range", leader="x"
    )
    for member_id, indexes in assigned.items():
        group.members[member_id] = Member(
            member_id=member_id,
            instance_id=None,
            client_id="old",
            client_host="/h",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=REBALANCE_MS,
            protocols=(("range", assignment.encode_subscription(["t"])),),
            assignment=assignment.encode_assignment({"t": indexes}),
        )
    return group


def upgraded(**assigned: list[int]) -> ConsumerScene:
    topics = Topics(t=4)
    return ConsumerScene(topics, group=migration.to_consumer(classic_group(**assigned), topics))


@virtual_time
async def test_a_classic_member_keeps_its_partitions_until_it_has_joined_again_without_them():
    scene = upgraded(x=[0, 1, 2, 3])

    a = await scene.join("a")
    assert (a.epoch, a.has) == (8, set())
    assert scene.beat_classic("x", 7) is Problem.REBALANCE_IN_PROGRESS
    joined = await scene.join_classic("x", owned={"t": [0, 1, 2, 3]})
    assert (joined.generation, joined.leader, joined.members) == (7, "", ())
    assert await scene.sync_classic("x", 7) == {"t": [0, 1]}
    assert scene.beat_classic("x", 7) is Problem.REBALANCE_IN_PROGRESS
    await scene.beat(a)
    assert not a.has
    joined = await scene.join_classic("x", owned={"t": [0, 1]})
    assert joined.generation == 8
    assert scene.beat_classic("x", 8) is None
    await scene.beat(a)

    assert a.indexes() == [(1, 2), (1, 3)]


@virtual_time
async def test_a_new_classic_member_gets_an_id_first_kip_394():
    scene = ConsumerScene()
    await scene.join("a")

    refusal = await scene.join_classic("")
    joined = await scene.join_classic(refusal.member_id)

    assert refusal.problem is Problem.MEMBER_ID_REQUIRED
    assert joined.member_id == refusal.member_id
    assert (await scene.join_classic("", knows_id=True)).generation == 3


@virtual_time
async def test_a_classic_member_must_have_a_protocol_in_common_with_the_other_classic_members():
    scene = upgraded(x=[0])
    await scene.join("a")

    assert (await scene.join_classic("y", protocol="other")).problem is Problem.INCONSISTENT_PROTOCOL
    assert (await scene.join_classic("y")).generation == 8 + 1


@virtual_time
async def test_a_classic_member_subscribes_to_a_limited_number_of_topics():
    scene = upgraded(x=[0])
    await scene.join("a")
    scene.settings = replace(scene.settings, topic_count_max=2)

    assert (await scene.join_classic("y", "t", "u", "v")).problem is Problem.INCONSISTENT_PROTOCOL
    assert "y" not in scene.group.members
    assert (await scene.join_classic("y", "t", "u")).member_id == "y"


@virtual_time
async def test_requests_of_classic_members_are_checked_as_in_a_classic_group():
    scene = upgraded(x=[0, 1, 2, 3])
    a = await scene.join("a")

    assert scene.beat_classic("x", 6) is Problem.ILLEGAL_GENERATION
    assert scene.beat_classic("none", 7) is Problem.UNKNOWN_MEMBER
    assert scene.beat_classic("a", a.epoch) is Problem.UNKNOWN_MEMBER
    assert await scene.sync_classic("x", 7) is Problem.REBALANCE_IN_PROGRESS
    assert await scene.sync_classic("x", 8) is Problem.ILLEGAL_GENERATION


@virtual_time
async def test_a_classic_member_that_does_not_join_again_in_its_rebalance_timeout_is_removed():
    scene = upgraded(x=[0, 1, 2, 3])
    a = await scene.join("a")
    for _ in range(7):
        await asyncio.sleep(5)
        scene.beat_classic("x", 7)
        await scene.beat(a)

    assert list(scene.group.members) == ["a"]
    assert len(a.has) == 4


@virtual_time
async def test_a_classic_member_that_upgrades_joins_with_a_heartbeat_of_epoch_0():
    scene = ConsumerScene()
    await scene.join("a")
    await scene.join_classic("", instance="s", knows_id=True)
    first = scene.group.static["s"]

    again = await scene.join("s-2", instance="s")

    assert first != "s-2"
    assert scene.group.static == {"s": "s-2"}
    assert scene.group.members["s-2"].classic is None
    assert again.epoch == scene.group.epoch


@virtual_time
async def test_the_last_member_of_the_consumer_protocol_that_goes_makes_the_group_a_classic_one():
    scene = upgraded(x=[0, 1], y=[2, 3])
    a = await scene.join("a")
    assert scene.downgrades == 0

    await scene.beat(a, epoch=LEAVES)

    assert scene.downgrades == 1
    found = migration.to_classic(scene.group, 45_000)
    assert found.kind is GroupKind.CLASSIC
    assert (found.state, found.generation, found.protocol_name) == (GroupState.STABLE, 9, "range")
    assert {member.member_id: assignment.decode_assignment(member.assignment) for member in found.members.values()} == {
        "x": {"t": [0, 1]},
        "y": {"t": [2, 3]},
    }


@virtual_time
async def test_a_member_of_the_consumer_protocol_that_is_silent_makes_the_group_a_classic_one():
    scene = upgraded(x=[0, 1, 2, 3])
    await scene.join("a")
    for _ in range(5):
        await scene.join_classic("x", owned={"t": [0, 1]})
        await scene.sync_classic("x", scene.group.members["x"].epoch)
        await asyncio.sleep(9.5)

    assert scene.downgrades == 1


@virtual_time
async def test_the_view_of_a_group_shows_each_member_as_a_classic_one():
    scene = upgraded(x=[0, 1, 2, 3])
    await scene.join("a", "t", "u")

    shown = view.classic_view(scene.group, 45_000)

    assert (shown.kind, shown.state, shown.protocol_type) == (GroupKind.CONSUMER, GroupState.RECONCILING, "consumer")
    assert assignment.decode_assignment(shown.members["x"].assignment) == {"t": [0, 1, 2, 3]}
    assert assignment.decode_subscription(shown.members["a"].protocols[0][1]) == ["t", "u"]


@virtual_time
async def test_another_server_gets_the_view():
    scene = upgraded(x=[0, 1, 2, 3])
    await scene.join("a")
    shown = view.classic_view(scene.group, 45_000)

    found = packing.unpack_group("g", packing.pack_group(shown))

    assert (found.kind, found.state, found.members) == (shown.kind, shown.state, shown.members)


def test_partitions_that_two_classic_members_claim_belong_to_the_first():
    found = migration.to_consumer(classic_group(x=[0, 1], y=[1, 2]), topics := Topics(t=4))

    assert list(found.members["x"].assigned) == [topics.key("t", 0), topics.key("t", 1)]
    assert list(found.members["y"].assigned) == [topics.key("t", 2)]


@virtual_time
async def test_an_admin_removes_a_member_of_any_protocol():
    scene = ConsumerScene()
    await scene.join("a")

    assert scene.machine.leave(MemberRef(group="g", member_id="a")) == "a"
    assert not scene.group.members


@virtual_time
async def test_a_classic_member_commits_in_its_generation():
    scene = upgraded(x=[0, 1, 2, 3])
    await scene.join("a")

    scene.machine.check_commit(MemberRef(group="g", member_id="x", generation=7), [PartitionKey(0)])
    answer = await scene.ask(Heartbeat(member_id="x", epoch=7, owned=()))  # as a member of the consumer protocol

    assert answer is not Problem.UNKNOWN_MEMBER
