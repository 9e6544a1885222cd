"""Check committed offsets and the existence of topics as linearizable objects (`linear.py`).

An operation with an unknown outcome may take effect at any later time, or never. With `is_strict`, the next acknowledged write of the
same process supersedes it: it cannot take effect after that write. An answered operation (a server has answered) is always superseded so.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from simulator.history.linear import Step, first_contradiction
from simulator.history.model import (
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
from simulator.history.promises import Promise, Violation, broken

S = TypeVar("S", bound=Hashable)

SHRINK_COUNT_MAX = 200
"""Contradictory histories longer than this are shown from their end instead of being shrunk to the contradiction."""

Effect = Callable[[S], Iterable[S]]


def check_offsets(operations: Sequence[Operation], *, is_strict: bool) -> Iterator[Violation]:
    """Check commits and reads of one group's offset of one partition."""
    read = {
        operation.answer.offset for operation in operations if operation.is_ok and isinstance(operation.call, Committed)
    }
    kept = [operation for operation in _effective(operations) if _is_visible(operation, read)]
    yield from _check(Promise.OFFSETS, kept, _offset_effect, None, is_strict=is_strict)


def _is_visible(operation: Operation, read: set[int | None]) -> bool:
    """Return whether the operation matters; a write that was neither acknowledged nor read may not have happened."""
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
    """The state of a topic's name: its current incarnation, and what is known of the incarnations made by unknown creations.

    An unknown creation makes an incarnation with an unknown id. The incarnation is `ANONYMOUS` until an operation names its id; most
    are never named. So an unknown creation has one effect instead of one effect per id that is found at some time.

    This misses and invents no contradiction. Take an order where each unknown creation draws an id at once. Hide each id until an
    operation names it: the same order is possible here. Conversely, take an order that is possible here, and let each creation draw
    the id by which its incarnation is named later, or else an id that is never named: no id is drawn twice (`made`), none is an id
    that an acknowledged creation returned (`free`), and none is an id that was ruled out before (`denied`).
    """

    incarnation: str | None = None
    """None: no topic has this name."""
    made: frozenset[str] = frozenset()
    """Ids of incarnations that unknown creations made and operations named; no id is made twice."""
    denied: frozenset[str] = frozenset()
    """The ids that an anonymous incarnation does not have."""

    def named(self, name: str, free: frozenset[str]) -> "_Topic | None":
        """Return the state if the incarnation has this id; None if it cannot have it."""
        if self.incarnation == name:
            return self
        may_be = self.incarnation == ANONYMOUS and name in free - self.made - self.denied
        return _Topic(name, self.made | {name}) if may_be else None


ANONYMOUS = "made by an unknown creation"


def check_topics(operations: Sequence[Operation], *, is_strict: bool) -> Iterator[Violation]:
    """Check creations, deletions and look-ups of one name."""
    kept = _topic_operations(operations)
    yield from _check(Promise.TOPICS, kept, _topic_effects(kept), _Topic(), is_strict=is_strict)


def topic_steps(operations: Sequence[Operation], *, is_strict: bool) -> tuple[list[Step[_Topic]], _Topic]:
    """Return the steps and the initial state of the search of `check_topics`."""
    kept = _topic_operations(operations)
    return _steps(kept, _topic_effects(kept), is_strict=is_strict), _Topic()


def _last_times(operations: Sequence[Operation]) -> dict[str, int]:
    """Map each id in an answer to the latest time by which its incarnation was deleted, shown by a later answer; it never returns."""
    answered = [operation for operation in operations if operation.outcome is not Outcome.UNKNOWN]
    created = Counter(operation.answer.incarnation for operation in operations if isinstance(operation.call, Create))
    found: dict[str, int] = {}
    known: dict[str, int] = {}
    for operation in sorted(answered, key=lambda operation: operation.returned):
        for name in [name for name, time in known.items() if time < operation.start and _is_without(operation, name)]:
            found[name] = operation.returned
            del known[name]
        returned = operation.answer.incarnation
        is_shown = operation.is_ok and isinstance(operation.call, Create | Describe)
        if returned and is_shown and returned not in found and created[returned] <= 1:
            known.setdefault(returned, operation.returned)
    return found


def _is_without(operation: Operation, name: str) -> bool:
    """Return whether the incarnation does not exist before or after the effect of this operation."""
    call, answer = operation.call, operation.answer
    if isinstance(call, Describe):
        return answer.incarnation not in (name, "")
    if isinstance(call, Create):
        return operation.is_ok and answer.incarnation != name
    return isinstance(call, Delete) and call.incarnation in (None, name)


def _topic_operations(operations: Sequence[Operation]) -> list[Operation]:
    return [operation for operation in _effective(operations) if _is_topic_effect(operation)]


def _topic_effects(operations: Sequence[Operation]) -> Callable[[Operation], Effect[_Topic]]:
    """Return the effect of each operation, given the ids that these operations name."""
    named = {operation.answer.incarnation for operation in operations} | {
        operation.call.incarnation for operation in operations if isinstance(operation.call, Delete)
    }
    claimed = {operation.answer.incarnation for operation in operations if isinstance(operation.call, Create)}
    free = frozenset(name for name in named - claimed if name)
    return lambda operation: _topic_effect(operation, free)


