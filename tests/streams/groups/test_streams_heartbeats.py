"""Heartbeats of streams groups (KIP-1071): joining, tasks, hand-over of tasks, topologies, statuses, fencing."""

import asyncio
from dataclasses import replace

from bearlake.metadata.model import PartitionKey
from bearlake.streams.groups.consumer.model import LEAVES, MemberState
from bearlake.streams.groups.model import GroupState, MemberRef
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.tasks.model import Endpoint, TaskId, Tasks
from bearlake.streams.groups.tasks.topology import Subtopology, Topology
from fixtures.consumer_groups import Topics
from fixtures.streams_groups import SETTINGS, StreamsScene, counting, problem_of, stateful
from simulator.loop import virtual_time


def input_of(count):
    return Topics(**{"in": count})


@virtual_time
async def test_the_first_member_gets_all_tasks():
    scene = StreamsScene()

    a = await scene.join("a")

    assert (a.epoch, a.active()) == (2, [("0", 0), ("0", 1), ("0", 2), ("0", 3)])
    assert scene.group.state is GroupState.STABLE
    assert (await scene.beat(a)).tasks is None


@virtual_time
async def test_a_task_is_given_only_when_its_old_owner_gave_it_up():
    scene = StreamsScene()
    a = await scene.join("a")
    b = await scene.join("b")
    assert (b.epoch, b.active()) == (3, [])

    asked = await scene.beat(a, owned=None)

    assert (asked.epoch, len(asked.tasks.active)) == (2, 2)
    assert scene.group.members["a"].state is MemberState.UNREVOKED
    await scene.beat(b)
    assert b.active() == []
    await scene.beat(a)
    assert (a.epoch, len(a.active())) == (3, 2)
    await scene.beat(b)
    assert sorted(a.active() + b.active()) == [("0", index) for index in range(4)]
    assert scene.group.state is GroupState.STABLE


@virtual_time
async def test_tasks_of_a_member_that_leaves_go_to_the_others():
    scene = StreamsScene()
    a, b = await scene.join("a"), await scene.join("b")
    await scene.settle(a, b)

    await scene.beat(a, epoch=LEAVES)
    await scene.settle(b)

    assert len(b.active()) == 4
    assert problem_of(await scene.beat(a, epoch=3)) is Problem.UNKNOWN_MEMBER


@virtual_time
async def test_internal_topics_are_asked_for_before_tasks_are_given():
    scene = StreamsScene(input_of(2), topology=counting())

    a = await scene.join("a")

    assert (a.codes(), a.active()) == (["MISSING_INTERNAL_TOPICS"], [])
    assert scene.group.state is GroupState.NOT_READY
    scene.create_missing(a)
    await scene.beat(a)
    assert (a.codes(), a.active()) == ([], [("0", 0), ("0", 1), ("1", 0), ("1", 1)])


@virtual_time
async def test_a_group_without_its_source_waits_for_it():
    scene = StreamsScene(Topics(other=1))
    a = await scene.join("a")
    assert (a.codes(), a.active()) == (["MISSING_SOURCE_TOPICS"], [])

    scene.topics.create("in", 2)
    await scene.beat(a)

    assert (a.codes(), len(a.active())) == ([], 2)


@virtual_time
async def test_new_partitions_are_new_tasks():
    scene = StreamsScene(input_of(1))
    a = await scene.join("a")

    scene.topics.create("in", 3)
    await scene.beat(a)

    assert len(a.active()) == 3


@virtual_time
async def test_standbys_are_in_other_processes_and_take_over():
    scene = StreamsScene(settings=replace(SETTINGS, num_standby_replicas=1))
    a, b = await scene.join("a", "p"), await scene.join("b", "q")
    await scene.settle(a, b)
    assert set(a.standby()) == set(b.active())
    assert set(b.standby()) == set(a.active())

    await scene.beat(a, epoch=LEAVES)
    await scene.settle(b)

    assert (len(b.active()), b.standby()) == (4, [])


