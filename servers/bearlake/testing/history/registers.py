"""Committed offsets and the existence of topics, judged as linearizable objects (`linear.py`).

An operation with an unknown outcome may take effect at any later time, or never. With `is_strict` it is superseded: it cannot take
effect after the next acknowledged write of the same process has. A settled one (a server has answered) always is.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from bearlake.testing.history.linear import Step, first_contradiction
from bearlake.testing.history.model import (
    EXISTS,
    MISSING,
    Commit,
    Committed,
    Create,
    Delete,
    Describe,
    Operation,
    Outcome,
)
from bearlake.testing.history.promises import Promise, Violation, broken

S = TypeVar("S", bound=Hashable)

SHRINK_COUNT_MAX = 200
"""Longer contradictory histories are shown from their end, not shrunk to what contradicts."""

Effect = Callable[[S], Iterable[S]]


def judge_offsets(operations: Sequence[Operation], *, is_strict: bool) -> Iterator[Violation]:
    """Judge commits and reads of one group's offset of one partition."""
    read = {
        operation.answer.offset for operation in operations if operation.is_ok and isinstance(operation.call, Committed)
    }
    kept = [operation for operation in _effective(operations) if _is_visible(operation, read)]
    yield from _judge(Promise.OFFSETS, kept, _offset_effect, None, is_strict=is_strict)


def _is_visible(operation: Operation, read: set[int | None]) -> bool:
    """A write that nobody acknowledged or read need not have happened, so it explains nothing."""
    call = operation.call
    return not (isinstance(call, Commit) and operation.outcome is Outcome.UNKNOWN and call.offset not in read)


def _offset_effect(operation: Operation) -> Effect[int | None]:
    call = operation.call
    if isinstance(call, Commit):
        written = call.offset
        return lambda _: (written,)
    seen = operation.answer.offset
    return lambda present: (present,) if present == seen else ()


class _Topic(NamedTuple):
    """A topic's name: the incarnation that has it now (None: none), and those that unknown creations have made."""

    incarnation: str | None
    made: frozenset[str]


def judge_topics(operations: Sequence[Operation], *, is_strict: bool) -> Iterator[Violation]:
    """Judge creations, deletions and look-ups of one name."""
    kept = [operation for operation in _effective(operations) if _is_topic_effect(operation)]
    named = {operation.answer.incarnation for operation in kept} | {
        operation.call.incarnation for operation in kept if isinstance(operation.call, Delete)
    }
    claimed = {operation.answer.incarnation for operation in kept if isinstance(operation.call, Create)}
    free = frozenset(name for name in named - claimed if name)

    def effect(operation: Operation) -> Effect[_Topic]:
        return _topic_effect(operation, free)

    yield from _judge(Promise.TOPICS, kept, effect, _Topic(None, frozenset()), is_strict=is_strict)


def _is_topic_effect(operation: Operation) -> bool:
    return operation.outcome is not Outcome.FAIL or operation.answer.why in (EXISTS, MISSING)


def _topic_effect(operation: Operation, free: frozenset[str]) -> Effect[_Topic]:
    call, answer = operation.call, operation.answer
    if isinstance(call, Create):
        return _create_effect(operation, free)
    if isinstance(call, Describe):
        seen = answer.incarnation
        if seen == "":
            return lambda topic: (topic,) if topic.incarnation is not None else ()
        return lambda topic: (topic,) if topic.incarnation == seen else ()
    assert isinstance(call, Delete)
    meant = call.incarnation

    def is_there(topic: _Topic) -> bool:
        return topic.incarnation is not None and meant in (None, topic.incarnation)

    if operation.outcome is Outcome.FAIL:
        return lambda topic: () if is_there(topic) else (topic,)
    return lambda topic: (topic._replace(incarnation=None),) if is_there(topic) else ()


def _create_effect(operation: Operation, free: frozenset[str]) -> Effect[_Topic]:
    if operation.outcome is Outcome.FAIL:
        return lambda topic: (topic,) if topic.incarnation is not None else ()
    made = operation.answer.incarnation
    if made is not None:
        return lambda topic: (topic._replace(incarnation=made),) if topic.incarnation is None else ()
    anonymous = f"made at {operation.start} by {operation.process}"

    def effect(topic: _Topic) -> Iterable[_Topic]:
        if topic.incarnation is None:
            yield topic._replace(incarnation=anonymous)
            for name in free - topic.made:
                yield _Topic(name, topic.made | {name})

    return effect


