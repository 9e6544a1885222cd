"""Streams groups under random members, lost answers, failing saves and hand-overs: no active task ever has two users."""

import asyncio
import random
from dataclasses import replace

import pytest

from bearlake.streams.groups.consumer.model import LEAVES, MemberState
from bearlake.streams.groups.model import GroupState
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.tasks import snapshot
from bearlake.streams.groups.tasks.model import StreamsAnswer, StreamsHeartbeat, TaskId, Tasks
from fixtures.consumer_groups import Topics
from fixtures.groups import room_of
from fixtures.streams_groups import REBALANCE_MS, SETTINGS, Client, StreamsScene, stateful
from simulator.loop import virtual_time

LOST = (Problem.UNKNOWN_MEMBER, Problem.FENCED_MEMBER_EPOCH)
PROCESSES = ("p", "q", "r")


class Crowd:
    """Clients that follow the protocol; some answers get lost, and some saves fail.

    The server may be replaced: it then goes on from its last successful save.
    """

    def __init__(self, seed, bytes_max=1_000_000):
        self.random = random.Random(seed)
        self.bytes_max = bytes_max
        self.topics = Topics(t=5, u=3)
        self.settings = replace(
            SETTINGS,
            assignment_interval_ms=self.random.choice([0, 1_000]),
            num_standby_replicas=self.random.choice([0, 1, 2]),
        )
        self.topology = stateful("t", "u")
        room = room_of(bytes_max)
        self.scene = StreamsScene(self.topics, self.settings, topology=self.topology, saves_by_hand=True, room=room)
        self.stored = self.scene.machine.encode()[1]
        self.clients = {}
        self.count = 0
        self.is_quiet = False
        """No answers get lost, and no saves fail."""

    def step(self):
        acts = [self.beat] * 8 + [self.join, self.join, self.leave, self.change_topics, self.take_over]
        self.random.choice(acts)()
        self.check()

    def ask(self, client, asked):
        """Send a heartbeat, and end its save; the answer may get lost."""
        try:
            future = self.scene.machine.beat(asked)
        except GroupRefusal as refusal:
            return self.receive(client, refusal.problem)
        while not future.done():
            ticket = self.scene.saves.pop()
            if self.is_quiet or self.random.random() < 0.8:
                self.stored = self.scene.snapshots[-1]
                self.scene.machine.saved(ticket)
            else:
                self.scene.machine.save_failed(ticket)
        self.scene.saves.clear()
        error = future.exception()
        if self.is_quiet or self.random.random() < 0.85:
            self.receive(client, error.problem if error is not None else future.result())
        return None

    def receive(self, client, answer):
        if isinstance(answer, StreamsAnswer):
            client.epoch = answer.epoch
            if answer.tasks is not None:
                client.target = answer.tasks
        elif answer in LOST:
            client.tasks = client.target = Tasks()
            client.epoch = 0
            if answer is Problem.UNKNOWN_MEMBER:
                self.clients.pop(client.id, None)

    def join(self):
        if len(self.clients) < 6:
            self.count += 1
            client = self.clients[f"c{self.count}"] = Client(f"c{self.count}", self.random.choice(PROCESSES))
            client.target = Tasks()

    def beat(self, client=None):
        if not self.clients:
            return
        client = client or self.random.choice(list(self.clients.values()))
        if client.epoch == 0:
            client.tasks = client.target = Tasks()
        elif self.random.random() < 0.7:  # otherwise the client still works on its callbacks
            kept = Tasks(client.tasks.active & client.target.active, client.tasks.standby & client.target.standby)
            client.tasks = client.target if kept == client.tasks else kept  # it gives up first
        is_joining = client.epoch == 0
        asked = StreamsHeartbeat(
            member_id=client.id,
            epoch=client.epoch,
            rebalance_timeout_ms=REBALANCE_MS if is_joining else None,
            topology=self.topology if is_joining else None,
            process_id=client.process if is_joining else None,
            owned=client.tasks,
        )
        self.ask(client, asked)

    def leave(self):
        if self.clients and self.random.random() < 0.3:
            client = self.clients.pop(self.random.choice(list(self.clients)))
            client.tasks = Tasks()
            self.ask(client, StreamsHeartbeat(member_id=client.id, epoch=LEAVES))
            self.clients.pop(client.id, None)

    def change_topics(self):
        if self.random.random() < 0.2:
            self.topics.create("t", self.topics.peek("t").partition_count + 1)

    def take_over(self):
        if self.random.random() < 0.2:
            self.scene.machine.close(Problem.NOT_COORDINATOR)
            group = snapshot.decode("g", self.stored)
            self.scene = StreamsScene(
                self.topics,
                self.settings,
                group,
                topology=self.topology,
                saves_by_hand=True,
                room=room_of(self.bytes_max),
            )

    def check(self):
        group = self.scene.group
        used = [task for client in self.clients.values() for task in client.tasks.active]
        assert len(used) == len(set(used)), "an active task has two users"
        members = group.members.values()
        owned = {task: m.member_id for m in members for task in (*m.active, *m.revoking_active)}
        assert owned == group.owners
        assert sum(len(m.active) + len(m.revoking_active) for m in members) == len(owned)
        for member in members:
            is_revoking = bool(member.revoking_active or member.revoking_standby)
            assert (member.state is MemberState.UNREVOKED) or not is_revoking
            assert not member.active.keys() & member.standby
        for process in PROCESSES:
            inside = [m for m in members if m.process_id == process]
            held = [task for m in inside for task in (*m.active, *m.revoking_active, *m.standby, *m.revoking_standby)]
            assert len(held) == len(set(held)), "a process has a task twice"
        topology = group.topology.octets() if group.topology else 0
        assert self.scene.room.used == topology + sum(map(size_of, members))
        encoded = self.scene.machine.encode()[1]
        assert snapshot.encode(snapshot.decode("g", encoded)) == encoded


