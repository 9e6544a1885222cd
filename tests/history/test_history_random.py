"""Random valid histories, made by a trivially correct log, register and group, pass; each kind of single corruption is found."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.history.check import check
from simulator.history.model import (
    Answer,
    Bounds,
    Commit,
    Committed,
    Complete,
    Kind,
    Log,
    Operation,
    Outcome,
    Produce,
    Read,
    Record,
    Seen,
)

LOG = Log("orders", 0, "x")
KINDS = tuple(Kind)


def random_history(seed: int, step_count: int = 60) -> list[Operation]:
    """Clients on one correct log and one correct register: each operation takes effect at one moment inside of its interval.

    Each step is such a moment, `moment` apart; intervals reach over the neighbours' moments, never over the client's own.
    """
    draw = random.Random(seed)
    log: list[Seen] = []
    register: int | None = None
    free_at: dict[str, int] = {}
    found: list[Operation] = []
    for step in range(step_count):
        moment = 100 * (step + 1)
        process = f"client-{draw.randrange(4)}"
        start = draw.randint(max(free_at.get(process, 0) + 1, moment - 300), moment)
        end = draw.randint(moment, moment + 99)
        free_at[process] = end
        what = draw.random()
        outcome = Outcome.OK
        if what < 0.5:
            is_stored = draw.random() < 0.9
            outcome = Outcome.UNKNOWN if draw.random() < 0.2 else Outcome.OK if is_stored else Outcome.FAIL
            call, answer = _produced(draw, process, step, log, is_stored=is_stored)
            if outcome is not Outcome.OK:
                answer = Answer()
        elif what < 0.65:
            first = draw.randint(0, len(log))
            call = Read(log=LOG, start=first)
            answer = Answer(records=tuple(log[first : first + draw.randint(0, 5)]), end=len(log))
        elif what < 0.75:
            call, answer = Bounds(log=LOG), Answer(start=0, end=len(log))
        elif what < 0.9:
            call, answer = Commit(group="g", log=LOG, offset=step), Answer()
            outcome = draw.choice(tuple(Outcome))
            if outcome is Outcome.OK or (outcome is Outcome.UNKNOWN and draw.random() < 0.5):
                register = step
        else:
            call, answer = Committed(group="g", log=LOG), Answer(offset=register)
        found.append(Operation(process=process, start=start, end=end, outcome=outcome, call=call, answer=answer))
    last = Answer(records=tuple(log), end=len(log))
    time = 100 * (step_count + 4)
    read = Read(log=LOG, start=0)
    found.append(Operation(process="last", start=time, end=time + 1, outcome=Outcome.OK, call=read, answer=last))
    done = Complete(log=LOG)
    found.append(Operation(process="last", start=time + 4, end=time + 5, outcome=Outcome.OK, call=done))
    ask = Committed(group="g", log=LOG)
    told = Answer(offset=register)
    found.append(Operation(process="last", start=time + 2, end=time + 3, outcome=Outcome.OK, call=ask, answer=told))
    return found


def _produced(
    draw: random.Random, process: str, step: int, log: list[Seen], *, is_stored: bool
) -> tuple[Produce, Answer]:
    names = [f"{step}.{index}" for index in range(draw.randint(1, 3))]
    kind = KINDS[int(process[-1]) % len(KINDS)]
    records = tuple(Record(name, f"#{name}") for name in names)
    call = Produce(log=LOG, producer=process, kind=kind, sequence=step, records=records)
    base = len(log)
    if is_stored:
        log += [Seen(base + at, record.id, record.digest) for at, record in enumerate(records)]
    return call, Answer(offset=base)


Corruption = Callable[[random.Random, Sequence[Operation]], "tuple[Operation, Operation] | None"]
"""An operation and what it becomes; None: the history has none that can be corrupted so."""


def _some(draw: random.Random, operations: Sequence[Operation], *kinds: type) -> Operation | None:
    fit = [
        operation
        for operation in operations
        if isinstance(operation.call, kinds) and operation.is_ok and _says_something(operation)
    ]
    return draw.choice(fit) if fit else None


def _says_something(operation: Operation) -> bool:
    return not isinstance(operation.call, Read) or len(operation.answer.records) > 1


def lose_an_acknowledged_record(
    draw: random.Random, operations: Sequence[Operation]
) -> tuple[Operation, Operation] | None:
    operation = _some(draw, operations, Produce)
    assert operation is None or operation.answer.offset is not None
    return operation and (
        operation,
        replace(operation, answer=Answer(offset=(operation.answer.offset or 0) + draw.choice((1, 2, 50)))),
    )


def change_a_byte(draw: random.Random, operations: Sequence[Operation]) -> tuple[Operation, Operation] | None:
    operation = _some(draw, operations, Read)
    if operation is None:
        return None
    records = list(operation.answer.records)
    at = draw.randrange(len(records))
    records[at] = records[at]._replace(digest="#other")
    return operation, replace(operation, answer=replace(operation.answer, records=tuple(records)))


def leave_out_a_record(draw: random.Random, operations: Sequence[Operation]) -> tuple[Operation, Operation] | None:
    operation = _some(draw, operations, Read)
    if operation is None:
        return None
    records = list(operation.answer.records)
    records.pop(draw.randrange(len(records) - 1))
    return operation, replace(operation, answer=replace(operation.answer, records=tuple(records)))


def _records_of(operation: Operation) -> Sequence[Record]:
    return operation.call.records if isinstance(operation.call, Produce) else ()


def swap_two_records(draw: random.Random, operations: Sequence[Operation]) -> tuple[Operation, Operation] | None:
    operation = _some(draw, operations, Read)
    if operation is None:
        return None
    records = list(operation.answer.records)
    known = {record.id for other in operations if other.is_ok for record in _records_of(other)}
    # The client knows the offset of one of them. Two batches of unknown outcome may well be in this order.
    fit = [at for at, pair in enumerate(pairwise(records)) if any(seen.id in known for seen in pair)]
    if not fit:
        return None
    at = draw.choice(fit)
    first, second = records[at : at + 2]
    records[at : at + 2] = [second._replace(offset=first.offset), first._replace(offset=second.offset)]
    return operation, replace(operation, answer=replace(operation.answer, records=tuple(records)))


def refuse_what_is_stored(draw: random.Random, operations: Sequence[Operation]) -> tuple[Operation, Operation] | None:
    operation = _some(draw, operations, Produce)
    return operation and (operation, replace(operation, outcome=Outcome.FAIL, answer=Answer()))


def read_what_nobody_committed(
    draw: random.Random, operations: Sequence[Operation]
) -> tuple[Operation, Operation] | None:
    operation = _some(draw, operations, Committed)
    return operation and (operation, replace(operation, answer=Answer(offset=9_999)))


CORRUPTIONS: Sequence[Corruption] = (
    lose_an_acknowledged_record,
    change_a_byte,
    leave_out_a_record,
    swap_two_records,
    refuse_what_is_stored,
    read_what_nobody_committed,
)


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_a_random_valid_history_keeps_every_promise(seed: int) -> None:
    verdict = check(random_history(seed))

    assert not verdict.violations, verdict.violations[0]


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda corrupt: corrupt.__name__)
@given(st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_a_single_corruption_is_found(corrupt: Corruption, seed: int) -> None:
    operations = random_history(seed)
    changed = corrupt(random.Random(seed), operations)
    if changed is None:
        return
    before, after = changed

    verdict = check([after if operation is before else operation for operation in operations])

    assert verdict.violations, f"{before} became {after}"


@given(st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_a_stale_read_of_the_end_or_of_an_offset_is_found(seed: int) -> None:
    operations = random_history(seed)
    commit = Commit(group="g", log=LOG, offset=-5)
    base = len(operations[-3].answer.records)
    late = Produce(log=LOG, producer="late", kind=Kind.SINGLE, sequence=0, records=(Record("late"),))
    more = [
        _last(20_000, commit, Answer()),
        _last(20_010, late, Answer(offset=base)),
        _last(20_015, Read(log=LOG, start=base), Answer(records=(Seen(base, "late"),))),
    ]
    stale = [
        _last(20_020, Committed(group="g", log=LOG), operations[-1].answer),
        _last(20_020, Bounds(log=LOG), Answer(start=0, end=base)),
    ]

    assert not check([*operations, *more]).violations
    for operation in stale:
        assert check([*operations, *more, operation]).violations


def _last(start: int, call: Commit | Committed | Produce | Bounds | Read, answer: Answer) -> Operation:
    return Operation(process="last", start=start, end=start + 1, outcome=Outcome.OK, call=call, answer=answer)