@virtual_time
async def test_a_change_of_the_number_of_standbys_reaches_members():
    scene = StreamsScene()
    a, b = await scene.join("a", "p"), await scene.join("b", "q")
    await scene.settle(a, b)
    assert a.standby() == b.standby() == []

    scene.settings = replace(SETTINGS, num_standby_replicas=1)
    await scene.settle(a, b)

    assert set(a.standby()) == set(b.active())


@virtual_time
async def test_members_of_one_process_get_no_standbys_of_each_other():
    scene = StreamsScene(settings=replace(SETTINGS, num_standby_replicas=1))
    a, b = await scene.join("a", "p"), await scene.join("b", "p")
    await scene.settle(a, b)

    assert a.standby() == b.standby() == []
    assert len(a.active()) == len(b.active()) == 2


@virtual_time
async def test_the_first_assignment_waits_for_the_initial_delay():
    scene = StreamsScene(settings=replace(SETTINGS, initial_rebalance_delay_ms=3_000))
    a = await scene.join("a")
    b = await scene.join("b")
    assert (a.epoch, a.codes(), a.active()) == (1, ["ASSIGNMENT_DELAYED"], [])
    assert scene.group.state is GroupState.ASSIGNING

    await asyncio.sleep(3.1)
    await scene.settle(a, b)

    assert len(a.active()) == len(b.active()) == 2
    assert [len(answer.tasks.active) for answer in b.answers if answer.tasks] == [0, 2]


@virtual_time
async def test_assignments_have_an_interval():
    scene = StreamsScene(settings=replace(SETTINGS, assignment_interval_ms=1_000))
    a = await scene.join("a")
    b = await scene.join("b")
    assert (b.codes(), b.epoch, a.epoch) == (["ASSIGNMENT_DELAYED"], 2, 2)

    await asyncio.sleep(1.1)
    await scene.settle(a, b)

    assert len(a.active()) == len(b.active()) == 2


@virtual_time
async def test_a_silent_member_loses_its_tasks():
    scene = StreamsScene()
    a, b = await scene.join("a"), await scene.join("b")
    await scene.settle(a, b)

    for _ in range(10):
        await asyncio.sleep(5)
        await scene.beat(b)
    await scene.settle(b)

    assert list(scene.group.members) == ["b"]
    assert len(b.active()) == 4


@virtual_time
async def test_a_member_that_does_not_give_tasks_up_is_removed():
    scene = StreamsScene()
    a = await scene.join("a")
    b = await scene.join("b")
    await scene.beat(a, owned=None)

    for _ in range(7):
        await asyncio.sleep(5)
        await scene.beat(b)
        scene.machine.renew_session("a")
    await scene.settle(b)

    assert len(b.active()) == 4
    assert problem_of(await scene.beat(a)) is Problem.UNKNOWN_MEMBER


@virtual_time
async def test_epochs_are_checked():
    scene = StreamsScene()
    a = await scene.join("a")
    assert problem_of(await scene.beat(a, epoch=9)) is Problem.FENCED_MEMBER_EPOCH
    assert problem_of(await scene.beat(a, epoch=1)) is Problem.FENCED_MEMBER_EPOCH
    b = await scene.join("b")
    await scene.settle(a, b)

    missed = await scene.beat(a, epoch=2)

    assert problem_of(missed) is None
    assert (missed.epoch, a.epoch) == (3, 3)
    assert problem_of(await scene.beat(a, epoch=2, owned=None)) is Problem.FENCED_MEMBER_EPOCH


@virtual_time
async def test_a_member_that_joins_again_gets_its_tasks_again():
    scene = StreamsScene()
    a = await scene.join("a")

    again = await scene.ask(scene.joining(a))

    assert (again.epoch, again.tasks) == (a.epoch, a.tasks)


@virtual_time
async def test_another_topology_is_refused_and_an_older_one_is_stale():
    scene = StreamsScene(Topics(**{"in": 2, "other": 2}))
    await scene.join("a", topology=replace(stateful("in"), epoch=3))

    b = await scene.join("b", topology=replace(stateful("other"), epoch=3))
    c = await scene.join("c", topology=replace(stateful("other"), epoch=2))

    assert problem_of(b.answers[0]) is Problem.INVALID_REQUEST
    assert str(b.answers[0]) == "Topology updates are not supported yet."
    assert c.codes() == ["STALE_TOPOLOGY"]


