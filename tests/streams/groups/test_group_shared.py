"""Members that find their coordinator on any server: which servers are asked, the cost of a move or a death, and what is forwarded."""

import asyncio

import pytest

from bearlake.clock import ManualClock
from bearlake.errors import Unavailable
from bearlake.metadata import registering
from bearlake.metadata.model import CommittedOffset, ServerRef, StreamSpec
from bearlake.metadata.open import open_metadata
from bearlake.streams.groups.coordinator import Coordinator
from bearlake.streams.groups.model import JoinRequest
from bearlake.streams.groups.ownership import Ownership
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.groups.shared import Groups
from fixtures.groups import RANGE, ref
from fixtures.liveness import lapse
from simulator.loop import virtual_time

TIMEOUT_MS = 6_000


class Deployment:
    """Servers that reach each other by method calls; `dead` ones do not answer, `eligible` ones may coordinate."""

    async def open(self, *names: str) -> "Deployment":
        self.clock = ManualClock()
        self.metadata = await open_metadata("memory:///", clock=self.clock)
        stream = await self.metadata.streams.create(StreamSpec(name="t", partition_count=1))
        self.partition = stream.partition(0)
        self.coordinators: dict[ServerRef, Coordinator] = {}
        self.dead: set[ServerRef] = set()
        self.eligible: list[ServerRef] = []
        self.groups: list[Groups] = []
        for name in names:
            await self._add(name)
        return self

    async def _add(self, name: str) -> None:
        registration = await registering.register(
            self.metadata.servers, name, zone=None, endpoints={}, version="", timeout_ms=TIMEOUT_MS
        )
        server = registration.server
        peers = _Peers(self, server)
        own = Coordinator(self.metadata, Ownership(self.metadata, server, GroupSettings(), peers.may_coordinate))
        self.coordinators[server] = own
        self.eligible.append(server)
        self.groups.append(Groups(own, server, peers))

    @property
    def servers(self) -> list[ServerRef]:
        return list(self.coordinators)

    async def kill(self, server: ServerRef) -> None:
        """It stops answering; its registration stays until an observer declares it lapsed."""
        self.dead.add(server)
        self.eligible.remove(server)
        await self.coordinators[server].ownership.close()

    async def close(self) -> None:
        for coordinator in self.coordinators.values():
            await coordinator.ownership.close()
        await self.metadata.close()


class _Peers:
    def __init__(self, deployment: Deployment, own: ServerRef) -> None:
        self._deployment = deployment
        self._own = own

    def may_coordinate(self) -> bool:
        return self._own in self._deployment.eligible

    def chosen(self, group: str) -> ServerRef | None:
        return self._deployment.eligible[0] if self._deployment.eligible else None

    def reach(self, server: ServerRef):
        return None if server in self._deployment.dead else self._deployment.coordinators[server]


def request(**changes) -> JoinRequest:
    values = {
        "member_id": "",
        "instance_id": None,
        "client_id": "c",
        "client_host": "/h",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": RANGE,
        "requires_known_id": False,
        "can_skip_assignment": False,
    }
    return JoinRequest(**(values | changes))


async def join_alone(groups: Groups) -> tuple[str, int]:
    """One member in a stable group; its id and generation."""
    joined = await groups.join("g", request())
    await groups.sync(ref("g", joined.member_id, None, joined.generation), (None, None), {joined.member_id: b"all"})
    return joined.member_id, joined.generation


async def refused(work) -> Problem:
    with pytest.raises(GroupRefusal) as caught:
        await work
    return caught.value.problem


def owners(deployment: Deployment) -> list[bool]:
    return [coordinator.has("g") for coordinator in deployment.coordinators.values()]


@virtual_time
async def test_a_member_at_any_server_joins_the_group_of_the_chosen_server():
    deployment = await Deployment().open("1", "2")
    deployment.eligible.remove(deployment.servers[1])
    first, second = deployment.groups

    member, generation = await join_alone(second)
    await second.heartbeat(ref("g", member, None, generation))
    await second.commit(ref("g", member, None, generation), {deployment.partition: CommittedOffset(offset=7)})

    assert owners(deployment) == [True, False]
    assert set((await first.describe("g")).members) == {member}
    assert {key: value.offset for key, value in (await second.offsets("g")).items()} == {deployment.partition: 7}
    assert await second.leave(ref("g", member)) == member
    await deployment.close()


@virtual_time
async def test_a_group_moves_to_its_preferred_server_and_keeps_its_generation():
    deployment = await Deployment().open("1", "2")
    first = deployment.servers[0]
    deployment.eligible.remove(first)
    member, generation = await join_alone(deployment.groups[0])
    running = asyncio.create_task(deployment.groups[1].run())
    deployment.eligible[:] = [first]
    await asyncio.sleep(1)

    await deployment.groups[1].heartbeat(ref("g", member, None, generation))

    assert owners(deployment) == [True, False]
    running.cancel()
    await deployment.close()


