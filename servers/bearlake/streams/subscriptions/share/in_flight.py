"""The records of one partition that a share group has in flight: the rules, without input, output or clocks (KIP-932).

    0 ........ start        AVAILABLE, 2 times  ACQUIRED by m1      DONE         end ...
    all done  | first open | to acquire again | locked for a time  | accepted ... | never acquired

Runs of equal offsets cover `[start, end)` without gaps. The first run is never DONE, so `start` moves as soon as its records are done.

- Acquiring counts a delivery and locks the records for one member. Who acknowledges must hold the lock; otherwise nothing of the
  request is applied.
- A record that is released, or whose lock expires, is AVAILABLE again, unless it was delivered `delivery_count_max` times: then it is DONE.
- Offsets without records (gaps of the log, markers, aborted batches) are DONE as soon as a read shows them.

The stored form keeps delivery counts: a record that is ACQUIRED when its server dies counts as AVAILABLE with the count of that delivery.

Source: KIP-932, KIP-1222 (renew); Apache Kafka 4.3, SharePartition.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple

from bearlake.errors import Conflict, Invalid
from bearlake.streams.subscriptions.share import packing


class RecordState(Enum):
    """The state of a record in flight."""

    AVAILABLE = "available"
    ACQUIRED = "acquired"
    DONE = "done"
    """Accepted, rejected, given up after too many deliveries, or no record."""


class AckType(IntEnum):
    """What a member says about a record; the numbers are those of Kafka's protocol."""

    GAP = 0
    """There is no record at this offset."""
    ACCEPT = 1
    RELEASE = 2
    """Deliver it again."""
    REJECT = 3
    """Deliver it never again."""
    RENEW = 4
    """Keep it locked (KIP-1222)."""


class InvalidRecordState(Conflict):
    """The member does not hold the locks of all records that it acknowledges; nothing was changed."""


class Batch(NamedTuple):
    """A record batch of the log, offsets `[start, end)`; `is_empty`: it has no records for consumers."""

    start: int
    end: int
    is_empty: bool = False


class Acquired(NamedTuple):
    """Offsets `[start, end)` that a member has acquired; `delivery_count` is 1 the first time."""

    start: int
    end: int
    delivery_count: int


class ShareAck(NamedTuple):
    """Acknowledges offsets `[start, end)`: `types` has one value for all of them, or one for each."""

    start: int
    end: int
    types: Sequence[int]


@dataclass(slots=True)
class Run:
    """Offsets `[start, end)` in the same state. `member` and `deadline` (s, of the caller's clock) are those of the lock."""

    start: int
    end: int
    state: RecordState
    delivery_count: int = 0
    member: str = ""
    deadline: float = 0.0

    def is_like(self, other: "Run") -> bool:
        """Whether the two runs differ only in their offsets."""
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member == other.member
            and self.deadline == other.deadline
        )


