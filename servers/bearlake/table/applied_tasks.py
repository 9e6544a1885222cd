"""Which tasks a table has applied, according to its properties, and what is left of a commit. Pure.

A COMPACT task moves the table's ends of its partitions over [start, end). The task is applied if all of its ends are reached, due if no
end is beyond its start, and contradicts the table otherwise. An end below the start is a gap: offsets that were trimmed, or compacted
while the stream had no table. A MERGE task is applied if `bearlake.applied` has its id. These properties and the data files change in
one atomic commit that is conditional on the metadata it has read, so a task's rows are in the table exactly once (I5).
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from bearlake.errors import Conflict, Corrupt
from bearlake.table.model import AppliedTask, TableChange

STREAM_ID_PROPERTY = "bearlake.stream_id"
"""Table property: the stream's UUID; the table belongs to that incarnation."""
ENDS_PROPERTY = "bearlake.ends"
"""Table property: JSON object, partition index → offset up to which records are in the table."""
APPLIED_PROPERTY = "bearlake.applied"
"""Table property: JSON object, task id → epoch that applied it; closed tasks are dropped."""
TASKS_SUMMARY = "bearlake.tasks"
"""Snapshot summary: JSON object, task id → epoch of the changes in this snapshot. For display; nothing depends on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedTasks:
    """What a table's properties say about its tasks; see `TableState`."""

    ends: Mapping[int, int]
    applied: Mapping[int, int]

    def properties(self) -> dict[str, str]:
        """Return the table properties that store this."""
        return {ENDS_PROPERTY: _to_json(self.ends), APPLIED_PROPERTY: _to_json(self.applied)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The changes left of a commit, in order, and the table's applied tasks afterwards."""

    changes: Sequence[TableChange]
    applied: AppliedTasks

    def summary(self) -> dict[str, str]:
        """Return the changes' tasks as a snapshot property."""
        return {TASKS_SUMMARY: _to_json({change.task.task_id: change.task.epoch for change in self.changes})}


def read_applied_tasks(properties: Mapping[str, str]) -> AppliedTasks:
    """Read the applied tasks from a table's properties.

    Raises:
        Corrupt: the properties were changed by someone else.
    """
    return AppliedTasks(ends=_from_json(properties, ENDS_PROPERTY), applied=_from_json(properties, APPLIED_PROPERTY))


def decide(known: AppliedTasks, changes: Sequence[TableChange], closed_tasks: Collection[int]) -> Decision:
    """Return the `changes` that the table has not applied. Forgets `closed_tasks`, unless they are among the changes.

    Raises:
        Conflict: an end lies inside a task's range.
    """
    ends, applied = dict(known.ends), dict(known.applied)
    left = []
    for change in changes:
        if not _is_applied(change.task, ends, applied):
            left.append(change)
            ends.update({index: end for index, (_, end) in change.task.ranges.items()})
            applied[change.task.task_id] = change.task.epoch
    dropped = set(closed_tasks) - {change.task.task_id for change in changes}
    remaining = {task: epoch for task, epoch in applied.items() if task not in dropped}
    return Decision(changes=left, applied=AppliedTasks(ends=ends, applied=remaining))


def _is_applied(task: AppliedTask, ends: Mapping[int, int], applied: Mapping[int, int]) -> bool:
    if task.task_id in applied:
        return True
    if not task.ranges:
        return False
    if all(ends.get(index, -1) >= end for index, (_, end) in task.ranges.items()):
        return True
    for index, (start, end) in task.ranges.items():
        if ends.get(index, start) > start:
            raise Conflict(
                f"task {task.task_id} adds offsets [{start}, {end}) of partition {index}, but the table has them up to {ends[index]}"
            )
    return False


def _to_json(numbers: Mapping[int, int]) -> str:
    return json.dumps({str(key): value for key, value in sorted(numbers.items())}, separators=(",", ":"))


def _from_json(properties: Mapping[str, str], name: str) -> dict[int, int]:
    text = properties.get(name, "{}")
    try:
        found = json.loads(text)
        return {int(key): int(value) for key, value in found.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise Corrupt(f"table property {name} is not a JSON object of numbers: {text[:100]!r}") from error
