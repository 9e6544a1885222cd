"""The log of one incarnation of a partition as the operations show it: the record at each offset, and the operation that showed it.

Collecting the evidence reveals contradictions: two records at one offset, one record at two offsets, a record that was never sent.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from simulator.history.model import Kind, Log, Operation, Outcome, Produce, Read, Record, Rows, Seen, Survey, Take
from simulator.history.promises import Promise, Violation, broken


class Sent(NamedTuple):
    """A record of a batch that a client sent."""

    operation: Operation
    call: Produce
    record: Record


class Place(NamedTuple):
    """The record at an offset, and the operation that first showed it. An empty digest: unknown."""

    id: str
    digest: str
    operation: Operation


def sent_records(produces: Iterable[Operation]) -> dict[str, Sent]:
    """Return all records that were sent to the partition, by id. Raises `ValueError` if two records have the same id."""
    found: dict[str, Sent] = {}
    for operation in produces:
        call = operation.call
        assert isinstance(call, Produce)
        for record in call.records:
            if record.id in found:
                raise ValueError(f"two records of {call.log.topic}/{call.log.partition} have the id {record.id}")
            found[record.id] = Sent(operation, call, record)
    return found


def incarnation_of(operation: Operation) -> str:
    """Return the incarnation that a produce wrote to; "" if unknown."""
    assert isinstance(operation.call, Produce)
    return operation.answer.incarnation or operation.call.log.incarnation


class Evidence:
    """The known part of a log, in `places` and `offsets`; see the module."""

    def __init__(self, log: Log, sent: Mapping[str, Sent]) -> None:
        self.log = log
        self.sent = sent
        self.places: dict[int, Place] = {}
        self.offsets: dict[str, int] = {}
        """The smallest known offset of each record, by id."""
        self.read: set[int] = set()
        """Offsets that readers of the log returned."""
        self.counts: Counter[str] = Counter()

    def collect(self, operations: Iterable[Operation]) -> Iterator[Violation]:
        """Add acknowledgements, reads and rows; yield the contradictions."""
        for operation in operations:
            if not operation.is_ok:
                continue
            call = operation.call
            if isinstance(call, Produce) and incarnation_of(operation) == self.log.incarnation:
                yield from self._acknowledged(operation, call)
            elif isinstance(call, Read | Rows | Take | Survey):
                for seen in operation.answer.records:
                    yield from self._seen(operation, seen)
                if isinstance(call, Read):
                    self.read.update(seen.offset for seen in operation.answer.records)

    def _acknowledged(self, operation: Operation, call: Produce) -> Iterator[Violation]:
        self.counts["acknowledged"] += len(call.records)
        base = operation.answer.offset
        if base is None or base < 0:
            return
        for at, record in enumerate(call.records):
            place = self.places.setdefault(base + at, Place(record.id, record.digest, operation))
            if place.id != record.id:
                yield self._broken(
                    Promise.STORED,
                    f"{record.id} was acknowledged at offset {base + at}, where {place.id} is",
                    base + at,
                    operation,
                    place.operation,
                )
            else:
                yield from self._placed(record.id, base + at, operation)

    def _seen(self, operation: Operation, seen: Seen) -> Iterator[Violation]:
        offset = seen.offset
        if not seen.id:
            return
        place = self.places.setdefault(offset, Place(seen.id, seen.digest, operation))
        if place.operation is not operation:
            yield from self._compare(operation, seen, place)
        sent = self.sent.get(seen.id)
        if sent is None:
            yield self._broken(Promise.SENT, f"{seen.id} at offset {offset} was never sent", offset, operation)
            return
        if sent.record.digest and seen.digest and sent.record.digest != seen.digest:
            detail = f"offset {offset} has other bytes than were sent as {seen.id}"
            yield self._broken(Promise.SAME, detail, offset, sent.operation, operation)
        if operation.returned < sent.operation.start:
            detail = f"{seen.id} was read at offset {offset} before it was sent"
            yield self._broken(Promise.SENT, detail, offset, operation, sent.operation)
        if sent.operation.outcome is Outcome.FAIL and incarnation_of(sent.operation) in ("", self.log.incarnation):
            detail = f"{seen.id} was refused and is at offset {offset}"
            yield self._broken(Promise.REFUSED, detail, offset, sent.operation, operation)
        if place.id == seen.id:
            yield from self._placed(seen.id, offset, operation)

    def _compare(self, operation: Operation, seen: Seen, place: Place) -> Iterator[Violation]:
        if place.id != seen.id:
            is_acknowledged = isinstance(place.operation.call, Produce)
            promise = Promise.STORED if is_acknowledged else Promise.SAME
            yield self._broken(
                promise, f"offset {seen.offset} has {place.id} and {seen.id}", seen.offset, place.operation, operation
            )
        elif not place.digest:
            self.places[seen.offset] = Place(seen.id, seen.digest, operation)
        elif seen.digest and place.digest != seen.digest:
            yield self._broken(
                Promise.SAME,
                f"offset {seen.offset} ({seen.id}) has bytes {place.digest} and {seen.digest}",
                seen.offset,
                place.operation,
                operation,
            )

    def _placed(self, name: str, offset: int, operation: Operation) -> Iterator[Violation]:
        first = self.offsets.setdefault(name, offset)
        if first == offset:
            return
        self.offsets[name] = min(first, offset)
        sent = self.sent.get(name)
        if sent is None or sent.call.kind is Kind.PLAIN:
            self.counts["duplicates of plain producers"] += 1
            return
        detail = f"{name} is at offsets {first} and {offset}"
        yield self._broken(Promise.ONCE, detail, offset, sent.operation, self.places[first].operation, operation)

    def check_order(self, produces: Sequence[Operation]) -> Iterator[Violation]:
        """Check the order of each producer's records; `produces` are all those of the partition."""
        newest: dict[tuple[str, str], tuple[int, str, Operation]] = {}
        for operation in sorted(produces, key=_sequence):
            call = operation.call
            assert isinstance(call, Produce)
            if call.kind is Kind.PLAIN or incarnation_of(operation) not in ("", self.log.incarnation):
                continue
            for record in call.records:
                offset = self.offsets.get(record.id)
                if offset is None:
                    continue
                before, name, other = newest.get((call.producer, call.session), (-1, "", operation))
                if offset <= before:
                    detail = f"{record.id} is at offset {offset}, {name}, which was sent before, at {before}"
                    yield self._broken(Promise.ORDER, detail, offset, other, operation)
                else:
                    newest[call.producer, call.session] = (offset, record.id, operation)

    def _broken(self, promise: Promise, detail: str, offset: int, *operations: Operation) -> Violation:
        return broken(promise, self.log, detail, *operations, focus=offset)


def _sequence(operation: Operation) -> int:
    assert isinstance(operation.call, Produce)
    return operation.call.sequence
