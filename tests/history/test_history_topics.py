"""Topics with many creations and deletions of unknown outcome: the checker's search agrees with an exhaustive search, and stays small."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.history.linear import first_contradiction
from simulator.history.model import (
    EXISTS,
    MISSING,
    Answer,
    Create,
    Delete,
    Describe,
    OfTopic,
    Operation,
    Outcome,
)
from simulator.history.registers import check_topics, topic_steps

NAME = "orders"


class RandomTopic:
    """A correct topic and its clients, many of which never learn the outcomes of their creations and deletions.

    Steps are 100 apart; the interval of an operation includes the neighbouring steps. An operation of unknown outcome has its effect
    at its own moment, at a later one, or never.
    """

    def __init__(self, seed: int, *, is_strict: bool, guesses: bool = False) -> None:
        self._draw = random.Random(seed)
        self._guesses = guesses
        self._is_strict = is_strict
        self._free_at: dict[str, int] = {}
        self._late: list[tuple[str, OfTopic]] = []
        self._present: str | None = None
        self._made: list[str] = []
        self._told: list[str] = []

    def operations(self, count: int, process_count: int = 3) -> list[Operation]:
        """A history that keeps the promise."""
        draw = self._draw
        found = []
        for step in range(count):
            self._take_late_effects()
            moment = 100 * (step + 1)
            process = f"client-{draw.randrange(process_count)}"
            start = draw.randint(max(self._free_at.get(process, 0) + 1, moment - 250), moment)
            end = draw.randint(moment, moment + 99)
            self._free_at[process] = end
            outcome, call, answer = self._asked(process)
            found.append(Operation(process=process, start=start, end=end, outcome=outcome, call=call, answer=answer))
        return found

    def _asked(self, process: str) -> tuple[Outcome, OfTopic, Answer]:
        draw = self._draw
        call: OfTopic = draw.choice((Create(topic=NAME), self._deletion(), Describe(topic=NAME)))
        if isinstance(call, Describe):
            told = self._present if draw.random() < 0.8 or self._present is None else ""
            return Outcome.OK, call, self._telling(told)
        if draw.random() < 0.5:
            is_answered = draw.random() < 0.2
            if draw.random() < 0.4 or is_answered or self._is_strict:
                if draw.random() < 0.7:
                    self._take_effect(call)
            else:
                self._late.append((process, call))
            return Outcome.UNKNOWN, call, Answer(is_answered=is_answered)
        is_done = self._take_effect(call)
        if isinstance(call, Create):
            told = self._present if draw.random() < 0.8 else None
            return (Outcome.OK, call, self._telling(told)) if is_done else (Outcome.FAIL, call, Answer(why=EXISTS))
        return (Outcome.OK, call, Answer()) if is_done else (Outcome.FAIL, call, Answer(why=MISSING))

    def _telling(self, incarnation: str | None) -> Answer:
        if incarnation:
            self._told.append(incarnation)
        return Answer(incarnation=incarnation)

    def _deletion(self) -> Delete:
        """Return a deletion of the present topic, or of an incarnation whose id a client knows or guesses."""
        ids = self._made if self._guesses else self._told[-3:]
        meant = self._draw.choice(ids) if ids and self._draw.random() < 0.3 else None
        return Delete(topic=NAME, incarnation=meant)

    def _take_late_effects(self) -> None:
        for late in list(self._late):
            if self._draw.random() < 0.3:
                self._late.remove(late)
                self._take_effect(late[1])

    def _take_effect(self, call: OfTopic) -> bool:
        """Apply the call; return whether it had an effect."""
        if isinstance(call, Create):
            if self._present is not None:
                return False
            self._present = f"id-{len(self._made)}"
            self._made.append(self._present)
            return True
        assert isinstance(call, Delete)
        if self._present is None or call.incarnation not in (None, self._present):
            return False
        self._present = None
        return True


def corrupted(operations: Sequence[Operation], seed: int) -> list[Operation]:
    """Replace one answer; the result is often, but not always, a violation."""
    draw = random.Random(seed)
    at = draw.randrange(len(operations))
    changed = operations[at]
    ids = [operation.answer.incarnation for operation in operations]
    if isinstance(changed.call, Describe):
        changed = replace(changed, answer=Answer(incarnation=draw.choice([None, "", "id-9", *ids])))
    elif changed.outcome is Outcome.FAIL:
        changed = replace(changed, outcome=Outcome.OK, answer=Answer())
    else:
        why = EXISTS if isinstance(changed.call, Create) else MISSING
        changed = replace(changed, outcome=Outcome.FAIL, answer=Answer(why=why))
    return [*operations[:at], changed, *operations[at + 1 :]]


def history(seed: int, *, is_strict: bool) -> list[Operation]:
    """A small history of a topic; every second one has a corruption."""
    found = RandomTopic(seed, is_strict=is_strict, guesses=seed % 4 < 2).operations(4 + seed % 8)
    return corrupted(found, seed) if seed % 2 else found


# -- the exhaustive search ------------------------------------------------------------------------------------------------


class Plain:
    """An exhaustive search: tries every order of every subset of the unknown operations, and every id for each unknown creation."""

    def __init__(self, operations: Sequence[Operation], *, is_strict: bool) -> None:
        self._operations = [
            operation for operation in operations if operation.outcome is not Outcome.UNKNOWN or _is_write(operation)
        ]
        told = {operation.answer.incarnation for operation in operations if isinstance(operation.call, Create)}
        meant = {operation.call.incarnation for operation in operations if isinstance(operation.call, Delete)}
        self._ids = sorted(
            name for name in ({operation.answer.incarnation for operation in operations} | meant) - told if name
        )
        self._expired_by = {
            at: self._superseding(operation)
            for at, operation in enumerate(self._operations)
            if operation.outcome is Outcome.UNKNOWN and (is_strict or operation.answer.is_answered)
        }
        self._failed: set[tuple[frozenset[int], str | None, frozenset[str]]] = set()

    def _superseding(self, unknown: Operation) -> int | None:
        """The next acknowledged write of the same process."""
        assert unknown.end is not None
        later = [
            (operation.start, at)
            for at, operation in enumerate(self._operations)
            if operation.is_ok
            and _is_write(operation)
            and operation.process == unknown.process
            and operation.start >= unknown.end
        ]
        return min(later)[1] if later else None

    def is_linearizable(self) -> bool:
        """Whether any order explains all answers."""
        return self._goes_on(frozenset(), None, frozenset())

    def _goes_on(self, done: frozenset[int], present: str | None, made: frozenset[str]) -> bool:
        operations = self._operations
        must = [
            at for at, operation in enumerate(operations) if operation.outcome is not Outcome.UNKNOWN and at not in done
        ]
        if not must:
            return True
        if (done, present, made) in self._failed:
            return False
        first_end = min(operations[at].returned for at in must)
        for at, operation in enumerate(operations):
            if at in done or operation.start > first_end or self._expired_by.get(at) in done:
                continue
            for present_after, made_after in self._after(at, present, made):
                if self._goes_on(done | {at}, present_after, made_after):
                    return True
        self._failed.add((done, present, made))
        return False

    def _after(self, at: int, present: str | None, made: frozenset[str]) -> Iterator[tuple[str | None, frozenset[str]]]:
        operation = self._operations[at]
        is_refused = operation.outcome is Outcome.FAIL
        if isinstance(operation.call, Describe):
            seen = operation.answer.incarnation
            if present is not None if seen == "" else seen == present:
                yield present, made
        elif isinstance(operation.call, Create):
            if is_refused and present is not None:
                yield present, made
            elif not is_refused and present is None:
                for name in (
                    [operation.answer.incarnation] if operation.answer.incarnation else [f"of {at}", *self._ids]
                ):
                    if name not in made:
                        yield name, made | {name}
        else:
            assert isinstance(operation.call, Delete)
            is_there = present is not None and operation.call.incarnation in (None, present)
            if is_refused != is_there:
                yield (present if is_refused else None), made


def _is_write(operation: Operation) -> bool:
    return isinstance(operation.call, Create | Delete)


# -- both ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_strict", [False, True])
@given(st.integers(0, 2**32))
@settings(max_examples=2000, deadline=None)
def test_the_search_agrees_with_trying_everything(is_strict: bool, seed: int) -> None:
    operations = history(seed, is_strict=is_strict)

    is_kept = not list(check_topics(operations, is_strict=is_strict))

    assert is_kept == Plain(operations, is_strict=is_strict).is_linearizable()


def test_random_histories_keep_the_promise_unless_they_are_corrupted() -> None:
    kept = [not list(check_topics(history(seed, is_strict=False), is_strict=False)) for seed in range(600)]

    assert all(kept[::2])
    assert 100 < kept[1::2].count(False) < 290


def effect_count(operations: Sequence[Operation], *, is_strict: bool) -> int:
    """How often the search asks for the effect of an operation on a state; the history must be linearizable."""
    steps, initial = topic_steps(operations, is_strict=is_strict)
    count = 0

    def counted(step_effect: object) -> object:
        def effect(state: object) -> Iterable[object]:
            nonlocal count
            count += 1
            return step_effect(state)  # type: ignore[operator, no-any-return]

        return effect

    found = first_contradiction([replace(step, effect=counted(step.effect)) for step in steps], initial)  # type: ignore[arg-type]
    assert found is None
    return count


@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_search_stays_small_with_hundreds_of_unknown_creations_and_deletions(seed: int, is_strict: bool) -> None:
    operations = RandomTopic(seed, is_strict=is_strict).operations(2000)
    unknown = sum(operation.outcome is Outcome.UNKNOWN for operation in operations)

    assert unknown > 500
    assert effect_count(operations, is_strict=is_strict) < 15 * len(operations)
