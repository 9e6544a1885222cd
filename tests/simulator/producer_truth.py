"""The promises to producers, as `Truth` checks them against each producer's whole history.

The promises to an idempotent producer (KIP-98): each batch is stored at most once and not before earlier batches, and no batch is refused
without a reason. So a client may conclude from a success that all earlier batches are stored. For named producers, see the table in
`metadata/producers.py`.

A producer that has expired in the store may be refused, as an unknown producer or because its batch may already be stored. All other
promises never expire: the checks here use everything that the producer ever wrote.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bearlake.metadata.model import BATCH_IN_STEP, BATCH_NAMED, BatchCommit, OutcomeKind

if TYPE_CHECKING:
    from simulator.true_log import Partition

DUPLICATES_RECOGNIZED = 5
"""Requests that a client may have in flight; that many of its newest batches are recognized as duplicates (KAFKA-5793)."""

DueOutcome = tuple[OutcomeKind, int]


@dataclass(slots=True)
class Producer:
    """A producer in a partition: its epoch, and (first sequence, last sequence, base offset) of all its batches, in order."""

    epoch: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)


def contradiction(partition: "Partition", batch: BatchCommit, kind: OutcomeKind, base: int) -> str | None:
    """Return the promise that an outcome breaks, or None."""
    if batch.producer_id < 0 or batch.flags & BATCH_NAMED:
        due = _due_named(partition, batch) if batch.producer_id >= 0 else (OutcomeKind.ACCEPTED, partition.end)
        if due[0] is OutcomeKind.ACCEPTED and batch.expected_offset not in (-1, partition.end):
            due = OutcomeKind.UNEXPECTED_OFFSET, partition.end
        return None if (kind, base) == due else f"due is {due}"
    known = partition.producers.get(batch.producer_id)
    if kind is OutcomeKind.ACCEPTED:
        return _wrongly_accepted(known, batch) if base == partition.end else "it lies at the end"
    if kind is OutcomeKind.DUPLICATE:
        stored = known is not None and (batch.base_sequence, _last(batch), base) in known.batches
        return None if stored else "it is not stored there"
    if kind is OutcomeKind.FENCED:
        return None if known is not None and batch.producer_epoch < known.epoch else "no newer epoch has written"
    if kind is OutcomeKind.OUT_OF_ORDER:
        if is_repeated(partition, batch):
            return "it is stored"
        return "no batch before it is missing" if _wrongly_accepted(known, batch) is None else None
    if kind is OutcomeKind.UNKNOWN_PRODUCER:
        return None if known is None and batch.base_sequence > 0 else "the producer has a state, or begins here"
    if kind is OutcomeKind.UNEXPECTED_OFFSET:
        is_expected = batch.expected_offset in (-1, base)
        return None if base == partition.end and not is_expected else "the partition ends where it was expected to"
    return "no reason to refuse it"


def is_for_forgotten(batch: BatchCommit, kind: OutcomeKind) -> bool:
    """Return whether the outcome is a correct refusal that only producers without a state receive."""
    if kind is OutcomeKind.UNSURE:
        return batch.producer_id >= 0 and (batch.base_sequence == 0 or batch.flags & BATCH_NAMED != 0)
    return kind is OutcomeKind.UNKNOWN_PRODUCER and (batch.base_sequence > 0 or batch.flags & BATCH_NAMED != 0)


def is_repeated(partition: "Partition", batch: BatchCommit) -> bool:
    """Return whether the batch is one of the newest batches of its producer in the partition."""
    known = partition.producers.get(batch.producer_id)
    if known is None:
        return False
    if batch.flags & BATCH_NAMED:
        return _due_named(partition, batch)[0] is OutcomeKind.DUPLICATE
    newest = known.batches[-DUPLICATES_RECOGNIZED:] if batch.producer_epoch == known.epoch else []
    return any((batch.base_sequence, _last(batch)) == (first, last) for first, last, _ in newest)


def _wrongly_accepted(known: Producer | None, batch: BatchCommit) -> str | None:
    """Return the broken rule, if any: sequences number the records of an epoch from 0 without gaps."""
    if known is not None and batch.producer_epoch < known.epoch:
        return "a newer epoch has written"
    is_going_on = known is not None and known.epoch == batch.producer_epoch
    stored_count = sum(last - first + 1 for first, last, _ in known.batches) if known and is_going_on else 0
    if batch.base_sequence > stored_count:
        return f"only {stored_count} records before it are stored"
    return "it is stored already" if batch.base_sequence < stored_count else None


def _last(batch: BatchCommit) -> int:
    return batch.base_sequence + batch.record_count - 1


def _due_named(partition: "Partition", batch: BatchCommit) -> DueOutcome:
    assert not batch.flags & BATCH_IN_STEP, "no producer here requires consecutive sequences"
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
    """Record an accepted batch; return whether its sequence is above all sequences of the producer in this epoch."""
    is_named = batch.flags & BATCH_NAMED != 0
    known = partition.producers.get(batch.producer_id)
    if known is None or (known.epoch != batch.producer_epoch and not is_named):
        known = partition.producers[batch.producer_id] = Producer(batch.producer_epoch)
    known.epoch = batch.producer_epoch
    last = batch.base_sequence + (0 if is_named else batch.record_count - 1)
    is_above = all(batch.base_sequence > before for _, before, _ in known.batches)
    known.batches.append((batch.base_sequence, last, base))
    return is_above
