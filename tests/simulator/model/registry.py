"""The schema registry: changes of the rules of one subject and of all subjects, and schemas that are registered under these rules.

The server checks a schema against the state that it has read, so each write names the revision that the check used. The rule is
`metadata/schemas.py` (`revision_of`, `is_current`), unchanged. A call may be executed although its caller gets no answer, or late, after
its caller gave up.

This part assumes nothing of the other parts. It promises that no registered schema was refused by the rules in force, and that an
acknowledged rule is changed only by a caller that has seen it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from bearlake.metadata import schemas
from simulator.model.guards import guard
from simulator.model.part import Action, Step

SUBJECT, ALL, REGISTER = range(3)
KINDS: Final = ("set the subject's rule", "set the rule of all subjects", "register a schema")
UNSET, LENIENT, STRICT = range(3)

WAITING, DONE, ENDED = range(3)

CALL = Action("call {}: {} ({}) after reading revision {}")
EXECUTE = Action("the store executes call {}: {}; the caller receives the answer")
LATE = Action("the store executes call {}; the answer is lost", is_progress=False)
GIVE_UP = Action("the caller of call {} gives up", is_progress=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryGuards:
    """The rules of the registry's writes."""

    rule_names_revision: bool = guard("a change of rules names the revision that it was decided on")
    registration_names_revision: bool = guard("a registration names the revision that it was decided on")
    revision_counts_levels_above: bool = guard("a subject's revision grows with the rules of all subjects")
    change_raises_revision: bool = guard("each change of rules raises a revision")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryBounds:
    """The bounds of the exploration."""

    call_count: int = 3


class Call(NamedTuple):
    """A call and its arguments. `seen`: the writer (call plus 1) of the rule that it changes, as the caller read it."""

    kind: int
    value: int
    revision: int
    seen: int = 0
    status: int = WAITING
    is_executed: bool = False


class State(NamedTuple):
    """The whole state, for the levels `SUBJECT` and `ALL`: revisions, rules, and the newest writers (call plus 1)."""

    revisions: tuple[int, int] = (0, 0)
    rules: tuple[int, int] = (UNSET, UNSET)
    writers: tuple[int, int] = (0, 0)
    calls: tuple[Call, ...] = ()
    wrong: int = 0

    def with_call(self, at: int, call: Call) -> "State":
        """Return the state with this call replaced."""
        return self._replace(calls=(*self.calls[:at], call, *self.calls[at + 1 :]))

    @property
    def is_strict(self) -> bool:
        """Return whether the rules in force refuse the schema."""
        return (self.rules[SUBJECT] or self.rules[ALL]) == STRICT


PROMISES: Final = (
    "",
    "a schema was registered although the current compatibility rules refuse it",
    "a call that had not seen an acknowledged rule changed it",
)


class RegistryPart:
    """The part `registry` of the model; see the module."""

    name = "registry"
    must_finish = False

    def __init__(self, bounds: RegistryBounds, guards: RegistryGuards) -> None:
        self._bounds = bounds
        self._guards = guards

    def initial(self) -> State:
        """No rule has ever been set."""
        return State()

    def is_quiescent(self, state: State) -> bool:
        """Never called: `must_finish` is false."""
        return True

    def violation(self, state: State) -> str:
        """The broken promise to users of the registry, or ""."""
        return PROMISES[state.wrong]

    def steps(self, state: State) -> Sequence[Step[State]]:
        """Return all steps that are possible next."""
        found: list[Step[State]] = []
        if len(state.calls) < self._bounds.call_count:
            found += self._begin(state)
        for at, call in enumerate(state.calls):
            if call.status == WAITING:
                found.append(Step(GIVE_UP, (at,), state.with_call(at, call._replace(status=ENDED))))
            if not call.is_executed:
                found += self._execute(state, at, call)
        return found

    def _begin(self, state: State) -> Iterator[Step[State]]:
        calls = [
            Call(level, value, self._revision(state, level), state.writers[level])
            for level in (SUBJECT, ALL)
            for value in (LENIENT, STRICT)
        ]
        if not state.is_strict:
            calls.append(Call(REGISTER, UNSET, self._revision(state, SUBJECT)))
        for call in calls:
            after = state._replace(calls=(*state.calls, call))
            yield Step(CALL, (len(state.calls), KINDS[call.kind], call.value, call.revision), after)

    def _revision(self, state: State, level: int) -> int:
        above = state.revisions[ALL] if self._guards.revision_counts_levels_above else 0
        return schemas.revision_of([state.revisions[SUBJECT], above] if level == SUBJECT else [state.revisions[ALL]])

    def _execute(self, state: State, at: int, call: Call) -> Iterator[Step[State]]:
        executed = call._replace(is_executed=True)
        after = self._done(state, at, call)
        if call.status == WAITING:
            heard = executed._replace(status=ENDED if after is None else DONE)
            outcome = "refused" if after is None else "done"
            yield Step(EXECUTE, (at, outcome), (after or state).with_call(at, heard))
        if after is not None:
            yield Step(LATE, (at,), after.with_call(at, executed))

    def _done(self, state: State, at: int, call: Call) -> State | None:
        """Return the state after the call took effect; None if it is refused. Also checks the promises."""
        guards = self._guards
        is_named = guards.registration_names_revision if call.kind == REGISTER else guards.rule_names_revision
        level = SUBJECT if call.kind == REGISTER else call.kind
        if is_named and not schemas.is_current(found=self._revision(state, level), named=call.revision):
            return None
        if call.kind == REGISTER:
            return state._replace(wrong=state.wrong or int(state.is_strict))
        writer = state.writers[level]
        is_unseen = writer != call.seen and state.calls[writer - 1].status == DONE
        grown = state.revisions[level] + guards.change_raises_revision
        return state._replace(
            revisions=_put(state.revisions, level, grown),
            rules=_put(state.rules, level, call.value),
            writers=_put(state.writers, level, at + 1),
            wrong=state.wrong or (2 if is_unseen else 0),
        )


def _put(pair: tuple[int, int], at: int, value: int) -> tuple[int, int]:
    return (pair[0], value) if at else (value, pair[1])
