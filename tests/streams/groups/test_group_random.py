"""Random members do random things to a group, saves succeed and fail: its state is always valid, and no member waits without end."""

import asyncio
import random

import pytest

from bearlake.streams.groups.model import Group, GroupState, Joined, Synced
from bearlake.streams.groups.problems import Problem
from fixtures.groups import BOTH, RANGE, Call, Scene, room_of
from simulator.loop import virtual_time

STICKY = (("sticky", b"s"), ("range", b"topics"))
REBALANCE_MS = 20_000


def check(scene: Scene) -> None:
    """Check the invariants after every step."""
    group, rounds = scene.group, scene.machine.rounds
    assert set(group.static.values()) <= set(group.members)
    assert {group.members[member_id].instance_id for member_id in group.static.values()} == set(group.static)
    assert rounds._unsynced <= set(group.members)  # noqa: SLF001 - what no answer shows
    assert not set(group.pending) & set(group.members)
    assert (group.leader in group.members) if group.members else not group.leader or group.state is GroupState.PREPARING
    waiting = [member for member in group.members.values() if member.joining is not None]
    syncing = [member for member in group.members.values() if member.syncing is not None]
    if group.state is GroupState.EMPTY:
        assert not group.members
    if group.state is GroupState.STABLE:
        assert group.protocol_name in group.common_protocols()
        assert not syncing
        assert {member.member_id for member in waiting} <= set(rounds._replaced)  # noqa: SLF001
    if group.state is GroupState.COMPLETING:
        assert group.protocol_name in group.common_protocols()
        assert not waiting
    if group.state is GroupState.PREPARING:
        assert not syncing
        assert rounds._round_timer is not None  # noqa: SLF001
    for member in group.members.values():
        assert member.timer is not None
    said = [len(member_id) for member_id in group.pending]
    for member in group.members.values():
        names = (member.member_id, member.instance_id or "", member.client_id, member.client_host)
        said += [sum(map(len, names)), sum(len(name) + len(metadata) for name, metadata in member.protocols)]
    assigned = scene.room.used - sum(said)
    assert 0 <= assigned <= 8 if group.members else not assigned
    restored = Group.decode("g", group.protocol_type, group.encode())
    assert set(restored.members) == set(group.members)


class Crowd:
    """Clients that behave more or less well."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene = scene
        self.random = random.Random(seed)
        self.calls: list[Call] = []
        self.ids: list[str] = ["nobody"]

    def step(self) -> None:
        what = self.random.choice(
            [self.join, self.join, self.rejoin, self.rejoin, self.sync, self.sync, self.beat, self.leave]
        )
        what()

    def join(self) -> None:
        instance = self.random.choice([None, None, "i1", "i2"])
        call = self.scene.join(
            "c",
            instance=instance,
            protocols=self.random.choice([RANGE, BOTH, STICKY]),
            old=self.random.random() < 0.3,
            skips=self.random.random() < 0.5,
            rebalance_ms=REBALANCE_MS,
        )
        self.note(call)

    def rejoin(self) -> None:
        member_id = self.random.choice(self.ids)
        member = self.scene.group.members.get(member_id)
        instance = member.instance_id if member is not None and self.random.random() < 0.9 else None
        protocols = member.protocols if member is not None and self.random.random() < 0.7 else RANGE
        self.note(self.scene.join(id=member_id, instance=instance, protocols=protocols, rebalance_ms=REBALANCE_MS))

    def sync(self) -> None:
        member_id = self.random.choice(self.ids)
        generation = self.scene.generation - (self.random.random() < 0.1)
        plan = dict.fromkeys(self.scene.group.members, b"x")
        self.calls.append(self.scene.call("sync", member_id, None, generation, (None, None), plan))

    def beat(self) -> None:
        self.scene.call("heartbeat", self.random.choice(self.ids), None, self.scene.generation)

    def leave(self) -> None:
        if self.random.random() < 0.3:
            member_id, instance = self.random.choice([(self.random.choice(self.ids), None), ("", "i1")])
            self.scene.call("leave", member_id, instance)

    def note(self, call: Call) -> None:
        self.calls.append(call)
        if call.id:
            self.ids = [*self.ids[-12:], call.id]

    def end_saves(self) -> None:
        """Saves end in the order they were begun, some without success."""
        while self.scene.saves and self.random.random() < 0.6:
            ticket = self.scene.saves.pop(0)
            end = (
                self.scene.machine.rounds.saved
                if self.random.random() < 0.85
                else self.scene.machine.rounds.save_failed
            )
            end(ticket)


@pytest.mark.parametrize("seed", range(60))
def test_a_groups_invariants_hold_whatever_its_members_do(seed):
    @virtual_time
    async def run():
        chance = random.Random(seed)
        room = room_of(chance.choice([200, 1_000_000]))
        scene = Scene(saves_by_hand=True, initial_delay_ms=chance.choice([0, 3_000]), size_max=8, room=room)
        crowd = Crowd(scene, seed)
        for _ in range(300):
            crowd.step()
            check(scene)
            crowd.end_saves()
            check(scene)
            if crowd.random.random() < 0.3:
                await asyncio.sleep(crowd.random.choice([0.1, 1, 4, 11]))
                check(scene)
        # All clients go away: the group empties by itself, and every waiting client was answered.
        for _ in range(200):
            await asyncio.sleep(10)
            while scene.saves:
                scene.machine.rounds.saved(scene.saves.pop(0))
        check(scene)
        assert scene.state is GroupState.EMPTY
        assert not scene.group.pending
        assert not room.used
        for call in crowd.calls:
            assert isinstance(call.answer, Joined | Synced | Problem)

    run()


@pytest.mark.parametrize("seed", range(20))
def test_members_that_follow_the_protocol_always_reach_a_stable_group(seed):
    @virtual_time
    async def run():
        noise = random.Random(seed)
        scene = Scene()
        members: dict[int, Call] = {}
        joining: dict[int, Call] = {}
        for at in range(60):
            for number in range(5):
                await drive(scene, members, joining, number, noise, is_calm=at > 30)
            await asyncio.sleep(1)

        assert scene.state is GroupState.STABLE
        assert len(scene.group.members) == len(members)
        for member in members.values():
            assert scene.sync(member).answer.assignment == member.id.encode()

    run()


async def drive(scene, members, joining, number, noise, is_calm):
    """One client: join, sync, then heartbeats; while not calm, it sometimes leaves or changes its subscription."""
    call = joining.get(number)
    if call is not None:
        answer = call.answer
        if answer is None:
            return
        del joining[number]
        if isinstance(answer, Problem):
            again = (
                call.id if answer is Problem.MEMBER_ID_REQUIRED else "" if answer is Problem.UNKNOWN_MEMBER else call.id
            )
            joining[number] = scene.join(f"c{number}", id=again)
            return
        members[number] = call
        plan = {member.member_id: member.member_id.encode() for member in answer.members}
        scene.sync(call, plan)
        await scene.run_due()
        return
    member = members.get(number)
    if member is None:
        joining[number] = scene.join(f"c{number}")
        return
    if not is_calm and noise.random() < 0.1:
        scene.call("leave", member.id, None)
        del members[number]
        return
    refused = scene.beat(member)
    if refused is not None or (not is_calm and noise.random() < 0.05):
        joining[number] = scene.join(f"c{number}", id="" if refused is Problem.UNKNOWN_MEMBER else member.id)
        del members[number]
        return
    scene.sync(member)
