"""The rules for producers' sequences, as tables."""

import pytest

from bearlake.metadata.model import OutcomeKind
from bearlake.metadata.producers import (
    BATCHES_REMEMBERED,
    Producer,
    advanced,
    advanced_named,
    decide_idempotent,
    decide_named,
)

ACCEPTED, DUPLICATE, OUT_OF_ORDER, FENCED, NOT_FOUND, UNEXPECTED_OFFSET, TERMINATED, UNKNOWN_PRODUCER, UNSURE, *_ = (
    OutcomeKind
)
SEQUENCE_MAX = 2**31 - 1
KNOWN: Producer = (4, 1_000, 10, 14, 110, 5, 9, 105)
"""Epoch 4; sequences [10, 14] at offset 110, before them [5, 9] at 105."""
NAMED: Producer = (4, 1_000, 14, 14, 110, 9, 9, 105)
"""Epoch 4; sequence 14 at offset 110, before it 9 at 105."""


@pytest.mark.parametrize(
    ("known", "epoch", "sequence", "count", "expected"),
    [
        (None, 0, 0, 1, (ACCEPTED, -1)),
        (None, 9, 0, 1, (ACCEPTED, -1)),
        (None, 0, 7, 1, (OUT_OF_ORDER, -1)),
        (None, 9, SEQUENCE_MAX, 5, (OUT_OF_ORDER, -1)),
        (KNOWN, 4, 15, 3, (ACCEPTED, -1)),
        (KNOWN, 4, 16, 3, (OUT_OF_ORDER, -1)),
        (KNOWN, 4, 0, 3, (OUT_OF_ORDER, -1)),
        (KNOWN, 4, 10, 5, (DUPLICATE, 110)),
        (KNOWN, 4, 5, 5, (DUPLICATE, 105)),
        (KNOWN, 4, 10, 4, (OUT_OF_ORDER, -1)),
        (KNOWN, 4, 5, 10, (OUT_OF_ORDER, -1)),
        (KNOWN, 3, 15, 1, (FENCED, -1)),
        (KNOWN, 3, 10, 5, (FENCED, -1)),
        (KNOWN, 5, 0, 1, (ACCEPTED, -1)),
        (KNOWN, 5, 15, 1, (OUT_OF_ORDER, -1)),
        (KNOWN, 5, 10, 5, (OUT_OF_ORDER, -1)),
        ((0, 0, 0, SEQUENCE_MAX, 5), 0, 0, 1, (ACCEPTED, -1)),
        ((0, 0, SEQUENCE_MAX, 3, 5), 0, 4, 1, (ACCEPTED, -1)),
        ((0, 0, SEQUENCE_MAX, 3, 5), 0, SEQUENCE_MAX, 5, (DUPLICATE, 5)),
    ],
)
def test_outcomes_of_batches(
    known: Producer | None, epoch: int, sequence: int, count: int, expected: tuple[OutcomeKind, int]
) -> None:
    """KIP-98, KAFKA-5793: rules of ProducerAppendInfo and ProducerStateEntry; I9: an unknown producer starts at 0."""
    assert decide_idempotent(known, epoch, sequence, count, may_have_expired=False) == expected


@pytest.mark.parametrize(
    ("known", "epoch", "sequence", "kind"),
    [
        (None, 0, 0, ACCEPTED),
        (None, 0, 7, UNKNOWN_PRODUCER),
        (KNOWN, 4, 15, ACCEPTED),
        (KNOWN, 4, 16, OUT_OF_ORDER),
        (KNOWN, 5, 15, OUT_OF_ORDER),
    ],
)
def test_only_a_producer_without_a_state_can_have_lost_it(
    known: Producer | None, epoch: int, sequence: int, kind: OutcomeKind
) -> None:
    assert decide_idempotent(known, epoch, sequence, 1, may_have_expired=True) == (kind, -1)


def test_five_batches_are_remembered_newest_first() -> None:
    known = None
    for number in range(7):
        known = advanced(known, number, 0, 2 * number, 2, 100 + 2 * number)

    assert known is not None
    assert known[:5] == (0, 6, 12, 13, 112)
    assert [decide_idempotent(known, 0, 2 * number, 2, may_have_expired=False)[0] for number in range(7)] == [
        OUT_OF_ORDER
    ] * 2 + [DUPLICATE] * BATCHES_REMEMBERED
    assert advanced(known, 9, 1, 0, 1, 114) == (1, 9, 0, 0, 114)


