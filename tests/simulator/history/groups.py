"""Check assignments: at any time, at most one member of a group may believe that it owns a partition.

A member may believe so from the time it receives an answer that confirms its membership until `timeout` after it sent the request, and
only while it holds the partition. A coordinator that respects its members' timeouts assigns the partition to no other member in that
time.

Source: Kafka's group protocol: a member is expelled a session timeout after its last heartbeat arrived, or a rebalance timeout after a
round began, and a heartbeat that is confirmed was sent before the round.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from simulator.history.model import Confirm, Hold, Log, Operation
from simulator.history.promises import Promise, Violation, broken

NEVER = 1 << 62


class Interval(NamedTuple):
    """A member may believe in its assignment during [start, end); `because` is the operation that confirms the assignment."""

    start: int
    end: int
    hold: Operation
    because: Operation


def check_group(operations: Sequence[Operation], *, slack: int) -> Iterator[Violation]:
    """Check one group's members. Overlaps of at most `slack` are accepted, for clients that give up their assignment slightly late."""
    confirmed: dict[tuple[str, int], list[Operation]] = defaultdict(list)
    for operation in operations:
        call = operation.call
        if isinstance(call, Confirm) and operation.is_ok:
            confirmed[call.member, call.generation].append(operation)
    owned: dict[Log, list[Interval]] = defaultdict(list)
    for operation in operations:
        call = operation.call
        if isinstance(call, Hold):
            intervals = list(_intervals(operation, call, confirmed[call.member, call.generation]))
            for log in call.partitions:
                owned[log] += intervals
    for log, found in owned.items():
        yield from _overlaps(log, sorted(found, key=lambda interval: interval.start), slack)


def _intervals(operation: Operation, call: Hold, confirmed: Sequence[Operation]) -> Iterator[Interval]:
    given_up = operation.end if operation.end is not None else NEVER
    if call.timeout is None:
        yield Interval(operation.start, given_up, operation, operation)
        return
    present = Interval(operation.start, min(given_up, call.asked + call.timeout), operation, operation)
    for answer in sorted(confirmed, key=lambda operation: operation.returned):
        start, end = max(operation.start, answer.returned), min(given_up, answer.start + call.timeout)
        if start >= end:
            continue
        if start <= present.end:
            if end > present.end:
                present = Interval(present.start, end, operation, answer)
        else:
            yield present
            present = Interval(start, end, operation, answer)
    if present.start < present.end:
        yield present


def _overlaps(log: Log, intervals: Sequence[Interval], slack: int) -> Iterator[Violation]:
    """Yield the overlapping intervals of different members, one violation per pair of members."""
    open_: list[tuple[int, int, Interval]] = []
    reported: set[tuple[str, str]] = set()
    for number, interval in enumerate(intervals):
        while open_ and open_[0][0] <= interval.start:
            heapq.heappop(open_)
        for end, _, other in open_:
            mine, theirs = _member(interval), _member(other)
            overlap = min(end, interval.end) - interval.start
            if mine != theirs and overlap > slack and (theirs, mine) not in reported:
                reported.add((theirs, mine))
                detail = f"{theirs} and {mine} own {log} at the same time for {overlap}, from {interval.start} on"
                shown = (other.hold, other.because, interval.hold, interval.because)
                yield broken(Promise.OWNER, f"{_group(interval)} {log}", detail, *shown)
        heapq.heappush(open_, (interval.end, number, interval))


def _member(interval: Interval) -> str:
    assert isinstance(interval.hold.call, Hold)
    return interval.hold.call.member


def _group(interval: Interval) -> str:
    assert isinstance(interval.hold.call, Hold)
    return interval.hold.call.group
