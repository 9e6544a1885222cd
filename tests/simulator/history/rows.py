"""Check the SQL rows of one partition. `evidence.py` checks the bytes at each offset, together with all other readers."""

from collections import Counter
from collections.abc import Iterator, Sequence

from simulator.history.evidence import Evidence
from simulator.history.frontier import Frontier
from simulator.history.model import Count, Operation, Rows
from simulator.history.promises import Promise, Violation, broken


def check_rows(evidence: Evidence, operations: Sequence[Operation]) -> Iterator[Violation]:
    """Check that each row appears once, that all rows in the covered range are present, and that the covered range never shrinks."""
    log = evidence.log
    done = [operation for operation in operations if operation.is_ok and isinstance(operation.call, Rows | Count)]
    covered = Frontier((end, operation) for operation in done for end in _covered(operation))
    for operation in done:
        call = operation.call
        assert isinstance(call, Rows | Count)
        if isinstance(call, Rows):
            yield from _once(evidence, operation)
        if call.start is None or call.end is None:
            continue
        yield from _there(evidence, operation, call.start, call.end)
        before = covered.before(operation.start)
        if before is not None and call.end < before[0]:
            detail = f"the table covered offsets below {before[0]}, later only those below {call.end}"
            yield broken(Promise.ROWS_STAY, log, detail, before[1], operation, focus=before[0] - 1)


def _covered(operation: Operation) -> Iterator[int]:
    call = operation.call
    if isinstance(call, Rows | Count) and call.end is not None:
        yield call.end


def _once(evidence: Evidence, operation: Operation) -> Iterator[Violation]:
    rows = Counter(seen.offset for seen in operation.answer.records)
    for offset, count in rows.items():
        if count > 1:
            yield broken(Promise.ROW_ONCE, evidence.log, f"offset {offset} is in {count} rows", operation, focus=offset)


def _there(evidence: Evidence, operation: Operation, start: int, end: int) -> Iterator[Violation]:
    """Check that rows are present; offsets whose record is unknown or cannot be a row may be absent."""
    due = [offset for offset in range(start, end) if _must_be_row(evidence, offset)]
    if isinstance(operation.call, Rows):
        present = {seen.offset for seen in operation.answer.records}
        missing = next((offset for offset in due if offset not in present), None)
        if missing is not None:
            place = evidence.places[missing]
            detail = f"offset {missing} ({place.id}) of [{start}, {end}) is not in the table"
            yield broken(Promise.ROW_THERE, evidence.log, detail, place.operation, operation, focus=missing)
        return
    count = operation.answer.count
    if count is not None and not len(due) <= count <= end - start:
        promise = Promise.ROW_THERE if count < len(due) else Promise.ROW_ONCE
        detail = f"[{start}, {end}) has {count} rows, at least {len(due)} and at most {end - start} are due"
        yield broken(promise, evidence.log, detail, operation)


def _must_be_row(evidence: Evidence, offset: int) -> bool:
    place = evidence.places.get(offset)
    sent = evidence.sent.get(place.id) if place is not None else None
    return sent is not None and sent.call.is_tabular