@pytest.mark.parametrize(
    ("known", "partition_epoch", "epoch", "sequence", "expected"),
    [
        (None, 0, 0, 0, (ACCEPTED, -1)),
        (None, 0, 0, 2**63 - 1, (ACCEPTED, -1)),
        (None, 3, 3, 7, (ACCEPTED, -1)),
        (None, 3, 2, 7, (FENCED, -1)),
        (NAMED, 4, 4, 15, (ACCEPTED, -1)),
        (NAMED, 4, 4, 99, (ACCEPTED, -1)),
        (NAMED, 4, 4, 14, (DUPLICATE, 110)),
        (NAMED, 4, 4, 9, (DUPLICATE, 105)),
        (NAMED, 4, 4, 10, (DUPLICATE, -1)),
        (NAMED, 4, 4, 0, (DUPLICATE, -1)),
        (NAMED, 4, 3, 15, (FENCED, -1)),
        (NAMED, 0, 3, 15, (FENCED, -1)),
        (NAMED, 5, 4, 15, (FENCED, -1)),
        (NAMED, 5, 4, 14, (FENCED, -1)),
        (NAMED, 5, 5, 15, (ACCEPTED, -1)),
        (NAMED, 5, 5, 14, (DUPLICATE, 110)),
        (NAMED, 5, 5, 3, (DUPLICATE, -1)),
        ((0, 0, 2**62, 2**62, 5), 0, 0, 2**62 + 1, (ACCEPTED, -1)),
    ],
)
def test_outcomes_of_named_batches_that_may_skip(
    known: Producer | None, partition_epoch: int, epoch: int, sequence: int, expected: tuple[OutcomeKind, int]
) -> None:
    """Pulsar's MessageDeduplication: a sequence at or below the last one is a duplicate; the topic epoch fences (PIP-68)."""
    assert decide_named(known, partition_epoch, epoch, sequence, is_in_step=False) == expected


@pytest.mark.parametrize(
    ("known", "sequence", "after", "expected"),
    [
        (None, 7, -1, (ACCEPTED, -1)),
        (None, 7, 5, (OUT_OF_ORDER, -1)),
        (NAMED, 20, 14, (ACCEPTED, -1)),
        (NAMED, 20, 9, (ACCEPTED, -1)),
        (NAMED, 20, -1, (ACCEPTED, -1)),
        (NAMED, 20, 15, (OUT_OF_ORDER, -1)),
        (NAMED, 20, 19, (OUT_OF_ORDER, -1)),
        (NAMED, 14, 9, (DUPLICATE, 110)),
    ],
)
def test_a_named_batch_is_not_stored_without_the_one_that_was_sent_before(
    known: Producer | None, sequence: int, after: int, expected: tuple[OutcomeKind, int]
) -> None:
    """Otherwise a retry of the previous batch would count as a duplicate."""
    assert decide_named(known, 4, 4, sequence, after, is_in_step=False) == expected


@pytest.mark.parametrize(
    ("known", "epoch", "sequence", "expected"),
    [
        (None, 0, 0, (ACCEPTED, -1)),
        (None, 7, 0, (ACCEPTED, -1)),
        (None, 0, 1, (OUT_OF_ORDER, -1)),
        (NAMED, 4, 15, (ACCEPTED, -1)),
        (NAMED, 4, 16, (OUT_OF_ORDER, -1)),
        (NAMED, 4, 14, (DUPLICATE, 110)),
        (NAMED, 4, 0, (DUPLICATE, -1)),
        (NAMED, 3, 15, (FENCED, -1)),
        (NAMED, 3, 14, (FENCED, -1)),
        (NAMED, 5, 0, (ACCEPTED, -1)),
        (NAMED, 5, 1, (OUT_OF_ORDER, -1)),
        (NAMED, 5, 15, (OUT_OF_ORDER, -1)),
    ],
)
def test_outcomes_of_named_batches_that_may_not_skip(
    known: Producer | None, epoch: int, sequence: int, expected: tuple[OutcomeKind, int]
) -> None:
    """Durable Streams, idempotent producers: no gaps, each epoch starts at 0. The partition's epoch does not matter."""
    assert decide_named(known, 9, epoch, sequence, is_in_step=True) == expected


def test_a_newer_epoch_resets_only_a_sequence_that_is_in_step() -> None:
    assert advanced_named(NAMED, 7, 4, 15, 111, is_in_step=True) == (4, 7, 15, 15, 111, *NAMED[2:])
    assert advanced_named(NAMED, 7, 5, 0, 111, is_in_step=True) == (5, 7, 0, 0, 111)
    assert advanced_named(NAMED, 7, 5, 15, 111, is_in_step=False) == (5, 7, 15, 15, 111, *NAMED[2:])


def test_five_named_batches_are_remembered_newest_first() -> None:
    known = None
    for sequence in range(0, 70, 10):
        known = advanced_named(known, sequence, 0, sequence, 100 + sequence, is_in_step=False)

    assert known is not None
    bases = [decide_named(known, 0, 0, sequence, is_in_step=False)[1] for sequence in range(0, 70, 10)]
    assert bases == [-1, -1, 120, 130, 140, 150, 160]
