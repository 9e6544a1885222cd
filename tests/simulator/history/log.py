"""Check one partition of a topic, in all its incarnations: the records that were sent, acknowledged and read.

Two things are not promised and so not checked: how soon a server sees the commits of another server (a read may be empty, and its end
offset may lag), and where retention moves the start offset.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate

from simulator.history.evidence import Evidence, incarnation_of, sent_records
from simulator.history.frontier import Frontier
from simulator.history.model import (
    OUT_OF_RANGE,
    Bounds,
    Complete,
    Log,
    OfLog,
    Operation,
    Outcome,
    Produce,
    Read,
    Trim,
)
from simulator.history.promises import Promise, Violation, broken
from simulator.history.rows import check_rows
from simulator.history.shares import check_shares
from simulator.history.surveys import check_surveys


def check_partition(operations: Sequence[Operation], counts: Counter[str]) -> Iterator[Violation]:
    """Check the operations on one partition, and add their number by kind to `counts`."""
    operations = sorted(operations, key=lambda operation: operation.start)
    produces = [operation for operation in operations if isinstance(operation.call, Produce)]
    sent = sent_records(produces)
    for operation in produces:
        assert isinstance(operation.call, Produce)
        counts[f"records {operation.outcome}"] += len(operation.call.records)
    for log in sorted({_log(operation) for operation in operations if _is_placed(operation)}):
        mine = [operation for operation in operations if isinstance(operation.call, Produce) or _log(operation) == log]
        evidence = Evidence(log, sent)
        yield from evidence.collect(mine)
        yield from evidence.check_order(produces)
        yield from _Order(evidence, mine).check()
        yield from check_rows(evidence, mine)
        yield from check_shares(evidence, mine)
        yield from check_surveys(evidence, mine)
        counts.update(evidence.counts)
        counts["offsets read back"] += len(evidence.read)
        counts["unknown records stored"] += sum(
            sent[name].operation.outcome is Outcome.UNKNOWN for name in evidence.offsets if name in sent
        )


def _log(operation: Operation) -> Log:
    call = operation.call
    assert isinstance(call, OfLog)
    if isinstance(call, Produce):
        return call.log._replace(incarnation=incarnation_of(operation))
    return call.log


def _is_placed(operation: Operation) -> bool:
    """Return whether the operation names an incarnation; a produce that was not acknowledged may name none."""
    return operation.is_ok or not isinstance(operation.call, Produce)


class _Order:
    """Checks of density, and of the real-time order of end and start offsets."""

    def __init__(self, evidence: Evidence, operations: Sequence[Operation]) -> None:
        self._evidence = evidence
        self._log = evidence.log
        self._operations = operations
        self._trims = [
            (operation.start, operation.call.start)
            for operation in operations
            if isinstance(operation.call, Trim) and operation.outcome is not Outcome.FAIL
        ]
        shown = ((start, operation) for operation in operations for start in _shown_starts(operation))
        self._ruled_start = max((start for start, by in shown if not self._is_asked_for(start, by)), default=0)
        self._ends = Frontier((end, operation) for operation in operations for end in self._shown_ends(operation))
        done = [operation for operation in operations if operation.is_ok]
        self._starts = Frontier((start, operation) for operation in done for start in _shown_starts(operation))

    def _is_asked_for(self, start: int, shown_by: Operation) -> bool:
        """Return whether a trim to `start` began before the end of the operation that returned this start offset."""
        return any(begun < shown_by.returned for begun, asked in self._trims if asked == start)

    def _shown_ends(self, operation: Operation) -> Iterator[int]:
        """Yield the end offsets that an operation proves: the log is at least that long when the operation ends."""
        call, answer = operation.call, operation.answer
        if not operation.is_ok:
            return
        if isinstance(call, Produce):
            if incarnation_of(operation) == self._log.incarnation and answer.offset is not None and answer.offset >= 0:
                yield answer.offset + len(call.records)
        elif isinstance(call, Read | Bounds):
            if answer.end is not None:
                yield answer.end
            if answer.records:
                yield answer.records[-1].offset + 1

    def check(self) -> Iterator[Violation]:
        """Apply all rules of this class."""
        newest = self._newest_senders()
        for operation in self._operations:
            call = operation.call
            if isinstance(call, Produce):
                yield from self._produce(operation, call)
            elif isinstance(call, Bounds) and operation.is_ok:
                yield from self._bounds(operation)
            elif isinstance(call, Read) and operation.is_ok:
                yield from self._read(operation, call)
            elif isinstance(call, Read) and operation.answer.why == OUT_OF_RANGE:
                yield from self._out_of_range(operation, call)
            elif isinstance(call, Complete) and operation.is_ok:
                yield from self._complete(operation)
            if operation.is_ok and isinstance(call, Read | Bounds):
                yield from self._from_the_future(operation, newest)

    def _produce(self, operation: Operation, call: Produce) -> Iterator[Violation]:
        if operation.is_ok and incarnation_of(operation) != self._log.incarnation:
            return
        known = [self._evidence.offsets[record.id] for record in call.records if record.id in self._evidence.offsets]
        before = self._ends.before(operation.start)
        if known and before is not None and min(known) < before[0]:
            detail = (
                f"the log ended at {before[0]} before {call.records[0].id} was sent, which is at offset {min(known)}"
            )
            yield broken(Promise.REAL_TIME, self._log, detail, before[1], operation, focus=before[0] - 1)

    def _bounds(self, operation: Operation) -> Iterator[Violation]:
        answer = operation.answer
        before = self._ends.before(operation.start)
        if before is not None and answer.end is not None and answer.end < before[0]:
            detail = f"the end was {before[0]}, later {answer.end}"
            yield broken(Promise.END, self._log, detail, before[1], operation, focus=before[0] - 1)
        before = self._starts.before(operation.start)
        if before is not None and answer.start is not None and answer.start < before[0]:
            detail = f"the start was {before[0]}, later {answer.start}"
            yield broken(Promise.START, self._log, detail, before[1], operation)

    def _read(self, operation: Operation, call: Read) -> Iterator[Violation]:
        due = call.start
        for seen in operation.answer.records:
            if seen.offset != due:
                detail = f"a reader that asked for offset {call.start} got {seen.offset} where {due} was due"
                yield broken(Promise.DENSE, self._log, detail, operation, focus=due)
                return
            due += 1

    def _out_of_range(self, operation: Operation, call: Read) -> Iterator[Violation]:
        before = self._ends.before(operation.start)
        start = self._start_max(operation)
        if before is not None and start <= call.start <= before[0]:
            detail = (
                f"offset {call.start} was out of range; the log ended at {before[0]} and was trimmed to {start} at most"
            )
            yield broken(Promise.READABLE, self._log, detail, before[1], operation, focus=call.start)

    def _start_max(self, operation: Operation | None = None) -> int:
        """Return the largest start that the log may have had when the operation ended, by the trims so far and by retention.

        A start offset that an operation returned before a trim to it began comes from retention, which may have moved it at any time.
        """
        until = operation.end if operation is not None else None
        asked = [start for begun, start in self._trims if until is None or begun < until]
        return max([0, self._ruled_start, *asked])

    def _newest_senders(self) -> tuple[list[int], list[Operation]]:
        """Return the known offsets in order, and for each the latest-begun operation that sent its record or an earlier one."""
        known = [
            (offset, self._evidence.sent[place.id].operation)
            for offset, place in sorted(self._evidence.places.items())
            if place.id in self._evidence.sent
        ]
        newest = list(accumulate((operation for _, operation in known), _later))
        return [offset for offset, _ in known], newest

    def _from_the_future(self, operation: Operation, newest: tuple[list[int], list[Operation]]) -> Iterator[Violation]:
        """Check that a returned end offset counts only records that had been sent by then."""
        end = operation.answer.end
        if end is None:
            return
        offsets, senders = newest
        below = bisect_left(offsets, end)
        if below and senders[below - 1].start > operation.returned:
            detail = f"the end was returned as {end} before a record below it was sent"
            yield broken(Promise.SENT, self._log, detail, operation, senders[below - 1], focus=end - 1)

    def _complete(self, by: Operation) -> Iterator[Violation]:
        before = self._ends.before(by.start)
        assert isinstance(by.call, Complete)
        start, end = max(by.call.start, self._start_max()), before[0] if before is not None else 0
        read = self._evidence.read
        missing = next((offset for offset in range(start, end) if offset not in read), None)
        if missing is not None:
            place = self._evidence.places.get(missing)
            shown = [place.operation] if place is not None else []
            detail = f"offset {missing} of [{start}, {end}) was never read" + (f": {place.id}" if place else "")
            yield broken(Promise.COMPLETE, self._log, detail, *shown, by, focus=missing)
        for operation in self._operations:
            call = operation.call
            if not isinstance(call, Produce) or not operation.is_ok or operation.returned >= by.start:
                continue
            is_here = incarnation_of(operation) == self._log.incarnation and operation.answer.offset in (None, -1)
            # A record of unknown offset may lie below the start.
            if is_here and start == 0 and any(record.id not in self._evidence.offsets for record in call.records):
                detail = f"{call.records[0].id} was acknowledged without an offset, and never read"
                yield broken(Promise.COMPLETE, self._log, detail, operation, by)


def _shown_starts(operation: Operation) -> Iterator[int]:
    if operation.is_ok and isinstance(operation.call, Trim | Complete):
        yield operation.call.start
    has_start = isinstance(operation.call, Bounds) or operation.answer.why == OUT_OF_RANGE
    if has_start and operation.answer.start is not None:
        yield operation.answer.start


def _later(before: Operation, operation: Operation) -> Operation:
    return before if before.start >= operation.start else operation
