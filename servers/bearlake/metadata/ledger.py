"""The rules of the commit log as a state machine without I/O: what becomes of a batch, and what an entry changes.

The log is the truth. A `Ledger` is what one follows from it: for each partition its start, end, size and the states of its
idempotent producers. `decide` judges the batches of a WAL object and changes nothing; the backend writes the entry, and when the
transaction is durable `adopt` makes the decision part of the state. Entries of other processes come in through `replay_commit`
and its siblings. So a failed, cancelled or crashed transaction leaves no trace here.

States are fetched on demand from a `Checkpoint`, which may be *newer* than the entries that are replayed on top of it: replay is
idempotent, because offsets only grow. A partition that entries behind the checkpoint have changed is never evicted.

The rules for a single batch are in `judging.py`, those for producers in `producers.py`.

Transactions have their place here: a partition's state gets `producer id -> first offset` of its open transactions (last stable
offset = the smallest of them, else the end), fed by the flags that `ProducerBatch` rows carry already; a marker (control batch)
closes one and, if it aborts, adds `(producer id, first offset, last offset)` to the partition's aborted ranges, which are rolled
up beside the slices of their page. Both are functions of the log, so no entry that exists now needs another form.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from bearlake import kernel
from bearlake.metadata.judging import Unknowns, judged, refused
from bearlake.metadata.model import (
    BATCH_CONTROL,
    BATCH_IN_STEP,
    BATCH_NAMED,
    BatchCommit,
    Outcome,
    PartitionKey,
    ProducerState,
    Slice,
    partition_index,
    stream_number,
)
from bearlake.metadata.partition_state import PartitionState, StreamState
from bearlake.metadata.producers import (
    ACCEPTED,
    HEAD_FIELDS,
    KEPT,
    SEQUENCE_MASK,
    Producer,
    advanced,
    advanced_named,
)

NOT_BY_RECORDS = BATCH_CONTROL | BATCH_NAMED
"""Batches whose sequence, if they have any, does not count records."""

ProducerBatch = tuple[int, int, int, int, int, int, int]
"""An accepted batch of an idempotent producer, as a commit's entry carries it: partition, producer id, producer epoch, base sequence,
record count, base offset, flags. (A plain tuple, as `Change`: a commit makes one per batch, named ones cost three times as much.)
"""


class Checkpoint(Protocol):
    """Where states come from that are not in memory; not older than the oldest entry that was not applied."""

    def stream(self, number: int) -> StreamState | None:
        """The stream as it is now, None if there never was one of that number."""

    def partition(self, key: PartitionKey, stream: StreamState) -> PartitionState:
        """The partition's state; an empty one when nothing was ever written to it."""

    def floor_of(self, key: PartitionKey, producer_id: int) -> int | None:
        """The floor (`NamedProducer.floor`) of the partition's named producer of this id; None if no name has it."""


class _States(dict[PartitionKey, PartitionState]):
    """States by key; a missing one is loaded. Unknown partitions get a state of their own kind, which is not kept."""

    def __init__(self, ledger: "Ledger") -> None:
        super().__init__()
        self._ledger = ledger

    def __missing__(self, key: PartitionKey) -> PartitionState:
        state = self._ledger.load(key)
        if state is None:
            return NOWHERE
        self[key] = state
        return state


NOWHERE = PartitionState(StreamState(0, is_deleted=True), start=-1)


Change = tuple[PartitionState, int, int, dict[int, Producer]]
"""What a decision makes of one partition: its state so far; its end, size and changed producers after it."""


class Decision(NamedTuple):
    """What becomes of an object's batches. Nothing was accepted if `slices` is empty; then there is nothing to write."""

    outcomes: list[Outcome]
    slices: list[Slice]
    batches: list[ProducerBatch]
    changes: dict[PartitionKey, Change]


