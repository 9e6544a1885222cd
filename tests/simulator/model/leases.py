"""Membership and leases: heartbeat, lapse, take-over, a replaced server, and answers that only a lease's holder may give.

The part models both group coordinators and subscription dispatchers: a *question* is a member's heartbeat or sync, or a consumer's
request for entries, and only the holder may *confirm* it. The rules of liveness are `metadata/liveness.py`, unchanged. Implemented here
again: code that waits, `streams/tenure.py` (`Tenure.confirm`, `HeldLease.take`, `_look`); and SQL, `acquire_lease` and `check_server`.

The model has no time: an observer may consider any server dead at any moment, if the server's heartbeat count has not changed since the
observer watched it. This part promises the other parts that, of two coordinators, only the one with the newest lease epoch confirms
questions asked after it took over.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple, TypeVar

from bearlake.metadata import liveness
from bearlake.metadata.liveness import Standing
from simulator.model.guards import guard
from simulator.model.part import Action, Step

T = TypeVar("T")

PROCESSES: Final = ("A", "B", "A'")
"""A' is the process that replaces A under A's name."""
NAME_OF: Final = (0, 1, 0)
EPOCH_OF: Final = (1, 1, 2)

REPLACE = Action("A' registers under the name of A, which keeps running", is_progress=False)
WATCH = Action("an observer watches the heartbeats of {} stand still", is_progress=False)
LAPSE = Action("an observer declares that {} lapsed; the store accepts: {}", is_progress=False)
BEAT = Action("a heartbeat of {} is executed; the server learns that it lapsed {} times")
BEAT_LOST = Action("a heartbeat of {} is executed; its reply is lost", is_progress=False)
TAKE = Action("the store gives the lease to {}, epoch {}")
TAKEN = Action("{} learns that it has the lease, epoch {}")
ASK = Action("a member asks {}")
READ = Action("the store reports to {} that it has lapsed {} times")
CONFIRM = Action("{} confirms")
LOOK = Action("{} looks up the lease: it is {}")
LOSE = Action("{} answers that it is not the holder, and forgets the lease")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseGuards:
    """The rules of liveness and leases."""

    lapse_is_compare_and_set: bool = guard("a server lapses only if its heartbeat count is the one that was watched")
    taken_only_from_lapsed: bool = guard("a lease is taken only from a server that lapsed, left or was replaced")
    live_server_takes: bool = guard("a server that has lapsed takes no lease before its next heartbeat")
    server_epoch_checked: bool = guard("a lease belongs to one registration, not to a name")
    registration_checked_in_read: bool = guard("a process that was replaced learns it when it reads its lapse count")
    confirm_before_answer: bool = guard("the holder reads its lapse count before it answers")
    read_began_after_question: bool = guard("that read began after the question arrived")
    lapse_counted: bool = guard("the read shows how often the server lapsed, not only whether it has lapsed now")
    lease_verified_after_lapse: bool = guard("after a lapse, the server looks up the lease")
    heartbeat_before_look: bool = guard("the server looks up the lease only after a heartbeat has revived the server")
    count_read_before_take: bool = guard("a lease counts as verified at the lapse count before it was taken")
    count_read_before_look: bool = guard("a look-up verifies a lease at the lapse count before the look-up")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseBounds:
    """The bounds of the exploration."""

    lapse_count: int = 2
    """Of each registration."""
    heartbeat_count: int = 2
    """Of each registration."""
    lease_epoch: int = 3
    replaced: bool = True
    """Whether A' may appear."""


class Process(NamedTuple):
    """A server process's own view. Counts are stored plus 1; 0: none."""

    is_started: bool = False
    lapse_count: int = 0
    """Tenure.lapse_count."""
    taking: int = 0
    """An acquire is in flight: the lapse count before it, plus 1."""
    granted: int = 0
    """The lease epoch in the reply to the acquire, which is in flight."""
    lease: int = 0
    verified: int = 0
    is_asked: bool = False
    was_holder: bool = False
    """When the question was asked; only the checks use this."""
    read: int = 0
    """The result of a read or heartbeat, plus 1; it may be used for the question."""
    is_revived: bool = False
    """Whether that was a heartbeat."""
    looked: int = 0
    """The result of a look-up: 1 its own lease, 2 another holder's."""
    look_count: int = 0
    """The lapse count before the look-up."""


Stand = tuple[int, int, int, bool, bool]
"""A `Standing` as a tuple, because states consist of tuples and numbers."""


