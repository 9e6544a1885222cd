"""The records of one partition that a share group has in flight: the rules, without input, output or clocks (KIP-932).

    0 ........ start        AVAILABLE, 2 times  ACQUIRED by m1      DONE         end ...
    all done  | first open | to acquire again | locked for a time  | accepted ... | never acquired

Runs of equal offsets cover `[start, end)` without gaps. The first run is never DONE, so `start` moves as soon as its records are done.

- Acquiring counts a delivery and locks the records for one member. Who acknowledges must hold the lock; otherwise nothing of the
  request is applied.
- A record that is released, or whose lock expires, is AVAILABLE again, unless it was delivered `delivery_count_max` times: then it is DONE.
- What a member accepts or rejects is DONE once that is saved: the stored form shows it as DONE at once, and the lock stays until the
  result is known. If it cannot be saved, the member may say it again, or the lock expires.
- Offsets without records (gaps of the log, markers, aborted batches) are DONE as soon as a read shows them.

The stored form keeps delivery counts: a record that is ACQUIRED when its server dies counts as AVAILABLE with the count of that delivery.

Source: KIP-932, KIP-1222 (renew); Apache Kafka 4.3, SharePartition.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from bearlake.streams.subscriptions.share import packing
from bearlake.streams.subscriptions.share.acknowledgements import (
    AckType,
    InvalidRecordState,
    ShareAck,
    acknowledged,
    pieces,
)
from bearlake.streams.subscriptions.share.acquiring import Acquired, Batch, Few, is_near_limit, skip_gap, take_all
from bearlake.streams.subscriptions.share.runs import Edit, RecordState, Run, index_of


class InFlight:
    """The state of one share group in one partition."""

    def __init__(self, start: int) -> None:
        self.mark_delete = start
        """The share-partition start offset: all smaller offsets are done."""
        self.end = start
        """The next offset to be acquired for the first time."""
        self.version = 0
        """Grows with every change that the stored form shows."""
        self.reset_count = 0
        """Grows whenever the group continues at another offset: what was read before does not belong to the new position."""
        self._runs: list[Run] = []
        self._available_from = start
        """No smaller offset is AVAILABLE."""
        self._unit_ends: dict[int, int] = {}
        """The ends of units, by their first offsets, ascending."""

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
        at = max(self._available_from, self.mark_delete)
        for index in range(index_of(self._runs, at) if at < self.end else len(self._runs), len(self._runs)):
            if self._runs[index].state is RecordState.AVAILABLE:
                self._available_from = self._runs[index].start
                return self._available_from
        self._available_from = self.end
        return self.end if self.count < count_max else None

    def first_deadline(self) -> float | None:
        """Return the time at which the first lock expires; None without locks."""
        return min((run.deadline for run in self._runs if run.is_locked), default=None)

    # -- acquiring -----------------------------------------------------------------------------------------------

    def acquire(
        self,
        batches: Iterable[Batch],
        offset: int,
        member: str,
        deadline: float,
        *,
        record_count_max: int,
        is_strict: bool,
        count_max: int,
        delivery_count_max: int,
        via: str = "",
    ) -> list[Acquired]:
        """Lock what is available in `batches`, which were read from `offset` on (at most `end`); returns it in order.

        `record_count_max` (>= 1): stop with the batch that reaches it, or, with `is_strict`, at it. `count_max`: offsets in flight. `via`:
        the server that the member asked. Takes no more batches than it needs. Offsets without records become DONE, and so do records that
        were delivered `delivery_count_max` times. Records near that limit come alone (`acquiring.py`).
        """
        found: list[Acquired] = []
        left = record_count_max
        few: Few | None = None
        unit = self.end
        limit = max(self.end, self.mark_delete + count_max)
        lock = Run(0, 0, RecordState.ACQUIRED, 1, member, deadline, via=via, unit=unit)
        edit = Edit(self._runs, max(offset, self.mark_delete), self.end)
        for batch in batches:
            skip_gap(edit, batch.start)
            if batch.is_empty:
                skip_gap(edit, batch.end)
                continue
            end, count = min(batch.end, limit), left if is_strict else batch.end - batch.start
            if few is None and is_near_limit(self._runs, edit.at, min(end, self.end), delivery_count_max):
                if found:
                    break
                few = Few(self._unit_size, delivery_count_max)
            taken = few.take(edit, end, lock, count) if few else take_all(edit, end, lock, count, delivery_count_max)
            found += taken
            left -= sum(item.end - item.start for item in taken)
            if left <= 0 or edit.at < batch.end or (few is not None and few.is_over):
                break
        self._apply(edit)
        if self.end > unit:
            self._unit_ends[unit] = self.end
        return found

    def _unit_size(self, unit: int) -> int:
        return self._unit_ends.get(unit, unit) - unit

    # -- giving back ---------------------------------------------------------------------------------------------

    def acknowledge(
        self,
        acks: Sequence[ShareAck],
        member: str,
        *,
        delivery_count_max: int,
        renewed_until: float | None,
        awaits_save: bool = False,
    ) -> list[tuple[int, int]]:
        """Apply all acknowledgements, or none. Offsets below `mark_delete` are ignored.

        `renewed_until`: the new deadline of records with RENEW; None: renewing is not allowed. `awaits_save`: what is accepted or rejected
        ends with `finish`, to which the caller gives the offset ranges that this returns.

        Raises:
            Invalid: malformed acknowledgements, or offsets that were never acquired.
            InvalidRecordState: the member does not hold the locks, or may not renew them.
        """
        edit: Edit | None = None
        problem = False
        ending: list[tuple[int, int]] = []
        for start, end, kind in pieces(acks, self.mark_delete, self.end, may_renew=renewed_until is not None):
            if start >= end or problem:
                continue
            edit = edit or Edit(self._runs, start, self.end)
            edit.skip_to(start)
            while (piece := edit.piece(end)) is not None:
                if not piece.is_locked or piece.member != member:
                    problem = True  # malformed acknowledgements behind it are reported first
                    break
                run = acknowledged(piece, kind, delivery_count_max, renewed_until)
                if awaits_save and kind not in (AckType.RENEW, AckType.RELEASE):
                    ending.append((piece.start, piece.end))
                    run = replace(piece, is_ending=True)
                edit.put(run)
        if problem:
            raise InvalidRecordState("The record cannot be acknowledged. The record is not acquired by the member.")
        if edit is not None:
            self._apply(edit)
        return ending

    def finish(self, ending: Sequence[tuple[int, int]], reset_count: int, *, is_saved: bool) -> None:
        """What `acknowledge` has returned is saved, or it is not known to be; `reset_count`: as of then.

        If it is not, the member holds the locks again: what it says next, or the end of the locks, replaces what may be stored.
        """
        if reset_count != self.reset_count:
            return
        edit = self._edit_of(ending)
        for start, end in ending:
            edit.skip_to(start)
            while (piece := edit.piece(end)) is not None:
                if piece.is_ending:
                    done = Run(piece.start, piece.end, RecordState.DONE)
                    edit.put(done if is_saved else replace(piece, is_ending=False))
                else:
                    edit.skip_to(piece.end)
        version = self.version
        self._apply(edit)
        if is_saved:
            self.version = version  # the stored form says the same

    def give_back(self, ranges: Sequence[tuple[int, int]], member: str) -> bool:
        """Make what `member` acquired but was not sent available as before: that delivery does not count.

        `ranges`: offsets `[start, end)`, ascending. Returns whether the member held any of them.
        """
        edit = self._edit_of(ranges)
        for start, end in ranges:
            edit.skip_to(start)
            while (piece := edit.piece(end)) is not None:
                if piece.is_locked and piece.member == member:
                    edit.put(
                        Run(piece.start, piece.end, RecordState.AVAILABLE, piece.delivery_count - 1, unit=piece.unit)
                    )
                else:
                    edit.skip_to(piece.end)
        return self._apply(edit)

    def release(self, member: str, *, delivery_count_max: int, via: str | None = None) -> bool:
        """Release all records that the member has acquired, `via` one server or any; returns whether there were any."""
        return self._release_if(lambda run: run.member == member and via in (None, run.via), delivery_count_max)

    def expire(self, now: float, *, delivery_count_max: int) -> bool:
        """Release all records whose lock has expired; returns whether there were any."""
        return self._release_if(lambda run: run.deadline <= now, delivery_count_max)

    def _release_if(self, is_meant: Callable[[Run], bool], delivery_count_max: int) -> bool:
        edit = Edit(self._runs, self.mark_delete, self.end)
        while (piece := edit.piece(self.end)) is not None:
            if piece.is_locked and is_meant(piece):
                edit.put(acknowledged(piece, AckType.RELEASE, delivery_count_max, None))
            else:
                edit.skip_to(piece.end)
        return self._apply(edit)

    def trim(self, start: int) -> bool:
        """All offsets below `start` are gone from the log; returns whether that changed anything."""
        if start <= self.mark_delete:
            return False
        if start >= self.end:
            self.reset(start)
            return True
        first = index_of(self._runs, start)
        del self._runs[:first]
        self._runs[0] = self._runs[0].part(start, self._runs[0].end)
        self.version += 1
        self._move_start()
        return True

    def reset(self, offset: int) -> None:
        """Continue at `offset`, whatever was in flight."""
        self.mark_delete = self.end = self._available_from = offset
        self._runs.clear()
        self._unit_ends.clear()
        self.reset_count += 1
        self.version += 1

    # -- stored form ---------------------------------------------------------------------------------------------

    def pack(self) -> tuple[bytes, bool]:
        """Return the stored form (`packing.py`), and True: it is complete, because `count_max` bounds it."""
        runs = ((run, run.is_ending or run.state is RecordState.DONE) for run in self._runs)
        return packing.pack(
            (run.start, run.end, packing.DONE if done else run.delivery_count) for run, done in runs
        ), True

    @classmethod
    def unpack(cls, start: int, packed: bytes) -> "InFlight":
        """Decode the stored form. Raises `Corrupt`."""
        found = cls(start)
        edit = Edit(found._runs, start, start)
        for first, end, count in packing.unpack(start, packed):
            is_done = count == packing.DONE
            if is_done:
                edit.add(Run(first, end, RecordState.DONE))
            else:
                edit.add(Run(first, end, RecordState.AVAILABLE, count, unit=first))
                found._unit_ends[first] = end
        found._apply(edit)
        found.version = int(found.mark_delete != start)
        return found

    # -- changes -------------------------------------------------------------------------------------------------

    def _edit_of(self, ranges: Sequence[tuple[int, int]]) -> Edit:
        """Begin an edit of these offset ranges, which ascend."""
        return Edit(self._runs, max(ranges[0][0] if ranges else self.end, self.mark_delete), self.end)

    def _apply(self, edit: Edit) -> bool:
        """Put an edit in place; returns whether it changes anything."""
        if not edit.has_changes:
            return False
        edit.apply()
        if edit.first_available is not None:
            self._available_from = min(self._available_from, edit.first_available)
        self.end = max(self.end, edit.at)
        self.version += 1
        self._move_start()
        return True

    def _move_start(self) -> None:
        """Move the start over what is done."""
        if self._runs and self._runs[0].state is RecordState.DONE:
            del self._runs[0]
        self.mark_delete = self._runs[0].start if self._runs else self.end
        while self._unit_ends:
            first, end = next(iter(self._unit_ends.items()))
            if end > self.mark_delete:
                break
            del self._unit_ends[first]
