"""Cursors: one subscription of a partition that is created, found, saved, deleted and created again, by writes that may arrive late.

The dispatcher holds its lease throughout: a later lease fences everything that was written under the earlier lease. Any server may
create a cursor. A call may be executed although its caller gets no answer, or late, after its caller gave up. The rules are
`metadata/cursor_rules.py`, unchanged. The dispatcher's side is code that waits, so it is implemented here again:
`streams/subscriptions/holding.py` and `saving.py`.

This part assumes nothing of the other parts but the lease's epoch. It promises that an acknowledgement with a receipt stays in the store
as long as its cursor, and that a cursor whose existence was reported disappears only through a deletion that had not ended by then.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from bearlake.metadata import cursor_rules
from bearlake.metadata.cursor_rules import Creation
from simulator.model.guards import guard
from simulator.model.part import Action, Step

CREATE, DELETE, SAVE = range(3)
KINDS: Final = ("create", "delete", "save")

WAITING, ENDED = range(2)

PER_KIND_MAX: Final = 2

CALL = Action("call {}: {} after reading count {}")
EXECUTE = Action("the store executes call {} ({}): {}; the caller receives the answer")
LATE = Action("the store executes call {} ({}); the answer is lost", is_progress=False)
GIVE_UP = Action("the caller of call {} ({}) gives up", is_progress=False)
LOOK = Action("the dispatcher loads cursors, and finds this one: {}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorGuards:
    """The rules of cursors."""

    create_names_count: bool = guard("a create names the partition's count of deletions")
    found_cursor_counts: bool = guard("a create that finds the cursor adds to the count")
    delete_names_count: bool = guard("a delete names the partition's count of deletions")
    delete_names_generation: bool = guard("a delete names the cursor's generation")
    deletion_refused_before_look: bool = guard(
        "after a delete without an answer, the count grows before the dispatcher adopts the cursor that it finds"
    )
    save_names_generation: bool = guard("a save names the cursor's generation")
    save_revision_grows: bool = guard("a save moves a cursor only if its revision is larger")
    save_answer_names_unsaved: bool = guard("the answer to a save says whether the store has the update")
    revision_never_used_twice: bool = guard("the revisions of all saves under one lease differ")


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorBounds:
    """The bounds of the exploration."""

    call_count: int = 4


class Call(NamedTuple):
    """A call and its arguments. `ended`: bits of the calls that had ended when it began. `made`: the cursor of a save."""

    kind: int
    after: int
    generation: int = 0
    revision: int = 0
    made: int = 0
    ended: int = 0
    status: int = WAITING
    is_lost: bool = False
    """Ended without an answer."""
    is_executed: bool = False


class Cursor(NamedTuple):
    """The row. Only the checks use `made` (the cursor's identity), `content` (the save, plus 1, whose position it has) and `known_to` (the
    calls that had ended when a client learned of it)."""

    generation: int = 0
    revision: int = 0
    made: int = 0
    content: int = 0
    known_to: int = 0


class State(NamedTuple):
    """The whole state. `rows`: the cursor, or nothing. `known`: the dispatcher's generation and cursor, each plus 1; 0: none."""

    deletions: int = 0
    rows: tuple[Cursor, ...] = ()
    made_count: int = 0
    known: int = 0
    known_made: int = 0
    revision: int = 0
    """The last revision that the dispatcher used."""
    is_open: bool = False
    """Whether an unanswered delete may still be executed, as far as the dispatcher knows."""
    confirmed: int = 0
    """The newest save (plus 1) of the cursor that has a receipt."""
    calls: tuple[Call, ...] = ()
    wrong: int = 0

    def with_call(self, at: int, call: Call) -> "State":
        """Return the state with this call replaced."""
        return self._replace(calls=(*self.calls[:at], call, *self.calls[at + 1 :]))

    @property
    def ended(self) -> int:
        """Bits of the calls that have ended."""
        return sum(1 << at for at, call in enumerate(self.calls) if call.status != WAITING)


PROMISES: Final = (
    "",
    "a delete that had ended removed a subscription whose creation was acknowledged",
    "a save for a deleted subscription moved a new subscription of the same name",
    "an acknowledgement got a receipt, but the store does not have the acknowledgement",
    "an earlier save undid an acknowledgement that had a receipt",
    "a deleted subscription came back: a create that ended before the delete took effect after it",
)


