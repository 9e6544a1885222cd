"""Consumer groups under random members, lost answers, failing saves and hand-overs: no partition ever has two users."""

import random
from dataclasses import replace

import pytest

from bearlake.streams.groups.consumer import snapshot
from bearlake.streams.groups.consumer.model import LEAVES, LEAVES_FOR_A_WHILE, Heartbeat, HeartbeatAnswer, MemberState
from bearlake.streams.groups.problems import GroupRefusal, Problem
from fixtures.consumer_groups import REBALANCE_MS, SETTINGS, Client, ConsumerScene, Topics
from fixtures.groups import room_of
from simulator.loop import virtual_time

LOST = (Problem.UNKNOWN_MEMBER, Problem.FENCED_MEMBER_EPOCH, Problem.FENCED_INSTANCE)


class Crowd:
    """Clients that follow the protocol; some answers get lost, and some saves fail.

    The server may be replaced: it then goes on from its last successful save.
    """

    def __init__(self, seed, bytes_max=1_000_000):
        self.random = random.Random(seed)
        self.bytes_max = bytes_max
        self.topics = Topics(t=5, u=3)
        self.settings = replace(SETTINGS, assignment_interval_ms=self.random.choice([0, 1_000]))
        self.scene = ConsumerScene(self.topics, self.settings, saves_by_hand=True, room=room_of(bytes_max))
        self.stored = self.scene.machine.encode()[1]
        self.clients = {}
        self.count = 0

    def step(self):
        act = self.random.choice(
            [self.beat] * 8 + [self.join, self.join, self.leave, self.change_topics, self.take_over]
        )
        act()
        self.check()

    def ask(self, client, asked):
        """Send a heartbeat, and end its save; the answer may get lost."""
        try:
            future = self.scene.machine.beat(asked)
        except GroupRefusal as refusal:
            return self.receive(client, refusal.problem)
        while not future.done():
            ticket = self.scene.saves.pop()
            if self.random.random() < 0.8:
                self.stored = self.scene.snapshots[-1]
                self.scene.machine.saved(ticket)
            else:
                self.scene.machine.save_failed(ticket)
        self.scene.saves.clear()
        error = future.exception()
        if self.random.random() < 0.85:
            self.receive(client, error.problem if error is not None else future.result())
        else:
            client.is_full = True
        return None

    def receive(self, client, answer):
        if isinstance(answer, HeartbeatAnswer):
            client.epoch = answer.epoch
            client.is_full = False
            if answer.assigned is not None:
                client.target = set(answer.assigned)
        elif answer in LOST:
            client.has.clear()
            client.target.clear()
            client.epoch = 0
            if answer is not Problem.FENCED_MEMBER_EPOCH:
                self.clients.pop(client.id, None)
        else:
            client.is_full = True

    def join(self):
        if len(self.clients) < 6:
            self.count += 1
            client = self.clients[f"c{self.count}"] = Client(f"c{self.count}")
            client.target, client.is_full, client.topics = set(), True, self.random.choice([("t",), ("u",), ("t", "u")])

    def beat(self):
        if not self.clients:
            return
        client = self.random.choice(list(self.clients.values()))
        if self.random.random() < 0.7:  # otherwise the client still works on its callbacks
            client.has &= client.target
        if self.random.random() < 0.9 and client.has <= client.target:
            client.has |= client.target  # it begins to use them once it has given up the others
        if client.epoch == 0:
            client.has.clear()
            client.target.clear()
        is_full = client.is_full or client.epoch == 0
        asked = Heartbeat(
            member_id=client.id,
            epoch=client.epoch,
            rebalance_timeout_ms=REBALANCE_MS if is_full else None,
            topics=client.topics if is_full else None,
            owned=tuple(client.has),
        )
        self.ask(client, asked)

    def leave(self):
        if self.clients and self.random.random() < 0.3:
            client = self.clients.pop(self.random.choice(list(self.clients)))
            client.has.clear()
            self.ask(client, Heartbeat(member_id=client.id, epoch=LEAVES))
            self.clients.pop(client.id, None)

    def change_topics(self):
        if self.random.random() < 0.2:
            self.topics.create("t", self.topics.peek("t").partition_count + 1)

    def take_over(self):
        if self.random.random() < 0.2:
            self.scene.machine.close(Problem.NOT_COORDINATOR)
            group = snapshot.decode("g", self.stored)
            self.scene = ConsumerScene(
                self.topics, self.settings, group, saves_by_hand=True, room=room_of(self.bytes_max)
            )

    def check(self):
        group = self.scene.group
        used = [key for client in self.clients.values() for key in client.has]
        assert len(used) == len(set(used)), "a partition has two users"
        owned = {key: m.member_id for m in group.members.values() for key in (*m.assigned, *m.revoking)}
        assert owned == group.owners
        assert sum(len(m.assigned) + len(m.revoking) for m in group.members.values()) == len(owned)
        for member in group.members.values():
            assert (member.state is MemberState.UNREVOKED) or not member.revoking
            assert member.epoch in (LEAVES_FOR_A_WHILE, *range(group.epoch + 1))
        assert self.scene.room.used == sum(map(size_of, group.members.values()))
        encoded = self.scene.machine.encode()[1]
        assert snapshot.encode(snapshot.decode("g", encoded)) == encoded


def size_of(member):
    names = [member.member_id, member.instance_id, member.rack_id, member.client_id, member.client_host, member.pattern]
    protocols = member.classic.protocols if member.classic else ()
    return sum(len(name or "") for name in (*names, *member.topics)) + sum(len(name) + len(d) for name, d in protocols)


@pytest.mark.parametrize("seed", range(60))
def test_no_partition_ever_has_two_users_whatever_happens(seed):
    @virtual_time
    async def run():
        crowd = Crowd(seed, bytes_max=15 if seed % 2 else 1_000_000)
        for _ in range(400):
            crowd.step()

    run()


@pytest.mark.parametrize("seed", range(20))
def test_a_group_whose_members_follow_the_protocol_gets_stable(seed):
    @virtual_time
    async def run():
        chance = random.Random(seed)
        scene = ConsumerScene(Topics(t=chance.randint(1, 20), u=chance.randint(0, 5)))
        clients = []
        for number in range(chance.randint(1, 12)):
            clients.append(await scene.join(f"m{number}", *chance.choice([("t",), ("u",), ("t", "u")])))
            if chance.random() < 0.5:
                await scene.beat(chance.choice(clients))

        await scene.settle(*clients)

        assert scene.group.state.value == "Stable"
        for client in clients:
            assert client.has == scene.group.target[client.id]

    run()
