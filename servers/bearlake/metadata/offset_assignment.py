"""How a commit assigns offsets: the decision on each batch of a WAL object, and the offsets of the accepted batches (I2).

A pure function of the partitions' states, for SQLite. PostgreSQL has the same rule in `postgresql/functions/commit.sql`. The rules for one
batch are in `batch_decision.py`, those for producers in `producers.py`; the inner loop over batches that need only offsets is
`kernel.assign_offsets`.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from bearlake import kernel
from bearlake.metadata.batch_decision import Unknowns, decide_batch, refused
from bearlake.metadata.model import BATCH_CONTROL, BATCH_NAMED, BatchCommit, Outcome, PartitionKey, Slice
from bearlake.metadata.partition_state import NOWHERE, PartitionState
from bearlake.metadata.producers import ACCEPTED, HEAD_FIELDS, OLDER_BATCHES_END, SEQUENCE_MASK, Producer

NOT_BY_RECORDS = BATCH_CONTROL | BATCH_NAMED
"""Batches whose sequence, if any, does not count records."""

ProducerBatch = tuple[int, int, int, int, int, int, int]
"""An accepted batch of an idempotent producer, as in a commit's entry: partition, producer id, producer epoch, base sequence,
record count, base offset, flags. (A plain tuple, like `Change`: a commit makes one per batch, and a NamedTuple costs three times as much.)
"""

Change = tuple[PartitionState, int, int, dict[int, Producer]]
"""The effect of a decision on one partition: its state before; its end, size and changed producers after."""


class Decision(NamedTuple):
    """The decision on an object's batches. If `slices` is empty, nothing was accepted and there is nothing to write."""

    outcomes: list[Outcome]
    slices: list[Slice]
    batches: list[ProducerBatch]
    changes: dict[PartitionKey, Change]


def assign_offsets(
    partitions: Mapping[PartitionKey, PartitionState], batches: Iterable[BatchCommit], now_ms: int, unknowns: Unknowns
) -> Decision:
    """Decide the batches in order; each decision considers those before it. Changes no state."""
    outcomes: list[Outcome] = []
    slices: list[Slice] = []
    rows: list[ProducerBatch] = []
    changes: dict[PartitionKey, Change] = {}
    given = batches if isinstance(batches, list) else list(batches)
    at, batch_count = 0, len(given)
    current, state = None, NOWHERE
    end, size = 0, 0
    producers: dict[int, Producer] = {}
    while at < batch_count:
        partition, _, _, count, _, producer_id, epoch, sequence, flags, expected, _ = given[at]
        if partition != current:
            current = partition
            if partition in changes:
                state, end, size, producers = changes[partition]
            else:
                state = partitions[partition]
                end, size, producers = state.end, state.size, {}
        if not state.stream.is_open:
            outcomes.append(refused(given[at], state, state.producers.get(producer_id), end, now_ms, unknowns))
            at += 1
            continue
        if producer_id >= 0 or expected >= 0:
            known = producers.get(producer_id) or state.producers.get(producer_id)
            if (
                known is None
                or known[0] != epoch
                or (known[3] + 1) & SEQUENCE_MASK != sequence
                or expected >= 0
                or flags & NOT_BY_RECORDS
            ):
                kind, base, made = decide_batch(given[at], state, known, end, now_ms, unknowns)
                if kind is not ACCEPTED:
                    outcomes.append(Outcome(kind, base, state.start))
                    at += 1
                    continue
            else:  # the next batch of a known producer: the common case, inlined for speed
                last = (sequence + count - 1) & SEQUENCE_MASK
                made = (epoch, now_ms, sequence, last, end, *known[HEAD_FIELDS:OLDER_BATCHES_END])
            if made is not None:
                producers[producer_id] = made
                rows.append((partition, producer_id, epoch, sequence, count, end, flags))
        # This batch and the following ones of the partition without a producer or an expected offset: they only need offsets.
        at, end, added = kernel.assign_offsets(Outcome, ACCEPTED, Slice, given, at, state.start, end, outcomes, slices)
        size += added
        changes[partition] = (state, end, size, producers)
    return Decision(outcomes, slices, rows, changes)
