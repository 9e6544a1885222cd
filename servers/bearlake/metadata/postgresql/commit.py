"""The commit of a WAL object: arrays in, one call of `commit_object`, outcomes out. Pure functions on both sides of the call.

Adjacent batches of one partition without a producer have the same outcome, so they form one *run*. A batch of a producer, or one that
expects an offset, is a run of its own. Runs are ordered by partition, because the function locks partitions in that order.
The slices of the entry are those of the accepted runs, with adjacent ones joined. They are computed here a second time for the
result.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bearlake.metadata.model import (
    BATCH_CONTROL,
    BATCH_IN_STEP,
    BATCH_NAMED,
    BATCH_TRANSACTIONAL,
    BatchCommit,
    ObjectCommit,
    OutcomeKind,
    OutcomeRows,
    PartitionKey,
    Slice,
)
from bearlake.metadata.transactions import BATCH_BEGINS

GROUP_BITS = 5
"""2**5 = 32 partitions share a row (`partition_group`)."""

ACCEPTED = OutcomeKind.ACCEPTED


class Runs(NamedTuple):
    """The arrays of a commit, one element per run, ordered by partition; `of_batch`: each batch's run, and the records before it."""

    partitions: list[PartitionKey]
    positions: list[int]
    lengths: list[int]
    record_counts: list[int]
    timestamps: list[int]
    producers: list[int]
    """Index (from 1) of the run's producer in `pairs`; 0: no producer."""
    epochs: list[int]
    sequences: list[int]
    named: list[int]
    """1 for a named producer, 2 for an in-step named producer, else 0."""
    expected: list[int]
    """The end offset that a run expects, -1: any."""
    afters: list[int]
    """For a named producer's run: the sequence that was sent before it; -1: none."""
    pairs: list[tuple[PartitionKey, int]]
    """Each partition and producer id once."""
    of_batch: list[tuple[int, int]]

    def some_named(self) -> list[int] | None:
        """`named`; None if no run is named, so that the function can skip the check."""
        return self.named if any(self.named) else None

    def some_expected(self) -> list[int] | None:
        """`expected`; None if no run expects an offset."""
        return self.expected if any(offset >= 0 for offset in self.expected) else None

    def groups(self) -> list[int]:
        """The rows to lock, each once, in order."""
        return sorted({partition >> GROUP_BITS for partition in self.partitions})


def runs_of(batches: Sequence[BatchCommit]) -> Runs:
    """Arrange the batches of an object for `commit_object`."""
    batches = list(batches)  # packed rows become tuples each time they are read
    runs = Runs([], [], [], [], [], [], [], [], [], [], [], [], [(0, 0)] * len(batches))
    pairs: dict[tuple[PartitionKey, int], int] = {}
    mergeable_end = -1
    run = -1
    for index in _by_partition(batches):
        partition, position, length, count, timestamp, producer_id, epoch, sequence, flags, expected, after = batches[
            index
        ]
        assert count > 0, "I2: a batch has at least one record"
        has_producer = producer_id >= 0 and not flags & BATCH_CONTROL
        if not has_producer and expected < 0 and position == mergeable_end and runs.partitions[run] == partition:
            runs.of_batch[index] = (run, runs.record_counts[run])
            runs.lengths[run] += length
            runs.record_counts[run] += count
            runs.timestamps[run] = max(runs.timestamps[run], timestamp)
            mergeable_end += length
            continue
        run += 1
        runs.of_batch[index] = (run, 0)
        runs.partitions.append(partition)
        runs.positions.append(position)
        runs.lengths.append(length)
        runs.record_counts.append(count)
        runs.timestamps.append(timestamp)
        runs.producers.append(pairs.setdefault((partition, producer_id), len(pairs) + 1) if has_producer else 0)
        runs.epochs.append(epoch)
        runs.sequences.append(sequence)
        runs.named.append((1 + (flags & BATCH_IN_STEP != 0)) if has_producer and flags & BATCH_NAMED else 0)
        runs.expected.append(expected)
        runs.afters.append(after)
        mergeable_end = -1 if has_producer or expected >= 0 else position + length
    runs.pairs.extend(pairs)
    return runs


def _by_partition(batches: Sequence[BatchCommit]) -> Iterable[int]:
    partitions = [batch.partition for batch in batches]
    return sorted(range(len(partitions)), key=partitions.__getitem__)


def arguments(commit: ObjectCommit, runs: Runs) -> dict[str, object]:
    """Return the parameters of `commit_object` (`functions/commit.sql`)."""
    named = runs.some_named()
    has_producers = bool(runs.pairs)
    return {
        "token": commit.token,
        "node_id": commit.server.node_id,
        "epoch": commit.server.epoch,
        "size": commit.size,
        "groups": runs.groups(),
        "partitions": runs.partitions,
        "positions": runs.positions,
        "lengths": runs.lengths,
        "counts": runs.record_counts,
        "timestamps": runs.timestamps,
        "states": runs.producers if has_producers else None,
        "epochs": runs.epochs if has_producers else None,
        "sequences": runs.sequences if has_producers else None,
        "state_partitions": [partition for partition, _ in runs.pairs],
        "state_producers": [producer_id for _, producer_id in runs.pairs],
        "named": named,
        "afters": runs.afters if named is not None else None,
        "expected": runs.some_expected(),
        "seen": commit.seen,
    }


def transactional_of(commit: ObjectCommit, runs: Runs) -> list[int]:
    """Return parameter `transactional` of `commit_transactional`: per run 0, 1 or 2 (`functions/commit_transactional.sql`)."""
    found = [0] * len(runs.partitions)
    for batch, (run, _) in zip(commit.batches, runs.of_batch, strict=True):
        if batch.flags & BATCH_TRANSACTIONAL:
            found[run] = 2 if batch.flags & BATCH_BEGINS else 1
    return found


def outcomes_of(runs: Runs, decided: Sequence[int]) -> OutcomeRows:
    """Return outcomes per batch, from (kind, base offset, start offset) per run."""
    rows = list(zip(decided[0::3], decided[1::3], decided[2::3], strict=True))
    outcomes = []
    for run, before in runs.of_batch:
        kind, base, start = rows[run]
        outcomes.append((kind, base + before if kind == ACCEPTED else base, start))
    return OutcomeRows.of(outcomes)


def slices_of(runs: Runs, decided: Sequence[int]) -> list[Slice]:
    """Return the slices of the commit's entry, by position in the object."""
    slices: list[Slice] = []
    end, last = -1, -1
    rows = zip(runs.partitions, runs.positions, runs.lengths, runs.record_counts, runs.timestamps, strict=True)
    for (partition, position, length, count, timestamp), kind, base in zip(
        rows, decided[0::3], decided[1::3], strict=True
    ):
        if kind != ACCEPTED:
            continue
        if position == end and partition == last:
            _, first, before, at, size, newest = slices[-1]
            slices[-1] = Slice(partition, first, before + count, at, size + length, max(newest, timestamp))
        else:
            slices.append(Slice(partition, base, count, position, length, timestamp))
        end, last = position + length, partition
    return by_position(slices)


def by_position(slices: list[Slice]) -> list[Slice]:
    """Sort slices by their position in the object (in place, and returned)."""
    slices.sort(key=_position)
    return slices


def _position(slice_: Slice) -> int:
    return slice_.position
