"""The state machine of a transactional id: every transition of its table, and what holds in any order of requests."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.metadata.model import BATCH_TRANSACTIONAL, BatchCommit, OutcomeKind, PartitionKey
from bearlake.metadata.transaction_rules import Problem, add, end, expire, initialize
from bearlake.metadata.transactions import (
    BATCH_BEGINS,
    EPOCH_MAX,
    End,
    Put,
    Transaction,
    TransactionState,
    marker_producer,
    may_write,
)

EMPTY, ONGOING, COMMITTED, ABORTED = TransactionState
NAME, PID, EPOCH, NEW = "copier", 7, 3, 99
PRODUCER = (PID, EPOCH)
PARTITION = PartitionKey(1 << 20)


def row(state: TransactionState = EMPTY, **fields: Any) -> Transaction:
    started = 5 if state is ONGOING else -1
    known = {"transactional_id": NAME, "producer_id": PID, "epoch": EPOCH, "state": state, "started_ms": started}
    return Transaction(**{**known, **fields})


def shown(step: Any) -> Any:
    """A step as (what, state, producer id, epoch)."""
    if isinstance(step, Problem):
        return step.name
    what = ("commit" if step.is_commit else "abort") if isinstance(step, End) else "put"
    return what, step.after.state, step.after.producer_id, step.after.epoch


@pytest.mark.parametrize(
    ("held", "expected", "result"),
    [
        (None, (-1, -1), ("put", EMPTY, NEW, 0)),
        (None, (1, 1), ("put", EMPTY, NEW, 0)),
        (row(EMPTY), (-1, -1), ("put", EMPTY, PID, 4)),
        (row(COMMITTED), (-1, -1), ("put", EMPTY, PID, 4)),
        (row(ONGOING), (-1, -1), ("abort", EMPTY, PID, 4)),
        (row(ABORTED), PRODUCER, ("put", EMPTY, PID, 4)),
        (row(ABORTED), (PID, 2), "FENCED"),
        (row(ONGOING), (8, 3), "FENCED"),
        (row(EMPTY, last_producer_id=PID, last_epoch=2), (PID, 2), ("put", EMPTY, PID, 3)),
        (row(EMPTY, epoch=EPOCH_MAX - 1), (-1, -1), ("put", EMPTY, NEW, 0)),
        (row(ONGOING, epoch=EPOCH_MAX - 1), (-1, -1), ("abort", EMPTY, NEW, 0)),
    ],
)
def test_initialization_fences_the_former_producer(held: Transaction | None, expected: Any, result: Any) -> None:
    assert shown(initialize(held, NAME, 1_000, NEW, expected)) == result


def test_an_initialization_that_is_repeated_changes_nothing() -> None:
    """KIP-360: the reply to the first attempt was lost."""
    first = initialize(row(ABORTED), NAME, 1_000, NEW, PRODUCER)
    assert isinstance(first, Put)
    again = initialize(first.after, NAME, 1_000, NEW, PRODUCER)

    assert again == Put(first.after)


@pytest.mark.parametrize(
    ("held", "producer", "result"),
    [
        (None, PRODUCER, "INVALID_MAPPING"),
        (row(EMPTY), (8, 3), "INVALID_MAPPING"),
        (row(EMPTY), (PID, 2), "FENCED"),
        (row(EMPTY), (PID, 4), "FENCED"),
        (row(EMPTY), PRODUCER, ("put", ONGOING, PID, 3)),
        (row(COMMITTED), PRODUCER, ("put", ONGOING, PID, 3)),
        (row(ONGOING), PRODUCER, ("put", ONGOING, PID, 3)),
    ],
)
def test_an_addition_begins_a_transaction(held: Transaction | None, producer: Any, result: Any) -> None:
    assert shown(add(held, producer, partitions=[PARTITION])) == result


def test_what_was_added_before_changes_nothing() -> None:
    held = row(ONGOING, partitions=frozenset({PARTITION}), groups=frozenset({"g"}))
    step = add(held, PRODUCER, partitions=[PARTITION], group="g")

    assert isinstance(step, Put)
    assert step.after is held


@pytest.mark.parametrize(
    ("held", "is_commit", "result"),
    [
        (None, True, "INVALID_MAPPING"),
        (row(EMPTY), True, "INVALID_STATE"),
        (row(EMPTY), False, "INVALID_STATE"),
        (row(ONGOING), True, ("commit", COMMITTED, PID, 3)),
        (row(ONGOING), False, ("abort", ABORTED, PID, 3)),
        (row(COMMITTED), True, ("put", COMMITTED, PID, 3)),
        (row(COMMITTED), False, "INVALID_STATE"),
        (row(ABORTED), False, ("put", ABORTED, PID, 3)),
        (row(ABORTED), True, "INVALID_STATE"),
        (row(ONGOING, epoch=4), True, "FENCED"),
    ],
)
def test_the_first_protocol_ends_without_a_bump(held: Transaction | None, is_commit: bool, result: Any) -> None:
    assert shown(end(held, PRODUCER, NEW, is_commit=is_commit, bumps=False)) == result


@pytest.mark.parametrize(
    ("held", "is_commit", "result"),
    [
        (None, True, "INVALID_MAPPING"),
        (row(EMPTY), True, "INVALID_STATE"),
        (row(EMPTY), False, ("put", ABORTED, PID, 4)),
        (row(ONGOING), True, ("commit", COMMITTED, PID, 4)),
        (row(ONGOING), False, ("abort", ABORTED, PID, 4)),
        (row(COMMITTED), True, "INVALID_STATE"),
        (row(COMMITTED), False, ("put", ABORTED, PID, 4)),
        (row(COMMITTED, epoch=4, last_producer_id=PID, last_epoch=3), True, ("put", COMMITTED, PID, 4)),
        (row(COMMITTED, epoch=4, last_producer_id=PID, last_epoch=3), False, "INVALID_STATE"),
        (row(COMMITTED, producer_id=8, epoch=0, last_producer_id=PID, last_epoch=3), True, ("put", COMMITTED, 8, 0)),
        (row(ONGOING, epoch=4, last_producer_id=PID, last_epoch=3), True, "FENCED"),
        (row(EMPTY, epoch=4, last_producer_id=PID, last_epoch=3), True, "FENCED"),
        (row(ABORTED, epoch=4), True, "FENCED"),
    ],
)
def test_the_second_protocol_bumps_the_epoch_with_every_end(
    held: Transaction | None, is_commit: bool, result: Any
) -> None:
    assert shown(end(held, PRODUCER, NEW, is_commit=is_commit, bumps=True)) == result


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("state", [COMMITTED, ABORTED])
def test_a_request_without_a_producer_repeats_no_end(state: TransactionState, is_commit: bool) -> None:
    """A row without a former producer id has the same mark."""
    step = end(row(state), (-1, -1), NEW, is_commit=is_commit, bumps=True)

    assert step is Problem.INVALID_MAPPING


def test_an_epoch_that_is_used_up_gives_way_to_a_new_producer_id() -> None:
    held = row(ONGOING, epoch=EPOCH_MAX - 1)
    step = end(held, (PID, EPOCH_MAX - 1), NEW, is_commit=True, bumps=True)

    assert shown(step) == ("commit", COMMITTED, NEW, 0)
    assert isinstance(step, End)
    assert marker_producer(held, step.after) == (PID, EPOCH_MAX)


def test_expiry_aborts_and_tells_nobody_the_new_epoch() -> None:
    step = expire(row(ONGOING), NEW)

    assert shown(step) == ("abort", ABORTED, PID, 4)
    assert step.after.last_epoch == -1
    assert shown(end(step.after, PRODUCER, NEW, is_commit=True, bumps=True)) == "FENCED"


def batch(*, epoch: int = EPOCH, flags: int = 0) -> BatchCommit:
    return BatchCommit(PARTITION, 0, 100, 1, 0, PID, epoch, 0, BATCH_TRANSACTIONAL | flags)


@pytest.mark.parametrize(
    ("held", "made", "kind"),
    [
        (None, batch(), OutcomeKind.NO_TRANSACTION),
        (row(EMPTY), batch(), OutcomeKind.NO_TRANSACTION),
        (row(EMPTY), batch(flags=BATCH_BEGINS), OutcomeKind.ACCEPTED),
        (row(EMPTY), batch(epoch=2, flags=BATCH_BEGINS), OutcomeKind.FENCED),
        (row(EMPTY), batch(epoch=4, flags=BATCH_BEGINS), OutcomeKind.NO_TRANSACTION),
        (row(ONGOING), batch(), OutcomeKind.NO_TRANSACTION),
        (row(ONGOING, partitions=frozenset({PARTITION})), batch(), OutcomeKind.ACCEPTED),
        (row(COMMITTED, partitions=frozenset({PARTITION})), batch(), OutcomeKind.NO_TRANSACTION),
    ],
)
def test_a_batch_belongs_to_the_transaction_of_its_epoch(
    held: Transaction | None, made: BatchCommit, kind: OutcomeKind
) -> None:
    assert may_write(held, made) is kind


REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(["init", "own init", "add", "commit", "abort", "expire"]),
        st.integers(0, 2),  # how many epochs the request is behind
    ),
    max_size=30,
)


@given(REQUESTS, st.booleans(), st.sampled_from([0, EPOCH_MAX - 3]))
def test_no_request_of_a_former_epoch_changes_a_transaction(requests: Any, bumps: bool, epoch: int) -> None:
    held: Transaction = row(EMPTY, epoch=epoch)
    used = {(held.producer_id, held.epoch)}
    next_id = 100
    for request, behind in requests:
        next_id += 1
        producer = (held.producer_id, held.epoch - behind)
        if request == "expire":
            step: Any = expire(held, next_id) if held.is_ongoing else Put(held)
        elif request == "init":
            step = initialize(held, NAME, 1, next_id)
        elif request == "own init":
            step = initialize(held, NAME, 1, next_id, producer)
        elif request == "add":
            step = add(held, producer, partitions=[PARTITION])
        else:
            step = end(held, producer, next_id, is_commit=request == "commit", bumps=bumps)
        if isinstance(step, Problem):
            continue
        after = step.after
        assert isinstance(step, End) == (held.is_ongoing and not after.is_ongoing)
        if request not in ("init", "expire") and behind:
            assert after is held  # at most, a repeat of the request that made this row
        if after.epoch != held.epoch or after.producer_id != held.producer_id:
            assert (after.producer_id, after.epoch) not in used  # an epoch is never given twice
            used.add((after.producer_id, after.epoch))
        assert after.epoch < EPOCH_MAX
        held = replace(after, version=held.version + 1)