class CursorPart:
    """The part `cursors` of the model; see the module."""

    name = "cursors"
    must_finish = False

    def __init__(self, bounds: CursorBounds, guards: CursorGuards) -> None:
        self._bounds = bounds
        self._guards = guards

    def initial(self) -> State:
        """No subscription has ever existed."""
        return State()

    def is_quiescent(self, state: State) -> bool:
        """Never called: `must_finish` is false."""
        return True

    def violation(self, state: State) -> str:
        """The broken promise to consumers and producers, or ""."""
        return PROMISES[state.wrong]

    def steps(self, state: State) -> Sequence[Step[State]]:
        """Return all steps that are possible next."""
        found = list(self._begin(state)) if len(state.calls) < self._bounds.call_count else []
        for at, call in enumerate(state.calls):
            if call.status == WAITING:
                found.append(Step(GIVE_UP, (at, KINDS[call.kind]), self._given_up(state, at, call)))
            if not call.is_executed:
                found += self._execute(state, at, call)
        if not state.known and state.rows:
            found.append(self._look(state))
        return found

    def _execute(self, state: State, at: int, call: Call) -> Iterator[Step[State]]:
        after, is_done = self._done(state, at, call)
        executed = call._replace(is_executed=True)
        after = after.with_call(at, executed)
        if call.status == WAITING:
            heard = self._heard(after, at, executed, is_done=is_done)
            yield Step(EXECUTE, (at, KINDS[call.kind], "done" if is_done else "refused"), heard)
        yield Step(LATE, (at, KINDS[call.kind]), after)

    # -- the callers ----------------------------------------------------------------------------------------------

    def _begin(self, state: State) -> Iterator[Step[State]]:
        call = Call(CREATE, state.deletions, ended=state.ended)
        calls = [(call, state)]
        if state.known:
            generation, made = state.known - 1, state.known_made
            calls.append((call._replace(kind=DELETE, generation=generation), state))
            used = state._replace(revision=state.revision + 1)
            save = call._replace(kind=SAVE, after=0, generation=generation, revision=used.revision, made=made)
            calls.append((save, used))
        for candidate, before in calls:
            after = before._replace(calls=(*state.calls, candidate))
            if sum(other.kind == candidate.kind for other in state.calls) == PER_KIND_MAX:
                continue
            yield Step(CALL, (len(state.calls), KINDS[candidate.kind], state.deletions), after)

    def _given_up(self, state: State, at: int, call: Call) -> State:
        ended = state.with_call(at, call._replace(status=ENDED, is_lost=True))
        return ended._replace(known=0, known_made=0, is_open=True) if call.kind == DELETE else ended

    def _heard(self, state: State, at: int, call: Call, *, is_done: bool) -> State:
        after = state.with_call(at, call._replace(status=ENDED))
        if call.kind == CREATE and is_done:
            return self._adopt(after, call.ended)
        if call.kind == DELETE and is_done:
            return after._replace(known=0, known_made=0)
        if call.kind == SAVE and not is_done and call.generation == state.known - 1:
            return after._replace(
                known=0, known_made=0
            )  # the dispatcher learns that the cursor is gone, and closes its own
        if call.kind == SAVE and is_done:
            row = state.rows[0] if state.rows else Cursor()
            if row.content != at + 1 and not state.wrong:
                return after._replace(wrong=3)
            return after._replace(confirmed=max(state.confirmed, at + 1))
        return after

    def _adopt(self, state: State, ended: int) -> State:
        """A caller learns that the cursor exists; the dispatcher knows the cursor from now on."""
        (row,) = state.rows
        found = state._replace(rows=(row._replace(known_to=row.known_to | ended),))
        if state.known:
            return found
        last = max(state.revision, row.revision) if self._guards.revision_never_used_twice else row.revision
        return found._replace(known=row.generation + 1, known_made=row.made, revision=last)

    def _look(self, state: State) -> Step[State]:
        deleted = state
        if state.is_open and self._guards.deletion_refused_before_look:
            deleted = state._replace(deletions=state.deletions + 1)
        after = self._adopt(deleted, state.ended)._replace(is_open=False)
        return Step(LOOK, (f"generation {state.rows[0].generation}",), after)

    # -- the store ------------------------------------------------------------------------------------------------

    def _done(self, state: State, at: int, call: Call) -> tuple[State, bool]:
        """Return the state after the call, and whether the store reports it as done. Also checks the promises."""
        return (self._create, self._delete, self._save)[call.kind](state, at, call)

    def _create(self, state: State, at: int, call: Call) -> tuple[State, bool]:
        after = call.after if self._guards.create_names_count else state.deletions
        decided = cursor_rules.creation(exists=bool(state.rows), count=state.deletions, after=after)
        if decided is Creation.REFUSED:
            return state, False
        if decided is Creation.FOUND:
            return state._replace(deletions=state.deletions + self._guards.found_cursor_counts), True
        came_back = any(
            call.kind == DELETE and call.status == ENDED and not call.is_lost and call.ended >> at & 1
            for call in state.calls
        )
        row = Cursor(generation=state.deletions, made=state.made_count + 1)
        made = state._replace(rows=(row,), made_count=row.made, confirmed=0)
        return made._replace(wrong=state.wrong or (5 if came_back else 0)), True

    def _delete(self, state: State, at: int, call: Call) -> tuple[State, bool]:
        after = call.after if self._guards.delete_names_count else state.deletions
        if not cursor_rules.may_delete(count=state.deletions, after=after):
            return state, False
        counted = state._replace(deletions=state.deletions + 1)
        if not state.rows:
            return counted, True
        (row,) = state.rows
        named = call.generation if self._guards.delete_names_generation else row.generation
        if not cursor_rules.is_deleted(generation=row.generation, named=named):
            return counted, True
        wrong = state.wrong or row.known_to >> at & 1
        return counted._replace(rows=(), confirmed=0, wrong=wrong), True

    def _save(self, state: State, at: int, call: Call) -> tuple[State, bool]:
        guards = self._guards
        if not state.rows:
            return state, not guards.save_answer_names_unsaved
        (row,) = state.rows
        named = call.generation if guards.save_names_generation else row.generation
        new = call.revision if guards.save_revision_grows else max(call.revision, row.revision + 1)
        after = state
        if cursor_rules.may_save(generation=row.generation, revision=row.revision, named=named, new=new):
            wrong = state.wrong
            if not wrong and row.made != call.made:
                wrong = 2
            elif not wrong and at + 1 < state.confirmed:
                wrong = 4
            row = row._replace(revision=new, content=at + 1)
            after = state._replace(rows=(row,), wrong=wrong)
        is_saved = cursor_rules.is_saved(generation=row.generation, revision=row.revision, named=named, new=new)
        return after, is_saved or not guards.save_answer_names_unsaved