def size_of(member):
    host = member.endpoint.host if member.endpoint else ""
    names = [member.member_id, member.rack_id, member.client_id, member.client_host, member.process_id, host]
    return sum(len(name or "") for name in (*names, *member.tags, *member.tags.values()))


@pytest.mark.parametrize("seed", range(60))
def test_no_active_task_ever_has_two_users_whatever_happens(seed):
    @virtual_time
    async def run():
        crowd = Crowd(seed, bytes_max=15 if seed % 2 else 1_000_000)
        for _ in range(400):
            crowd.step()

    run()


@pytest.mark.parametrize("seed", range(40))
def test_a_streams_group_converges_after_lost_answers_failed_saves_and_hand_overs(seed):
    @virtual_time
    async def run():
        crowd = Crowd(seed)
        for _ in range(200):
            crowd.step()
        crowd.is_quiet = True
        for _ in range(40):
            await asyncio.sleep(2)  # more than the interval of assignments
            for client in list(crowd.clients.values()):
                crowd.beat(client)
            crowd.check()

        crowd.join()
        for _ in range(20):
            await asyncio.sleep(2)
            for client in list(crowd.clients.values()):
                crowd.beat(client)
            crowd.check()

        used = [task for client in crowd.clients.values() for task in client.tasks.active]
        assert sorted(used) == sorted(
            TaskId(str(number), index)
            for number, name in enumerate("tu")
            for index in range(crowd.topics.peek(name).partition_count)
        )
        for client in crowd.clients.values():
            assert client.tasks == crowd.scene.group.target[client.id]
        assert crowd.scene.group.state is GroupState.STABLE

    run()


@pytest.mark.parametrize("seed", range(20))
def test_a_streams_group_whose_members_follow_the_protocol_gets_stable(seed):
    @virtual_time
    async def run():
        chance = random.Random(seed)
        settings = replace(SETTINGS, num_standby_replicas=chance.randint(0, 2))
        topics = Topics(t=chance.randint(1, 20), u=chance.randint(1, 5))
        scene = StreamsScene(topics, settings, topology=stateful("t", "u"))
        clients = []
        for number in range(chance.randint(1, 12)):
            clients.append(await scene.join(f"m{number}", chance.choice(PROCESSES)))
            if chance.random() < 0.5:
                await scene.beat(chance.choice(clients))

        await scene.settle(*clients)

        assert scene.group.state.value == "Stable"
        for client in clients:
            assert client.tasks == scene.group.target[client.id]

    run()
