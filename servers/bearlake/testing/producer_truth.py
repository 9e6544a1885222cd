"""What producers may write, as `Truth` has it: a second writing of the rules, with each producer's whole history at hand.

Source: KIP-98, KAFKA-5793, KAFKA-15591 for idempotent producers; the table in `metadata/producers.py` for named ones.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bearlake.metadata.model import BATCH_IN_STEP, BATCH_NAMED, BatchCommit, OutcomeKind

if TYPE_CHECKING:
    from bearlake.testing.truth import Partition

Judged = tuple[OutcomeKind, int]


@dataclass(slots=True)
class Producer:
    """A producer in a partition: its epoch, and all (first sequence, last sequence, base offset) of it, in order."""

    epoch: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)


def due(partition: "Partition", batch: BatchCommit) -> Judged:
    """What must become of the batch at its turn: its kind, and the base offset of its outcome."""
    kind, base = OutcomeKind.ACCEPTED, partition.end
    if batch.producer_id >= 0:
        kind, base = (_due_named if batch.flags & BATCH_NAMED else _due_idempotent)(partition, batch)
    if kind is OutcomeKind.ACCEPTED and batch.expected_offset not in (-1, partition.end):
        return OutcomeKind.UNEXPECTED_OFFSET, partition.end
    return kind, base


def _due_idempotent(partition: "Partition", batch: BatchCommit) -> Judged:
    known = partition.producers.get(batch.producer_id)
    sequence = batch.base_sequence
    if known is None:
        is_due = sequence == 0 or partition.end > 0
    elif batch.producer_epoch < known.epoch:
        return OutcomeKind.FENCED, -1
    elif batch.producer_epoch > known.epoch:
        is_due = sequence == 0
    else:
        for first, last, base in known.batches[-5:]:
            if (first, last) == (sequence, sequence + batch.record_count - 1):
                return OutcomeKind.DUPLICATE, base
        is_due = sequence == known.batches[-1][1] + 1
    return (OutcomeKind.ACCEPTED, partition.end) if is_due else (OutcomeKind.OUT_OF_ORDER, -1)


def _due_named(partition: "Partition", batch: BatchCommit) -> Judged:
    assert not batch.flags & BATCH_IN_STEP, "nobody here goes in step"
    known = partition.producers.get(batch.producer_id)
    newest = known.epoch if known is not None else 0
    if batch.producer_epoch < max(newest, partition.epoch):
        return OutcomeKind.FENCED, -1
    sent = known.batches if known is not None else []
    if any(sequence >= batch.base_sequence for sequence, _, _ in sent):
        bases = [base for sequence, _, base in sent[-5:] if sequence == batch.base_sequence]
        return OutcomeKind.DUPLICATE, bases[0] if bases else -1
    if all(sequence < batch.after_sequence for sequence, _, _ in sent) and batch.after_sequence >= 0:
        return OutcomeKind.OUT_OF_ORDER, -1
    return OutcomeKind.ACCEPTED, partition.end


def remember(partition: "Partition", batch: BatchCommit, base: int) -> bool:
    """Note that a producer's batch was accepted; whether its sequence lies above all that the producer wrote in this epoch."""
    is_named = batch.flags & BATCH_NAMED != 0
    known = partition.producers.get(batch.producer_id)
    if known is None or (known.epoch != batch.producer_epoch and not is_named):
        known = partition.producers[batch.producer_id] = Producer(batch.producer_epoch)
    known.epoch = batch.producer_epoch
    last = batch.base_sequence + (0 if is_named else batch.record_count - 1)
    is_above = all(batch.base_sequence > before for _, before, _ in known.batches)
    known.batches.append((batch.base_sequence, last, base))
    return is_above
