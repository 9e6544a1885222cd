"""Histories of transactions that keep the promises, and one broken promise each."""

from collections import Counter
from collections.abc import Sequence

import pytest

from simulator.history.check import check
from simulator.history.model import Answer, Operation, Outcome, Scan, Seen, Transact, Write
from simulator.history.promises import Promise
from simulator.history.transactions import check_transactions

OK, FAIL, UNKNOWN = Outcome.OK, Outcome.FAIL, Outcome.UNKNOWN


def transact(
    start: int, outcome: Outcome, *writes: tuple[int, str], sequence: int | None = None, end: int | None = None
) -> Operation:
    call = Transact(
        topic="atoms",
        producer="copier",
        sequence=start if sequence is None else sequence,
        writes=tuple(Write(*write) for write in writes),
    )
    ended = None if outcome is UNKNOWN else start + 5 if end is None else end
    return Operation(process="copier", start=start, end=ended, outcome=outcome, call=call)


def scan(
    start: int, partition: int, *records: tuple[int, str], is_whole: bool = True, from_offset: int = 0
) -> Operation:
    call = Scan(topic="atoms", partition=partition, start=from_offset, is_whole=is_whole)
    answer = Answer(records=tuple(Seen(offset, name) for offset, name in records))
    return Operation(process="reader", start=start, end=start + 5, outcome=OK, call=call, answer=answer)


def broken(*operations: Operation) -> list[str]:
    return [violation.promise.name for violation in check(operations).violations]


KEPT: dict[str, Sequence[Operation]] = {
    "a commit, an abort, and a commit that nobody saw": (
        transact(0, OK, (0, "a"), (1, "b")),
        transact(10, FAIL, (0, "c"), (1, "d")),
        transact(20, UNKNOWN, (0, "e"), (1, "f")),
        scan(100, 0, (0, "a")),
        scan(100, 1, (0, "b")),
    ),
    "a commit without an answer that took effect": (
        transact(0, UNKNOWN, (0, "a"), (1, "b")),
        scan(100, 0, (7, "a")),
        scan(100, 1, (9, "b")),
    ),
    "a scan that began before the commit returned": (
        transact(0, OK, (0, "a"), (1, "b"), end=60),
        scan(50, 0),
        scan(50, 1, (0, "b")),
        scan(100, 0, (0, "a")),
        scan(100, 1, (0, "b")),
    ),
    "gaps where markers and aborted records are": (
        transact(0, OK, (0, "a"), (0, "b")),
        scan(100, 0, (3, "a"), (9, "b")),
    ),
}


@pytest.mark.parametrize("operations", KEPT.values(), ids=KEPT)
def test_a_history_without_faults_keeps_every_promise(operations: Sequence[Operation]) -> None:
    assert broken(*operations) == []


BROKEN: dict[Promise, Sequence[Operation]] = {
    Promise.COMPLETE: (transact(0, OK, (0, "a")), scan(100, 0)),
    Promise.ABORTED: (transact(0, FAIL, (0, "a")), scan(100, 0, (0, "a"), is_whole=False)),
    Promise.ATOMIC: (
        transact(0, UNKNOWN, (0, "a"), (1, "b")),
        scan(100, 0, (0, "a")),
        scan(100, 1),
    ),
    Promise.ONCE: (transact(0, OK, (0, "a")), scan(100, 0, (0, "a"), (2, "a"))),
    Promise.SAME: (
        transact(0, OK, (0, "a")),
        transact(10, OK, (0, "b")),
        scan(100, 0, (0, "a"), (2, "b")),
        scan(200, 0, (0, "b"), is_whole=False),
    ),
    Promise.SENT: (scan(100, 0, (0, "a")),),
    Promise.ORDER: (
        transact(0, OK, (0, "a")),
        transact(10, OK, (0, "b")),
        scan(100, 0, (0, "b"), (2, "a")),
    ),
    Promise.DENSE: (
        transact(0, OK, (0, "a")),
        scan(100, 0, (0, "a")),
        scan(200, 0, (0, "a"), is_whole=False, from_offset=1),
    ),
}


@pytest.mark.parametrize("promise", BROKEN, ids=lambda promise: promise.name)
def test_a_broken_promise_is_found(promise: Promise) -> None:
    assert promise.name in broken(*BROKEN[promise])


def test_a_record_that_a_reader_skips_is_found() -> None:
    sent = transact(0, OK, (0, "a"), (0, "b"), (0, "c"))
    found = broken(sent, scan(50, 0, (0, "a"), (2, "c"), is_whole=False), scan(100, 0, (0, "a"), (1, "b"), (2, "c")))

    assert found == ["COMPLETE"]


def test_records_of_other_partitions_and_of_later_transactions_were_not_sent() -> None:
    assert broken(transact(0, OK, (0, "a")), scan(100, 0, (0, "a")), scan(100, 1, (0, "a"))) == ["SENT"]
    assert "SENT" in broken(transact(100, OK, (0, "a")), scan(0, 0, (0, "a")), scan(200, 0, (0, "a")))


def test_a_transaction_that_was_read_once_stays() -> None:
    found = broken(transact(0, UNKNOWN, (0, "a")), scan(50, 0, (0, "a"), is_whole=False), scan(100, 0))

    assert found == ["ATOMIC"]


def test_two_records_with_one_id_are_an_error_of_the_history() -> None:
    with pytest.raises(ValueError, match="have the id a"):
        list(check_transactions([transact(0, OK, (0, "a"), (1, "a"))], Counter()))


def test_transactions_are_counted_by_outcome() -> None:
    counts = check([transact(0, OK, (0, "a")), transact(10, FAIL, (0, "b")), scan(100, 0, (0, "a"))]).counts

    assert (counts["transactions ok"], counts["transactions fail"]) == (1, 1)
