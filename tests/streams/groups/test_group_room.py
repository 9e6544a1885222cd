"""What members say of themselves stays in memory and in each save, so it has a limit: for a group, and for all groups of a server.

A member that would exceed it is refused in its protocol's words. Nothing of it stays, and the other members notice nothing.
"""

import asyncio

import pytest

from bearlake.metadata.open import open_metadata
from bearlake.metadata.registering import register
from bearlake.streams.groups.consumer.model import LEAVES, Heartbeat, HeartbeatAnswer
from bearlake.streams.groups.coordinator import Coordinator
from bearlake.streams.groups.model import Group, GroupState, Joined, JoinRequest, Synced
from bearlake.streams.groups.ownership import Ownership
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.room import Room, ServerRoom, octets_of
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.groups.share.machine import ShareMachine
from bearlake.streams.groups.share.model import ShareGroup
from bearlake.streams.groups.share.settings import ShareGroupSettings
from bearlake.streams.groups.shares import ShareCoordinator
from bearlake.streams.groups.tasks.model import Endpoint, StreamsAnswer, StreamsHeartbeat
from fixtures.consumer_groups import ConsumerScene, Topics
from fixtures.groups import Scene, ref, room_of
from fixtures.streams_groups import StreamsScene
from simulator.loop import virtual_time

KIB = 1_024
BIG = (("range", b"m" * KIB),)
"""Protocols of a member that says a bit more than 1 KiB."""


def refusal_of(call):
    with pytest.raises(GroupRefusal) as caught:
        call()
    return caught.value


# -- classic groups --------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_classic_group_takes_members_until_their_metadata_fills_its_room():
    scene = Scene(room=room_of(3 * KIB))
    first, second = scene.enter("a", protocols=BIG), scene.enter("b", protocols=BIG)

    assert scene.enter("c", protocols=BIG).answer is Problem.GROUP_FULL
    assert set(scene.group.members) == {first.id, second.id}
    assert isinstance(scene.enter("d").future, asyncio.Future)  # a member that says little still fits


@virtual_time
async def test_a_member_that_does_not_fit_does_not_hold_up_the_round_of_others():
    scene = Scene(room=room_of(2 * KIB))
    first = scene.enter("a", protocols=BIG)
    pending = scene.join("b")
    assert pending.answer is Problem.MEMBER_ID_REQUIRED
    scene.join("a", id=first.id, protocols=(*BIG, ("other", b"")))

    assert scene.join("b", id=pending.id, protocols=BIG).answer is Problem.GROUP_FULL
    await asyncio.sleep(12)  # the id of the refused member expires

    assert scene.state is GroupState.COMPLETING
    assert set(scene.group.members) == {first.id}


@virtual_time
async def test_members_that_leave_make_room():
    scene = Scene(room=room_of(2 * KIB))
    first = scene.enter("a", protocols=BIG)
    assert scene.enter("b", protocols=BIG).answer is Problem.GROUP_FULL

    scene.call("leave", first.id, None)

    assert scene.enter("b", protocols=BIG).problem is None


@virtual_time
async def test_a_member_that_would_say_too_much_keeps_its_place_and_may_say_less():
    scene = Scene(room=room_of(2 * KIB))
    first = scene.enter("a", protocols=BIG)

    assert scene.join("a", id=first.id, protocols=(("range", b"m" * 3 * KIB),)).answer is Problem.GROUP_FULL
    assert scene.group.members[first.id].protocols == BIG
    assert isinstance(scene.join("a", id=first.id).answer, Joined)


@virtual_time
async def test_a_static_member_that_comes_back_takes_the_room_of_its_former_self():
    scene = Scene(room=room_of(2 * KIB))
    scene.join("a", instance="i", protocols=BIG)

    again = scene.join("a", instance="i", protocols=BIG)

    assert again.problem is None
    assert KIB < scene.room.used < 2 * KIB


