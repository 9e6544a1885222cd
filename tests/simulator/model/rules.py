"""The product's own decision about a batch on small states: `metadata/ledger.py` with `metadata/producers.py`, unchanged.

A guard that is switched off replaces exactly one of the ledger's answers; only this module does so. Answers are cached, because there
are few distinct questions.
"""

from collections.abc import Callable
from functools import cache
from typing import Protocol

from bearlake.metadata.ledger import Ledger
from bearlake.metadata.model import BatchCommit, OutcomeKind, PartitionKey
from bearlake.metadata.partition_state import PartitionState, StreamState
from bearlake.metadata.producers import BATCH_FIELDS, HEAD_FIELDS, Producer, advanced

PARTITION = PartitionKey(1 << 20)
PRODUCER_ID = 7

ACCEPTED, DUPLICATE = int(OutcomeKind.ACCEPTED), int(OutcomeKind.DUPLICATE)
OUT_OF_ORDER, UNEXPECTED_OFFSET = int(OutcomeKind.OUT_OF_ORDER), int(OutcomeKind.UNEXPECTED_OFFSET)
FENCED, UNKNOWN_PRODUCER = int(OutcomeKind.FENCED), int(OutcomeKind.UNKNOWN_PRODUCER)
UNSURE = int(OutcomeKind.UNSURE)

NEVER = 1 << 62
"""An expected offset that no partition reaches (`streams/unstored_batches.py`)."""

Decision = tuple[int, int, Producer]
"""Kind of outcome, original base offset of a duplicate (else 0), and the producer's state afterwards (empty: unknown)."""
DecisionFunction = Callable[[Producer, int, int, int, int, bool, int, int], Decision]
"""Decides a batch of one record. Arguments: producer's state, end offset, epoch, sequence, expected offset, whether the state may have
expired, the position that the batch's server had seen, and the position floor.

Epoch and sequence are -1 for a batch without idempotence; the expected offset is -1 for any.
"""


class SequenceGuards(Protocol):
    """The rules for sequences that the model can switch off."""

    @property
    def unknown_starts_at_zero(self) -> bool:
        """Whether this rule of `write.WriteGuards` is in force; the other properties do the same for their rules."""

    @property
    def five_batches_remembered(self) -> bool: ...  # noqa: D102

    @property
    def epoch_bump_starts_at_zero(self) -> bool: ...  # noqa: D102

    @property
    def older_epoch_fenced(self) -> bool: ...  # noqa: D102

    @property
    def young_id_is_out_of_order(self) -> bool: ...  # noqa: D102

    @property
    def sequence_has_no_gap(self) -> bool: ...  # noqa: D102

    @property
    def expected_offset_checked(self) -> bool: ...  # noqa: D102

    @property
    def position_floor_checked_in_commit(self) -> bool: ...  # noqa: D102


def decide_by(guards: SequenceGuards) -> DecisionFunction:
    """Return the ledger's decision function, modified by the guards that are off."""

    @cache
    def decide(
        known: Producer,
        end: int,
        epoch: int,
        sequence: int,
        expected: int,
        may_have_expired: bool,
        seen: int,
        floor: int,
    ) -> Decision:
        if not guards.expected_offset_checked and expected != NEVER:
            expected = -1
        if not guards.position_floor_checked_in_commit:
            floor = 0
        kind, base = ask_ledger(known, end, epoch, sequence, expected, may_have_expired, seen, floor)
        if (kind in (OUT_OF_ORDER, UNKNOWN_PRODUCER) and _is_let_in(guards, known, end, epoch)) or (
            kind == FENCED and not guards.older_epoch_fenced
        ):
            kind = ACCEPTED
        elif kind == OUT_OF_ORDER and not known and not guards.young_id_is_out_of_order:
            kind = UNKNOWN_PRODUCER
        if kind == ACCEPTED and expected not in (-1, end):
            kind, base = UNEXPECTED_OFFSET, end
        if kind != ACCEPTED or epoch < 0:
            return kind, base, known
        made = advanced(known or None, 0, epoch, sequence, 1, end)
        return kind, base, made if guards.five_batches_remembered else made[: HEAD_FIELDS + BATCH_FIELDS]

    return decide


def _is_let_in(guards: SequenceGuards, known: Producer, end: int, epoch: int) -> bool:
    if not known:
        return end > 0 and not guards.unknown_starts_at_zero
    return not (guards.epoch_bump_starts_at_zero if epoch > known[0] else guards.sequence_has_no_gap)


def ask_ledger(
    known: Producer,
    end: int,
    epoch: int,
    sequence: int,
    expected: int,
    may_have_expired: bool,
    seen: int = 0,
    floor: int = 0,
) -> tuple[int, int]:
    """Return the kind and base offset (0 if none) of the outcome of `Ledger.decide` for one batch of one record."""
    ledger = Ledger(_SmallCheckpoint(known, end))
    ledger.expired_id = PRODUCER_ID if may_have_expired else PRODUCER_ID - 1
    ledger.position_floor = floor
    producer_id = PRODUCER_ID if epoch >= 0 else -1
    batch = BatchCommit(PARTITION, 0, 1, 1, 0, producer_id, epoch, sequence, 0, expected)
    outcome = ledger.decide([batch], 0, seen=seen).outcomes[0]
    return int(outcome.kind), max(outcome.base_offset, 0)


class _SmallCheckpoint:
    """A checkpoint with one partition."""

    def __init__(self, known: Producer, end: int) -> None:
        self._known = known
        self._end = end

    def stream(self, number: int) -> StreamState | None:
        return StreamState(1)

    def partition(self, key: PartitionKey, stream: StreamState) -> PartitionState:
        return PartitionState(stream, end=self._end, producers={PRODUCER_ID: self._known} if self._known else {})

    def floor_of(self, key: PartitionKey, producer_id: int) -> int | None:
        return None
