"""Check that a topic of copies has each committed record of its source once, in the same partition and order."""

from collections.abc import Iterator, Sequence

from simulator.history.model import Operation, Scan, Transact
from simulator.history.promises import Promise, Violation, broken

COPY = ">"
"""Separates the id of a copied record from the name of the attempt in the id of a copy."""


def check_copies(operations: Sequence[Operation]) -> Iterator[Violation]:
    """Compare the last whole scans of each topic of copies with those of its source."""
    sources: dict[str, str] = {}
    for operation in operations:
        if isinstance(operation.call, Transact) and operation.call.source:
            sources[operation.call.topic] = operation.call.source
    for topic, source in sorted(sources.items()):
        scans = _whole(operations, topic)
        for partition, original in sorted(_whole(operations, source).items()):
            if partition in scans:
                yield from _compare(topic, original, scans[partition])


def _compare(topic: str, original: Operation, copies: Operation) -> Iterator[Violation]:
    due = [seen.id for seen in original.answer.records]
    found = [seen.id.partition(COPY)[0] for seen in copies.answer.records]
    if due == found:
        return
    at = next(
        (at for at, pair in enumerate(zip(due, found, strict=False)) if len(set(pair)) > 1), min(len(due), len(found))
    )
    wanted, got = (names[at] if at < len(names) else None for names in (due, found))
    if got in found[:at]:
        detail = f"{got} was copied again"
    elif wanted is not None and wanted not in found:
        detail = f"{wanted} was not copied"
    else:
        detail = f"{got} was copied, and {wanted or 'nothing'} was next"
    focus = None if got is None else copies.answer.records[at].offset
    yield broken(Promise.COPIED, topic, detail, original, copies, focus=focus)


def _whole(operations: Sequence[Operation], topic: str) -> dict[int, Operation]:
    """Return the last whole scan of each partition."""
    found: dict[int, Operation] = {}
    for operation in sorted(operations, key=lambda operation: operation.start):
        call = operation.call
        if isinstance(call, Scan) and call.topic == topic and call.is_whole and operation.is_ok:
            found[call.partition] = operation
    return found
