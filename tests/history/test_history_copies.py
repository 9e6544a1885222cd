"""Histories of copiers: each committed record of the source is copied once, in order."""

import pytest

from simulator.history.check import check
from simulator.history.model import Answer, Operation, Outcome, Scan, Seen, Transact, Write

SOURCE, COPIES = "source", "copies"


def written(start: int, *names: str) -> Operation:
    call = Transact(topic=SOURCE, producer="producer", sequence=start, writes=tuple(Write(0, name) for name in names))
    return Operation(process="producer", start=start, end=start + 1, outcome=Outcome.OK, call=call)


def copied(start: int, *names: str, outcome: Outcome = Outcome.OK) -> Operation:
    call = Transact(
        topic=COPIES,
        producer="copier",
        sequence=start,
        writes=tuple(Write(0, f"{name}>{start}") for name in names),
        source=SOURCE,
    )
    end = None if outcome is Outcome.UNKNOWN else start + 1
    return Operation(process="copier", start=start, end=end, outcome=outcome, call=call)


def scanned(topic: str, *names: str) -> Operation:
    answer = Answer(records=tuple(Seen(offset, name, "") for offset, name in enumerate(names)))
    call = Scan(topic=topic, partition=0, is_whole=True)
    return Operation(process="reader", start=100, end=101, outcome=Outcome.OK, call=call, answer=answer)


def found(*operations: Operation) -> list[str]:
    written_ones = [written(0, "a", "b", "c"), scanned(SOURCE, "a", "b", "c")]
    return [
        f"{violation.promise.name}: {violation.detail}" for violation in check([*written_ones, *operations]).violations
    ]


def test_copies_over_attempts_keep_the_promise() -> None:
    attempts = [
        copied(10, "a"),
        copied(20, "b", outcome=Outcome.FAIL),
        copied(30, "b", "c", outcome=Outcome.UNKNOWN),
        copied(40, "b", "c"),
    ]

    assert found(*attempts, scanned(COPIES, "a>10", "b>40", "c>40")) == []
    assert found(copied(10, "a", "b"), copied(20, "c", outcome=Outcome.UNKNOWN)) == [], "not read completely"


@pytest.mark.parametrize(
    ("copies", "detail"),
    [
        ((copied(10, "a", "b", "c"), copied(20, "c"), scanned(COPIES, "a>10", "b>10", "c>10", "c>20")), "c was copied again"),
        ((copied(10, "a"), copied(20, "a", "b"), scanned(COPIES, "a>10", "a>20", "b>20")), "a was copied again"),
        ((copied(10, "a", "b"), scanned(COPIES, "a>10", "b>10")), "c was not copied"),
        ((copied(10, "a", "c"), scanned(COPIES, "a>10", "c>10")), "b was not copied"),
        ((copied(10, "b", "a", "c"), scanned(COPIES, "b>10", "a>10", "c>10")), "b was copied, and a was next"),
        ((copied(10, "a", "b", "c", "d"), scanned(COPIES, "a>10", "b>10", "c>10", "d>10")), "d was copied, and nothing was next"),
    ],
)  # fmt: skip
def test_a_record_that_is_lost_or_repeated_between_transactions_is_found(
    copies: tuple[Operation, ...], detail: str
) -> None:
    assert found(*copies) == [f"COPIED: {detail}"]
