"""A large topology is computed once for all heartbeats that need it, and nothing of it stays in memory unused."""

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest

from bearlake.metadata.open import open_metadata
from bearlake.metadata.registering import register
from bearlake.streams.groups.ownership import Ownership
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.groups.streams_groups import StreamsCoordinator
from bearlake.streams.groups.tasks import configuring, engine
from bearlake.streams.groups.tasks.topology import Subtopology, Topology
from fixtures.consumer_groups import Topics
from fixtures.streams_groups import SETTINGS, Client, StreamsScene, problem_of
from fixtures.waiting import WAIT_S, until

LARGE = Topology(
    epoch=0,
    subtopologies=tuple(
        Subtopology(subtopology_id=f"{number:05}", sources=("in",)) for number in range(configuring.AT_ONCE_MAX + 1)
    ),
)


class Gate:
    """Stands for a function, whose calls in threads wait until the gate is open; `threads`: in which thread each call was."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._opened = threading.Event()
        self.threads: list[threading.Thread] = []

    def __call__(self, *arguments: Any) -> Any:
        thread = threading.current_thread()
        self.threads.append(thread)
        if thread is not threading.main_thread():
            assert self._opened.wait(WAIT_S)
        return self._function(*arguments)

    def open(self) -> None:
        self._opened.set()

    def close(self) -> None:
        self._opened.clear()

    @property
    def here_count(self) -> int:
        """Calls on the event loop."""
        return self.threads.count(threading.main_thread())


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = Gate(engine.configure)
    monkeypatch.setattr(engine, "configure", found)
    yield found
    found.open()


def scene_of(topology: Topology = LARGE) -> StreamsScene:
    return StreamsScene(Topics(**{"in": 2}), SETTINGS, topology=topology)


async def test_members_that_join_at_once_make_one_computation(gate: Gate) -> None:
    scene = scene_of()
    joining = [asyncio.create_task(scene.join(f"m{number}")) for number in range(12)]
    await until(lambda: gate.threads)
    gate.open()
    clients = await asyncio.gather(*joining)

    assert (len(gate.threads), gate.here_count) == (1, 0)
    assert {client.epoch > 0 for client in clients} == {True}
    assert scene.machine.engine._prepared is None  # noqa: SLF001


async def test_members_of_a_group_that_was_taken_over_make_one_computation(gate: Gate) -> None:
    gate.open()
    former = scene_of()
    clients = [await former.join(name) for name in "abc"]
    scene = former.restored()
    gate.threads.clear()

    await asyncio.gather(*map(scene.beat, clients))

    assert (len(gate.threads), gate.here_count) == (1, 0)
    assert scene.group.configured == configuring.configure(LARGE, {"in": 2}.get, 100_000)


async def test_a_caller_that_is_cancelled_does_not_end_the_computation_of_others(gate: Gate) -> None:
    scene = scene_of()
    first = asyncio.create_task(scene.join("a"))
    await until(lambda: gate.threads)
    second = asyncio.create_task(scene.join("b"))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    gate.open()

    assert (await second).epoch > 0
    assert (first.cancelled(), len(gate.threads), gate.here_count) == (True, 1, 0)
    assert list(scene.group.members) == ["b"]


async def test_nothing_stays_of_a_computation_that_nobody_waits_for(gate: Gate) -> None:
    scene = scene_of()
    joining = asyncio.create_task(scene.join("a"))
    await until(lambda: gate.threads)
    joining.cancel()
    await asyncio.wait([joining])
    gate.open()
    await until(lambda: scene.machine.engine._preparing is None)  # noqa: SLF001

    assert scene.machine.engine._prepared is None  # noqa: SLF001
    assert (await scene.join("a")).epoch > 0


async def test_nothing_stays_of_a_refused_heartbeat(gate: Gate) -> None:
    gate.open()
    scene = scene_of()
    asked = replace(scene.joining(Client("a", "p")), epoch=7)

    assert problem_of(await scene.ask(asked)) is Problem.UNKNOWN_MEMBER
    assert len(gate.threads) == 1
    assert scene.machine.engine._prepared is None  # noqa: SLF001


async def test_topics_that_change_during_a_computation_are_computed_beside_the_event_loop_too(gate: Gate) -> None:
    scene = scene_of()
    joining = asyncio.create_task(scene.join("a"))
    await until(lambda: gate.threads)
    scene.topics.create("in", 3)
    gate.open()
    await joining

    assert (len(gate.threads), gate.here_count) == (2, 0)
    assert scene.group.configured is not None
    assert set(scene.group.configured.task_counts.values()) == {3}


async def test_a_group_with_other_topologies_takes_the_one_of_its_first_member(gate: Gate) -> None:
    scene = scene_of()
    other = replace(LARGE, subtopologies=(*LARGE.subtopologies, Subtopology(subtopology_id="z", sources=("in",))))
    joining = [asyncio.create_task(scene.join("a")), asyncio.create_task(scene.join("b", topology=other))]
    await until(lambda: gate.threads)
    gate.open()
    a, b = await asyncio.gather(*joining)

    assert a.epoch > 0
    assert problem_of(b.answers[-1]) is Problem.INVALID_REQUEST
    assert (scene.group.topology, gate.here_count) == (LARGE, 0)


async def test_a_group_that_is_lost_during_the_computation_is_not_described(gate: Gate) -> None:
    store = await open_metadata("memory:///")
    found = await register(store.servers, "1", zone=None, endpoints={}, version="", timeout_ms=60_000)
    topics = Topics(**{"in": 2})
    groups = Ownership(store, found.server, GroupSettings(streams=SETTINGS), topics=topics)
    coordinator = StreamsCoordinator(groups)
    gate.open()
    await coordinator.beat("g", scene_of().joining(Client("a", "p")))
    topics.create("in", 3)
    gate.close()
    gate.threads.clear()
    describing = asyncio.create_task(coordinator.describe("g"))
    await until(lambda: gate.threads)
    await groups.close()
    gate.open()

    with pytest.raises(GroupRefusal) as refused:
        await describing
    assert refused.value.problem is Problem.NOT_COORDINATOR
    await store.close()
