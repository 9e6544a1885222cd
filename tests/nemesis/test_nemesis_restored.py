"""A restored backup that breaks a promise of docs/operations.md is found: one history per failure. The backup takes from 100 to 200."""

from typing import Any

import pytest

from nemesis import restored
from nemesis.restored import Restored, copied, problems
from simulator.history import check
from simulator.history.model import (
    Answer,
    Bounds,
    Commit,
    Committed,
    Kind,
    Log,
    Operation,
    Outcome,
    Produce,
    Record,
    Seen,
    Survey,
    Take,
    Transact,
    Write,
)

BEGUN, ENDED = 100, 200
MAIN = ("main", 0)
OTHER = ("main", 1)
ACCOUNTS = ("accounts", 0)
BALANCES = ("accounts", 1)
COPIES = ("copies", 0)


def written(start: int, end: int, name: str, *more: str, place: restored.Place = MAIN, **answer: Any) -> Operation:
    """A batch that was sent at `start` and acknowledged at `end`. `outcome`, `offset`: of its answer."""
    outcome = answer.pop("outcome", Outcome.OK)
    call = Produce(
        log=Log(*place), producer="p", kind=Kind.IDEMPOTENT, sequence=start,
        records=tuple(Record(item, "bytes") for item in (name, *more)),
    )  # fmt: skip
    return Operation(
        process="p", start=start, end=end, outcome=outcome, call=call, answer=Answer(offset=answer.get("offset"))
    )


def transaction(start: int, end: int, *writes: tuple[int, str], outcome: Outcome = Outcome.OK) -> Operation:
    """A transaction over partitions of `accounts`."""
    call = Transact(topic="accounts", producer="t", sequence=start, writes=tuple(Write(*write) for write in writes))
    return Operation(process="t", start=start, end=end, outcome=outcome, call=call)


def content(**places: list[tuple[int, str, str]]) -> Restored:
    """What was restored; partitions that are not named are empty."""
    return Restored(
        begun=BEGUN,
        ended=ENDED,
        records={MAIN: places.get("main", []), OTHER: places.get("other", [])},
        committed={
            ACCOUNTS: places.get("accounts", []),
            BALANCES: places.get("balances", []),
            COPIES: places.get("copies", []),
        },
    )


def test_a_moment_between_begin_and_end_is_right() -> None:
    found = problems(
        [
            written(10, 20, "before", offset=0),
            written(90, 110, "during", offset=1),
            written(95, 120, "not yet", offset=2),
            written(250, 260, "after", offset=3),
            written(30, 40, "refused", outcome=Outcome.FAIL),
            transaction(10, 50, (0, "credit"), (1, "debit")),
            transaction(60, 150, (0, "open"), (1, "open too"), outcome=Outcome.UNKNOWN),
        ],
        content(
            main=[(0, "before", "bytes"), (1, "during", "bytes")],
            accounts=[(0, "credit", "")],
            balances=[(0, "debit", "")],
        ),
    )

    assert found == []


@pytest.mark.parametrize(
    ("operation", "there", "problem"),
    [
        (written(10, 20, "a", offset=0), {}, "acknowledged before the backup began and are lost"),
        (written(10, 20, "a", offset=4), {"main": [(3, "a", "bytes")]}, "at another offset than was acknowledged"),
        (written(10, 20, "a", offset=0), {"main": [(0, "a", "changed")]}, "other bytes than were sent"),
        (written(201, 220, "a", offset=0), {"main": [(0, "a", "bytes")]}, "sent after the backup had ended"),
        (written(150, 160, "a", outcome=Outcome.FAIL), {"main": [(0, "a", "bytes")]}, "were refused or aborted"),
        (written(110, 160, "a", "b", offset=0), {"main": [(0, "a", "bytes")]}, "without the rest of their batch"),
        (transaction(10, 20, (0, "a"), (1, "b")), {}, "acknowledged before the backup began and are lost"),
        (transaction(110, 120, (0, "a"), (1, "b")), {"accounts": [(0, "a", "")]}, "batch or transaction"),
        (
            transaction(10, 20, (0, "a"), outcome=Outcome.FAIL),
            {"accounts": [(0, "a", "")]},
            "were refused or aborted",
        ),
    ],
)
def test_each_broken_promise_is_found(operation: Operation, there: dict[str, Any], problem: str) -> None:
    (found,) = problems([operation], content(**there))

    assert problem in found


