"""Hostile and unlucky members against the limits of what members say: a refusal changes nothing, and no count is lost.

Groups near the limits, and groups on a server that a hostile client fills, still complete their rounds.
"""

import asyncio
from contextlib import suppress

import pytest

from bearlake.metadata.open import open_metadata
from bearlake.metadata.registering import register
from bearlake.streams.groups.consumer.model import LEAVES, LEAVES_FOR_A_WHILE, Heartbeat, HeartbeatAnswer
from bearlake.streams.groups.coordinator import Coordinator
from bearlake.streams.groups.model import GroupState, Joined, JoinRequest, Synced
from bearlake.streams.groups.ownership import Ownership
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.room import Room, ServerRoom
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.groups.tasks.model import StreamsHeartbeat
from fixtures.consumer_groups import ConsumerScene, Topics
from fixtures.groups import Scene, room_of
from fixtures.streams_groups import StreamsScene
from simulator.loop import virtual_time

KIB = 1_024
BIG = (("range", b"m" * KIB),)
NAMES = ["n" * 200 + str(number) for number in range(20)]
MEMBERSHIP = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\0"
"""Metadata of a classic member that subscribes to `t`."""


def classic_join(metadata: bytes, *, member_id: str = "", instance: str | None = None) -> JoinRequest:
    return JoinRequest(
        member_id=member_id,
        instance_id=instance,
        client_id="c",
        client_host="/h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=(("range", metadata),),
        requires_known_id=False,
        can_skip_assignment=False,
    )


# -- refusals change nothing -----------------------------------------------------------------------------------------


async def left_for_a_while(scene: ConsumerScene) -> None:
    """Let the static member `i`, with id `old`, join and leave for a while."""
    asked = Heartbeat(
        member_id="old", instance_id="i", epoch=0, topics=["t"], pattern="p", owned=[], rebalance_timeout_ms=1
    )
    answer = await scene.ask(asked)
    assert isinstance(answer, HeartbeatAnswer)
    await scene.ask(Heartbeat(member_id="old", instance_id="i", epoch=LEAVES_FOR_A_WHILE))


@virtual_time
async def test_a_static_member_that_comes_back_and_says_too_much_keeps_its_former_id():
    scene = ConsumerScene(room=room_of(2 * KIB))
    await left_for_a_while(scene)
    used = scene.room.used

    answer = await scene.ask(
        Heartbeat(member_id="new", instance_id="i", epoch=0, topics=NAMES, owned=[], rebalance_timeout_ms=1)
    )

    assert answer is Problem.GROUP_FULL
    assert (set(scene.group.members), scene.group.static, scene.room.used) == ({"old"}, {"i": "old"}, used)
    assert scene.group.members["old"].epoch == LEAVES_FOR_A_WHILE


@virtual_time
async def test_a_classic_static_member_of_a_consumer_group_that_says_too_much_keeps_its_former_id():
    scene = ConsumerScene(room=room_of(2 * KIB))
    await scene.join("a", "t")
    await scene.machine.join(classic_join(MEMBERSHIP, instance="i"))
    before, used = dict(scene.group.static), scene.room.used

    with pytest.raises(GroupRefusal) as refused:
        scene.machine.join(classic_join(MEMBERSHIP + b"\0" * 3 * KIB, instance="i"))

    assert refused.value.problem is Problem.GROUP_FULL
    assert (scene.group.static, scene.room.used) == (before, used)


@virtual_time
async def test_a_static_member_that_comes_back_with_its_own_id_stays_counted():
    scene = ConsumerScene()
    await left_for_a_while(scene)
    used = scene.room.used

    answer = await scene.ask(Heartbeat(member_id="old", instance_id="i", epoch=0, pattern="p", owned=[]))

    assert isinstance(answer, HeartbeatAnswer)
    assert scene.room.used == used
    await scene.ask(Heartbeat(member_id="old", instance_id="i", epoch=LEAVES))
    assert scene.room.used == 0


@virtual_time
async def test_a_static_member_cannot_take_the_id_of_another_member():
    scene = ConsumerScene()
    await left_for_a_while(scene)
    await scene.join("x", "t")
    used, had = scene.room.used, set(scene.group.owners)

    answer = await scene.ask(Heartbeat(member_id="x", instance_id="i", epoch=0, topics=["t"], owned=[]))

    assert answer is Problem.INVALID_REQUEST
    assert (set(scene.group.members), scene.room.used) == ({"old", "x"}, used)
    await scene.ask(Heartbeat(member_id="x", epoch=LEAVES))
    await scene.ask(Heartbeat(member_id="old", instance_id="i", epoch=LEAVES))
    assert had
    assert (scene.room.used, scene.group.owners) == (0, {})


