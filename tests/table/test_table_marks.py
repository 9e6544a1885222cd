"""Applied tasks: every way that a task can meet a table, and their form as properties."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.errors import Conflict, Corrupt
from bearlake.table.applied_tasks import AppliedTasks, decide, read_applied_tasks
from bearlake.table.model import AppliedTask, TableChange

NUMBERS = st.dictionaries(st.integers(0, 2**40), st.integers(0, 2**62))


def change(task: int, ranges: Mapping[int, tuple[int, int]] | None = None, epoch: int = 1) -> TableChange:
    return TableChange(task=AppliedTask(task_id=task, epoch=epoch, ranges=ranges or {}), add=[])


@pytest.mark.parametrize(
    ("ends", "ranges", "outcome"),
    [
        ({}, {0: (0, 10)}, "apply"),
        ({}, {0: (7, 10)}, "apply"),  # a table that is younger than the stream
        ({0: 7}, {0: (7, 10)}, "apply"),
        ({0: 3}, {0: (7, 10)}, "apply"),  # [3, 7) was trimmed
        ({0: 10}, {0: (7, 10)}, "applied"),
        ({0: 30}, {0: (7, 10)}, "applied"),
        ({0: 8}, {0: (7, 10)}, "conflict"),
        ({0: 10, 1: 5}, {0: (7, 10), 1: (0, 5)}, "applied"),
        ({0: 10, 1: 0}, {0: (7, 10), 1: (0, 5)}, "conflict"),  # half of it: cannot happen
        ({0: 7}, {0: (7, 10), 1: (0, 5)}, "apply"),
    ],
)
def test_the_ends_decide_about_a_compaction(
    ends: dict[int, int], ranges: dict[int, tuple[int, int]], outcome: str
) -> None:
    known = AppliedTasks(ends=ends, applied={})

    if outcome == "conflict":
        with pytest.raises(Conflict):
            decide(known, [change(5, ranges)], [])
        return
    decision = decide(known, [change(5, ranges)], [])
    if outcome == "applied":
        assert (decision.changes, decision.applied) == ([], known)
    else:
        assert decision.applied.ends == {**ends, **{index: end for index, (_, end) in ranges.items()}}
        assert decision.applied.applied == {5: 1}


def test_the_id_decides_about_a_merge() -> None:
    known = AppliedTasks(ends={0: 10}, applied={5: 2})

    assert decide(known, [change(5, epoch=3)], []).changes == []
    assert decide(known, [change(6, epoch=3)], []).applied == AppliedTasks(ends={0: 10}, applied={5: 2, 6: 3})


def test_marks_of_closed_tasks_are_dropped_but_never_those_of_this_commit() -> None:
    known = AppliedTasks(ends={}, applied={1: 1, 2: 1, 3: 1})

    decision = decide(known, [change(4), change(2)], [1, 2, 4, 99])

    assert decision.applied.applied == {2: 1, 3: 1, 4: 1}
    assert [left.task.task_id for left in decision.changes] == [4]
    assert decision.summary() == {"bearlake.tasks": '{"4":1}'}


def test_changes_of_one_commit_follow_each_other() -> None:
    decision = decide(AppliedTasks(ends={}, applied={}), [change(1, {0: (0, 5)}), change(2, {0: (5, 9)})], [])

    assert (len(decision.changes), decision.applied.ends) == (2, {0: 9})
    with pytest.raises(Conflict):
        decide(
            AppliedTasks(ends={}, applied={}),
            [change(2, {0: (5, 9)}), change(1, {0: (0, 6)}), change(3, {0: (8, 10)})],
            [],
        )


@given(ends=NUMBERS, applied=NUMBERS)
def test_marks_read_back_from_properties(ends: dict[int, int], applied: dict[int, int]) -> None:
    known = AppliedTasks(ends=ends, applied=applied)

    assert read_applied_tasks(known.properties()) == known


def test_a_table_without_marks_has_no_applied_tasks() -> None:
    assert read_applied_tasks({"owner": "somebody"}) == AppliedTasks(ends={}, applied={})


@pytest.mark.parametrize("text", ["", "[]", "7", '{"a": 1}', '{"1": "x"}', '{"1": null}'])
def test_damaged_marks_are_corrupt(text: str) -> None:
    with pytest.raises(Corrupt, match=r"bearlake\.applied"):
        read_applied_tasks({"bearlake.applied": text})
