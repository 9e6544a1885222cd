"""The promises to clients, in client terms; a violation names the promise and shows the operations that contradict it."""

from dataclasses import dataclass
from enum import StrEnum

from simulator.history.model import Answer, Operation, Produce

RECORDS_SHOWN = 4


class Promise(StrEnum):
    """Each promise that the checker checks. Sources: KIP-98, Kafka's group protocol, Herlihy and Wing 1990."""

    STORED = "an acknowledged record is in its partition, at the offset of the acknowledgement"
    ONCE = "a record is stored at most once in a partition"
    REFUSED = "a record that was refused is never stored"
    SENT = "only records that were sent are stored, and only after they were sent"
    ORDER = "records of one producer are stored in the order in which it sent them"
    REAL_TIME = "a record sent after others were acknowledged or read is stored behind them"
    DENSE = "offsets have no gaps: a reader gets each offset from the one it asked for on"
    SAME = "an offset has one record, with the same bytes for every reader, at any time and in SQL"
    END = "the end offset never goes back"
    START = "the start offset never goes back"
    READABLE = "an offset that was committed and not trimmed is in range"
    COMPLETE = "every acknowledged record that was not trimmed is read, once the log was read completely"
    SHARED = "a share group's members were given every record, once the group has no more"
    ACCEPTED = "a record whose acceptance by a share group is stored is not given to a member again"
    NEWEST = "the newest record of each key stays in a stream with key compaction"
    ROW_ONCE = "a record is in the table once"
    ROW_THERE = "offsets that the table covers are all in it"
    ROWS_STAY = "the table never covers less than before"
    OFFSETS = "committed offsets are linearizable"
    TOPICS = "the existence of a topic is linearizable, by incarnation"
    ATOMIC = "readers of committed records get all records of a transaction, or none"
    ABORTED = "no record of an aborted transaction is ever read"
    COPIED = "transactions that copy records with the offsets of their group copy each committed record once, in order"
    OWNER = "a partition has at most one entitled member of a group at a time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A broken promise."""

    promise: Promise
    subject: str
    """The partition, group or topic."""
    detail: str
    excerpt: tuple[str, ...]
    """The operations that contradict each other, one per line, in order of time."""

    def __str__(self) -> str:
        return "\n".join([f"{self.promise.name} {self.subject}: {self.promise}: {self.detail}", *self.excerpt])


def broken(
    promise: Promise, subject: object, detail: str, *operations: Operation, focus: int | None = None
) -> Violation:
    """Return a violation that shows these operations; of operations with many records, only the records around offset `focus`."""
    distinct = list({id(operation): operation for operation in operations}.values())
    distinct.sort(key=lambda operation: operation.start)
    excerpt = tuple(f"    {shown(operation, focus)}" for operation in distinct)
    return Violation(promise=promise, subject=str(subject), detail=detail, excerpt=excerpt)


def shown(operation: Operation, focus: int | None = None) -> str:
    """Describe an operation in one line."""
    interval = f"[{operation.start}, {'…' if operation.end is None else operation.end}]"
    call = operation.call
    fields = [f"{name}={_short(getattr(call, name))}" for name in call.__dataclass_fields__]
    answer = _answer(operation.answer, focus)
    name = type(call).__name__.lower()
    text = f"{interval} {operation.process}: {name} {' '.join(fields)} → {operation.outcome} {answer}".rstrip()
    return f"{text}  ({operation.origin})" if operation.origin else text


def _answer(answer: Answer, focus: int | None) -> str:
    fields = []
    for name in answer.__dataclass_fields__:
        value = getattr(answer, name)
        if name == "records" and value:
            shown = [seen for seen in value if focus is None or abs(seen.offset - focus) <= 1][:RECORDS_SHOWN]
            listed = ", ".join(f"{seen.offset}: {seen.id} {seen.digest}".rstrip() for seen in shown)
            fields.append(f"records={len(value)} ({listed})")
        elif value not in (None, (), "", False):
            fields.append(f"{name}={value}")
    return " ".join(fields)


def _short(value: object) -> str:
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        listed = ", ".join(str(item.id) if hasattr(item, "id") else str(item) for item in value[:RECORDS_SHOWN])
        return f"({listed}{', …' if len(value) > RECORDS_SHOWN else ''})"
    return str(value)


def first_id(produce: Produce) -> str:
    """Return the name of a batch: the id of its first record."""
    return produce.records[0].id