@virtual_time
async def test_a_leader_whose_assignment_does_not_fit_loses_its_place_after_the_rebalance_timeout():
    scene = Scene(room=room_of(3 * KIB))
    leader, follower = await scene.completing("a", "b", rebalance_ms=20_000)
    scene.sync(follower)

    assert scene.sync(leader, {leader.id: b"x" * 4 * KIB}).answer is Problem.GROUP_FULL
    await scene.pass_ms(30_000, beating=(leader, follower))

    assert set(scene.group.members) == {follower.id}  # its sync was refused, so that it joins again
    assert scene.state is GroupState.PREPARING


@virtual_time
async def test_a_topology_counts_with_the_member_that_brings_it():
    scene = StreamsScene(room=room_of(KIB))
    asked = StreamsHeartbeat(
        member_id="a", epoch=0, rebalance_timeout_ms=1, topology=scene.topology, tags={"zone": "z" * 760}
    )
    assert isinstance(await scene.ask(asked), GroupRefusal)
    assert (scene.group.topology, scene.room.used) == (None, 0)


# -- near the limits -------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_group_that_takes_no_more_newcomers_still_completes_rounds_with_assignments_and_owned_partitions():
    scene = Scene(room=room_of(8 * KIB))
    members = [scene.enter("a", protocols=BIG)]
    while (found := scene.enter("b", protocols=BIG)).problem is None:
        members.append(found)
    assert found.problem is Problem.GROUP_FULL
    await scene.pass_ms(12_000, beating=tuple(members))  # the id of the refused member expires

    grown = (("range", b"m" * (KIB + 100)),)
    again = [
        scene.join(id=member.id, protocols=grown) for member in (*members, members[0])
    ]  # the first one ended the former round
    await scene.run_due()
    sync = scene.sync(again[-1], {member.id: b"x" * 100 for member in members})
    await scene.run_due()

    assert len(members) > 1
    assert isinstance(sync.answer, Synced)
    assert scene.state is GroupState.STABLE


def test_large_groups_never_take_what_is_free_so_small_groups_grow():
    server = ServerRoom(1_000)
    greedy = [Room(server, 1_000) for _ in range(6)]
    for room in greedy:
        with suppress(GroupRefusal):
            for octets in range(1, 1_001):
                room.take("a", octets)

    assert server.used < 1_000
    small = Room(server, 1_000)
    small.take("a", 4)
    small.take("a", 7)


# -- counts are never lost -------------------------------------------------------------------------------------------


@virtual_time
async def test_a_group_taken_while_the_server_drains_gives_its_room_back():
    metadata = await open_metadata("memory:///")
    found = await register(metadata.servers, "a", zone=None, endpoints={}, version="", timeout_ms=6_000)
    first = Ownership(metadata, found.server, GroupSettings(), topics=Topics(t=1))
    await Coordinator(metadata, first).join("g", classic_join(MEMBERSHIP))
    member = next(iter(first.owned["g"].machine.view().members.values()))
    first.owned["g"].machine.rounds.save()
    await asyncio.sleep(1)
    assert isinstance(member.member_id, str)
    await first.release_all()

    second = Ownership(metadata, found.server, GroupSettings(), topics=Topics(t=1))
    room = second.protocols._server_room  # noqa: SLF001 - the count of all groups
    taking = asyncio.ensure_future(second.open("g"))
    await asyncio.sleep(0)
    second._is_draining = True  # noqa: SLF001 - `drain` begins after the take
    with pytest.raises(GroupRefusal):
        await taking

    assert room.used == 0
    await first.close()
    await second.close()
    await metadata.close()


@virtual_time
async def test_a_group_that_changes_its_protocol_both_ways_counts_its_members_once():
    metadata = await open_metadata("memory:///")
    found = await register(metadata.servers, "a", zone=None, endpoints={}, version="", timeout_ms=6_000)
    ownership = Ownership(metadata, found.server, GroupSettings(), topics=Topics(t=2))
    coordinator, room = Coordinator(metadata, ownership), ownership.protocols._server_room  # noqa: SLF001
    joined = await coordinator.join("g", classic_join(MEMBERSHIP))
    assert isinstance(joined, Joined)
    alone = room.used
    owned = ownership.owned["g"]

    for _ in range(3):
        await ownership.protocols.before_beat(owned)
        machine = ownership.protocols.as_consumer("g", owned, may_create=True)
        machine.beat(Heartbeat(member_id="m", epoch=0, topics=["t"], owned=[], rebalance_timeout_ms=1))
        assert room.used > alone
        machine.beat(Heartbeat(member_id="m", epoch=LEAVES))

    owned.machine.close(Problem.NOT_COORDINATOR)
    assert room.used == 0
    await ownership.close()
    await metadata.close()
