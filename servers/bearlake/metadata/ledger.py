"""The state derived from the commit log, as a state machine without I/O: the effect of each entry on the partitions.

The log is the truth. A `Ledger` is the state derived from it: each partition's start, end, size and the states of its idempotent
producers. `decide` assigns the offsets of a WAL object's batches and changes nothing. The backend writes the entry. Once the transaction is
durable, `adopt` applies the decision to the state. Entries of other processes are applied by `replay_commit` and its siblings. So a
failed, cancelled or crashed transaction leaves no trace here.

States are fetched on demand from a `Checkpoint`, which may be *newer* than the entries that are replayed on top of it. Replay is
idempotent because offsets only grow. A partition that was changed by entries after the checkpoint is never evicted.

`offset_assignment.py` has the decision, `batch_decision.py` its rules for one batch, and `producers.py` those for producers.

The ledger knows nothing of transactions: a marker is a slice of a commit, and the tables of `sqlite/schema/transactions.sql` have the rest.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Protocol

from bearlake.metadata.batch_decision import Unknowns
from bearlake.metadata.model import (
    BATCH_IN_STEP,
    BATCH_NAMED,
    BatchCommit,
    PartitionKey,
    ProducerState,
    Slice,
    partition_index,
    stream_number,
)
from bearlake.metadata.offset_assignment import Decision, assign_offsets
from bearlake.metadata.partition_state import NOWHERE, PartitionState, StreamState
from bearlake.metadata.producers import HEAD_FIELDS, SEQUENCE_MASK, advanced, advanced_named


class Checkpoint(Protocol):
    """The source of states that are not in memory; not older than the oldest entry that was not applied."""

    def stream(self, number: int) -> StreamState | None:
        """Return the stream as it is now; None if no stream ever had that number."""

    def partition(self, key: PartitionKey, stream: StreamState) -> PartitionState:
        """Return the partition's state; an empty state if nothing was ever written to the partition."""

    def floor_of(self, key: PartitionKey, producer_id: int) -> int | None:
        """Return the floor (`NamedProducer.floor`) of the partition's named producer with this id; None if no name has the id."""


class _States(dict[PartitionKey, PartitionState]):
    """States by key; a missing state is loaded. Unknown partitions get a special state, which is not kept."""

    def __init__(self, ledger: "Ledger") -> None:
        super().__init__()
        self._ledger = ledger

    def __missing__(self, key: PartitionKey) -> PartitionState:
        state = self._ledger.load(key)
        if state is None:
            return NOWHERE
        self[key] = state
        return state


