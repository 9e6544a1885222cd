"""The saves of streams groups, and large topologies and groups: what the event loop does for them, and that the result is the same."""

import threading

import pytest

from bearlake.metadata.model import GroupSnapshot
from bearlake.metadata.open import open_metadata
from bearlake.metadata.registering import register
from bearlake.streams.groups import ownership
from bearlake.streams.groups.coordinator import Coordinator
from bearlake.streams.groups.ownership import Ownership
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.groups.streams_groups import StreamsCoordinator
from bearlake.streams.groups.tasks import configuring, engine, snapshot, topology
from bearlake.streams.groups.tasks.assigning import AT_ONCE_MAX
from bearlake.streams.groups.tasks.model import StreamsHeartbeat
from bearlake.streams.groups.tasks.topology import Subtopology, Topology
from fixtures.consumer_groups import Topics
from fixtures.streams_groups import REBALANCE_MS, SETTINGS, Client, StreamsScene, counting, stateful
from fixtures.waiting import until


class Calls:
    """Stands for a function; counts its calls by the thread that made them."""

    def __init__(self, function):
        self._function = function
        self.here, self.elsewhere = 0, 0

    def __call__(self, *arguments):
        if threading.current_thread() is threading.main_thread():
            self.here += 1
        else:
            self.elsewhere += 1
        return self._function(*arguments)


def watched(monkeypatch, module, name):
    calls = Calls(getattr(module, name))
    monkeypatch.setattr(module, name, calls)
    return calls


def wide(count):
    """Return a topology with `count` subtopologies, which all read `in`."""
    parts = tuple(Subtopology(subtopology_id=f"{number:05}", sources=("in",)) for number in range(count))
    return Topology(epoch=0, subtopologies=parts)


# -- saves -----------------------------------------------------------------------------------------------------------


async def test_the_texts_of_a_large_assignment_are_made_in_its_thread(monkeypatch):
    scene = StreamsScene(Topics(**{"in": AT_ONCE_MAX}), SETTINGS, topology=stateful("in"))
    texts = watched(monkeypatch, snapshot, "target_text")
    a = await scene.join("a")
    await until(lambda: scene.group.assignment_epoch > 0)
    here = texts.here  # of the save before there was an assignment

    await scene.beat(a)

    assert (texts.here, texts.elsewhere, len(a.active())) == (here, 1, AT_ONCE_MAX)
    assert scene.snapshots[-1] == scene.restored().machine.encode()[1]


async def test_a_save_makes_the_texts_of_what_has_changed_only(monkeypatch):
    scene = StreamsScene(Topics(**{"in": 4}), SETTINGS, topology=counting())
    scene.create_missing(await scene.join("a"))
    a = scene.machine.group.members["a"]
    scene.machine.encode()
    packed, texts = watched(monkeypatch, topology, "pack"), watched(monkeypatch, snapshot, "target_text")

    scene.machine.engine.touch(a)
    saved = scene.machine.encode()

    assert (packed.here, texts.here) == (0, 0)
    assert saved == scene.restored().machine.encode()


async def test_a_save_has_the_topics_and_the_targets_of_now():
    scene = StreamsScene(Topics(**{"in": 2}), SETTINGS, topology=stateful("in"))
    a = await scene.join("a")
    await scene.beat(a)

    scene.topics.create("in", 5)
    await scene.beat(a)
    b = await scene.join("b")
    await scene.settle(a, b)

    assert len(a.active()) + len(b.active()) == 5
    assert scene.snapshots[-1] == scene.restored().machine.encode()[1]


# -- topologies ------------------------------------------------------------------------------------------------------


async def test_a_large_topology_is_configured_in_a_thread(monkeypatch):
    scene = StreamsScene(Topics(**{"in": 2}), SETTINGS, topology=wide(configuring.AT_ONCE_MAX + 1))
    calls = watched(monkeypatch, engine, "configure")

    a = await scene.join("a")
    await scene.beat(a)  # no topic has changed

    assert (calls.here, calls.elsewhere) == (0, 1)
    assert scene.group.configured == configuring.configure(scene.topology, {"in": 2}.get, 100_000)


async def test_a_topic_that_changes_after_the_computation_counts(monkeypatch):
    scene = StreamsScene(Topics(**{"in": 2}), SETTINGS, topology=wide(configuring.AT_ONCE_MAX + 1))
    calls = watched(monkeypatch, engine, "configure")

    async with scene.machine.engine.prepared(scene.topology):
        scene.topics.create("in", 3)
        scene.machine.beat(scene.joining(Client("a", "p")))

    assert (calls.here, calls.elsewhere) == (1, 1)
    assert set(scene.group.configured.task_counts.values()) == {3}


# -- the coordinator -------------------------------------------------------------------------------------------------


@pytest.fixture
async def store():
    metadata = await open_metadata("memory:///")
    yield metadata
    await metadata.close()


@pytest.fixture
async def groups(store):
    found = await register(store.servers, "1", zone=None, endpoints={}, version="", timeout_ms=60_000)
    owner = Ownership(store, found.server, GroupSettings(streams=SETTINGS), topics=Topics(**{"in": 2}))
    yield owner
    await owner.close()


def joining(topology):
    return StreamsHeartbeat(
        member_id="a", epoch=0, rebalance_timeout_ms=REBALANCE_MS, topology=topology, process_id="p"
    )


async def test_a_coordinator_computes_a_large_topology_beside_the_event_loop(groups, monkeypatch):
    calls = watched(monkeypatch, engine, "configure")
    coordinator = StreamsCoordinator(groups)

    await coordinator.beat("g", joining(wide(configuring.AT_ONCE_MAX + 1)))
    await coordinator.describe("g")

    assert (calls.here, calls.elsewhere) == (0, 1)


@pytest.mark.parametrize("size", [10, 200_000])
async def test_a_large_group_is_restored_beside_the_event_loop(store, groups, monkeypatch, size):
    lease = await store.leases.acquire("group/g", groups.server)
    state = StreamsScene(topology=stateful("in"))
    client = await state.join("a", tags={"t": "x" * size})
    await store.groups.save(GroupSnapshot(group="g", protocol_type="streams", state=state.machine.encode()[1]), lease)
    calls = watched(monkeypatch, ownership, "restore")

    found = await StreamsCoordinator(groups).describe("g")

    assert (calls.here, calls.elsewhere) == ((1, 0) if size < 100_000 else (0, 1))
    assert (client.id, len(found.members["a"].tags["t"])) == ("a", size)
    assert Coordinator(store, groups).has("g")
