"""A coordinator that lost a group learns it before it answers the group's next question (I14), for members that never commit too."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bearlake.errors import Unavailable
from bearlake.metadata import Metadata
from bearlake.metadata.open import open_metadata
from bearlake.metadata.registering import register
from bearlake.streams.groups.coordinator import Coordinator
from bearlake.streams.groups.model import GroupState, JoinRequest
from bearlake.streams.groups.ownership import Ownership
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.tenure import Tenure
from fixtures.groups import RANGE, ref
from fixtures.liveness import lapse
from simulator.loop import SimulationLoop, virtual_time

Question = Callable[[Coordinator, str], Awaitable[Any]]


def request(member_id: str = "", **changes: Any) -> JoinRequest:
    values: dict[str, Any] = {
        "member_id": member_id,
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


class Store:
    """The metadata store as one server sees it: reads of its registration can be counted, delayed, and made to fail."""

    def __init__(self, inner: Metadata) -> None:
        self._inner = inner
        self.servers: Any = self
        self.look_count = 0
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.looking = asyncio.Event()

    async def lapse_count(self, server: Any) -> int:
        self.look_count += 1
        if self.failure is not None:
            raise self.failure
        count = await self._inner.servers.lapse_count(server)
        self.looking.set()
        await self.gate.wait()
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name) if hasattr(self._inner, name) else getattr(self._inner.servers, name)


class Two:
    """Two servers on one store, and a member of group `g` at the first one."""

    async def open(self) -> "Two":
        self.metadata = await open_metadata("memory:///")
        self.store = Store(self.metadata)
        self.one, self.two = await self._server("1", self.store), await self._server("2", self.metadata)
        joined = await self.one.join("g", request())
        self.member, self.generation = joined.member_id, joined.generation
        await self.one.sync(ref("g", self.member, None, self.generation), (None, None), {self.member: b"all"})
        return self

    async def _server(self, name: str, metadata: Any) -> Coordinator:
        found = await register(self.metadata.servers, name, zone=None, endpoints={}, version="", timeout_ms=6_000)
        tenure = Tenure(metadata.servers, found.server, boot_time_s=_zero)
        return Coordinator(metadata, Ownership(metadata, found.server, GroupSettings(), tenure=tenure))

    async def take_over(self) -> None:
        """The first server is paused, the second server takes the group, and the first server resumes."""
        assert await lapse(self.metadata, self.one.ownership.server)
        await self.two.heartbeat(ref("g", self.member, None, self.generation))
        await self.metadata.servers.heartbeat(self.one.ownership.server)

    async def close(self) -> None:
        await self.one.ownership.close()
        await self.two.ownership.close()
        await self.metadata.close()


def _zero() -> float:
    return 0.0


async def refused(work: Awaitable[Any]) -> Problem:
    with pytest.raises(GroupRefusal) as caught:
        await work
    return caught.value.problem


QUESTIONS: dict[str, Question] = {
    "heartbeat": lambda it, member: it.heartbeat(ref("g", member, None, 1)),
    "heartbeat of a stranger": lambda it, member: it.heartbeat(ref("g", "stranger", None, 1)),
    "sync": lambda it, member: it.sync(ref("g", member, None, 1), (None, None), {}),
    "join": lambda it, member: it.join("g", request(member)),
    "leave": lambda it, member: it.leave(ref("g", member)),
    "commit of nothing": lambda it, member: it.commit(ref("g", member, None, 1), {}),
    "commit of a stranger": lambda it, member: it.commit(ref("g", "stranger", None, 1), {}),
    "commit of another generation": lambda it, member: it.commit(ref("g", member, None, 2), {}),
    "deletion": lambda it, member: it.delete("g"),
    "describe": lambda it, member: it.describe("g"),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_a_coordinator_whose_group_was_taken_over_answers_no_question_about_it(question: Question) -> None:
    @virtual_time
    async def run() -> None:
        servers = await Two().open()
        await servers.take_over()

        assert await refused(question(servers.one, servers.member)) is Problem.NOT_COORDINATOR
        assert not servers.one.has("g")
        await servers.close()

    run()


@virtual_time
async def test_a_coordinator_that_has_just_lapsed_finds_its_group_untaken_and_continues() -> None:
    servers = await Two().open()
    assert await lapse(servers.metadata, servers.one.ownership.server)

    await servers.one.heartbeat(ref("g", servers.member, None, servers.generation))

    assert await refused(servers.two.heartbeat(ref("g", servers.member, None, 1))) is Problem.NOT_COORDINATOR
    assert (await servers.one.describe("g")).state is GroupState.STABLE
    await servers.close()


@virtual_time
async def test_each_lapse_is_looked_into() -> None:
    servers = await Two().open()
    for _ in range(2):
        assert await lapse(servers.metadata, servers.one.ownership.server)
        await servers.one.heartbeat(ref("g", servers.member, None, servers.generation))

    await servers.take_over()

    assert await refused(servers.one.heartbeat(ref("g", servers.member, None, 1))) is Problem.NOT_COORDINATOR
    await servers.close()


@virtual_time
async def test_while_the_store_does_not_answer_nothing_is_confirmed_and_the_group_is_kept() -> None:
    servers = await Two().open()
    servers.store.failure = Unavailable("the store sleeps")

    problem = await refused(servers.one.heartbeat(ref("g", servers.member, None, servers.generation)))

    assert problem is Problem.COORDINATOR_UNAVAILABLE
    servers.store.failure = None
    await servers.one.heartbeat(ref("g", servers.member, None, servers.generation))
    await servers.close()


@virtual_time
async def test_a_store_that_hangs_keeps_a_question_waiting_for_seconds_only() -> None:
    servers = await Two().open()
    servers.store.gate.clear()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    beats = [asyncio.create_task(servers.one.heartbeat(ref("g", servers.member, None, 1)))]
    await asyncio.sleep(1)
    beats.append(asyncio.create_task(servers.one.heartbeat(ref("g", servers.member, None, 1))))

    assert [await refused(beat) for beat in beats] == [Problem.COORDINATOR_UNAVAILABLE] * 2
    assert loop.time() - begun < 7
    await servers.close()


@virtual_time
async def test_questions_of_one_moment_share_a_look_into_the_store() -> None:
    servers = await Two().open()
    before = servers.store.look_count

    await asyncio.gather(*(servers.one.heartbeat(ref("g", servers.member, None, 1)) for _ in range(1_000)))

    assert servers.store.look_count - before == 1
    await servers.close()


@virtual_time
async def test_a_question_is_not_answered_by_a_look_that_began_before_it_came() -> None:
    servers = await Two().open()
    servers.store.gate.clear()
    servers.store.looking.clear()
    earlier = asyncio.create_task(servers.one.heartbeat(ref("g", servers.member, None, 1)))
    await servers.store.looking.wait()  # the store has answered, the answer is on its way
    await servers.take_over()
    later = asyncio.create_task(servers.one.heartbeat(ref("g", servers.member, None, 1)))
    await asyncio.sleep(0.1)
    servers.store.gate.set()

    await earlier  # the group was this server's when it asked
    assert await refused(later) is Problem.NOT_COORDINATOR
    await servers.close()


@virtual_time
async def test_a_member_that_waits_in_a_round_learns_of_a_new_coordinator_without_asking() -> None:
    servers = await Two().open()
    waiting = asyncio.create_task(servers.one.join("g", request()))
    await asyncio.sleep(1)
    await servers.take_over()
    await servers.one.ownership._tenure.beat()  # noqa: SLF001 - a heartbeat at the moment that the test says

    await servers.one.ownership.verify()

    assert await refused(waiting) is Problem.NOT_COORDINATOR
    await servers.close()


@virtual_time
async def test_a_round_that_ends_after_a_take_over_gives_no_member_a_generation() -> None:
    servers = await Two().open()
    waiting = asyncio.create_task(servers.one.join("g", request()))
    await asyncio.sleep(1)
    group = servers.one.owned()["g"]
    await servers.take_over()

    await asyncio.sleep(70)  # the other member's session ends here, so the round does

    assert group.generation == 2
    assert await refused(waiting) is Problem.NOT_COORDINATOR
    await servers.close()


@virtual_time
async def test_a_member_whose_heartbeat_waited_while_its_server_was_paused_keeps_its_place() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulationLoop)
    process = loop.process("one")
    opening = loop.create_task(Two().open(), context=process.context.copy())
    servers = await opening

    loop.pause(process)
    await asyncio.sleep(60)
    loop.resume(process)
    await asyncio.sleep(1)  # what waits in the socket is read

    await loop.create_task(
        servers.one.heartbeat(ref("g", servers.member, None, servers.generation)), context=process.context.copy()
    )
    await servers.close()


@virtual_time
async def test_a_member_that_stays_silent_after_its_server_was_paused_is_removed_a_session_later() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulationLoop)
    process = loop.process("one")
    servers = await loop.create_task(Two().open(), context=process.context.copy())

    loop.pause(process)
    await asyncio.sleep(60)
    loop.resume(process)
    await asyncio.sleep(11)

    assert (await servers.one.describe("g")).members == {}
    await servers.close()
