"""Each promise by hand: a history that keeps it, and one that differs in a single event and breaks it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from simulator.history.check import Options, check
from simulator.history.model import (
    EXISTS,
    MISSING,
    NOTHING,
    OUT_OF_RANGE,
    Answer,
    Bounds,
    Call,
    Commit,
    Committed,
    Complete,
    Confirm,
    Count,
    Create,
    Delete,
    Describe,
    Drain,
    Hold,
    Kind,
    Log,
    Operation,
    Outcome,
    Produce,
    Read,
    Record,
    Rows,
    Seen,
    Survey,
    Take,
    Trim,
)
from simulator.history.promises import Promise

LOG = Log("orders", 0, "x")
NAMELESS = Log("orders", 0)
OK, FAIL, UNKNOWN = Outcome.OK, Outcome.FAIL, Outcome.UNKNOWN

History = Sequence[Operation]


def did(
    start: int,
    end: int | None,
    call: Call,
    answer: Answer = NOTHING,
    outcome: Outcome = OK,
    process: str = "p",
) -> Operation:
    return Operation(process=process, start=start, end=end, outcome=outcome, call=call, answer=answer)


def batch(sequence: int, *names: str, **changes: object) -> Produce:
    plain = Produce(
        log=LOG,
        producer="producer",
        kind=Kind.IDEMPOTENT,
        sequence=sequence,
        records=tuple(Record(name, f"#{name}") for name in names),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def at(offset: int) -> Answer:
    return Answer(offset=offset)


def saw(start: int, *names: str, end: int | None = None) -> Answer:
    records = tuple(Seen(start + index, name, f"#{name}") for index, name in enumerate(names))
    return Answer(records=records, end=end)


def bounds(start: int, end: int) -> Answer:
    return Answer(start=start, end=end)


def hold(member: str, generation: int, asked: int, timeout: int | None = 60) -> Hold:
    return Hold(group="g", member=member, generation=generation, partitions=(LOG,), asked=asked, timeout=timeout)


READ = Read(log=LOG, start=0)
A = did(10, 20, batch(0, "a"), at(0))
B = did(30, 40, batch(1, "b"), at(1))
BOTH = did(50, 60, READ, saw(0, "a", "b", end=2))
ALL = did(90, 91, Complete(log=LOG))
LOST = did(30, 40, batch(1, "b"), outcome=UNKNOWN)
GIVEN = did(50, 60, Take(log=LOG, group="s", offsets=(0, 1)))
DRAINED = did(70, 80, Drain(log=LOG, group="s"), Answer(end=2))
OLD = did(10, 20, batch(0, "k|old"), at(0))
OTHER = did(21, 25, batch(1, "l|other"), at(1))
NEW = did(30, 40, batch(2, "k|new"), at(2))
PLAIN = did(30, 40, batch(1, "b", kind=Kind.PLAIN), at(1))
ROWS = Rows(log=LOG, start=0, end=2)
ASK = Committed(group="g", log=LOG)


def commit(start: int, end: int | None, offset: int, outcome: Outcome = OK, is_answered: bool = False) -> Operation:
    return did(start, end, Commit(group="g", log=LOG, offset=offset), Answer(is_answered=is_answered), outcome)


def asked(start: int, end: int, offset: int | None) -> Operation:
    return did(start, end, ASK, Answer(offset=offset), process="q")


def topic(start: int, end: int | None, call: Call, name: str | None = None, outcome: Outcome = OK) -> Operation:
    why = "" if outcome is not FAIL else EXISTS if isinstance(call, Create) else MISSING
    return did(start, end, call, Answer(incarnation=name, why=why), outcome)


CREATE, DELETE, DESCRIBE = Create(topic="t"), Delete(topic="t"), Describe(topic="t")

OF_TRANSACTIONS = {Promise.ATOMIC, Promise.ABORTED, Promise.COPIED}
"""Promises whose cases are in test_history_transactions.py and test_history_copies.py."""
CASES: Sequence[tuple[str, Promise, History, Operation, Operation]] = [
    # name, promise, history that keeps it, the event in it, what that is in the bad one
    ("another record at the acknowledged offset", Promise.STORED, [A, B, BOTH], B, did(30, 40, batch(1, "b"), at(0))),
    ("acknowledged at another offset", Promise.ONCE, [A, B, BOTH], B, did(30, 40, batch(1, "b"), at(7))),
    ("stored twice", Promise.ONCE, [A, LOST, BOTH], BOTH, did(50, 60, READ, saw(0, "a", "b", "b", end=3))),
    (
        "stored twice without idempotence",
        Promise.ONCE,
        [A, PLAIN, did(50, 60, READ, saw(0, "a", "b", "b", end=3))],
        PLAIN,
        did(30, 40, batch(1, "b", kind=Kind.SINGLE), at(1)),
    ),
    ("refused and stored", Promise.REFUSED, [A, LOST, BOTH], LOST, replace(LOST, outcome=FAIL)),
    (
        "refused by one incarnation only",
        Promise.REFUSED,
        [A, replace(LOST, call=batch(1, "b", log=NAMELESS), answer=Answer(incarnation="y"), outcome=FAIL), BOTH],
        BOTH,
        BOTH,
    ),
    ("never sent", Promise.SENT, [A, B, BOTH], BOTH, did(50, 60, READ, saw(0, "a", "b", "c", end=3))),
    ("read before it was sent", Promise.SENT, [A, B, BOTH], BOTH, did(22, 25, READ, saw(0, "a", "b"))),
    ("an end before it was sent", Promise.SENT, [A, B, BOTH], BOTH, did(22, 25, READ, saw(0, "a", end=2))),
    (
        "stored in another order than sent",
        Promise.ORDER,
        [replace(A, outcome=UNKNOWN), LOST, BOTH],
        BOTH,
        did(50, 60, READ, saw(0, "b", "a", end=2)),
    ),
    (
        "behind what was acknowledged before",
        Promise.REAL_TIME,
        [did(10, 20, batch(0, "a"), at(1)), did(15, 40, batch(0, "c", producer="other"), at(0))],
        did(15, 40, batch(0, "c", producer="other"), at(0)),
        did(21, 40, batch(0, "c", producer="other"), at(0)),
    ),
    (
        "behind what was read before",
        Promise.REAL_TIME,
        [A, B, did(25, 28, Bounds(log=LOG), bounds(0, 1))],
        did(25, 28, Bounds(log=LOG), bounds(0, 1)),
        did(25, 28, Bounds(log=LOG), bounds(0, 2)),
    ),
    (
        "a gap in a read",
        Promise.DENSE,
        [A, B, BOTH],
        BOTH,
        did(50, 60, READ, Answer(records=(Seen(1, "b", "#b"),), end=2)),
    ),
    (
        "other bytes for one reader",
        Promise.SAME,
        [A, B, BOTH, did(70, 80, READ, saw(0, "a"))],
        did(70, 80, READ, saw(0, "a")),
        did(70, 80, READ, Answer(records=(Seen(0, "a", "#other"),))),
    ),
    (
        "another record for one reader",
        Promise.SAME,
        [replace(A, outcome=UNKNOWN), LOST, did(50, 60, READ, saw(0, "a")), did(70, 80, READ, saw(0, "a"))],
        did(70, 80, READ, saw(0, "a")),
        did(70, 80, READ, saw(0, "b")),
    ),
    (
        "other bytes in SQL",
        Promise.SAME,
        [A, B, BOTH, did(70, 80, ROWS, saw(0, "a", "b"))],
        did(70, 80, ROWS, saw(0, "a", "b")),
        did(70, 80, ROWS, Answer(records=(Seen(0, "a", "#a"), Seen(1, "b", "#other")))),
    ),
    (
        "an end that goes back",
        Promise.END,
        [A, B, did(50, 60, Bounds(log=LOG), bounds(0, 2))],
        did(50, 60, Bounds(log=LOG), bounds(0, 2)),
        did(50, 60, Bounds(log=LOG), bounds(0, 1)),
    ),
    (
        "a start that goes back",
        Promise.START,
        [A, B, did(50, 60, Trim(log=LOG, start=1)), did(70, 80, Bounds(log=LOG), bounds(1, 2))],
        did(70, 80, Bounds(log=LOG), bounds(1, 2)),
        did(70, 80, Bounds(log=LOG), bounds(0, 2)),
    ),
    (
        "a committed offset out of range",
        Promise.READABLE,
        [A, B, did(45, 55, Trim(log=LOG, start=1)), did(50, 60, READ, Answer(why=OUT_OF_RANGE), FAIL)],
        did(45, 55, Trim(log=LOG, start=1)),
        did(65, 75, Trim(log=LOG, start=1)),
    ),
    ("never read", Promise.COMPLETE, [A, B, BOTH, ALL], BOTH, did(50, 60, READ, saw(0, "a", end=2))),
    (
        "never read, without an offset",
        Promise.COMPLETE,
        [A, did(30, 40, batch(1, "b")), BOTH, ALL],
        BOTH,
        did(50, 60, READ, saw(0, "a", end=1)),
    ),
    (
        "never given to a share group",
        Promise.SHARED,
        [A, B, BOTH, GIVEN, DRAINED],
        GIVEN,
        did(50, 60, Take(log=LOG, group="s", offsets=(0,))),
    ),
    (
        "another record given to a share group",
        Promise.STORED,
        [A, B, BOTH, did(70, 80, Take(log=LOG, group="s", offsets=(1,)), saw(1, "b"))],
        did(70, 80, Take(log=LOG, group="s", offsets=(1,)), saw(1, "b")),
        did(70, 80, Take(log=LOG, group="s", offsets=(1,)), saw(1, "a")),
    ),
    (
        "given to a share group again after its acceptance was stored",
        Promise.ACCEPTED,
        [A, B, BOTH, GIVEN, did(70, 80, Take(log=LOG, group="s", offsets=(1,), sent=60))],
        did(70, 80, Take(log=LOG, group="s", offsets=(1,), sent=60)),
        did(70, 80, Take(log=LOG, group="s", offsets=(1,), sent=61)),
    ),
    (
        "the newest record of a key is gone",
        Promise.NEWEST,
        [OLD, NEW, OTHER, did(50, 60, Survey(log=LOG), saw(1, "l|other", "k|new"))],
        did(50, 60, Survey(log=LOG), saw(1, "l|other", "k|new")),
        did(50, 60, Survey(log=LOG), saw(0, "k|old", "l|other")),
    ),
    (
        "a row twice",
        Promise.ROW_ONCE,
        [A, B, BOTH, did(70, 80, ROWS, saw(0, "a", "b"))],
        did(70, 80, ROWS, saw(0, "a", "b")),
        did(70, 80, ROWS, Answer(records=(*saw(0, "a", "b").records, Seen(1, "b", "#b")))),
    ),
    (
        "a row too many",
        Promise.ROW_ONCE,
        [A, B, BOTH, did(70, 80, Count(log=LOG, start=0, end=2), Answer(count=2))],
        did(70, 80, Count(log=LOG, start=0, end=2), Answer(count=2)),
        did(70, 80, Count(log=LOG, start=0, end=2), Answer(count=3)),
    ),
    (
        "a row that is absent",
        Promise.ROW_THERE,
        [A, B, BOTH, did(70, 80, ROWS, saw(0, "a", "b"))],
        did(70, 80, ROWS, saw(0, "a", "b")),
        did(70, 80, ROWS, saw(0, "a")),
    ),
    (
        "a row that cannot be one is absent, another is too",
        Promise.ROW_THERE,
        [A, replace(B, call=batch(1, "b", is_tabular=False)), BOTH, did(70, 80, ROWS, saw(0, "a"))],
        did(70, 80, ROWS, saw(0, "a")),
        did(70, 80, ROWS, Answer()),
    ),
    (
        "a row too few",
        Promise.ROW_THERE,
        [A, B, BOTH, did(70, 80, Count(log=LOG, start=0, end=2), Answer(count=2))],
        did(70, 80, Count(log=LOG, start=0, end=2), Answer(count=2)),
        did(70, 80, Count(log=LOG, start=0, end=2), Answer(count=1)),
    ),
    (
        "a table that goes back",
        Promise.ROWS_STAY,
        [A, B, BOTH, did(70, 80, ROWS, saw(0, "a", "b")), did(90, 99, ROWS, saw(0, "a", "b"))],
        did(90, 99, ROWS, saw(0, "a", "b")),
        did(90, 99, Rows(log=LOG, start=0, end=1), saw(0, "a")),
    ),
    (
        "a commit that is lost",
        Promise.OFFSETS,
        [commit(10, 20, 1), commit(30, 40, 2), asked(50, 60, 2)],
        asked(50, 60, 2),
        asked(50, 60, 1),
    ),
    (
        "a read that goes back",
        Promise.OFFSETS,
        [commit(10, 20, 1), commit(30, None, 2, UNKNOWN), asked(50, 60, 2), asked(70, 80, 2)],
        asked(70, 80, 2),
        asked(70, 80, 1),
    ),
    (
        "a refused commit that is read",
        Promise.OFFSETS,
        [commit(10, 20, 1, UNKNOWN), asked(30, 40, 1)],
        commit(10, 20, 1, UNKNOWN),
        commit(10, 20, 1, FAIL),
    ),
    (
        "a given-up commit that takes effect late",
        Promise.OFFSETS,
        [commit(10, 20, 1, UNKNOWN), commit(30, 40, 2), asked(50, 60, 1)],
        commit(10, 20, 1, UNKNOWN),
        commit(10, 20, 1, UNKNOWN, is_answered=True),
    ),
    (
        "a topic that is gone without a deletion",
        Promise.TOPICS,
        [topic(10, 20, CREATE, "x"), topic(30, None, DELETE, outcome=UNKNOWN), topic(50, 60, DESCRIBE, None)],
        topic(30, None, DELETE, outcome=UNKNOWN),
        topic(55, 70, DESCRIBE, "x"),
    ),
    (
        "a deletion that hits the next incarnation",
        Promise.TOPICS,
        [
            topic(10, 20, CREATE, "x"),
            topic(30, 40, DELETE),
            topic(50, 60, CREATE, "y"),
            topic(70, 80, DESCRIBE, "y"),
        ],
        topic(70, 80, DESCRIBE, "y"),
        topic(70, 80, DESCRIBE, None),
    ),
    (
        "an unknown creation that exists twice",
        Promise.TOPICS,
        [
            topic(10, None, CREATE, outcome=UNKNOWN),
            topic(30, 40, DESCRIBE, "x"),
            topic(50, 60, DELETE),
            topic(70, 80, DESCRIBE, None),
        ],
        topic(70, 80, DESCRIBE, None),
        topic(70, 80, DESCRIBE, "y"),
    ),
    (
        "a topic that was there already",
        Promise.TOPICS,
        [topic(10, 20, CREATE, "x"), topic(30, 40, CREATE, outcome=FAIL)],
        topic(30, 40, CREATE, outcome=FAIL),
        topic(30, 40, CREATE, "y"),
    ),
    (
        "an owner who has not given up",
        Promise.OWNER,
        [did(10, 60, hold("one", 1, 5)), did(61, None, hold("two", 2, 55), outcome=UNKNOWN)],
        did(10, 60, hold("one", 1, 5)),
        did(10, 63, hold("one", 1, 5)),
    ),
    (
        "an owner who was silent for long enough, and one who was not",
        Promise.OWNER,
        [
            did(10, None, hold("one", 1, 5), outcome=UNKNOWN),
            did(30, 31, Confirm(group="g", member="one", generation=1), outcome=FAIL),
            did(66, None, hold("two", 2, 60), outcome=UNKNOWN),
        ],
        did(30, 31, Confirm(group="g", member="one", generation=1), outcome=FAIL),
        did(30, 31, Confirm(group="g", member="one", generation=1)),
    ),
    (
        "an owner whom a stale coordinator confirms again",
        Promise.OWNER,
        [
            did(10, None, hold("one", 1, 5), outcome=UNKNOWN),
            did(66, 90, hold("two", 2, 60)),
            did(95, 96, Confirm(group="g", member="one", generation=1)),
        ],
        did(66, 90, hold("two", 2, 60)),
        did(66, 99, hold("two", 2, 60)),
    ),
]


@pytest.mark.parametrize(
    ("promise", "good", "event", "instead"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_the_checker_finds(promise: Promise, good: History, event: Operation, instead: Operation) -> None:
    bad = [instead if operation == event else operation for operation in good]

    kept, broken = check(good), check(bad)

    assert not kept.violations, kept.violations[0]
    if bad != list(good):
        found = [violation for violation in broken.violations if violation.promise is promise]
        assert found, broken
        assert all(line.startswith("    [") for line in found[0].excerpt)


def test_every_promise_has_a_case() -> None:
    assert {case[1] for case in CASES} == set(Promise) - OF_TRANSACTIONS


def test_a_strict_checker_lets_no_given_up_operation_outlive_its_session() -> None:
    history = [commit(10, 20, 1, UNKNOWN), commit(30, 40, 2), asked(50, 60, 1)]

    assert not check(history).violations
    assert check(history, Options(is_strict=True)).violations


def test_an_overlap_within_the_slack_is_accepted() -> None:
    history = [did(10, 63, hold("one", 1, 5)), did(61, 90, hold("two", 2, 55))]

    assert check(history).violations
    assert not check(history, Options(slack=2)).violations


def test_a_member_without_timeout_owns_until_it_gives_up() -> None:
    history = [did(10, 100, hold("one", 1, 5, None)), did(101, 110, hold("two", 2, 100, None))]

    assert not check(history).violations
    assert check([*history, did(50, 60, hold("three", 3, 40, None))]).violations


def test_a_contradiction_is_shown_without_the_operations_that_have_no_part_in_it() -> None:
    noise = [asked(time, time + 1, 7) for time in range(21, 29)]
    history = [commit(10, 20, 7), *noise, commit(30, 40, 8), asked(50, 60, 7)]

    (violation,) = check(history).violations

    assert len(violation.excerpt) == 3


def test_a_start_that_a_trim_asks_for_later_may_be_one_that_retention_had_set() -> None:
    out_of_range = did(50, 60, READ, Answer(why=OUT_OF_RANGE, start=1), FAIL)
    later, meanwhile = did(65, 75, Trim(log=LOG, start=1)), did(55, 75, Trim(log=LOG, start=1))

    assert not check([A, B, out_of_range, later]).violations
    assert not check([A, B, out_of_range, meanwhile]).violations
    assert check([A, B, did(50, 60, READ, Answer(why=OUT_OF_RANGE), FAIL), later]).violations


def test_records_that_a_share_group_got_again_after_it_had_accepted_them_are_counted() -> None:
    again = did(65, 68, Take(log=LOG, group="s", offsets=(1,)))
    unsaved = did(50, None, Take(log=LOG, group="s", offsets=(0, 1)), outcome=UNKNOWN)

    assert check([A, B, BOTH, GIVEN, again, DRAINED]).counts["records given again after acceptance"] == 1
    assert check([A, B, BOTH, unsaved, again, DRAINED]).counts["records given again after acceptance"] == 0


def test_records_that_key_compaction_removed_are_counted() -> None:
    left = did(50, 60, Survey(log=LOG), saw(1, "l|other", "k|new"))

    verdict = check([OLD, OTHER, NEW, left])

    assert not verdict.violations
    assert verdict.counts["records that key compaction removed"] == 1


def test_a_record_that_was_not_acknowledged_when_a_reader_began_need_not_be_there() -> None:
    late = did(30, 55, batch(2, "k|new"), at(2))

    assert not check([OLD, OTHER, late, did(50, 60, Survey(log=LOG), saw(0, "k|old", "l|other"))]).violations


def test_offsets_of_a_whole_read_ascend() -> None:
    back = did(50, 60, Survey(log=LOG), Answer(records=saw(2, "k|new").records + saw(1, "l|other").records))

    assert [found.promise for found in check([OTHER, NEW, back]).violations] == [Promise.DENSE]


def test_many_unknown_commits_are_checked_quickly() -> None:
    unknown = [commit(time, time + 1, time, UNKNOWN) for time in range(100)]
    history = [*unknown, *(asked(200 + 2 * time, 201 + 2 * time, 99 - time) for time in range(100))]

    assert not check(history).violations
    assert check([*history, asked(500, 501, 99)]).violations
