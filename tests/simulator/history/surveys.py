"""Check one partition with key compaction: what is left of it, as readers of the whole partition see it.

Kafka promises that the newest record of each key stays, at its offset. So the newest record of a key that was acknowledged before a reader
began is in what the reader gets, or a newer one of the key is.
"""

from collections.abc import Iterator, Sequence

from simulator.history.evidence import Evidence, incarnation_of
from simulator.history.model import KEY_END, Operation, Produce, Survey
from simulator.history.promises import Promise, Violation, broken


def check_surveys(evidence: Evidence, operations: Sequence[Operation]) -> Iterator[Violation]:
    """Check the operations on one incarnation of a partition, in order of their start; count what was removed in `evidence`."""
    surveys = [operation for operation in operations if isinstance(operation.call, Survey) and operation.is_ok]
    if not surveys:
        return
    acknowledged = sorted(_acknowledged(evidence, operations), key=lambda found: found[0])
    newest: dict[str, tuple[int, Operation]] = {}
    """By key: the largest offset that was acknowledged before the survey began."""
    at = 0
    for survey in surveys:
        while at < len(acknowledged) and acknowledged[at][0] < survey.start:
            _, key, offset, operation = acknowledged[at]
            if key not in newest or newest[key][0] < offset:
                newest[key] = offset, operation
            at += 1
        yield from _check(evidence, survey, newest)
    left = {seen.offset for seen in surveys[-1].answer.records}
    removed = sum(offset not in left for _, _, offset, _ in acknowledged[:at])
    evidence.counts["records that key compaction removed"] += removed
    evidence.counts["whole reads of partitions with key compaction"] += len(surveys)


def _acknowledged(evidence: Evidence, operations: Sequence[Operation]) -> Iterator[tuple[int, str, int, Operation]]:
    """Yield acknowledgement time, key and offset of each record that a server acknowledged with its offset."""
    for operation in operations:
        call, base = operation.call, operation.answer.offset
        if not isinstance(call, Produce) or not operation.is_ok or base is None or base < 0:
            continue
        if incarnation_of(operation) == evidence.log.incarnation:
            for at, record in enumerate(call.records):
                yield operation.returned, _key_of(record.id), base + at, operation


def _check(evidence: Evidence, survey: Operation, newest: dict[str, tuple[int, Operation]]) -> Iterator[Violation]:
    found: dict[str, int] = {}
    last = -1
    for seen in survey.answer.records:
        if seen.offset <= last:
            yield broken(Promise.DENSE, evidence.log, f"offset {seen.offset} came after {last}", survey, focus=last)
        last = seen.offset
        found[_key_of(seen.id)] = seen.offset
    for key, (offset, operation) in newest.items():
        if found.get(key, -1) < offset:
            detail = f"offset {offset}, the newest record of {key}, is gone"
            yield broken(Promise.NEWEST, evidence.log, detail, operation, survey, focus=offset)


def _key_of(name: str) -> str:
    return name.partition(KEY_END)[0]