@virtual_time
async def test_a_leaders_assignment_that_does_not_fit_is_refused_and_a_smaller_one_completes_the_round():
    scene = Scene(room=room_of(2 * KIB))
    leader = scene.enter("a")

    too_much = scene.call("sync", leader.id, None, scene.generation, (None, None), {leader.id: b"x" * 2 * KIB})
    assert too_much.answer is Problem.GROUP_FULL
    assert scene.state is GroupState.COMPLETING
    fits = scene.call("sync", leader.id, None, scene.generation, (None, None), {leader.id: b"x" * KIB})
    await asyncio.sleep(0)

    assert isinstance(fits.answer, Synced)
    assert scene.state is GroupState.STABLE
    scene.call("leave", leader.id, None)
    assert scene.room.used == 0


@virtual_time
async def test_ids_of_clients_that_never_join_take_room_only_until_they_expire():
    scene = Scene(room=room_of(2 * KIB))
    answers = [scene.join("c" * 700).answer for _ in range(3)]

    assert answers == [Problem.MEMBER_ID_REQUIRED, Problem.MEMBER_ID_REQUIRED, Problem.GROUP_FULL]
    await asyncio.sleep(60)
    assert scene.room.used == 0


@virtual_time
async def test_the_next_coordinator_counts_the_same_and_keeps_members_beyond_its_limit():
    scene = Scene()
    leader = scene.enter("a", protocols=BIG, instance="i")
    scene.call("sync", leader.id, None, scene.generation, (None, None), {leader.id: b"x" * 500})
    await asyncio.sleep(0)
    used = scene.room.used

    later = Scene(group=Group.decode("g", "consumer", scene.snapshots[-1]), room=room_of(KIB))

    assert later.room.used == used
    later.machine.heartbeat(ref("g", leader.id, None, later.generation))
    assert later.join("b").answer is Problem.GROUP_FULL


# -- groups of KIP-848, KIP-932 and KIP-1071 -------------------------------------------------------------------------


@virtual_time
async def test_a_consumer_group_refuses_a_subscription_that_does_not_fit_and_keeps_the_former_one():
    scene = ConsumerScene(room=room_of(2 * KIB))
    a = await scene.join("a", "t")
    names = ["n" * 200 + str(number) for number in range(20)]

    answer = await scene.ask(Heartbeat(member_id="a", epoch=a.epoch, topics=names, rack_id="r"))
    assert answer is Problem.GROUP_FULL
    assert (scene.group.members["a"].topics, scene.group.members["a"].rack_id) == (("t",), None)
    assert (
        await scene.ask(Heartbeat(member_id="b", epoch=0, topics=names, rebalance_timeout_ms=1)) is Problem.GROUP_FULL
    )
    assert set(scene.group.members) == {"a"}
    assert isinstance(await scene.ask(Heartbeat(member_id="a", epoch=a.epoch)), HeartbeatAnswer)

    await scene.ask(Heartbeat(member_id="a", epoch=LEAVES))
    assert scene.room.used == 0


@virtual_time
async def test_a_classic_member_of_a_consumer_group_is_counted_with_its_protocols():
    scene = ConsumerScene(room=room_of(2 * KIB))
    await scene.join("a", "t")
    request = JoinRequest(
        member_id="b",
        instance_id=None,
        client_id="c",
        client_host="/h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=(("range", b"\0\1" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\0" + b"\0" * 3 * KIB),),
        requires_known_id=False,
        can_skip_assignment=False,
    )

    assert refusal_of(lambda: scene.machine.join(request)).problem is Problem.GROUP_FULL
    assert set(scene.group.members) == {"a"}


@virtual_time
async def test_a_share_group_refuses_a_subscription_that_does_not_fit():
    room = room_of(2 * KIB)
    machine = ShareMachine(
        ShareGroup(name="g"), topics=Topics(t=1), room=room, settings=ShareGroupSettings, on_save=lambda ticket: None
    )
    machine.beat(Heartbeat(member_id="a", epoch=0, topics=["t"]))
    used = room.used
    names = ["n" * 200 + str(number) for number in range(20)]

    for asked in (Heartbeat(member_id="a", epoch=0, topics=names), Heartbeat(member_id="b", epoch=0, topics=names)):
        assert refusal_of(lambda asked=asked: machine.beat(asked)).problem is Problem.GROUP_FULL
    assert room.used == used
    assert machine.group.members["a"].topics == ("t",)
    machine.close(Problem.NOT_COORDINATOR)
    assert room.used == 0