@virtual_time
async def test_a_topology_that_cannot_work_leaves_no_member_behind():
    scene = StreamsScene(topology=Topology(epoch=0, subtopologies=(Subtopology(subtopology_id="0"),)))

    a = await scene.join("a")

    assert problem_of(a.answers[0]) is Problem.INVALID_TOPOLOGY
    assert (scene.group.members, scene.group.topology) == ({}, None)


@virtual_time
async def test_tasks_that_do_not_exist_are_refused():
    scene = StreamsScene()
    a = await scene.join("a")

    answers = [await scene.beat(a, owned=Tasks(frozenset({task}))) for task in (TaskId("7", 0), TaskId("0", 4))]

    assert [str(answer) for answer in answers] == [
        "Subtopology 7 does not exist in the topology.",
        "Task 4 for subtopology 0 is invalid. Number of tasks for this subtopology: 4",
    ]


@virtual_time
async def test_a_shutdown_reaches_all_members_until_the_group_is_empty():
    scene = StreamsScene()
    a, b = await scene.join("a"), await scene.join("b")

    await scene.beat(a, shuts_down=True)
    await scene.beat(b)

    assert b.codes() == ["SHUTDOWN_APPLICATION"]
    assert b.answers[-1].statuses[0].detail.startswith("Streams group member a encountered a fatal error")
    await scene.beat(a, epoch=LEAVES)
    await scene.beat(b, epoch=LEAVES)
    assert (await scene.join("c")).codes() == []


@virtual_time
async def test_members_learn_the_endpoints_of_others_and_their_partitions():
    scene = StreamsScene()
    a = await scene.join("a", endpoint=Endpoint("h1", 1))
    b = await scene.join("b", endpoint=Endpoint("h2", 2))
    await scene.settle(a, b)

    found = {item.endpoint.host: item for answer in a.answers for item in answer.endpoints or ()}

    indexes = [index for item in found.values() for index in item.active["in"]]
    assert sorted(indexes) == [0, 1, 2, 3]
    assert (await scene.beat(a)).endpoints is None


@virtual_time
async def test_a_full_group_takes_no_more_members():
    scene = StreamsScene(settings=replace(SETTINGS, size_max=1))
    a = await scene.join("a")

    b = await scene.join("b")

    assert problem_of(b.answers[0]) is Problem.GROUP_FULL
    assert problem_of(await scene.ask(scene.joining(a))) is None


@virtual_time
async def test_commits_are_checked_against_epochs_of_members_and_tasks():
    scene = StreamsScene()
    a = await scene.join("a")
    b = await scene.join("b")
    await scene.settle(a, b)
    kept = [PartitionKey(scene.topics.key("in", index)) for _, index in a.active()]
    lost = [PartitionKey(scene.topics.key("in", index)) for _, index in b.active()]

    def commit(epoch, partitions, member="a"):
        try:
            scene.machine.check_commit(
                MemberRef(group="g", member_id=member, generation=epoch), partitions, knows_epochs=True
            )
        except GroupRefusal as refusal:
            return refusal.problem
        return None

    assert commit(3, kept) is commit(2, kept) is None
    assert commit(2, lost) is Problem.STALE_MEMBER_EPOCH
    assert commit(4, kept) is Problem.STALE_MEMBER_EPOCH
    assert commit(3, kept, "x") is Problem.UNKNOWN_MEMBER
    assert commit(-1, kept, "") is Problem.UNKNOWN_MEMBER


@virtual_time
async def test_the_next_coordinator_goes_on_where_the_last_one_was():
    scene = StreamsScene(settings=replace(SETTINGS, num_standby_replicas=1))
    a, b = await scene.join("a", "p", tags={"zone": "z"}), await scene.join("b", "q", endpoint=Endpoint("h", 1))
    await scene.settle(a, b)

    again = scene.restored()
    before = again.machine.encode()
    for client in (a, b):
        answer = await again.beat(client, owned=None)
        assert (answer.epoch, answer.tasks) == (client.epoch, None)

    assert again.machine.encode() == before == scene.machine.encode()
    assert again.group.state is GroupState.STABLE
