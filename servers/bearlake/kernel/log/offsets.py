"""Assign offsets to the batches of one object, in packed rows, and build the slices that contain them."""

from collections.abc import Iterable, Mapping, MutableMapping
from struct import pack
from typing import Generic, Protocol, TypeVar

from bearlake.kernel.log import BATCH_NAMED, BatchCommit, PartitionKey
from bearlake.kernel.log.rows import CommitRows

Producer = tuple[int, ...]
"""What is remembered of an idempotent producer: epoch, time of its newest batch (ms), then up to `REMEMBERED` triples
(first sequence, last sequence, base offset), newest first."""

SEQUENCE_MASK = 0x7FFF_FFFF
REMEMBERED = 5
_HEAD = 2
_OLDER_END = _HEAD + 3 * (REMEMBERED - 1)

_INT64_MAX = (1 << 63) - 1


class StreamLike(Protocol):
    """The state of a stream."""

    @property
    def is_open(self) -> bool:
        """Whether the stream takes batches."""


class PartitionLike(Protocol):
    """The state of a partition, as in `metadata.partition_state.PartitionState`."""

    end: int
    size: int
    epoch: int
    changed: int

    @property
    def stream(self) -> StreamLike:
        """The stream that the partition belongs to."""

    @property
    def start(self) -> int:
        """The first readable offset."""

    @property
    def tail(self) -> list[int]:
        """Base offset and log position of each entry that `adopt` adds, flat."""

    @property
    def producers(self) -> dict[int, Producer]:
        """What is remembered of each producer, by id."""


State = TypeVar("State", bound=PartitionLike)


