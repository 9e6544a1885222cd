"""Check what members of share groups were given of one partition (KIP-932).

Kafka promises that a record is given to members until one of them accepts or rejects it, or the limit of deliveries is reached. So a
record that no member was ever given is lost to its group. A record that was sent to a member after its acceptance was stored had been
forgotten as done. Members may have got a record before then, and say so later: such records are only counted.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from simulator.history.evidence import Evidence
from simulator.history.model import Drain, Operation, Take
from simulator.history.promises import Promise, Violation, broken


def check_shares(evidence: Evidence, operations: Sequence[Operation]) -> Iterator[Violation]:
    """Check the operations on one incarnation of a partition, in order of their start; count what was given in `evidence`."""
    taken: defaultdict[str, dict[int, int]] = defaultdict(dict)
    """By group and offset: the earliest end of a stored acceptance; -1: none is known."""
    first: dict[tuple[str, int], Operation] = {}
    """The operations that these acceptances are from."""
    for operation in operations:
        call = operation.call
        if isinstance(call, Take):
            given = taken[call.group]
            for offset in call.offsets:
                accepted = given.get(offset, -1)
                evidence.counts["records given again after acceptance"] += -1 < accepted < operation.start
                if -1 < accepted < call.sent:
                    detail = f"offset {offset} was sent to a member of {call.group} again"
                    before = first[call.group, offset]
                    yield broken(Promise.ACCEPTED, evidence.log, detail, before, operation, focus=offset)
                if operation.is_ok and (accepted < 0 or operation.returned < accepted):
                    accepted = operation.returned
                    first[call.group, offset] = operation
                given[offset] = accepted
    for given in taken.values():
        evidence.counts["records given to share groups"] += len(given)
        evidence.counts["records accepted by share groups"] += sum(accepted >= 0 for accepted in given.values())
    for operation in operations:
        if isinstance(operation.call, Drain) and operation.is_ok:
            yield from _lost(evidence, operation, operation.call, taken[operation.call.group])


def _lost(evidence: Evidence, drain: Operation, call: Drain, given: dict[int, int]) -> Iterator[Violation]:
    lost = next((offset for offset in range(call.start, drain.answer.end or 0) if offset not in given), None)
    if lost is not None:
        place = evidence.places.get(lost)
        shown = [] if place is None else [place.operation]
        name = "" if place is None else f": {place.id}"
        detail = f"offset {lost} was never given to a member of {call.group}{name}"
        yield broken(Promise.SHARED, evidence.log, detail, *shown, drain, focus=lost)
