"""The catalog: streams of one name that are created, changed, deleted and created again; servers that register under one name.

Each call may be executed late and twice: its process may die while a statement is in flight, and then no one ends its session. A call
names what its caller has read. In SQL only: `postgresql/functions/` (`create_stream`, `hold_stream`, `register_server`).

This part assumes nothing of the other parts. It promises them that a stream's number names one incarnation, and that the newest process
of a name is registered.
It promises nothing about errors: a repeated create may find its own stream.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from simulator.model.guards import guard
from simulator.model.part import Action, Step

CREATE, ALTER, DELETE, REGISTER = range(4)
KINDS: Final = ("create", "alter", "delete", "register")

# What a caller knows of its call.
WAITING, DONE, FAILED, UNKNOWN = range(4)

CALL = Action("call {}: {} after reading {}")
EXECUTE = Action("the store executes call {} ({}): {}; the caller receives the answer")
LATE = Action("the store executes call {} ({}): {}; the answer is lost", is_progress=False)
GIVE_UP = Action("the caller of call {} ({}) gives up, or dies", is_progress=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogGuards:
    """The rules of catalog writes."""

    create_names_last_incarnation: bool = guard("a create names the name's last incarnation")
    delete_names_incarnation: bool = guard("a delete names the stream's number")
    alter_names_incarnation: bool = guard("a change names the stream's number")
    alter_names_version: bool = guard("a change names the version that it changes")
    register_names_last_epoch: bool = guard("a registration names the name's last epoch")


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogBounds:
    """The bounds of the exploration."""

    call_count: int = 5
    incarnation_count: int = 2
    epoch_count: int = 2
    """Registrations of the server's name."""


class Call(NamedTuple):
    """A call and its arguments. `made`: the incarnation or epoch that it created; `since`: the calls answered before it."""

    kind: int
    number: int
    version: int = 0
    status: int = WAITING
    is_executed: bool = False
    made: int = 0


class State(NamedTuple):
    """The whole state. `version` counts the changes of the incarnation; `writer`: the call that made the newest change, plus 1."""

    number: int
    is_there: bool
    version: int
    writer: int
    epoch: int
    calls: tuple[Call, ...]
    wrong: int
    """Index into `PROMISES`."""

    def with_call(self, at: int, call: Call) -> "State":
        """Return the state with this call replaced."""
        return self._replace(calls=(*self.calls[:at], call, *self.calls[at + 1 :]))


PROMISES: Final = (
    "",
    "a deleted stream came back: a create sent before the delete was executed after it",
    "a delete meant for an earlier stream of the same name deleted a new stream",
    "a change meant for an earlier stream of the same name changed a new stream",
    "a call that had not seen an acknowledged change undid it",
    "an older process replaced the newest registered process",
    "a call took effect a second time after its answer",
)


class CatalogPart:
    """The part `catalog` of the model; see the module."""

    name = "catalog"
    must_finish = False

    def __init__(self, bounds: CatalogBounds, guards: CatalogGuards) -> None:
        self._bounds = bounds
        self._guards = guards

    def initial(self) -> State:
        """No stream or server of the name has ever existed."""
        return State(0, False, 0, 0, 0, (), 0)

    def is_quiescent(self, state: State) -> bool:
        """Never called: `must_finish` is false."""
        return True

    def violation(self, state: State) -> str:
        """The broken promise to users of the catalog, or ""."""
        return PROMISES[state.wrong]

    def steps(self, state: State) -> Sequence[Step[State]]:
        """Return all steps that are possible next."""
        found: list[Step[State]] = []
        if len(state.calls) < self._bounds.call_count:
            for kind in self._possible(state):
                number = state.epoch if kind == REGISTER else state.number
                call = Call(kind, number, state.version if kind == ALTER else 0)
                read = f"epoch {number}" if kind == REGISTER else f"incarnation {number}, version {state.version}"
                after = state._replace(calls=(*state.calls, call))
                found.append(Step(CALL, (len(state.calls), KINDS[kind], read), after))
        for at, call in enumerate(state.calls):
            found += self._execute(state, at, call)
            if call.status == WAITING:
                found.append(Step(GIVE_UP, (at, KINDS[call.kind]), state.with_call(at, call._replace(status=UNKNOWN))))
        return found

    def _possible(self, state: State) -> Iterator[int]:
        """Yield the calls that make sense given what can be read now."""
        if state.is_there:
            yield ALTER
            yield DELETE
        elif state.number < self._bounds.incarnation_count:
            yield CREATE
        if state.epoch < self._bounds.epoch_count:
            yield REGISTER

    def _execute(self, state: State, at: int, call: Call) -> Iterator[Step[State]]:
        done = self._done(state, at, call)
        outcome = "refused" if done is None else "done"
        arguments = (at, KINDS[call.kind], outcome)
        if call.status == WAITING:
            after = state if done is None else done
            status = FAILED if done is None else DONE
            yield Step(EXECUTE, arguments, after.with_call(at, after.calls[at]._replace(status=status)))
        if done is not None:
            yield Step(LATE, arguments, done)

    def _done(self, state: State, at: int, call: Call) -> State | None:
        """Return the state after the call took effect; None if it is refused. Also checks the promises."""
        allowed = (self._create, self._alter, self._delete, self._register)[call.kind](state, at, call)
        if allowed is None:
            return None
        wrong = allowed.wrong or (6 if call.is_executed and call.status == DONE else 0)
        return allowed._replace(wrong=wrong).with_call(at, call._replace(is_executed=True))

    def _create(self, state: State, at: int, call: Call) -> State | None:
        if state.is_there or (self._guards.create_names_last_incarnation and state.number != call.number):
            return None
        # Wrong if a stream that was created after this call has been deleted, and that was acknowledged.
        is_late = any(
            other.kind == DELETE and other.status == DONE and other.number == state.number for other in state.calls[at:]
        )
        return state._replace(
            number=state.number + 1, is_there=True, version=0, writer=0, wrong=int(is_late)
        )  # fmt: skip

    def _delete(self, state: State, at: int, call: Call) -> State | None:
        if not state.is_there or (self._guards.delete_names_incarnation and state.number != call.number):
            return None
        return state._replace(is_there=False, wrong=2 if state.number != call.number else 0)

    def _alter(self, state: State, at: int, call: Call) -> State | None:
        guards = self._guards
        if not state.is_there or (guards.alter_names_incarnation and state.number != call.number):
            return None
        if guards.alter_names_version and state.version != call.version:
            return None
        wrong = 0
        if state.number != call.number:
            wrong = 3
        elif state.version != call.version and state.writer != at + 1:
            wrong = 4 if state.writer and state.calls[state.writer - 1].status == DONE else 0
        return state._replace(version=state.version + 1, writer=at + 1, wrong=wrong)

    def _register(self, state: State, at: int, call: Call) -> State | None:
        if self._guards.register_names_last_epoch and state.epoch != call.number:
            return None
        is_late = state.epoch != call.number and any(
            other.kind == REGISTER and other.status == DONE for other in state.calls[at + 1 :]
        )
        return state._replace(epoch=state.epoch + 1, wrong=5 if is_late else 0)