class OffsetAssignment(Generic[State]):
    """The decision on the batches of one object, in order; each decision considers those before it. Changes no state before `adopt`.

        assign → a batch that needs all the rules → accept or refuse → assign → … → None: outcomes, slices, sequences → adopt

    `assign` itself accepts three kinds of batches of open streams, if they have no expected offset:

    - batches without a producer;
    - the next batch of a known producer that counts records, unless it has one of `rule_flags`;
    - a batch with the flag `BATCH_NAMED` alone of a known producer, in the producer's epoch, which is not older than the partition's, if
      its sequence is greater than the last one and its `after_sequence` is not.
    """

    def __init__(
        self, partitions: Mapping[PartitionKey, State], batches: bytes, now_ms: int, rule_flags: int, /
    ) -> None:
        """Decide the batches, which are packed `CommitRows`. Every partition has a state in `partitions`.

        Raises `ValueError` for bytes that are not whole rows.
        """
        self._partitions = partitions
        self._batches = CommitRows(batches)
        self._now_ms = now_ms
        self._rule_flags = rule_flags
        self._at = 0
        self._is_stopped = False
        self._visits: dict[PartitionKey, _Visit[State]] = {}
        self._outcomes: list[tuple[int, int, int]] = []
        self._slices: list[tuple[int, int, int, int, int, int]] = []
        self._sequences: list[tuple[int, int, int, int, int, int, int]] = []

    def assign(self) -> int | None:
        """Decide batches up to the next one that needs all the rules; returns its index, or None if all batches are decided."""
        while self._at < len(self._batches):
            self._is_stopped = True  # unless the batch is accepted
            batch = self._batches[self._at]
            visit = self._visit(batch.partition)
            if not visit.state.stream.is_open or batch.expected_offset >= 0:
                return self._at
            if batch.producer_id < 0:
                self._accept(batch, visit, None)
                continue
            known = visit.known(batch.producer_id)
            last = None if known is None else self._last_sequence(batch, known, visit.state.epoch)
            if known is None or last is None:
                return self._at
            newest = (batch.producer_epoch, self._now_ms, batch.base_sequence, last, visit.end)
            self._accept(batch, visit, newest + known[_HEAD:_OLDER_END])
        return None

    def _last_sequence(self, batch: BatchCommit, known: Producer, partition_epoch: int) -> int | None:
        """Return the last sequence of the producer with this batch; None if the batch needs all the rules."""
        last, sequence = known[_HEAD + 1], batch.base_sequence
        if known[0] != batch.producer_epoch:
            return None
        if batch.flags == BATCH_NAMED:
            return sequence if sequence > last >= batch.after_sequence and known[0] >= partition_epoch else None
        if batch.flags & self._rule_flags or (last + 1) & SEQUENCE_MASK != sequence:
            return None
        return (sequence + batch.record_count - 1) & SEQUENCE_MASK

    @property
    def state(self) -> State:
        """The state of the partition of the batch at which `assign` stopped, as before this object."""
        return self._stopped()[1].state

    @property
    def end(self) -> int:
        """The end offset of that partition, with the batches that are accepted so far."""
        return self._stopped()[1].end

    def known(self) -> Producer | None:
        """Return what is remembered of that batch's producer, with the batches that are accepted so far; None if nothing is."""
        batch, visit = self._stopped()
        return visit.known(batch.producer_id)

    def accept(self, producer: Producer | None, /) -> None:
        """Accept the batch at which `assign` stopped; then `producer` is what is remembered of its producer (None: it has none)."""
        self._accept(*self._stopped(), producer)

    def refuse(self, kind: int, base_offset: int, start_offset: int, /) -> None:
        """Do not accept the batch at which `assign` stopped; its outcome has these fields."""
        self._stopped()
        self._outcomes.append((int(kind), base_offset, start_offset))
        self._next()

    @property
    def outcomes(self) -> bytes:
        """One row per batch that is decided: kind (0: accepted), base offset, the partition's start offset."""
        return _packed(self._outcomes)

    @property
    def slices(self) -> bytes:
        """One row per slice, in the order of the batches: partition, base offset, record count, position, length, newest timestamp.

        Accepted batches of a partition whose bytes are contiguous share a slice.
        """
        return _packed(self._slices)

    @property
    def sequences(self) -> bytes:
        """One row per accepted batch with a producer: partition, producer id, producer epoch, base sequence, record count, base offset,
        flags.
        """
        return _packed(self._sequences)

    def adopt(self, position: int, changed: MutableMapping[PartitionKey, State], /) -> None:
        """Apply the decision to the states of the partitions: the entry at `position` contains it. They are added to `changed`.

        Raises `ValueError` if batches are not decided.
        """
        if self._at < len(self._batches):
            raise ValueError("not all batches are decided")
        for key, visit in self._visits.items():
            if not visit.is_changed:
                continue
            state = visit.state
            state.tail.extend((state.end, position))
            state.end = visit.end
            state.size = visit.size
            state.changed = position
            state.producers.update(visit.producers)
            changed[key] = state

    def _visit(self, partition: PartitionKey) -> "_Visit[State]":
        visit = self._visits.get(partition)
        if visit is None:
            visit = self._visits[partition] = _Visit(self._partitions[partition])
        return visit

    def _stopped(self) -> "tuple[BatchCommit, _Visit[State]]":
        if not self._is_stopped:
            raise ValueError("assign() has not stopped at a batch")
        batch = self._batches[self._at]
        return batch, self._visits[batch.partition]

    def _accept(self, batch: BatchCommit, visit: "_Visit[State]", producer: Producer | None) -> None:
        partition, position, length, count, newest, producer_id, epoch, sequence, flags, *_ = batch
        if count <= 0:
            raise ValueError(f"I2: a batch has at least one record, not {count}")
        base = visit.end
        if base + count > _INT64_MAX:
            raise ValueError("I2: an offset has 63 bits")
        if visit.size + length > _INT64_MAX:
            raise ValueError("the size of a partition has 63 bits")
        if producer is not None:
            visit.producers[producer_id] = producer
            self._sequences.append((partition, producer_id, epoch, sequence, count, base, flags))
        self._outcomes.append((0, base, visit.state.start))
        last = self._slices[-1] if self._slices else None
        if last is not None and last[0] == partition and last[3] + last[4] == position:
            self._slices[-1] = (partition, last[1], last[2] + count, last[3], last[4] + length, max(last[5], newest))
        else:
            self._slices.append((partition, base, count, position, length, newest))
        visit.end += count
        visit.size += length
        visit.is_changed = True
        self._next()

    def _next(self) -> None:
        self._at += 1
        self._is_stopped = False


class _Visit(Generic[State]):
    """A partition of the object: its state before, and its end, size and changed producers after the batches decided so far."""

    __slots__ = ("end", "is_changed", "producers", "size", "state")

    def __init__(self, state: State) -> None:
        self.state = state
        self.end = state.end
        self.size = state.size
        self.producers: dict[int, Producer] = {}
        self.is_changed = False

    def known(self, producer_id: int) -> Producer | None:
        return self.producers.get(producer_id) or self.state.producers.get(producer_id)


def _packed(rows: Iterable[tuple[int, ...]]) -> bytes:
    return b"".join(pack(f"<{len(row)}q", *row) for row in rows)