class InFlight:
    """The state of one share group in one partition."""

    def __init__(self, start: int) -> None:
        self.mark_delete = start
        """The share-partition start offset: all smaller offsets are done."""
        self.end = start
        """The next offset to be acquired for the first time."""
        self.version = 0
        """Grows with every change that the stored form shows."""
        self._runs: list[Run] = []

    # -- what there is -------------------------------------------------------------------------------------------

    @property
    def runs(self) -> Sequence[Run]:
        """The runs that cover `[mark_delete, end)`; the caller must not change them."""
        return self._runs

    @property
    def count(self) -> int:
        """Number of offsets in flight."""
        return self.end - self.mark_delete

    @property
    def done_count(self) -> int:
        """Number of offsets above `mark_delete` that are done."""
        return sum(run.end - run.start for run in self._runs if run.state is RecordState.DONE)

    @property
    def has_acquired(self) -> bool:
        """Whether a member holds locks."""
        return any(run.state is RecordState.ACQUIRED for run in self._runs)

    def next_offset(self, count_max: int) -> int | None:
        """Return the first offset that can be acquired; None if `count_max` offsets are in flight and none of them is AVAILABLE."""
        for run in self._runs:
            if run.state is RecordState.AVAILABLE:
                return run.start
        return self.end if self.count < count_max else None

    def first_deadline(self) -> float | None:
        """Return the time at which the first lock expires; None without locks."""
        return min((run.deadline for run in self._runs if run.state is RecordState.ACQUIRED), default=None)

    # -- acquiring -----------------------------------------------------------------------------------------------

    def acquire(
        self,
        batches: Sequence[Batch],
        offset: int,
        member: str,
        deadline: float,
        *,
        record_count_max: int,
        is_strict: bool,
        count_max: int,
    ) -> list[Acquired]:
        """Lock what is available in `batches`, which were read from `offset` on (at most `end`); returns it in order.

        `record_count_max` (>= 1): stop with the batch that reaches it, or, with `is_strict`, at it. `count_max`: offsets in flight.
        Batches without records and offsets between batches become DONE.
        """
        found: list[Acquired] = []
        left = record_count_max
        at = offset
        for batch in batches:
            if batch.start > at:
                self._skip(at, batch.start)
            at = max(at, batch.end)
            if batch.is_empty:
                self._skip(batch.start, batch.end)
                continue
            taken = self._take(batch, member, deadline, left if is_strict else batch.end - batch.start, count_max)
            found += taken
            left -= sum(item.end - item.start for item in taken)
            if left <= 0 or self.end < batch.end:
                break
        self._settle()
        return found

    def _take(self, batch: Batch, member: str, deadline: float, left: int, count_max: int) -> list[Acquired]:
        found: list[Acquired] = []
        for run in list(self._between(batch.start, batch.end)):
            if left <= 0:
                return found
            if run.state is RecordState.AVAILABLE:
                start, end = max(run.start, batch.start), min(run.end, batch.end)
                end = min(end, start + left)
                count = run.delivery_count + 1
                self._put(Run(start, end, RecordState.ACQUIRED, count, member, deadline))
                found.append(Acquired(start, end, count))
                left -= end - start
        start = max(batch.start, self.end)
        end = min(batch.end, start + left, self.mark_delete + max(count_max, self.end - self.mark_delete))
        if start < end:
            self._append(Run(start, end, RecordState.ACQUIRED, 1, member, deadline))
            found.append(Acquired(start, end, 1))
        return found

    def _skip(self, start: int, end: int) -> None:
        """There are no records at these offsets."""
        for run in list(self._between(start, end)):
            if run.state is RecordState.AVAILABLE:
                self._put(Run(max(run.start, start), min(run.end, end), RecordState.DONE))
        if end > self.end:
            self._append(Run(max(start, self.end), end, RecordState.DONE))

    # -- giving back ---------------------------------------------------------------------------------------------

    def acknowledge(
        self, acks: Sequence[ShareAck], member: str, *, delivery_count_max: int, renewed_until: float | None
    ) -> None:
        """Apply all acknowledgements, or none. Offsets below `mark_delete` are ignored.

        `renewed_until`: the new deadline of records with RENEW; None: renewing is not allowed.

        Raises:
            Invalid: malformed acknowledgements, or offsets that were never acquired.
            InvalidRecordState: the member does not hold the locks.
        """
        pieces = list(self._pieces(acks, may_renew=renewed_until is not None))
        for start, end, _ in pieces:
            if any(run.state is not RecordState.ACQUIRED or run.member != member for run in self._between(start, end)):
                raise InvalidRecordState("The record cannot be acknowledged. The record is not acquired by the member.")
        for start, end, kind in pieces:
            for run in list(self._between(start, end)):
                first, last = max(run.start, start), min(run.end, end)
                if kind is AckType.RENEW:
                    assert renewed_until is not None
                    self._put(Run(first, last, RecordState.ACQUIRED, run.delivery_count, member, renewed_until))
                elif kind is AckType.RELEASE:
                    self._release(run, first, last, delivery_count_max)
                else:
                    self._put(Run(first, last, RecordState.DONE))
        self._settle()

    def _pieces(self, acks: Sequence[ShareAck], *, may_renew: bool) -> Iterator[tuple[int, int, AckType]]:
        """Return offset ranges that are in flight, with their type, in order. Raises `Invalid`."""
        before = -1
        for ack in acks:
            if not before <= ack.start < ack.end:
                raise Invalid("The acknowledgement batches are not in order of offsets.")
            before = ack.end
            if len(ack.types) not in (1, ack.end - ack.start):
                raise Invalid("The number of acknowledge types differs from the number of offsets.")
            if ack.end > self.end:
                raise Invalid("The last offset in the batch was never acquired.")
            kinds = [_kind(value, may_renew=may_renew) for value in ack.types]
            start = ack.start
            if len(kinds) == 1:
                yield max(start, self.mark_delete), ack.end, kinds[0]
                continue
            for index, kind in enumerate(kinds, start=1):
                if index == len(kinds) or kinds[index] is not kind:
                    end = ack.start + index
                    yield max(start, self.mark_delete), end, kind
                    start = end

    def release(self, member: str, *, delivery_count_max: int) -> bool:
        """Release all records that the member has acquired; returns whether there were any."""
        return self._release_if(lambda run: run.member == member, delivery_count_max)

    def expire(self, now: float, *, delivery_count_max: int) -> bool:
        """Release all records whose lock has expired; returns whether there were any."""
        return self._release_if(lambda run: run.deadline <= now, delivery_count_max)

    def _release_if(self, is_meant: Callable[[Run], bool], delivery_count_max: int) -> bool:
        meant = [run for run in self._runs if run.state is RecordState.ACQUIRED and is_meant(run)]
        for run in meant:
            self._release(run, run.start, run.end, delivery_count_max)
        self._settle()
        return bool(meant)

    def _release(self, run: Run, start: int, end: int, delivery_count_max: int) -> None:
        if run.delivery_count >= delivery_count_max:
            self._put(Run(start, end, RecordState.DONE))
        else:
            self._put(Run(start, end, RecordState.AVAILABLE, run.delivery_count))

    def trim(self, start: int) -> bool:
        """All offsets below `start` are gone from the log; returns whether that changed anything."""
        if start <= self.mark_delete:
            return False
        if start >= self.end:
            self.reset(start)
            return True
        first = self._cut(start)
        del self._runs[:first]
        self.mark_delete = start
        self.version += 1
        self._settle()
        return True

    def reset(self, offset: int) -> None:
        """Continue at `offset`, whatever was in flight."""
        self.mark_delete = self.end = offset
        self._runs.clear()
        self.version += 1

    # -- stored form ---------------------------------------------------------------------------------------------

    def pack(self) -> tuple[bytes, bool]:
        """Return the stored form (`packing.py`), and True: it is complete, because `count_max` bounds it."""
        return packing.pack(
            (run.start, run.end, packing.DONE if run.state is RecordState.DONE else run.delivery_count)
            for run in self._runs
        ), True

    @classmethod
    def unpack(cls, start: int, packed: bytes) -> "InFlight":
        """Decode the stored form. Raises `Corrupt`."""
        found = cls(start)
        for first, end, count in packing.unpack(start, packed):
            is_done = count == packing.DONE
            state = RecordState.DONE if is_done else RecordState.AVAILABLE
            found._runs.append(Run(first, end, state, 0 if is_done else count))
            found.end = end
        found._settle()
        return found

    # -- runs ----------------------------------------------------------------------------------------------------

    def _index(self, offset: int) -> int:
        """The index of the run that has the offset, which is in flight."""
        return bisect_right(self._runs, offset, key=_start) - 1

    def _between(self, start: int, end: int) -> Iterator[Run]:
        """The runs that overlap `[start, end)`; the caller copies them before it changes any."""
        start, end = max(start, self.mark_delete), min(end, self.end)
        if start < end:
            for index in range(self._index(start), len(self._runs)):
                run = self._runs[index]
                if run.start >= end:
                    return
                yield run

    def _cut(self, offset: int) -> int:
        """Make a run begin at the offset; returns the run's index."""
        if offset >= self.end:
            return len(self._runs)
        index = self._index(offset)
        run = self._runs[index]
        if run.start == offset:
            return index
        tail = Run(offset, run.end, run.state, run.delivery_count, run.member, run.deadline)
        run.end = offset
        self._runs.insert(index + 1, tail)
        return index + 1

    def _put(self, run: Run) -> None:
        """Replace what is at the run's offsets, all of them in flight."""
        first, behind = self._cut(run.start), self._cut(run.end)
        self._runs[first:behind] = [run]
        self.version += 1

    def _append(self, run: Run) -> None:
        """Add a run; offsets between `end` and its start have no records."""
        if run.start > self.end:
            self._runs.append(Run(self.end, run.start, RecordState.DONE))
        self._runs.append(run)
        self.end = run.end
        self.version += 1

    def _settle(self) -> None:
        """Join equal neighbours, and move the start over what is done."""
        joined: list[Run] = []
        for run in self._runs:
            if joined and joined[-1].is_like(run):
                joined[-1].end = run.end
            elif joined or run.state is not RecordState.DONE:
                joined.append(run)
        self._runs = joined
        start = joined[0].start if joined else self.end
        if start != self.mark_delete:
            self.mark_delete = start
            self.version += 1


def _start(run: Run) -> int:
    return run.start


def _kind(value: int, *, may_renew: bool) -> AckType:
    try:
        kind = AckType(value)
    except ValueError as error:
        raise Invalid(f"Unknown acknowledge type: {value}") from error
    if kind is AckType.RENEW and not may_renew:
        raise Invalid("Renew acknowledgements are not allowed.")
    return kind
