"""The explorer: shortest traces, complete explorations, progress, and fingerprints that do not lose states."""

from collections import deque
from collections.abc import Sequence

import pytest

from simulator.model.__main__ import main
from simulator.model.explorer import NEVER_FINISHES, explore
from simulator.model.families import FAMILIES, REDUNDANT
from simulator.model.fingerprints import Fingerprints
from simulator.model.guards import rules, without
from simulator.model.offsets import OffsetBounds, OffsetGuards, OffsetPart
from simulator.model.part import Action, Step

ADD = Action("add {}")
BREAK = Action("break", is_progress=False)


class Counting:
    """Counts to 20 in steps of one and three; at 7 it may break, and is then stuck."""

    name = "counting"

    def __init__(self, *, forbidden: int = 99, may_break: bool = False, must_finish: bool = False) -> None:
        self._forbidden = forbidden
        self._may_break = may_break
        self.must_finish = must_finish

    def initial(self) -> tuple[int]:
        return (0,)

    def is_quiescent(self, state: tuple[int]) -> bool:
        return state[0] == 20

    def violation(self, state: tuple[int]) -> str:
        return "forbidden" if state[0] == self._forbidden else ""

    def steps(self, state: tuple[int]) -> Sequence[Step[tuple[int]]]:
        found = [Step(ADD, (by,), (state[0] + by,)) for by in (1, 3) if state[0] + by <= 20]
        if self._may_break and state[0] == 7:
            found.append(Step(BREAK, (), (100,)))
        return found


def test_an_exploration_visits_every_state_once() -> None:
    report = explore(Counting())

    assert report.is_exhausted
    assert report.state_count == 21
    assert report.transition_count == 20 + 18


def test_a_counterexample_is_the_shortest_trace() -> None:
    report = explore(Counting(forbidden=7))

    assert report.violation is not None
    assert [line.split(". ")[1] for line in report.violation.trace] in (
        ["add 1", "add 3", "add 3"],
        ["add 3", "add 3", "add 1"],
    )


def test_a_reached_bound_on_states_is_reported() -> None:
    report = explore(Counting(), state_count_max=5)

    assert not report.is_exhausted
    assert report.violation is None


def test_a_state_that_cannot_reach_a_quiescent_state_is_found() -> None:
    assert explore(Counting(must_finish=True)).violation is None
    stuck = explore(Counting(must_finish=True, may_break=True)).violation

    assert stuck is not None
    assert stuck.promise == NEVER_FINISHES
    assert stuck.trace[-1].endswith("break")


def test_fingerprints_keep_all_numbers() -> None:
    numbers = [hash((number, number * 7)) for number in range(20_000)]
    found = Fingerprints()

    assert [found.add(number) for number in numbers] == [True] * len(numbers)
    assert [found.add(number) for number in numbers] == [False] * len(numbers)
    assert len(found) == len(numbers)


def test_explorations_by_fingerprints_and_by_whole_states_visit_the_same_number_of_states() -> None:
    part = OffsetPart(OffsetBounds(lease_epoch=2), OffsetGuards())
    seen = {part.initial()}
    rest = deque(seen)
    while rest:
        for step in part.steps(rest.popleft()):
            if step.state not in seen:
                seen.add(step.state)
                rest.append(step.state)

    assert explore(part).state_count == len(seen)


def test_each_guard_has_a_unique_name_and_a_sentence() -> None:
    names = [name for family in FAMILIES.values() for name in family.rules]

    assert len(names) == len(set(names)) >= 50
    assert all(rule for family in FAMILIES.values() for rule in family.rules.values())
    assert set(REDUNDANT) < set(names)


def test_an_unknown_guard_is_refused() -> None:
    with pytest.raises(KeyError):
        without(OffsetGuards(), "no_such_guard")
    assert "lease_epoch_in_offset_commit" in rules(OffsetGuards())


def test_the_command_prints_a_readable_counterexample(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--part", "offsets", "--guard-off", "lease_epoch_in_offset_commit"])

    assert code == 1
    output = capsys.readouterr().out
    assert "takes the lease of the group" in output
    assert "=> an acknowledged offset was overwritten" in output
