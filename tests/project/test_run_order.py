"""In a run by several processes, no part of the tests has all that wait, and no test is lost; long ones are last, if it is not too late."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fixtures import run_order
from fixtures.run_order import in_parts, is_too_late


class Collected(NamedTuple):
    """A test as pytest collects it."""

    path: Path
    number: int
    mark: str = ""

    def get_closest_marker(self, name: str) -> Any:
        return name if name == self.mark else None


def module(name: str, count: int, mark: str = "") -> list[Any]:
    return [Collected(Path(f"tests/{name}.py"), number, mark) for number in range(count)]


def parts_of(items: list[Any], count: int) -> list[list[Any]]:
    """The parts that `worksteal` gives to so many processes."""
    left, parts = list(items), []
    for part in range(count):
        size = len(left) // (count - part)
        parts.append(left[:size])
        del left[:size]
    return parts


QUICK = [test for at in range(40) for test in module(f"quick_{at}", 10)]
WAITING = [test for at in range(9) for test in module(f"waiting_{at}", 3, "integration" if at % 2 else "slow")]
LONG = [test for at in range(7) for test in module(f"long_{at}", 2, "long")]


@pytest.mark.parametrize("count", range(1, 6))
def test_each_part_begins_with_its_share_of_the_modules_that_wait(count: int) -> None:
    parts = parts_of(in_parts([*WAITING, *QUICK], count), count)

    modules = [{test.path for test in part if test.mark} for part in parts]
    assert sum(map(len, modules)) == 9  # a module is in one part
    assert max(map(len, modules)) - min(map(len, modules)) <= 1
    for part in parts:
        marks = [bool(test.mark) for test in part]
        assert marks == sorted(marks, reverse=True)


@pytest.mark.parametrize("items", [[], QUICK[:3], WAITING, [*QUICK[:2], *WAITING], [*LONG, *WAITING, *QUICK]])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_all_tests_run_once_and_those_of_a_module_in_their_order(items: list[Any], count: int) -> None:
    ordered = in_parts(items, count)

    assert sorted(ordered) == sorted(items)
    for path in {test.path for test in items}:
        assert [test.number for test in ordered if test.path == path] == [t.number for t in items if t.path == path]


def test_a_module_waits_if_any_of_its_tests_does() -> None:
    mixed = [*module("mixed", 2), Collected(Path("tests/mixed.py"), 2, "slow")]

    assert in_parts([*QUICK, *mixed], 1)[:3] == mixed


@pytest.mark.parametrize("count", range(1, 6))
def test_each_part_ends_with_its_share_of_the_long_modules(count: int) -> None:
    parts = parts_of(in_parts([*LONG, *QUICK, *WAITING], count), count)

    modules = [{test.path for test in part if test.mark == "long"} for part in parts]
    assert sum(map(len, modules)) == 7
    assert max(map(len, modules)) - min(map(len, modules)) <= 1
    for part in parts:
        marks = [test.mark == "long" for test in part]
        assert marks == sorted(marks)


@pytest.mark.parametrize(("passed_s", "is_over"), [(0.0, False), (60.0, False), (60.1, True)])
def test_only_long_tests_may_be_too_late(monkeypatch: pytest.MonkeyPatch, passed_s: float, is_over: bool) -> None:
    monkeypatch.setattr(run_order, "LATEST_S", 60.0)

    assert is_too_late(LONG[0], passed_s) is is_over
    assert not is_too_late(QUICK[0], passed_s)
    assert not is_too_late(WAITING[0], passed_s)
