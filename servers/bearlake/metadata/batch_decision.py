"""The decision on one batch, as pure functions: rules for producers (`producers.py`), expected offsets, closed streams."""

from collections.abc import Callable
from typing import NamedTuple

from bearlake.metadata.model import (
    BATCH_CONTROL,
    BATCH_IN_STEP,
    BATCH_NAMED,
    BatchCommit,
    Outcome,
    OutcomeKind,
    PartitionKey,
)
from bearlake.metadata.partition_state import PartitionState
from bearlake.metadata.producers import (
    ACCEPTED,
    DUPLICATE,
    NOT_FOUND,
    TERMINATED,
    UNEXPECTED_OFFSET,
    UNSURE,
    Producer,
    advanced,
    advanced_named,
    decide_idempotent,
    decide_named,
    is_unsure,
)


class Unknowns(NamedTuple):
    """Inputs to the decision on batches of producers without a state, for one commit (`producers.py`)."""

    expired_id: int
    position_floor: int
    seen: int
    floor_of: Callable[[PartitionKey, int], int | None]


def decide_batch(
    batch: BatchCommit, state: PartitionState, known: Producer | None, end: int, now_ms: int, unknowns: Unknowns
) -> tuple[OutcomeKind, int, Producer | None]:
    """Decide a batch by all the rules; returns its kind, the base offset of its outcome, and the producer's state after it.

    The base offset is a duplicate's original one, or the end offset in the case of an unexpected offset, else -1. The expected offset is
    checked last, so that a duplicate remains a duplicate.
    """
    partition, _, _, count, _, producer_id, epoch, sequence, flags, expected, after = batch
    kind, base, made = ACCEPTED, -1, None
    if producer_id >= 0 and flags & BATCH_NAMED:
        is_in_step = flags & BATCH_IN_STEP != 0
        floor = unknowns.floor_of(partition, producer_id) if known is None else 0
        kind, base = decide_named(
            known,
            state.epoch,
            epoch,
            sequence,
            after,
            is_in_step=is_in_step,
            is_registered=floor is not None,
            may_be_stored=floor is not None and unknowns.seen < floor,
        )
        made = advanced_named(known, now_ms, epoch, sequence, end, is_in_step=is_in_step)
    elif producer_id >= 0 and not flags & BATCH_CONTROL:
        expired_id, position_floor, seen, _ = unknowns
        kind, base = decide_idempotent(
            known,
            epoch,
            sequence,
            count,
            may_have_expired=producer_id <= max(expired_id, state.stream.former_producer_id),
            may_be_stored=is_unsure(producer_id, expired_id, seen, position_floor),
        )
        made = advanced(known, now_ms, epoch, sequence, count, end)
    if kind is ACCEPTED and expected >= 0 and expected != end:
        return UNEXPECTED_OFFSET, end, None
    return kind, base, made


def refused(
    batch: BatchCommit, state: PartitionState, known: Producer | None, end: int, now_ms: int, unknowns: Unknowns
) -> Outcome:
    """Return the outcome of a batch for a terminated or deleted stream, which takes no batches. A duplicate remains a duplicate, and a
    batch that may be a duplicate remains UNSURE.
    """
    if state.stream.is_deleted:
        return Outcome(NOT_FOUND, -1, -1)
    kind, base, _ = decide_batch(batch, state, known, end, now_ms, unknowns)
    return Outcome(kind, base, state.start) if kind in (DUPLICATE, UNSURE) else Outcome(TERMINATED, -1, state.start)