class Ledger:
    """The state after all entries up to `applied`; the checkpoint includes those up to `rolled`."""

    def __init__(self, checkpoint: Checkpoint, *, partition_count_max: int = 200_000) -> None:
        self._checkpoint = checkpoint
        self._partition_count_max = partition_count_max
        self._evict_above = partition_count_max
        self.applied = 0
        self.rolled = 0
        self.expired_id = -1
        """The largest id of an idempotent producer whose state ever expired; not in the log: the backend stores it."""
        self.position_floor = 0
        """The position floor (`producers.py`); not in the log either."""
        self.partitions: dict[PartitionKey, PartitionState] = _States(self)
        self.streams: dict[int, StreamState] = {}
        self.unrolled: dict[PartitionKey, PartitionState] = {}

    def load(self, key: PartitionKey) -> PartitionState | None:
        """Load a state from the checkpoint; None if the partition never existed."""
        stream = self.stream(stream_number(key))
        if stream is None or partition_index(key) >= stream.partition_count:
            return None
        return self._checkpoint.partition(key, stream)

    def stream(self, number: int) -> StreamState | None:
        """Return the known state of the stream; None if no stream ever had that number."""
        stream = self.streams.get(number)
        if stream is None:
            stream = self._checkpoint.stream(number)
            if stream is not None:
                self.streams[number] = stream
        return stream

    def existing(self, key: PartitionKey) -> PartitionState | None:
        """Return the state of a partition that exists now, else None."""
        state = self.partitions[key]
        return None if state.stream.is_deleted else state

    def reset(self, rolled: int) -> None:
        """Discard all state, including the log after `rolled`: the next entry to apply is `rolled + 1`."""
        self.partitions.clear()
        self.streams.clear()
        self.unrolled.clear()
        self.applied = self.rolled = rolled

    def decide(self, batches: Sequence[BatchCommit], now_ms: int, *, seen: int = 0) -> Decision:
        """Decide the batches and assign their offsets (`offset_assignment.py`). `seen` as in `ObjectCommit`. Changes nothing."""
        unknowns = Unknowns(self.expired_id, self.position_floor, seen, self._checkpoint.floor_of)
        return assign_offsets(self.partitions, batches, now_ms, unknowns)

    def adopt(self, decision: Decision, position: int) -> None:
        """Apply the decision to the state: its entry is committed at `position`, directly after `applied`."""
        assert position == self.applied + 1, "entries are applied in order, without gaps"
        decision.assignment.adopt(position, self.unrolled)
        self.applied = position

    def replay_commit(
        self, position: int, now_ms: int, slices: Sequence[Slice], rows: Iterable[tuple[int, ...]]
    ) -> None:
        """Apply a commit's entry. Parts that the checkpoint already includes are skipped."""
        for key, base, count, _, length, _ in slices:
            state = self.partitions[key]
            assert base <= state.end, f"I2: partition {key} ends at {state.end}, the entry {position} starts at {base}"
            if state.changed != position:
                state.tail += (base, position)
                self._changed(key, state, position)
            if base == state.end:
                state.end = base + count
                state.size += length
        for partition, producer_id, epoch, sequence, count, base, flags in rows:
            producers = self.partitions[PartitionKey(partition)].producers
            known = producers.get(producer_id)
            if known is not None and known[HEAD_FIELDS + 2] >= base:
                continue
            producers[producer_id] = (
                advanced_named(known, now_ms, epoch, sequence, base, is_in_step=flags & BATCH_IN_STEP != 0)
                if flags & BATCH_NAMED
                else advanced(known, now_ms, epoch, sequence, count, base)
            )
        self.applied = position

    def replay_trim(self, position: int, key: PartitionKey, start: int, size_before: int) -> None:
        """Apply the entry that moved a partition's start."""
        state = self.partitions[key]
        if start > state.start:
            state.start = start
            state.size_before = size_before
        self._changed(key, state, position)
        self.applied = position

    def replay_stream(self, position: int, number: int) -> None:
        """Apply the entry of a changed stream."""
        known = self.streams.get(number)
        if known is not None:
            stream = self._checkpoint.stream(number)
            assert stream is not None, "streams are deleted softly"
            known.become(stream.partition_count, is_deleted=stream.is_deleted, is_terminated=stream.is_terminated)
        self.applied = position

    def replay_swap(self, position: int) -> None:
        """Apply the entry of a swap: objects changed, but nothing that the ledger stores."""
        self.applied = position

    def rolled_up(self, position: int) -> None:
        """Note that the checkpoint has reached `position`, and drop state that was only needed for older entries."""
        self.rolled = position
        for key, state in list(self.unrolled.items()):
            tail = state.tail
            del tail[: 2 * bisect_right(tail[1::2], position)]
            if state.changed <= position:
                del self.unrolled[key]
        self.evict()

    def evict(self) -> None:
        """Bound the memory: drop the oldest states (first in, first out, so that reads and writes need not reorder them)."""
        if len(self.partitions) <= self._evict_above:
            return
        surplus = len(self.partitions) - self._partition_count_max * 9 // 10
        droppable = [key for key in self.partitions if key not in self.unrolled][:surplus]
        for key in droppable:
            del self.partitions[key]
        self._evict_above = max(self._partition_count_max, len(self.partitions) * 11 // 10)

    def producers(self, state: PartitionState) -> list[ProducerState]:
        """Return the newest states of a partition's producers, by id."""
        return [
            ProducerState(
                producer_id=producer_id,
                producer_epoch=entry[0],
                last_sequence=entry[3],
                last_offset=entry[4] + ((entry[3] - entry[2]) & SEQUENCE_MASK),
                last_timestamp_ms=entry[1],
            )
            for producer_id, entry in sorted(state.producers.items())
        ]

    def _changed(self, key: PartitionKey, state: PartitionState, position: int) -> None:
        state.changed = position
        self.unrolled[key] = state
