"""Whose turn it is when a process that checks values is free."""

import itertools

from bearlake.streams.schemas.confined.line import HALF_LIFE_S, OWNER_COUNT_MAX, Line


class Time:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def served(line: Line[int]) -> list[int]:
    """All requests, in their order."""
    return [found[1] for found in iter(line.take, None)]


def test_requests_of_equal_owners_are_served_as_they_came() -> None:
    line: Line[int] = Line(Time())
    for request in range(6):
        line.put("ab"[request % 2], request)

    assert served(line) == [0, 1, 2, 3, 4, 5]
    assert line.take() is None


def test_the_owner_that_used_the_least_time_is_served_first() -> None:
    line: Line[int] = Line(Time())
    for owner, request in (("costly", 1), ("costly", 2), ("cheap", 3), ("new", 4), ("cheap", 5)):
        line.put(owner, request)
    line.charge("costly", 3_000)
    line.charge("cheap", 5)

    assert served(line) == [4, 3, 5, 1, 2]


def test_many_costly_schemas_do_not_keep_a_cheap_one_waiting() -> None:
    line: Line[int] = Line(time := Time())
    for at in range(50):
        line.put(f"costly {at}", at)
    line.put("cheap", -1)
    order = []
    for _ in range(300):
        found = line.take()
        assert found is not None
        owner, request = found
        order.append(request)
        used_ms = 5 if owner == "cheap" else 3_000
        line.charge(owner, used_ms)
        time.now += used_ms / 1000
        line.put(owner, request)

    after_its_first = order[order.index(-1) :]
    longest = max(
        len(list(group)) for is_cheap, group in itertools.groupby(after_its_first, lambda at: at < 0) if not is_cheap
    )
    assert longest <= 1


def test_used_time_is_forgotten_and_few_owners_are_remembered() -> None:
    line: Line[int] = Line(time := Time())
    line.charge("a", 4_000)
    time.now = HALF_LIFE_S * 2
    line.charge("b", 1_500)
    line.put("b", 1)
    line.put("a", 2)
    assert served(line) == [2, 1]

    for at in range(OWNER_COUNT_MAX):
        line.charge(f"more {at}", 1)
    line.put("b", 1)
    line.put("unknown", 2)
    assert served(line) == [2, 1]


def test_a_request_that_nobody_waits_for_leaves_the_line() -> None:
    line: Line[int] = Line(Time())
    first = line.put("a", 1)
    line.put("a", 2)
    line.drop(first)
    line.drop(first)

    assert served(line) == [2]