@virtual_time
async def test_a_streams_group_refuses_tags_that_do_not_fit_and_takes_no_topology_from_who_says_them():
    scene = StreamsScene(room=room_of(2 * KIB))
    asked = StreamsHeartbeat(
        member_id="a",
        epoch=0,
        rebalance_timeout_ms=1_000,
        topology=scene.topology,
        process_id="p",
        endpoint=Endpoint("h", 1),
        tags={"zone": "z" * 3 * KIB},
    )

    refused = await scene.ask(asked)
    assert isinstance(refused, GroupRefusal)
    assert refused.problem is Problem.GROUP_FULL
    assert (scene.group.topology, scene.group.members) == (None, {})
    small = StreamsHeartbeat(
        member_id="a", epoch=0, rebalance_timeout_ms=1_000, topology=scene.topology, process_id="p"
    )
    answer = await scene.ask(small)
    assert isinstance(answer, StreamsAnswer)
    used = scene.room.used
    refused = await scene.ask(StreamsHeartbeat(member_id="a", epoch=answer.epoch, tags={"zone": "z" * 3 * KIB}))
    assert isinstance(refused, GroupRefusal)
    assert (scene.group.members["a"].tags, scene.room.used) == ({}, used)
    await scene.ask(StreamsHeartbeat(member_id="a", epoch=LEAVES))
    assert scene.room.used == scene.topology.octets()  # the group keeps its topology
    scene.machine.close(Problem.NOT_COORDINATOR)
    assert scene.room.used == 0


# -- all groups of a server ------------------------------------------------------------------------------------------


def test_a_room_counts_bytes_not_characters_and_gives_all_of_them_back():
    assert octets_of(["b", None, "\u00e9"]) == 3
    server = ServerRoom(100)
    first, other = Room(server, 80), Room(server, 80)

    first.take("a", 50)
    other.take("b", 50)
    assert refusal_of(lambda: first.take("a", 81)).problem is Problem.GROUP_FULL
    assert refusal_of(lambda: first.take("c", 5)).problem is Problem.COORDINATOR_UNAVAILABLE
    first.take("a", 40)  # less is never refused
    first.rename("a", "d")
    first.leave("nobody")
    assert (first.used, other.used, server.used) == (40, 50, 90)

    first.close()
    first.leave("d")
    other.leave("b")
    assert (first.used, other.used, server.used) == (0, 0, 0)


@virtual_time
async def test_one_full_server_refuses_members_of_any_group_until_others_leave():
    metadata = await open_metadata("memory:///")
    found = await register(metadata.servers, "a", zone=None, endpoints={}, version="", timeout_ms=6_000)
    settings = GroupSettings(bytes_max=3 * KIB)
    ownership = Ownership(metadata, found.server, settings, topics=Topics(t=1))
    coordinator, shares = Coordinator(metadata, ownership), ShareCoordinator(metadata, ownership)

    def request(client: str) -> JoinRequest:
        return JoinRequest(
            member_id="",
            instance_id=None,
            client_id=client,
            client_host="/h",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=BIG,
            requires_known_id=False,
            can_skip_assignment=False,
        )

    first = await coordinator.join("g1", request("a"))
    await coordinator.join("g2", request("b"))
    with pytest.raises(GroupRefusal) as full:
        await coordinator.join("g3", request("c"))
    assert full.value.problem is Problem.COORDINATOR_UNAVAILABLE
    with pytest.raises(GroupRefusal) as full:
        await shares.beat("s", Heartbeat(member_id="m", epoch=0, topics=["n" * 249 + str(i) for i in range(20)]))
    assert full.value.problem is Problem.COORDINATOR_UNAVAILABLE
    assert isinstance(await shares.beat("s", Heartbeat(member_id="m", epoch=0, topics=["t"])), HeartbeatAnswer)

    await coordinator.leave(ref("g1", first.member_id))
    await coordinator.join("g3", request("c"))

    await ownership.close()
    await metadata.close()