class Ledger:
    """The state after all entries up to `applied`, of which those up to `rolled` are in the checkpoint too."""

    def __init__(self, checkpoint: Checkpoint, *, partition_count_max: int = 200_000) -> None:
        self._checkpoint = checkpoint
        self._partition_count_max = partition_count_max
        self._evict_above = partition_count_max
        self.applied = 0
        self.rolled = 0
        self.expired_id = -1
        """The largest id of an idempotent producer whose state ever expired; not in the log, kept by the backend."""
        self.position_floor = 0
        """The position floor (`producers.py`); so with this."""
        self.partitions: dict[PartitionKey, PartitionState] = _States(self)
        self.streams: dict[int, StreamState] = {}
        self.unrolled: dict[PartitionKey, PartitionState] = {}

    def load(self, key: PartitionKey) -> PartitionState | None:
        """A state from the checkpoint, None when the partition never existed."""
        stream = self.stream(stream_number(key))
        if stream is None or partition_index(key) >= stream.partition_count:
            return None
        return self._checkpoint.partition(key, stream)

    def stream(self, number: int) -> StreamState | None:
        """What is known of the stream; None when there never was one of that number."""
        stream = self.streams.get(number)
        if stream is None:
            stream = self._checkpoint.stream(number)
            if stream is not None:
                self.streams[number] = stream
        return stream

    def existing(self, key: PartitionKey) -> PartitionState | None:
        """The state of a partition that exists now, else None."""
        state = self.partitions[key]
        return None if state.stream.is_deleted else state

    def reset(self, rolled: int) -> None:
        """Forget everything, also the log behind `rolled`: the next entry to apply is `rolled + 1`."""
        self.partitions.clear()
        self.streams.clear()
        self.unrolled.clear()
        self.applied = self.rolled = rolled

    def decide(self, batches: Iterable[BatchCommit], now_ms: int, *, seen: int = 0) -> Decision:
        """Judge the batches in order, each knowing what became of those before it; `seen` as in `ObjectCommit`. Changes nothing."""
        unknowns = Unknowns(self.expired_id, self.position_floor, seen, self._checkpoint.floor_of)
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
                    state = self.partitions[partition]
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
                    kind, base, made = judged(given[at], state, known, end, now_ms, unknowns)
                    if kind is not ACCEPTED:
                        outcomes.append(Outcome(kind, base, state.start))
                        at += 1
                        continue
                else:  # the next batch of a known producer: the common case, written out
                    last = (sequence + count - 1) & SEQUENCE_MASK
                    made = (epoch, now_ms, sequence, last, end, *known[HEAD_FIELDS:KEPT])
                if made is not None:
                    producers[producer_id] = made
                    rows.append((partition, producer_id, epoch, sequence, count, end, flags))
            # This batch, and with it those of nobody that follow in the partition and go anywhere: offsets are all that they need.
            at, end, added = kernel.assign_offsets(
                Outcome, ACCEPTED, Slice, given, at, state.start, end, outcomes, slices
            )
            size += added
            changes[partition] = (state, end, size, producers)
        return Decision(outcomes, slices, rows, changes)

    def adopt(self, decision: Decision, position: int) -> None:
        """Make the decision part of the state: its entry is committed at `position`, right behind `applied`."""
        assert position == self.applied + 1, "entries are applied in order, without gaps"
        unrolled = self.unrolled
        for key, (state, end, size, producers) in decision.changes.items():
            state.tail += (state.end, position)
            state.end = end
            state.size = size
            state.changed = position
            if producers:
                state.producers.update(producers)
            unrolled[key] = state
        self.applied = position

    def replay_commit(
        self, position: int, now_ms: int, slices: Sequence[Slice], rows: Iterable[tuple[int, ...]]
    ) -> None:
        """Apply a commit's entry. What the checkpoint knew already is not applied twice."""
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
        """Apply the entry that says that a stream was changed."""
        known = self.streams.get(number)
        if known is not None:
            stream = self._checkpoint.stream(number)
            assert stream is not None, "streams are deleted softly"
            known.become(stream.partition_count, is_deleted=stream.is_deleted, is_terminated=stream.is_terminated)
        self.applied = position

    def replay_swap(self, position: int) -> None:
        """Apply the entry that says that offsets have a new home: nothing that the ledger knows has changed."""
        self.applied = position

    def rolled_up(self, position: int) -> None:
        """The checkpoint has reached `position`: what needs memory because of older entries may go."""
        self.rolled = position
        for key, state in list(self.unrolled.items()):
            tail = state.tail
            count = next((at for at in range(1, len(tail), 2) if tail[at] > position), len(tail) + 1)
            del tail[: count - 1]
            if state.changed <= position:
                del self.unrolled[key]
        self.evict()

    def evict(self) -> None:
        """Keep the memory bounded: drop the oldest states (first in, first out: reads and writes need not reorder them)."""
        if len(self.partitions) <= self._evict_above:
            return
        surplus = len(self.partitions) - self._partition_count_max * 9 // 10
        droppable = [key for key in self.partitions if key not in self.unrolled][:surplus]
        for key in droppable:
            del self.partitions[key]
        self._evict_above = max(self._partition_count_max, len(self.partitions) * 11 // 10)

    def producers(self, state: PartitionState) -> list[ProducerState]:
        """The newest states of a partition's producers, by id."""
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