# -- both ----------------------------------------------------------------------------------------------------------


def _effective(operations: Sequence[Operation]) -> list[Operation]:
    """Operations that can be part of an order: acknowledged ones, writes that may have happened, refusals that say something."""
    kept = [
        operation
        for operation in operations
        if operation.is_ok
        or (operation.outcome is Outcome.UNKNOWN and isinstance(operation.call, Commit | Create | Delete))
        or (operation.outcome is Outcome.FAIL and isinstance(operation.call, Create | Delete))
    ]
    return sorted(kept, key=lambda operation: operation.start)


def _judge(
    promise: Promise,
    operations: Sequence[Operation],
    effect: Callable[[Operation], Effect[S]],
    initial: S,
    *,
    is_strict: bool,
) -> Iterator[Violation]:
    def contradiction(some: Sequence[Operation]) -> int | None:
        superseded = _superseded(some, is_strict)
        steps = [_step(each, effect(each), superseded.get(at, frozenset())) for at, each in enumerate(some)]
        return first_contradiction(steps, initial)

    found = contradiction(operations)
    if found is None:
        return
    witness = operations[found]
    shown = _shrunk(operations, witness, contradiction)
    detail = f"no order of these operations explains the answer at {witness.returned}"
    yield broken(promise, _subject(witness), detail, *shown)


def _step(operation: Operation, effect: Effect[S], supersedes: frozenset[int]) -> Step[S]:
    call = operation.call
    return Step(
        start=operation.start,
        end=None if operation.outcome is Outcome.UNKNOWN else operation.returned,
        effect=effect,
        gives=call.offset if isinstance(call, Commit) else None,
        wants=operation.answer.offset if isinstance(call, Committed) else None,
        supersedes=supersedes,
    )


def _superseded(operations: Sequence[Operation], is_strict: bool) -> dict[int, frozenset[int]]:
    """For the index of each write, those of the unknown writes that cannot take effect after it; `operations` are in order of start."""
    given_up: dict[str, list[tuple[int, int]]] = defaultdict(list)
    found: dict[int, frozenset[int]] = {}
    for index, operation in enumerate(operations):
        if isinstance(operation.call, Committed | Describe) or operation.outcome is Outcome.FAIL:
            continue
        waiting = given_up[operation.process]
        if operation.is_ok:
            over = [item for item in waiting if item[0] <= operation.start]
            given_up[operation.process] = [item for item in waiting if item not in over]
            found[index] = frozenset(other for _, other in over)
        elif operation.end is not None and (is_strict or operation.answer.is_settled):
            waiting.append((operation.end, index))
    return found


def _shrunk(
    operations: Sequence[Operation], witness: Operation, contradiction: Callable[[Sequence[Operation]], int | None]
) -> list[Operation]:
    """The operations without those that are not needed for the witness to contradict the rest.

    Reads go before writes: without its write, a read would contradict for another reason.
    """
    end = witness.returned
    left = [operation for operation in operations if operation.start <= end]
    if len(left) > SHRINK_COUNT_MAX:
        return left[-20:]
    reads = [operation for operation in left if isinstance(operation.call, Committed | Describe)]
    writes = [operation for operation in left if operation not in reads]
    for operation in [*reads, *writes]:
        fewer = [other for other in left if other is not operation]
        if operation is not witness and not _is_needed(operation, fewer):
            found = contradiction(fewer)
            if found is not None and fewer[found] is witness:
                left = fewer
    return left


def _is_needed(operation: Operation, others: Sequence[Operation]) -> bool:
    """Whether the operation wrote what one of the others read, deleted or found."""
    call = operation.call
    if isinstance(call, Commit):
        return any(isinstance(other.call, Committed) and other.answer.offset == call.offset for other in others)
    return isinstance(call, Create | Delete)


def _subject(operation: Operation) -> str:
    call = operation.call
    if isinstance(call, Commit | Committed):
        return f"{call.group} {call.log}"
    assert isinstance(call, Create | Delete | Describe)
    return call.topic
