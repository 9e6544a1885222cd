"""How a commit assigns offsets: the decision on each batch of a WAL object, and the offsets of the accepted batches (I2).

A pure function of the partitions' states, for SQLite. PostgreSQL has the same rule in `postgresql/functions/commit.sql`. The rules for one
batch are in `batch_decision.py`, those for producers in `producers.py`.

Batches and results are packed rows (`kernel.Rows`). `kernel.OffsetAssignment` accepts the batches that need no rule, or only that of the
next sequence, and stops at every other batch, which `decide_batch` decides. A producer's batch with one of `RULE_FLAGS` stops it, unless
the only flag is `BATCH_NAMED`: a rule for another kind of batch adds a flag and changes `decide_batch`.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from bearlake import kernel
from bearlake.metadata.batch_decision import Unknowns, decide_batch, refused
from bearlake.metadata.model import (
    BATCH_CONTROL,
    BATCH_NAMED,
    BatchCommit,
    CommitRows,
    OutcomeRows,
    PartitionKey,
    SliceRows,
)
from bearlake.metadata.partition_state import PartitionState
from bearlake.metadata.producers import ACCEPTED

RULE_FLAGS = BATCH_CONTROL | BATCH_NAMED
"""Flags of batches whose sequence, if any, does not count records: `decide_batch` decides them."""


class ProducerBatch(NamedTuple):
    """An accepted batch of a producer, as in a commit's entry."""

    partition: PartitionKey
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    base_offset: int
    flags: int


class ProducerBatchRows(kernel.Rows[ProducerBatch], width=len(ProducerBatch._fields)):
    """Batches of producers in packed form."""

    __slots__ = ()
    make = staticmethod(partial(tuple.__new__, ProducerBatch))


class Decision(NamedTuple):
    """The decision on an object's batches. If `slices` is empty, nothing was accepted and there is nothing to write.

    `assignment.adopt` applies it to the partitions' states.
    """

    outcomes: OutcomeRows
    slices: SliceRows
    batches: ProducerBatchRows
    assignment: "kernel.OffsetAssignment[PartitionState]"


def assign_offsets(
    partitions: Mapping[PartitionKey, PartitionState], batches: Sequence[BatchCommit], now_ms: int, unknowns: Unknowns
) -> Decision:
    """Decide the batches in order; each decision considers those before it. Changes no state."""
    rows = CommitRows.of(batches)
    assignment = kernel.OffsetAssignment(partitions, rows.packed, now_ms, RULE_FLAGS)
    while (at := assignment.assign()) is not None:
        batch, state, end, known = rows[at], assignment.state, assignment.end, assignment.known()
        if not state.stream.is_open:
            assignment.refuse(*refused(batch, state, known, end, now_ms, unknowns))
            continue
        kind, base, made = decide_batch(batch, state, known, end, now_ms, unknowns)
        if kind is ACCEPTED:
            assignment.accept(made)
        else:
            assignment.refuse(kind, base, state.start)
    return Decision(
        OutcomeRows(assignment.outcomes),
        SliceRows(assignment.slices),
        ProducerBatchRows(assignment.sequences),
        assignment,
    )