def _is_topic_effect(operation: Operation) -> bool:
    return operation.outcome is not Outcome.FAIL or operation.answer.why in (EXISTS, MISSING)


def _topic_effect(operation: Operation, free: frozenset[str]) -> Effect[_Topic]:
    call = operation.call
    if isinstance(call, Create):
        return _create_effect(operation)
    if isinstance(call, Describe):
        return _describe_effect(operation.answer.incarnation, free)
    assert isinstance(call, Delete)
    return _delete_effect(call.incarnation, free, is_refused=operation.outcome is Outcome.FAIL)


def _create_effect(operation: Operation) -> Effect[_Topic]:
    if operation.outcome is Outcome.FAIL:
        return lambda topic: (topic,) if topic.incarnation is not None else ()
    made = operation.answer.incarnation or ANONYMOUS
    return lambda topic: (_Topic(made, topic.made),) if topic.incarnation is None else ()


def _describe_effect(seen: str | None, free: frozenset[str]) -> Effect[_Topic]:
    def effect(topic: _Topic) -> Iterable[_Topic]:
        if not seen:
            return (topic,) if (topic.incarnation is None) == (seen is None) else ()
        found = topic.named(seen, free)
        return () if found is None else (found,)

    return effect


def _delete_effect(meant: str | None, free: frozenset[str], *, is_refused: bool) -> Effect[_Topic]:
    def effect(topic: _Topic) -> Iterable[_Topic]:
        found = topic if meant is None else topic.named(meant, free)
        if found is None or found.incarnation is None:
            return (topic,) if is_refused else ()
        if not is_refused:
            return (_Topic(None, found.made),)
        if meant is None or topic.incarnation == meant:
            return ()
        return (topic._replace(denied=topic.denied | {meant}),)

    return effect


# -- both ----------------------------------------------------------------------------------------------------------


def _effective(operations: Sequence[Operation]) -> list[Operation]:
    """Return the operations that can be part of an order: acknowledged ones, possible writes, and meaningful refusals."""
    kept = [
        operation
        for operation in operations
        if operation.is_ok
        or (operation.outcome is Outcome.UNKNOWN and isinstance(operation.call, Commit | Create | Delete))
        or (operation.outcome is Outcome.FAIL and isinstance(operation.call, Create | Delete))
    ]
    return sorted(kept, key=lambda operation: operation.start)


def _check(
    promise: Promise,
    operations: Sequence[Operation],
    effect: Callable[[Operation], Effect[S]],
    initial: S,
    *,
    is_strict: bool,
) -> Iterator[Violation]:
    def contradiction(of_subject: Sequence[Operation]) -> int | None:
        return first_contradiction(_steps(of_subject, effect, is_strict=is_strict), initial)

    found = contradiction(operations)
    if found is None:
        return
    witness = operations[found]
    shown = _shrunk(operations, witness, contradiction)
    detail = f"no order of these operations explains the answer at {witness.returned}"
    yield broken(promise, _subject(witness), detail, *shown)


def _steps(
    operations: Sequence[Operation], effect: Callable[[Operation], Effect[S]], *, is_strict: bool
) -> list[Step[S]]:
    superseded = _superseded(operations, is_strict)
    last = _last_times(operations)
    return [
        _step(operation, effect(operation), superseded.get(at, frozenset()), last)
        for at, operation in enumerate(operations)
    ]


def _step(operation: Operation, effect: Effect[S], supersedes: frozenset[int], last: Mapping[str, int]) -> Step[S]:
    call, is_open = operation.call, operation.outcome is Outcome.UNKNOWN
    return Step(
        start=operation.start,
        end=None if is_open else operation.returned,
        effect=effect,
        gives=call.offset if isinstance(call, Commit) else None,
        kind=_kind(operation),
        last=last.get(call.incarnation or "") if is_open and isinstance(call, Delete) else None,
        wants=operation.answer.offset if isinstance(call, Committed) else None,
        supersedes=supersedes,
    )


def _kind(operation: Operation) -> Hashable:
    """Return a kind that is equal for writes with the same effect."""
    call = operation.call
    if isinstance(call, Commit):
        return "commit", call.offset
    if isinstance(call, Create):
        return "create", operation.answer.incarnation
    return ("delete", call.incarnation) if isinstance(call, Delete) else None


def _superseded(operations: Sequence[Operation], is_strict: bool) -> dict[int, frozenset[int]]:
    """Map the index of each write to the unknown writes that cannot take effect after it; `operations` are in order of start."""
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
        elif operation.end is not None and (is_strict or operation.answer.is_answered):
            waiting.append((operation.end, index))
    return found


def _shrunk(
    operations: Sequence[Operation], witness: Operation, contradiction: Callable[[Sequence[Operation]], int | None]
) -> list[Operation]:
    """Remove operations while the witness still contradicts the rest.

    Reads are removed before writes: without its write, a read would contradict for another reason.
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
    """Return whether the operation wrote what another operation read, deleted or found."""
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
