"""The search for a linearization agrees with trying every order, on small random histories of a register."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.history.linear import Step, first_contradiction


def random_steps(seed: int) -> list[Step[int]]:
    """A few steps. In every second history, half of the steps are optional, so several are of one kind."""
    draw = random.Random(seed)
    found: list[Step[int]] = []
    for _ in range(draw.randint(1, 6)):
        start = draw.randint(0, 20)
        is_optional = draw.random() < (0.5 if seed % 2 else 0.4)
        end = None if is_optional else start + draw.randint(0, 12)
        value = draw.randint(0, 1 if seed % 2 else 2)
        if is_optional or draw.random() < 0.5:
            earlier = [index for index, step in enumerate(found) if step.is_optional and step.start < start]
            supersedes = frozenset(earlier[:1] if draw.random() < 0.4 and not is_optional else ())
            found.append(_write(start, end, value, supersedes))
        else:
            found.append(_read(start, start + draw.randint(0, 12), value))
    return found


def _write(start: int, end: int | None, value: int, supersedes: frozenset[int]) -> Step[int]:
    return Step(
        start=start, end=end, effect=lambda _: (value,), gives=f"{value}", kind=f"{value}", supersedes=supersedes
    )


def _read(start: int, end: int | None, value: int) -> Step[int]:
    return Step(start=start, end=end, effect=lambda state: (state,) if state == value else (), wants=f"{value}")


def is_linearizable(steps: list[Step[int]]) -> bool:
    """Try every order of every subset that contains all operations that must take effect."""
    must = [step for step in steps if not step.is_optional]
    may = [step for step in steps if step.is_optional]
    return any(
        _is_order(order, steps)
        for count in range(len(may) + 1)
        for chosen in itertools.combinations(may, count)
        for order in itertools.permutations([*must, *chosen])
    )


def _is_order(order: tuple[Step[int], ...], steps: list[Step[int]]) -> bool:
    state = 0
    latest_start = -1
    superseded: set[int] = set()
    for step in order:
        latest_start = max(latest_start, step.start)
        if step.end is not None and step.end < latest_start:
            return False
        if steps.index(step) in superseded:
            return False
        superseded |= step.supersedes
        states = list(step.effect(state))
        if not states:
            return False
        state = states[0]
    return True


@given(st.integers(0, 2**32))
@settings(max_examples=2000, deadline=None)
def test_the_search_agrees_with_trying_every_order(seed: int) -> None:
    steps = random_steps(seed)

    assert (first_contradiction(steps, 0) is None) == is_linearizable(steps)


@pytest.mark.parametrize("lasting_index", [0, 1])
def test_the_search_keeps_the_configuration_with_the_lasting_optional_write(lasting_index: int) -> None:
    """Either write explains the first read of 1. The last read needs the lasting write, so the first read must use the other."""
    lasting = _write(0, None, 1, frozenset())
    expiring = _write(6, None, 1, frozenset())
    writes = [lasting, expiring] if lasting_index == 0 else [expiring, lasting]
    steps = [
        *writes,
        _read(1, 10, 1),
        _write(3, 5, 0, frozenset()),
        _write(11, 12, 0, frozenset()),
        _write(13, 14, 0, frozenset({1 - lasting_index})),
        _read(15, 16, 1),
    ]

    assert first_contradiction(steps, 0) is None
    assert first_contradiction([*steps, _write(17, 18, 0, frozenset()), _read(19, 20, 1)], 0) == len(steps) + 1
