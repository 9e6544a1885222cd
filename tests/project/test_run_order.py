"""In a run by several processes, no part of the tests has all that wait, and no test is lost."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fixtures.run_order import in_parts


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


@pytest.mark.parametrize("count", range(1, 6))
def test_each_part_begins_with_its_share_of_the_modules_that_wait(count: int) -> None:
    parts = parts_of(in_parts([*WAITING, *QUICK], count), count)

    modules = [{test.path for test in part if test.mark} for part in parts]
    assert sum(map(len, modules)) == 9  # a module is in one part
    assert max(map(len, modules)) - min(map(len, modules)) <= 1
    for part in parts:
        marks = [bool(test.mark) for test in part]
        assert marks == sorted(marks, reverse=True)


@pytest.mark.parametrize("items", [[], QUICK[:3], WAITING, [*QUICK[:2], *WAITING], [*WAITING, *QUICK]])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_all_tests_run_once_and_those_of_a_module_in_their_order(items: list[Any], count: int) -> None:
    ordered = in_parts(items, count)

    assert sorted(ordered) == sorted(items)
    for path in {test.path for test in items}:
        assert [test.number for test in ordered if test.path == path] == [t.number for t in items if t.path == path]


def test_a_module_waits_if_any_of_its_tests_does() -> None:
    mixed = [*module("mixed", 2), Collected(Path("tests/mixed.py"), 2, "slow")]

    assert in_parts([*QUICK, *mixed], 1)[:3] == mixed
