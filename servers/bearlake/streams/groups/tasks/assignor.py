"""The sticky assignor of tasks: balanced counts, and members keep what they have.

Three rounds give each active task to a member: who has it, as long as that member is below its share; who has it as a standby; the process
with the least tasks per member. Then each standby of a task with state goes to a process that does not have the task. A process is an
application with several members (threads): its state is on one disk, so it never needs a task twice.

Pure functions; the result depends on the arguments alone. Source: KIP-1071, with the goals of Kafka's assignor `sticky`.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bearlake.streams.groups.tasks.model import TaskId, Tasks


class Runner(NamedTuple):
    """A member, for the assignor."""

    member_id: str
    process_id: str
    present: Tasks
    """What the member should have by the last assignment."""


class _Process:
    """The members of one process. Their counts only grow, so the heap's entries that are too small are corrected when they are met."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """Tasks by member."""
        self.has: set[TaskId] = set()
        self._total = 0
        self._heap: list[tuple[int, str]] = []

    @property
    def load(self) -> float:
        """Tasks per member."""
        return self._total / len(self.counts)

    def add(self, member_id: str) -> None:
        """Add a member, which has no tasks yet."""
        self.counts[member_id] = 0
        heapq.heappush(self._heap, (0, member_id))

    def give(self, task: TaskId, member_id: str) -> int:
        """Give a task to a member; returns how many it has now."""
        self.has.add(task)
        self._total += 1
        self.counts[member_id] += 1
        return self.counts[member_id]

    def least_loaded(self) -> str:
        """Return the member with the least tasks."""
        heap = self._heap
        while heap[0][0] < self.counts[heap[0][1]]:
            heapq.heapreplace(heap, (self.counts[heap[0][1]], heap[0][1]))
        return heap[0][1]


class _Share:
    """How many tasks a member may have, so that all get equally many: falls when members have taken the larger share."""

    def __init__(self, task_count: int, member_count: int) -> None:
        self._tasks, self._members = task_count, member_count

    @property
    def size(self) -> int:
        """Tasks that a member may have now."""
        return -(-self._tasks // self._members) if self._members else 0

    def took(self, count: int) -> None:
        """Record that a member has `count` tasks now."""
        if count == self.size:
            self._tasks -= count
            self._members -= 1


class _Assignment:
    """The assignment in progress."""

    def __init__(self, runners: Sequence[Runner]) -> None:
        self.process_of = {runner.member_id: runner.process_id for runner in runners}
        self.processes: dict[str, _Process] = {}
        self.active: dict[str, set[TaskId]] = {runner.member_id: set() for runner in runners}
        self.standby: dict[str, set[TaskId]] = {runner.member_id: set() for runner in runners}
        self.had_active: dict[TaskId, str] = {}
        self.had_standby: dict[TaskId, list[str]] = {}
        for runner in runners:
            self.processes.setdefault(runner.process_id, _Process()).add(runner.member_id)
            for task in runner.present.active:
                self.had_active[task] = runner.member_id
            for task in runner.present.standby:
                self.had_standby.setdefault(task, []).append(runner.member_id)

    def count(self, member_id: str) -> int:
        """Return how many tasks a member has."""
        return self.processes[self.process_of[member_id]].counts[member_id]

    def give(self, task: TaskId, member_id: str, *, is_active: bool) -> int:
        """Give a task to a member; returns how many it has now."""
        (self.active if is_active else self.standby)[member_id].add(task)
        return self.processes[self.process_of[member_id]].give(task, member_id)

    def loads(self) -> list[tuple[float, str]]:
        """Return a heap of the processes by their tasks per member."""
        heap = [(process.load, process_id) for process_id, process in self.processes.items()]
        heapq.heapify(heap)
        return heap

    def has(self, member_id: str, task: TaskId) -> bool:
        """Whether the member's process has the task."""
        return task in self.processes[self.process_of[member_id]].has


def assign(
    runners: Iterable[Runner], task_counts: Mapping[str, int], stateful: Iterable[str], standby_count: int
) -> dict[str, Tasks]:
    """Return the tasks of each member.

    `task_counts`: tasks by subtopology; `stateful`: the subtopologies with state, whose tasks have `standby_count` standbys if there are
    enough processes.
    """
    ordered = sorted(runners, key=lambda runner: runner.member_id)
    if not ordered:
        return {}
    state = _Assignment(ordered)
    tasks = [TaskId(name, partition) for name, count in task_counts.items() for partition in range(count)]
    with_state = set(stateful)
    copied = [task for task in tasks if task.subtopology_id in with_state] if standby_count > 0 else []
    total = _Share(len(tasks) + len(copied) * standby_count, len(ordered))
    _assign_active(state, tasks, _Share(len(tasks), len(ordered)), total)
    _assign_standbys(state, copied, standby_count, total)
    return {
        member_id: Tasks(frozenset(state.active[member_id]), frozenset(state.standby[member_id]))
        for member_id in state.active
    }


def _by_partition(task: TaskId) -> tuple[int, str]:
    return task.partition, task.subtopology_id


def _assign_active(state: _Assignment, tasks: list[TaskId], share: _Share, total: _Share) -> None:
    def give(task: TaskId, member_id: str) -> None:
        count = state.give(task, member_id, is_active=True)
        share.took(count)
        total.took(count)

    left = []
    for task in sorted(tasks, key=_by_partition):
        owner = state.had_active.get(task)
        if owner is not None and state.count(owner) < share.size:
            give(task, owner)
        else:
            left.append(task)
    rest = []
    for task in left:
        copies = [member_id for member_id in state.had_standby.get(task, ()) if state.count(member_id) < share.size]
        if copies:
            give(task, min(copies, key=lambda member_id: (state.count(member_id), member_id)))
        else:
            rest.append(task)
    heap = state.loads()
    for task in sorted(rest):
        _, process_id = heap[0]
        process = state.processes[process_id]
        give(task, process.least_loaded())
        heapq.heapreplace(heap, (process.load, process_id))


def _assign_standbys(state: _Assignment, tasks: list[TaskId], standby_count: int, total: _Share) -> None:
    missing: list[tuple[TaskId, int]] = []
    for task in sorted(tasks, key=_by_partition, reverse=True):
        former = state.had_active.get(task)
        holders = [*([former] if former is not None else []), *state.had_standby.get(task, ())]
        left = standby_count
        for member_id in holders:
            if left and not state.has(member_id, task) and state.count(member_id) < total.size:
                total.took(state.give(task, member_id, is_active=False))
                left -= 1
        if left:
            missing.append((task, left))
    heap = state.loads()
    for task, left in sorted(missing, reverse=True):
        having = []
        while left and heap:
            load, process_id = heapq.heappop(heap)
            process = state.processes[process_id]
            if task not in process.has:
                total.took(state.give(task, process.least_loaded(), is_active=False))
                load, left = process.load, left - 1
            having.append((load, process_id))
        for item in having:
            heapq.heappush(heap, item)
