"""Large streams groups: the work of assignments and topologies grows with their size alone, and does not hold the event loop."""

import asyncio
import gc
import sys
from dataclasses import replace

import pytest

from bearlake.streams.groups.consumer.model import LEAVES
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.tasks import configuring
from bearlake.streams.groups.tasks.assigning import AT_ONCE_MAX
from bearlake.streams.groups.tasks.assignor import Runner, assign
from bearlake.streams.groups.tasks.configuring import configure
from bearlake.streams.groups.tasks.model import StreamsHeartbeat, Tasks
from bearlake.streams.groups.tasks.topology import InternalTopic, Subtopology, Topology
from fixtures.consumer_groups import Topics
from fixtures.streams_groups import SETTINGS, Client, StreamsScene, problem_of, stateful
from fixtures.waiting import until


def calls_of(work):
    """Return how many functions of Python the work calls."""
    count = 0

    def called(frame, event, argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


# -- topologies ------------------------------------------------------------------------------------------------------


def chain(length):
    """Return a topology in which each subtopology reads what the next one writes; the last one reads `in`."""
    links = [
        Subtopology(
            subtopology_id=f"{number:05}",
            repartition_sources=(InternalTopic(f"r{number:05}"),),
            repartition_sinks=(f"r{number - 1:05}",) if number else (),
        )
        for number in range(length)
    ]
    last = Subtopology(subtopology_id="99999", sources=("in",), repartition_sinks=(f"r{length - 1:05}",))
    return Topology(epoch=0, subtopologies=(*links, last))


def test_a_chain_of_subtopologies_takes_work_in_proportion_to_its_length():
    topology = chain(500)
    found = configure(topology, {"in": 3}.get, 10_000)

    assert [topic.partition_count for topic in found.missing] == [3] * 500
    assert calls_of(lambda: configuring.check(topology)) < 40 * 500


def test_many_changelogs_and_sinks_of_one_subtopology_take_work_in_proportion_to_their_number():
    names = [f"t{number:04}" for number in range(400)]
    topology = Topology(
        epoch=0,
        subtopologies=(
            Subtopology(
                subtopology_id="0",
                sources=tuple(names),
                repartition_sinks=tuple(f"r-{name}" for name in names),
                changelogs=tuple(InternalTopic(f"c-{name}") for name in names),
            ),
            Subtopology(subtopology_id="1", repartition_sources=tuple(InternalTopic(f"r-{name}") for name in names)),
        ),
    )

    assert calls_of(lambda: configuring.check(topology)) < 40 * len(names)


@pytest.mark.parametrize("order", [1, -1])
def test_a_sink_has_the_count_of_the_sources_that_are_known_in_the_order_of_subtopologies(order):
    """`b` reads two topics, and its turn comes when one of them is known: as in Kafka, it does not wait for the other one."""
    parts = [
        Subtopology(subtopology_id="a", sources=("in",), repartition_sinks=("p",)),
        Subtopology(
            subtopology_id="b",
            repartition_sources=(InternalTopic("p"), InternalTopic("q")),
            repartition_sinks=("r",),
        ),
        Subtopology(subtopology_id="c", sources=("big",), repartition_sinks=("q",)),
        Subtopology(subtopology_id="d", repartition_sources=(InternalTopic("r"),)),
    ]

    found = configure(Topology(epoch=0, subtopologies=tuple(parts[::order])), {"in": 2, "big": 8}.get, 1_000)

    assert {topic.name: topic.partition_count for topic in found.missing}["r"] == (2 if order == 1 else 8)


def test_a_loop_behind_a_chain_is_found():
    loop = (
        Subtopology(subtopology_id="x", repartition_sources=(InternalTopic("y"),), repartition_sinks=("x",)),
        Subtopology(subtopology_id="y", repartition_sources=(InternalTopic("x"),), repartition_sinks=("y",)),
    )

    with pytest.raises(GroupRefusal, match="loops in the topology"):
        configuring.check(Topology(epoch=0, subtopologies=(*chain(5).subtopologies, *loop)))


# -- assignments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("process_count", [1, 300])
@pytest.mark.parametrize("standby_count", [0, 1])
def test_an_assignment_takes_work_in_proportion_to_tasks_and_members(process_count, standby_count):
    members = [Runner(f"m{number}", f"p{number % process_count}", Tasks()) for number in range(300)]

    assert calls_of(lambda: assign(members, {"0": 1_000}, ["0"], standby_count)) < 40 * (1 + standby_count) * 1_300


async def test_a_large_assignment_is_computed_beside_the_event_loop():
    topics = Topics(**{"in": AT_ONCE_MAX})
    scene = StreamsScene(topics, SETTINGS, topology=stateful("in"))
    a = await scene.join("a")
    assert (a.codes(), a.active()) == (["ASSIGNMENT_DELAYED"], [])
    b = await scene.join("b", "a")
    assert b.codes() == ["ASSIGNMENT_DELAYED"]
    await until(lambda: scene.group.assignment_epoch > 0)

    for _ in range(3):
        for client in (a, b):
            await scene.beat(client)
        await until(lambda: scene.group.assignment_epoch == scene.group.epoch)

    for client in (a, b):
        await scene.beat(client)
    assert (len(a.active()), len(b.active())) == (AT_ONCE_MAX // 2, AT_ONCE_MAX // 2)
    assert scene.snapshots[-1] == scene.machine.encode()[1]


async def test_a_member_that_leaves_during_the_computation_gets_nothing():
    scene = StreamsScene(Topics(**{"in": AT_ONCE_MAX}), SETTINGS, topology=stateful("in"))
    a, b = await scene.join("a"), await scene.join("b")

    await scene.beat(b, epoch=LEAVES)
    await until(lambda: scene.group.assignment_epoch > 0)

    assert set(scene.group.target) == {"a"}
    await scene.beat(a)
    await until(lambda: scene.group.assignment_epoch == scene.group.epoch)
    await scene.beat(a)
    assert len(a.active()) == AT_ONCE_MAX


async def test_an_assignment_of_topics_that_have_changed_meanwhile_is_dropped():
    scene = StreamsScene(Topics(**{"in": AT_ONCE_MAX}), SETTINGS, topology=stateful("in"))
    a = await scene.join("a")

    scene.topics.delete("in")
    await scene.beat(a)
    await until(lambda: scene.group.assignment_epoch == scene.group.epoch or not scene.machine.engine.is_assigning)
    await scene.beat(a)

    assert (a.codes(), a.active()) == (["MISSING_SOURCE_TOPICS"], [])
    assert scene.group.target == {"a": Tasks()}


async def test_a_group_that_is_released_during_the_computation_is_left_alone():
    scene = StreamsScene(Topics(**{"in": AT_ONCE_MAX}), SETTINGS, topology=stateful("in"))
    await scene.join("a")
    before = scene.machine.encode()

    scene.machine.close(Problem.NOT_COORDINATOR)
    await until(lambda: not scene.machine.engine.is_assigning)

    assert scene.machine.encode() == before
    asked = StreamsHeartbeat(member_id="a", epoch=1)
    assert problem_of(await scene.ask(asked)) is Problem.NOT_COORDINATOR


async def test_an_interval_begins_at_the_end_of_the_computation():
    settings = replace(SETTINGS, assignment_interval_ms=3_600_000)
    scene = StreamsScene(Topics(**{"in": AT_ONCE_MAX}), settings, topology=stateful("in"))
    a = await scene.join("a")
    await until(lambda: scene.group.assignment_epoch > 0)

    b = await scene.join("b")

    assert "interval" in b.answers[-1].statuses[0].detail
    await scene.beat(a)
    assert len(a.active()) == AT_ONCE_MAX


async def test_a_group_that_is_closed_before_the_thread_begins_leaves_nothing_behind(recwarn):
    scene = StreamsScene(Topics(**{"in": AT_ONCE_MAX}), SETTINGS, topology=stateful("in"))
    answer = scene.machine.beat(scene.joining(Client("a", "p")))
    assert scene.machine.engine.is_assigning
    scene.machine.close(Problem.NOT_COORDINATOR)
    with pytest.raises(GroupRefusal):
        await answer
    for _ in range(3):  # the task ends, then its callbacks run
        await asyncio.sleep(0)
    gc.collect()

    assert not scene.machine.engine.is_assigning
    assert not recwarn.list  # no coroutine that was never awaited
