"""Check transactions: what producers were told, and what readers of committed records got.

The last whole scan of each partition decides whether a transaction without an outcome was committed: it has all of its records, or none.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from simulator.history.copies import check_copies
from simulator.history.model import Operation, Outcome, Scan, Seen, Transact
from simulator.history.promises import Promise, Violation, broken


class _Sent(NamedTuple):
    """A record that a producer wrote."""

    partition: int
    operation: Operation


class _Place(NamedTuple):
    """Where a reader found a record, and the reader that found it first."""

    offset: int
    operation: Operation


def check_transactions(operations: Sequence[Operation], counts: Counter[str]) -> Iterator[Violation]:
    """Check all operations on transactional topics, and add their number by kind to `counts`.

    Raises `ValueError` if two records of a topic have the same id.
    """
    topics: dict[str, list[Operation]] = defaultdict(list)
    for operation in sorted(operations, key=lambda operation: operation.start):
        if isinstance(operation.call, Transact):
            counts[f"transactions {operation.outcome}"] += 1
        topics[_topic(operation)].append(operation)
    counts["transactional topics"] += len(topics)
    for _, found in sorted(topics.items()):
        yield from _Topic(found).check()
    yield from check_copies(operations)


class _Topic:
    def __init__(self, operations: Sequence[Operation]) -> None:
        self._transactions = [operation for operation in operations if isinstance(operation.call, Transact)]
        self._scans = [operation for operation in operations if isinstance(operation.call, Scan) and operation.is_ok]
        self._sent: dict[str, _Sent] = {}
        for operation in self._transactions:
            for partition, name in _transact(operation).writes:
                if name in self._sent:
                    raise ValueError(f"two records of {_transact(operation).topic} have the id {name}")
                self._sent[name] = _Sent(partition, operation)
        self._found: dict[str, _Place] = {}
        """The place of each record that was read, by id."""
        self._at: dict[tuple[int, int], tuple[str, Operation]] = {}
        """The record at each partition and offset that was read."""

    def check(self) -> Iterator[Violation]:
        """Apply all rules."""
        for scan in self._scans:
            yield from self._read(scan)
        yield from self._skipped()
        yield from self._whole()
        yield from self._order()

    def _read(self, scan: Operation) -> Iterator[Violation]:
        call = _scan(scan)
        due = call.start
        for seen in scan.answer.records:
            if seen.offset < due:
                detail = f"a reader got offset {seen.offset} of partition {call.partition} after {due - 1}"
                yield broken(Promise.DENSE, call.topic, detail, scan, focus=seen.offset)
            due = seen.offset + 1
            yield from self._seen(scan, call, seen)

    def _seen(self, scan: Operation, call: Scan, seen: Seen) -> Iterator[Violation]:
        name, other = self._at.setdefault((call.partition, seen.offset), (seen.id, scan))
        if name != seen.id:
            detail = f"offset {seen.offset} of partition {call.partition} has {name} and {seen.id}"
            yield broken(Promise.SAME, call.topic, detail, other, scan, focus=seen.offset)
        sent = self._sent.get(seen.id)
        if sent is None or sent.partition != call.partition or scan.returned < sent.operation.start:
            shown = [scan] if sent is None else [sent.operation, scan]
            detail = f"{seen.id} was read from partition {call.partition}"
            yield broken(Promise.SENT, call.topic, detail, *shown, focus=seen.offset)
            return
        if sent.operation.outcome is Outcome.FAIL:
            detail = f"{seen.id} was read at offset {seen.offset} of partition {call.partition}"
            yield broken(Promise.ABORTED, call.topic, detail, sent.operation, scan, focus=seen.offset)
        place = self._found.setdefault(seen.id, _Place(seen.offset, scan))
        if place.offset != seen.offset:
            detail = f"{seen.id} is at offsets {place.offset} and {seen.offset} of partition {call.partition}"
            yield broken(Promise.ONCE, call.topic, detail, sent.operation, place.operation, scan, focus=seen.offset)

    def _skipped(self) -> Iterator[Violation]:
        """Check that a reader got every record that anybody read between its first and its last offset."""
        known: dict[int, list[int]] = {}
        for partition, offset in sorted(self._at):
            known.setdefault(partition, []).append(offset)
        for scan in self._scans:
            call, records = _scan(scan), scan.answer.records
            if not records:
                continue
            offsets = known[call.partition]
            due = offsets[bisect_left(offsets, call.start) : bisect_left(offsets, records[-1].offset)]
            if len(due) < len(records):
                continue
            got = {seen.offset for seen in records}
            missing = next(offset for offset in due if offset not in got)
            name, other = self._at[call.partition, missing]
            detail = f"{name} at offset {missing} of partition {call.partition} is missing between others"
            yield broken(Promise.COMPLETE, call.topic, detail, other, scan, focus=missing)

    def _whole(self) -> Iterator[Violation]:
        """Check that the last whole scans have every committed transaction, and of every other one all records or none."""
        last: dict[int, tuple[Operation, set[str]]] = {}
        for scan in self._scans:
            if _scan(scan).is_whole:
                last[_scan(scan).partition] = scan, {seen.id for seen in scan.answer.records}
        for operation in self._transactions:
            topic = _transact(operation).topic
            writes = [write for write in _transact(operation).writes if write.partition in last]
            lost = [write for write in writes if write.id not in last[write.partition][1]]
            if not lost:
                continue
            scans = [last[write.partition][0] for write in (lost[0], *writes)]
            if operation.is_ok and operation.returned < scans[0].start:
                detail = f"{lost[0].id} was committed, and is not in partition {lost[0].partition}"
                yield broken(Promise.COMPLETE, topic, detail, operation, scans[0])
            elif len(lost) < len(writes) or any(write.id in self._found for write in writes):
                detail = f"{lost[0].id} is missing, other records of its transaction were read"
                yield broken(Promise.ATOMIC, topic, detail, operation, *scans)

    def _order(self) -> Iterator[Violation]:
        """Check that each partition has a producer's records in the order in which they were sent."""
        newest: dict[tuple[str, int], tuple[int, str]] = {}
        for operation in sorted(self._transactions, key=lambda operation: _transact(operation).sequence):
            call = _transact(operation)
            for partition, name in call.writes:
                place = self._found.get(name)
                if place is None:
                    continue
                before, other = newest.get((call.producer, partition), (-1, ""))
                if place.offset <= before:
                    detail = f"{name} is at offset {place.offset}, {other}, which was sent before, at {before}"
                    yield broken(Promise.ORDER, call.topic, detail, operation, focus=place.offset)
                newest[call.producer, partition] = place.offset, name


def _topic(operation: Operation) -> str:
    assert isinstance(operation.call, Transact | Scan)
    return operation.call.topic


def _transact(operation: Operation) -> Transact:
    assert isinstance(operation.call, Transact)
    return operation.call


def _scan(operation: Operation) -> Scan:
    assert isinstance(operation.call, Scan)
    return operation.call