@virtual_time
async def test_a_commit_waits_for_the_successor_of_a_coordinator_that_died():
    deployment = await Deployment().open("1", "2")
    first = deployment.servers[0]
    member, generation = await join_alone(deployment.groups[1])
    await deployment.kill(first)
    committing = asyncio.create_task(
        deployment.groups[1].commit(
            ref("g", member, None, generation), {deployment.partition: CommittedOffset(offset=7)}
        )
    )
    await asyncio.sleep(3)
    early = committing.done(), await refused(deployment.groups[1].heartbeat(ref("g", member, None, generation)))
    assert await lapse(deployment.metadata, first)
    await committing

    assert early == (False, Problem.COORDINATOR_UNAVAILABLE)
    assert owners(deployment) == [False, True]
    assert [value.offset for value in (await deployment.groups[1].offsets("g")).values()] == [7]
    await deployment.close()


@virtual_time
async def test_a_coordinator_that_does_not_return_is_reported_after_the_wait():
    deployment = await Deployment().open("1", "2")
    member, generation = await join_alone(deployment.groups[1])
    await deployment.kill(deployment.servers[0])
    loop = asyncio.get_running_loop()
    begun = loop.time()

    problem = await refused(deployment.groups[1].commit(ref("g", member, None, generation), {}))

    assert problem is Problem.COORDINATOR_UNAVAILABLE
    assert 14 < loop.time() - begun < 17
    await deployment.close()


@virtual_time
async def test_a_coordinators_own_refusal_is_passed_on_at_once():
    deployment = await Deployment().open("1", "2")
    await join_alone(deployment.groups[1])
    begun = asyncio.get_running_loop().time()

    assert await refused(deployment.groups[1].heartbeat(ref("g", "stranger", None, 1))) is Problem.UNKNOWN_MEMBER
    assert asyncio.get_running_loop().time() - begun < 0.1
    await deployment.close()


@virtual_time
async def test_a_join_whose_answer_was_lost_leaves_no_second_member():
    deployment = await Deployment().open("1", "2")
    there = deployment.coordinators[deployment.servers[0]]
    real, asked = there.join, []

    async def losing(name, wanted):
        answer = await real(name, wanted)
        asked.append(wanted.member_id)
        if len(asked) == 1:
            raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, "the answer was lost")
        return answer

    there.join = losing
    member, _ = await join_alone(deployment.groups[1])

    assert asked == [member, member]
    assert set((await deployment.groups[1].describe("g")).members) == {member}
    await deployment.close()


@pytest.mark.parametrize("last", [Problem.UNKNOWN_MEMBER, Problem.NOT_COORDINATOR])
@virtual_time
async def test_a_refusal_does_not_speak_for_an_attempt_whose_answer_was_lost(last):
    deployment = await Deployment().open("1", "2")
    there = deployment.coordinators[deployment.servers[0]]
    member, generation = await join_alone(deployment.groups[1])
    real, asked = there.commit, []

    async def losing(*given):
        asked.append(given)
        if len(asked) > 1:
            raise GroupRefusal(last)
        await real(*given)
        raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, "the answer was lost")

    there.commit = losing
    offsets = {deployment.partition: CommittedOffset(offset=7)}
    problem = await refused(deployment.groups[1].commit(ref("g", member, None, generation), offsets))

    assert len(asked) > 1
    assert [value.offset for value in (await deployment.groups[1].offsets("g")).values()] == [7]
    assert problem is Problem.COORDINATOR_UNAVAILABLE  # every other refusal means that nothing was committed
    await deployment.close()


@virtual_time
async def test_a_refused_commit_is_reported_as_refused_when_no_attempt_was_lost():
    deployment = await Deployment().open("1", "2")
    await join_alone(deployment.groups[1])
    offsets = {deployment.partition: CommittedOffset(offset=7)}

    assert await refused(deployment.groups[1].commit(ref("g", "stranger", None, 1), offsets)) is Problem.UNKNOWN_MEMBER
    assert await deployment.groups[1].offsets("g") == {}
    await deployment.close()


@virtual_time
async def test_a_metadata_store_that_does_not_answer_is_asked_again():
    deployment = await Deployment().open("1", "2")
    real, failures = deployment.metadata.leases.holders, [Unavailable("down"), Unavailable("down")]

    async def holders(names):
        if failures:
            raise failures.pop()
        return await real(names)

    deployment.metadata.leases.holders = holders
    await join_alone(deployment.groups[1])

    assert not failures
    assert owners(deployment) == [True, False]
    await deployment.close()
