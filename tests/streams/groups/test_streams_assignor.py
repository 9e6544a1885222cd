"""The assignor of tasks: each task once, balanced, sticky, and no process has a task twice."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from bearlake.streams.groups.tasks.assignor import Runner, assign
from bearlake.streams.groups.tasks.model import TaskId, Tasks

TASKS = st.dictionaries(st.sampled_from("0123"), st.integers(1, 9), min_size=1)
PROCESSES = st.lists(st.integers(1, 4), min_size=1, max_size=5)
"""Members of each process."""


def runners_of(processes, present=None):
    return [
        Runner(f"{process}-{member}", f"p{process}", (present or {}).get(f"{process}-{member}", Tasks()))
        for process, count in enumerate(processes)
        for member in range(count)
    ]


def processes_with(runners, assignment, task):
    process_of = {runner.member_id: runner.process_id for runner in runners}
    return [
        process_of[member] for member, found in assignment.items() for tasks in found for item in tasks if item == task
    ]


def all_tasks(counts):
    return {TaskId(name, index) for name, count in counts.items() for index in range(count)}


@given(TASKS, PROCESSES, st.integers(0, 2), st.sets(st.sampled_from("0123")))
def test_each_task_is_active_once_and_has_its_standbys_in_other_processes(counts, processes, standbys, stateful):
    runners = runners_of(processes)

    found = assign(runners, counts, stateful, standbys)

    assert sorted(task for tasks in found.values() for task in tasks.active) == sorted(all_tasks(counts))
    for task in all_tasks(counts):
        holders = processes_with(runners, found, task)
        wanted = standbys if task.subtopology_id in stateful else 0
        assert len(holders) == len(set(holders)) == 1 + min(wanted, len(processes) - 1)


@given(TASKS, PROCESSES)
def test_active_tasks_are_balanced_over_members_and_processes(counts, processes):
    runners = runners_of(processes)

    found = assign(runners, counts, (), 0)

    loads = [len(tasks.active) for tasks in found.values()]
    assert max(loads) - min(loads) <= 1


@given(TASKS, PROCESSES, st.integers(0, 2), st.sets(st.sampled_from("0123")))
def test_nothing_moves_while_nothing_changes(counts, processes, standbys, stateful):
    first = assign(runners_of(processes), counts, stateful, standbys)

    again = assign(runners_of(processes, first), counts, stateful, standbys)

    assert {member: tasks.active for member, tasks in again.items()} == {
        member: tasks.active for member, tasks in first.items()
    }


@given(TASKS, st.integers(1, 6))
def test_a_member_that_joins_takes_only_its_share(counts, members):
    before = assign(runners_of([1] * members), counts, (), 0)

    after = assign(runners_of([1] * (members + 1), before), counts, (), 0)

    kept = sum(len(tasks.active & after[member].active) for member, tasks in before.items())
    share = -(-len(all_tasks(counts)) // (members + 1))
    assert kept >= len(all_tasks(counts)) - share
    assert max(Counter({m: len(t.active) for m, t in after.items()}).values()) <= share


def test_who_has_a_standby_takes_the_task_over():
    tasks = {name: frozenset({TaskId("0", index)}) for index, name in enumerate("abcd")}
    present = {"0-0": Tasks(tasks["a"], tasks["b"]), "2-0": Tasks(tasks["c"], tasks["d"])}

    after = assign(
        [runner for runner in runners_of([1, 1, 1], present) if runner.member_id != "1-0"], {"0": 4}, ["0"], 1
    )

    assert after["0-0"].active == tasks["a"] | tasks["b"]
    assert after["2-0"].active == tasks["c"] | tasks["d"]


def test_no_members_have_no_tasks():
    assert assign([], {"0": 2}, ["0"], 1) == {}