class State(NamedTuple):
    """The whole state. `watched`: for each name, the heartbeat count, plus 1, that an observer has seen unchanged."""

    standings: tuple[Stand, ...]
    watched: tuple[int, ...]
    lease_epoch: int
    holder: int
    """A process; only meaningful if the lease epoch is not 0."""
    processes: tuple[Process, ...]
    wronged: int
    """The process, plus 1, that was declared lapsed although a heartbeat came after it was watched."""
    lied: int
    """The process, plus 1, that confirmed a question asked after it had lost the lease."""
    robbed: int
    """The process, plus 1, whose lease was taken although its holder was live."""

    def with_process(self, at: int, process: Process) -> "State":
        """Return the state with this process replaced."""
        return self._replace(processes=(*self.processes[:at], process, *self.processes[at + 1 :]))


class LeasePart:
    """The part `leases` of the model; see the module."""

    name = "leases"
    must_finish = False

    def __init__(self, bounds: LeaseBounds, guards: LeaseGuards) -> None:
        self._bounds = bounds
        self._guards = guards

    def initial(self) -> State:
        """A and B are registered; the lease has no holder."""
        fresh = _tuple(Standing(epoch=1))
        processes = (Process(is_started=True), Process(is_started=True), Process())
        return State((fresh, fresh), (0, 0), 0, 0, processes, 0, 0, 0)

    def is_quiescent(self, state: State) -> bool:
        """Never called: `must_finish` is false."""
        return True

    def violation(self, state: State) -> str:
        """The broken promise to members and consumers, or ""."""
        if state.lied:
            return f"{PROCESSES[state.lied - 1]} confirmed a request after another server had taken the lease"
        if state.robbed:
            return f"the lease of {PROCESSES[state.robbed - 1]} was taken although its holder was live"
        epochs = [process.lease or process.granted for process in state.processes if process.lease or process.granted]
        if len(epochs) > len(set(epochs)):
            return "two processes got the lease in the same epoch"
        if state.wronged:
            return f"{PROCESSES[state.wronged - 1]} was declared lapsed although its heartbeats arrived"
        return ""

    def steps(self, state: State) -> Sequence[Step[State]]:
        """Return all steps that are possible next."""
        found: list[Step[State]] = []
        for name, standing in enumerate(state.standings):
            found += self._observe(state, name, _standing(standing))
        for at, process in enumerate(state.processes):
            if process.is_started:
                found += self._live(state, at, process)
                if process.lease:
                    found += self._answer(state, at, process)
        if self._bounds.replaced and not state.processes[2].is_started:
            replaced = state.with_process(2, Process(is_started=True))
            standings = (_tuple(Standing(epoch=2)), state.standings[1])
            found.append(Step(REPLACE, (), replaced._replace(standings=standings, watched=(0, state.watched[1]))))
        return found

    # -- the store ------------------------------------------------------------------------------------------------

    def _observe(self, state: State, name: int, standing: Standing) -> Iterator[Step[State]]:
        seen = state.watched[name]
        if not seen and standing.lapse_count < self._bounds.lapse_count:
            yield Step(
                WATCH,
                (PROCESSES[name],),
                state._replace(watched=_put(state.watched, name, standing.heartbeat_count + 1)),
            )
        if seen:
            count = seen - 1 if self._guards.lapse_is_compare_and_set else standing.heartbeat_count
            after = liveness.lapsed(standing, standing.epoch, count)
            quiet = state._replace(watched=_put(state.watched, name, 0))
            if after is None:
                yield Step(LAPSE, (PROCESSES[name], "no, its heartbeats go on"), quiet)
            elif after != standing:
                wronged = name + 1 if seen - 1 != standing.heartbeat_count else 0
                lapsed = quiet._replace(standings=_put(state.standings, name, _tuple(after)), wronged=wronged)
                yield Step(LAPSE, (PROCESSES[name], "yes"), lapsed)

    def _standing(self, state: State, at: int) -> Standing:
        return _standing(state.standings[NAME_OF[at]])

    def _is_live(self, state: State, at: int) -> bool:
        return liveness.is_live(self._standing(state, at), EPOCH_OF[at])

    def _is_newest(self, state: State, at: int) -> bool:
        return liveness.is_newest(self._standing(state, at), EPOCH_OF[at])

    def _live(self, state: State, at: int, process: Process) -> Iterator[Step[State]]:
        """Heartbeats, and an acquire: executed by the store, then heard."""
        standing = self._standing(state, at)
        if self._is_newest(state, at):
            renewed = liveness.with_heartbeat(standing)
            count = renewed.lapse_count
            if standing.heartbeat_count < self._bounds.heartbeat_count + standing.lapse_count:
                after = state._replace(standings=_put(state.standings, NAME_OF[at], _tuple(renewed)))
                heard = process._replace(
                    lapse_count=count, read=count + 1 if process.is_asked else 0, is_revived=process.is_asked
                )
                yield Step(BEAT, (PROCESSES[at], count), after.with_process(at, heard))
                yield Step(BEAT_LOST, (PROCESSES[at],), after)
            if not process.lease and not process.granted:
                yield from self._take(state, at, process)
        if process.granted:
            count = process.taking - 1 if self._guards.count_read_before_take else process.lapse_count
            has = process._replace(taking=0, granted=0, lease=process.granted, verified=count)
            yield Step(TAKEN, (PROCESSES[at], process.granted), state.with_process(at, has))

    def _take(self, state: State, at: int, process: Process) -> Iterator[Step[State]]:
        guards = self._guards
        if state.lease_epoch == self._bounds.lease_epoch or (guards.live_server_takes and not self._is_live(state, at)):
            return
        epoch, holder = state.lease_epoch, state.holder
        robbed = 0
        if epoch:
            is_same = holder == at if guards.server_epoch_checked else NAME_OF[holder] == NAME_OF[at]
            if is_same:
                epoch -= 1  # the same lease again
            elif not liveness.may_take(self._standing(state, holder), EPOCH_OF[holder]):
                if guards.taken_only_from_lapsed:
                    return
                robbed = holder + 1
        asking = process._replace(taking=process.lapse_count + 1, granted=epoch + 1)
        after = state._replace(lease_epoch=epoch + 1, holder=at, robbed=robbed)
        yield Step(TAKE, (PROCESSES[at], epoch + 1), after.with_process(at, asking))

    # -- the holder -----------------------------------------------------------------------------------------------

    def _answer(self, state: State, at: int, process: Process) -> Iterator[Step[State]]:
        guards = self._guards
        if not process.is_asked:
            asked = process._replace(is_asked=True, was_holder=self._has_lease(state, at, process))
            if guards.read_began_after_question:
                asked = asked._replace(read=0, is_revived=False, looked=0)
            yield Step(ASK, (PROCESSES[at],), state.with_process(at, asked))
            if not guards.read_began_after_question:
                yield from self._read(state, at, process)
            return
        if not process.read:
            yield from self._read(state, at, process)
        if not guards.confirm_before_answer or (process.read and self._may_confirm(process)):
            lied = 0 if process.was_holder else at + 1
            calm = process._replace(is_asked=False, was_holder=False, read=0, is_revived=False, looked=0, look_count=0)
            yield Step(CONFIRM, (PROCESSES[at],), state.with_process(at, calm)._replace(lied=lied))
        elif process.read:
            yield from self._look(state, at, process)

    def _read(self, state: State, at: int, process: Process) -> Iterator[Step[State]]:
        """Read the lapse count in the store."""
        if self._guards.registration_checked_in_read and not self._is_newest(state, at):
            yield Step(LOSE, (PROCESSES[at],), state.with_process(at, _lost(process)))
            return
        standing = self._standing(state, at)
        count = standing.lapse_count
        if not self._guards.lapse_counted:
            count = process.verified + standing.has_lapsed
        shown = process._replace(read=count + 1, is_revived=False)
        if not self._guards.heartbeat_before_look:
            shown = shown._replace(lapse_count=max(process.lapse_count, count))
        yield Step(READ, (PROCESSES[at], count), state.with_process(at, shown))

    def _may_confirm(self, process: Process) -> bool:
        count = process.read - 1
        is_known = count == process.lapse_count or not self._guards.lapse_counted
        return is_known and (process.verified >= count or not self._guards.lease_verified_after_lapse)

    def _look(self, state: State, at: int, process: Process) -> Iterator[Step[State]]:
        """The count has grown: first a heartbeat (`_live`), then a look-up of the lease, then the answer."""
        guards = self._guards
        if guards.heartbeat_before_look and not process.is_revived:
            return
        if not process.looked:
            is_own = self._has_lease(state, at, process)
            look = process._replace(looked=1 if is_own else 2, look_count=process.lapse_count)
            yield Step(LOOK, (PROCESSES[at], "its own" if is_own else "another's"), state.with_process(at, look))
        elif process.looked == 2:
            yield Step(LOSE, (PROCESSES[at],), state.with_process(at, _lost(process)))
        else:
            count = process.look_count if guards.count_read_before_look else process.lapse_count
            sure = process._replace(verified=count, looked=0, look_count=0)
            yield Step(LOOK, (PROCESSES[at], "verified"), state.with_process(at, sure))

    def _has_lease(self, state: State, at: int, process: Process) -> bool:
        return state.lease_epoch == process.lease and state.holder == at


def _lost(process: Process) -> Process:
    return Process(is_started=True, lapse_count=process.lapse_count)


def _tuple(standing: Standing) -> Stand:
    return (
        standing.epoch, standing.heartbeat_count, standing.lapse_count, standing.has_lapsed, standing.has_left,
    )  # fmt: skip


@cache
def _standing(stand: Stand) -> Standing:
    epoch, heartbeat_count, lapse_count, has_lapsed, has_left = stand
    return Standing(
        epoch=epoch, heartbeat_count=heartbeat_count, lapse_count=lapse_count, has_lapsed=has_lapsed, has_left=has_left
    )


def _put(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])