def test_two_partitions_as_of_different_moments_are_found() -> None:
    first, second = written(110, 120, "first", offset=0), written(130, 140, "second", place=OTHER, offset=0)

    (found,) = problems([first, second], content(other=[(0, "second", "bytes")]))

    assert found.startswith("the backup is not one moment: first was acknowledged before second was sent")
    assert problems([first, second], content(main=[(0, "first", "bytes")])) == []


def test_copies_fit_the_offsets_of_their_group() -> None:
    there = content(accounts=[(0, "a", ""), (2, "b", "")], copies=[(0, "a>1", "")])

    assert copied(there, "accounts", "copies", {0: 2}) == []
    assert copied(there, "accounts", "copies", {0: 3}) == [
        "copies/0 has 1 copies, 2 records were copied below offset 3"
    ]


def during(call: Any, **answer: Any) -> Operation:
    """What a reader of the restored log got, as the drill records it."""
    return Operation(process="restored", start=BEGUN, end=ENDED, outcome=Outcome.OK, call=call, answer=Answer(**answer))


def test_the_history_checker_finds_a_log_that_is_too_short_or_too_long() -> None:
    history = [written(10, 20, "before", offset=0), written(210, 220, "after", offset=1)]
    ends = {end: during(Bounds(log=Log(*MAIN)), start=0, end=end) for end in (0, 1, 2)}

    assert [violation.promise.name for violation in check.check([*history, ends[0]]).violations] == ["END"]
    assert not check.check([*history, ends[1]]).violations
    assert {violation.promise.name for violation in check.check([*history, ends[2]]).violations} >= {"SENT"}


def test_the_history_checker_finds_offsets_of_groups_of_another_time() -> None:
    def commit(start: int, offset: int) -> Operation:
        call = Commit(group="g", log=Log(*MAIN), offset=offset)
        return Operation(process="c", start=start, end=start + 1, outcome=Outcome.OK, call=call)

    history = [commit(10, 5), commit(50, 7), commit(150, 8), commit(250, 9)]
    found = {
        offset: bool(check.check([*history, during(Committed(group="g", log=Log(*MAIN)), offset=offset)]).violations)
        for offset in (5, 7, 8, 9)
    }

    assert found == {5: True, 7: False, 8: False, 9: True}


def test_the_history_checker_finds_a_newest_record_of_a_key_that_is_gone() -> None:
    history = [written(10, 20, "key|old", offset=0), written(30, 40, "key|new", offset=1)]
    whole, old = ((Seen(1, "key|new", "bytes"),), (Seen(0, "key|old", "bytes"),))

    assert not check.check([*history, during(Survey(log=Log(*MAIN)), records=whole)]).violations
    assert [
        violation.promise.name
        for violation in check.check([*history, during(Survey(log=Log(*MAIN)), records=old)]).violations
    ] == ["NEWEST"]


def taken(start: int, end: int, *offsets: int, outcome: Outcome = Outcome.OK) -> Operation:
    """A member of a share group accepts records of `main`."""
    call = Take(log=Log(*MAIN), group="g", offsets=offsets)
    return Operation(process="s", start=start, end=end, outcome=outcome, call=call)


@pytest.mark.parametrize(
    ("given", "due"),
    [
        ({1, 2, 3}, []),
        ({2, 3}, []),
        ({0, 1, 2, 3}, ["main/0: a share group is given 1 records again, as offset 0"]),
        ({1, 2}, ["main/0: a share group never gets 1 records, as offset 3"]),
    ],
)
def test_a_share_group_of_another_moment_than_the_backups_is_found(given: set[int], due: list[str]) -> None:
    history = [
        taken(10, 20, 0),
        taken(90, 110, 1),
        taken(120, 130, 2, outcome=Outcome.UNKNOWN),
        taken(250, 260, 3),
    ]
    restored_records = content(main=[(offset, f"r{offset}", "") for offset in range(4)])

    assert restored.shared(history, restored_records, {MAIN: given}) == due
