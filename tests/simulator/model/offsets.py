"""Offset commits of a group: two coordinators, two members, generations, and abandoned writes that are executed later.

A coordinator writes one commit of the group at a time. A write uses a database session; an abandoned write may be executed at any time,
unless its session was ended (`postgresql/database.py`, `functions/check_session.sql`). In SQL only: `check_lease`.

A member reaches the coordinator directly or through another server, and may change its route between two commits. A server that forwards
a commit may give it up: the commit then arrives at any time, even after a later one. Whether the coordinator accepts the commit is the
product's decision, `streams/groups/revisions.py`, unchanged.

This part assumes nothing of the part `leases`: a lease may be taken at any time. It assumes that requests on one connection of a client
that talks to the coordinator directly (Kafka's) arrive in order, or never.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

from bearlake.metadata.model import PartitionKey
from bearlake.streams.groups.model import MemberRef
from bearlake.streams.groups.revisions import Outdated, Revisions, Subject, member_subject
from simulator.model.guards import guard
from simulator.model.part import Action, Step

COORDINATORS: Final = ("A", "B")
COMMITS: Final = ((1, 10), (2, 20), (2, 30))
"""The commits, in order: the member's generation, and the offset. The member of generation 2 received the other member's partition."""

COPIES: Final = 2
"""Copies of one write in flight at once. A database executes a statement once; a retry is another statement."""

REVISION_COUNT_MAX: Final = 2
"""Number of subjects that a coordinator remembers, of three: two members and the partition."""
REVISION_RETURNED: Final = 0
"""In the history of a coordinator's revisions: the first revision was returned. Other numbers are the members (by generation) whose
commits the coordinator accepted."""

# What becomes of a commit.
UNSENT, ASKED, WRITING, ACKNOWLEDGED, UNKNOWN, REFUSED = range(6)

TAKE = Action("{} takes the lease of the group, epoch {}, and loads generation {}", is_progress=False)
REBALANCE = Action("{} completes a round: generation {}")
REQUEST = Action("member {} commits offset {} at {} through another server")
LOCAL = Action("member {} commits offset {} at {} itself; the write is sent")
WRITE = Action("{} accepts offset {} and sends the write")
REFUSE = Action("{} refuses offset {}: {}")
EXECUTE = Action("the store executes the write of offset {} by {}")
FENCED = Action("the write of offset {} by {} is fenced; {} forgets the group")
HEAR = Action("{} receives the result of the write of offset {} and acknowledges the commit")
RETRY = Action("{} gives up the write of offset {} and writes it again", is_progress=False)
OUTDATED = Action("{} refuses offset {}: its revision is outdated; the sender learns the newest one")
READ = Action("{} returns the group's offsets", is_progress=False)
FAIL = Action("{} gives up the write of offset {}; the member learns that the outcome is unknown", is_progress=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetGuards:
    """The rules of committed offsets."""

    lease_epoch_in_offset_commit: bool = guard("a write is executed only with the group's newest lease epoch")
    generation_checked_in_offset_commit: bool = guard("a coordinator accepts commits of the newest generation only")
    generation_saved_before_used: bool = guard(
        "a round is completed only after the store has the generation, with the lease"
    )
    session_revoked_before_retry: bool = guard("a write that was given up is repeated only after its session was ended")
    session_revoked_before_next_write: bool = guard(
        "after a write was given up, the next write begins only after its session was ended"
    )
    forwarded_commit_names_revision: bool = guard(
        "a forwarded commit is taken only if its sender had seen every later request about its member and partition"
    )
    local_commit_takes_revision: bool = guard(
        "a commit that arrives at the coordinator itself also makes a newer revision"
    )
    revision_holds_for_one_term: bool = guard("a revision of another term is refused")
    session_ended_before_read: bool = guard(
        "after a write was given up, offsets are returned only after its session was ended"
    )


class Write(NamedTuple):
    """A write in flight to the store."""

    commit: int
    coordinator: int
    lease: int
    copy: int = 0


class Coordinator(NamedTuple):
    """A coordinator's knowledge. `writing`: the commit in flight plus 1; `has_result`: the store has executed it; `revisions`: their
    history since it took the group (see `REVISION_RETURNED`)."""

    lease: int = 0
    generation: int = 0
    writing: int = 0
    has_result: bool = False
    revisions: tuple[int, ...] = ()


class State(NamedTuple):
    """The whole state. `history`: commits in the order in which the store executed them; the last commit is the readable one."""

    lease: int
    generation: int
    """In the store's snapshot of the group."""
    round: int
    """The newest generation of a completed round, as members know it."""
    coordinators: tuple[Coordinator, ...]
    commits: tuple[int, ...]
    places: tuple[int, ...]
    """The coordinator that each commit was sent to."""
    named: tuple[str, ...]
    """The revision that each commit names."""
    shown: frozenset[int]
    """Commits that failed and were still in flight when their coordinator returned the offsets."""
    writes: frozenset[Write]
    history: tuple[int, ...]
    is_wrong: int
    """1: an old offset came back; 2: an offset of an older generation replaced an acknowledged offset; 3: an older offset of the same
    member did; 4: a generation was assigned twice; 5: a commit that had failed before changed an offset that was returned."""

    def with_coordinator(self, at: int, coordinator: Coordinator) -> "State":
        """Return the state with this coordinator replaced."""
        return self._replace(coordinators=(*self.coordinators[:at], coordinator, *self.coordinators[at + 1 :]))

    def with_commit(self, at: int, status: int) -> "State":
        """Return the state with this commit status replaced."""
        return self._replace(commits=(*self.commits[:at], status, *self.commits[at + 1 :]))


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetBounds:
    """The bounds of the exploration."""

    lease_epoch: int = 3


class OffsetPart:
    """The part `offsets` of the model; see the module."""

    name = "offsets"
    must_finish = False

    def __init__(self, bounds: OffsetBounds, guards: OffsetGuards) -> None:
        self._bounds = bounds
        self._guards = guards

    def initial(self) -> State:
        """A coordinates the group in generation 1."""
        first = Coordinator(lease=1, generation=1)
        unsent = (UNSENT,) * len(COMMITS)
        return State(
            1,
            1,
            1,
            (first, Coordinator()),
            unsent,
            (0,) * len(COMMITS),
            ("",) * len(COMMITS),
            frozenset(),
            frozenset(),
            (),
            0,
        )

    def is_quiescent(self, state: State) -> bool:
        """Never called: `must_finish` is false."""
        return True

    def violation(self, state: State) -> str:
        """The broken promise to members, or ""."""
        if state.is_wrong == 1:
            return "an overwritten committed offset came back"
        if state.is_wrong == 2:
            return "a member of an older generation overwrote an acknowledged offset"
        if state.is_wrong == 3:
            return "an acknowledged offset was overwritten by an earlier commit of the same member"
        if state.is_wrong == 4:
            return "two rebalances of a group got the same generation"
        if state.is_wrong == 5:
            return "a failed commit took effect after the offset was read"
        for at, status in enumerate(state.commits):
            if status == ACKNOWLEDGED and at not in state.history:
                return "a commit was acknowledged but never written"
        return ""

    def steps(self, state: State) -> Sequence[Step[State]]:
        """Return all steps that are possible next."""
        found: list[Step[State]] = []
        for at, coordinator in enumerate(state.coordinators):
            found += self._coordinate(state, at, coordinator)
            found += self._show(state, at)
            if coordinator.writing:
                found += self._await(state, at, coordinator)
        found += self._request(state)
        for write in sorted(state.writes):
            found += self._execute(state, write)
        return found

    def _coordinate(self, state: State, at: int, coordinator: Coordinator) -> Iterator[Step[State]]:
        if state.lease < self._bounds.lease_epoch and not coordinator.writing:  # the holder may have abandoned it
            taken = Coordinator(lease=state.lease + 1, generation=state.generation)
            after = state._replace(lease=state.lease + 1).with_coordinator(at, taken)
            yield Step(TAKE, (COORDINATORS[at], state.lease + 1, state.generation), after)
        if coordinator.lease and coordinator.generation == 1:
            is_saved = coordinator.lease == state.lease
            if is_saved or not self._guards.generation_saved_before_used:
                is_wrong = 4 if state.round == 2 else 0
                after = state._replace(generation=2 if is_saved else state.generation, round=2, is_wrong=is_wrong)
                yield Step(
                    REBALANCE, (COORDINATORS[at], 2), after.with_coordinator(at, coordinator._replace(generation=2))
                )

    def _show(self, state: State, at: int) -> Iterator[Step[State]]:
        given_up = _given_up(state, at)
        if given_up:
            if self._guards.session_ended_before_read:
                after = state._replace(writes=state.writes - given_up)
            else:
                after = state._replace(shown=state.shown | {write.commit for write in given_up})
            yield Step(READ, (COORDINATORS[at],), after)

    def _term(self, coordinator: Coordinator) -> str:
        return str(coordinator.lease) if self._guards.revision_holds_for_one_term else ""

    def _request(self, state: State) -> Iterator[Step[State]]:
        for at, (generation, offset) in enumerate(COMMITS):
            if state.commits[at] == UNSENT and self._may_send(state, at, generation):
                for place, coordinator in enumerate(state.coordinators):
                    yield self._forward(state, at, place, coordinator)
                    if coordinator.lease and not coordinator.writing and self._is_of_newest(coordinator, generation):
                        takes = self._guards.local_commit_takes_revision
                        yield self._write(LOCAL, (generation, offset, COORDINATORS[place]), state, (at, place), takes)
            if state.commits[at] == ASKED:
                yield from self._accept(state, at, generation, offset)

    def _may_send(self, state: State, at: int, generation: int) -> bool:
        """A member commits in its generation, one commit at a time; it may stop waiting for the previous commit."""
        if generation > state.round:
            return False
        return all(state.commits[other] != UNSENT for other in range(at) if COMMITS[other][0] == generation)

    def _forward(self, state: State, at: int, place: int, coordinator: Coordinator) -> Step[State]:
        """Send the commit through a server that knows the newest revision."""
        generation, offset = COMMITS[at]
        places = (*state.places[:at], place, *state.places[at + 1 :])
        after = state.with_commit(at, ASKED)._replace(places=places)
        return Step(REQUEST, (generation, offset, COORDINATORS[place]), self._tell(after, at, place, coordinator))

    def _tell(self, state: State, at: int, place: int, coordinator: Coordinator) -> State:
        """Return the newest revision, if there is one, to the sender of the commit."""
        if not coordinator.lease:
            return state._replace(named=(*state.named[:at], "", *state.named[at + 1 :]))
        revisions = (
            coordinator.revisions
            if REVISION_RETURNED in coordinator.revisions
            else (*coordinator.revisions, REVISION_RETURNED)
        )
        named = (*state.named[:at], _newest(self._term(coordinator), revisions), *state.named[at + 1 :])
        return state._replace(named=named).with_coordinator(place, coordinator._replace(revisions=revisions))

    def _is_of_newest(self, coordinator: Coordinator, generation: int) -> bool:
        return generation == coordinator.generation or not self._guards.generation_checked_in_offset_commit

    def _accept(self, state: State, at: int, generation: int, offset: int) -> Iterator[Step[State]]:
        place = state.places[at]
        coordinator, name = state.coordinators[place], COORDINATORS[place]
        later = [state.commits[other] for other in range(at + 1, len(COMMITS)) if COMMITS[other][0] == generation]
        is_given_up = any(status != UNSENT for status in later)
        if not coordinator.lease:
            yield Step(REFUSE, (name, offset, "not the coordinator"), state.with_commit(at, REFUSED))
        elif not self._is_of_newest(coordinator, generation):
            yield Step(REFUSE, (name, offset, "another generation"), state.with_commit(at, REFUSED))
        elif self._guards.forwarded_commit_names_revision and _is_outdated(
            self._term(coordinator), coordinator.revisions, generation, state.named[at]
        ):
            after = state.with_commit(at, REFUSED) if is_given_up else self._tell(state, at, place, coordinator)
            yield Step(OUTDATED, (name, offset), after)
        elif not coordinator.writing:
            yield self._write(WRITE, (name, offset), state, (at, place), True)

    def _write(
        self, action: Action, arguments: tuple[object, ...], state: State, way: tuple[int, int], takes: bool
    ) -> Step[State]:
        """A coordinator sends the write of a commit (`way`: the commit and the coordinator), which `takes` a revision or not."""
        at, place = way
        coordinator = state.coordinators[place]
        revisions = (*coordinator.revisions, COMMITS[at][0]) if takes else coordinator.revisions
        writing = coordinator._replace(writing=at + 1, has_result=False, revisions=revisions)
        kept = state.writes
        if self._guards.session_revoked_before_next_write:
            kept -= _given_up(state, place)
        after = state.with_commit(at, WRITING).with_coordinator(place, writing)
        return Step(action, arguments, after._replace(writes=kept | {Write(at, place, coordinator.lease)}))

    def _execute(self, state: State, write: Write) -> Iterator[Step[State]]:
        coordinator, name, offset = (
            state.coordinators[write.coordinator],
            COORDINATORS[write.coordinator],
            COMMITS[write.commit][1],
        )
        is_awaited = coordinator.writing == write.commit + 1 and coordinator.lease == write.lease
        if self._guards.lease_epoch_in_offset_commit and write.lease != state.lease:
            after = state._replace(writes=state.writes - {write})
            if is_awaited:
                after = after.with_commit(write.commit, REFUSED).with_coordinator(write.coordinator, Coordinator())
                yield Step(FENCED, (offset, name, name), after)
            return
        history = state.history
        is_wrong = 0
        if not history or history[-1] != write.commit:
            is_wrong = 5 if write.commit in state.shown else self._wrong(state, write.commit)
            history = (*history, write.commit)
        after = state._replace(history=history, is_wrong=is_wrong)
        if is_awaited:
            after = after.with_coordinator(write.coordinator, coordinator._replace(has_result=True))
        yield Step(EXECUTE, (offset, name), after._replace(writes=state.writes - {write}))

    def _wrong(self, state: State, commit: int) -> int:
        if commit in state.history:
            return 1
        generation = COMMITS[commit][0]
        for other, status in enumerate(state.commits):
            if status == ACKNOWLEDGED and other in state.history:
                if COMMITS[other][0] > generation:
                    return 2
                if COMMITS[other][0] == generation and other > commit:
                    return 3
        return 0

    def _await(self, state: State, at: int, coordinator: Coordinator) -> Iterator[Step[State]]:
        """The coordinator receives the result of its write, or gives the write up."""
        guards, commit, name = self._guards, coordinator.writing - 1, COORDINATORS[at]
        offset = COMMITS[commit][1]
        free = coordinator._replace(writing=0, has_result=False)
        if coordinator.has_result:
            after = state.with_commit(commit, ACKNOWLEDGED).with_coordinator(at, free)
            yield Step(HEAR, (name, offset), after)
        mine = frozenset(write for write in state.writes if write.coordinator == at)
        kept = state.writes - mine if guards.session_revoked_before_retry else state.writes
        copies = [write for write in kept if write.commit == commit]
        if len(copies) < COPIES:
            again = kept | {Write(commit, at, coordinator.lease, len(copies))}
            after = state._replace(writes=again).with_coordinator(at, coordinator._replace(has_result=False))
            if after != state:
                yield Step(RETRY, (name, offset), after)
        failed = state.with_commit(commit, UNKNOWN).with_coordinator(at, free)
        yield Step(FAIL, (name, offset), failed)


def _given_up(state: State, at: int) -> frozenset[Write]:
    """Return a coordinator's writes in flight whose commits failed."""
    return frozenset(
        write for write in state.writes if write.coordinator == at and state.commits[write.commit] == UNKNOWN
    )


def _revisions(term: str, history: tuple[int, ...]) -> Revisions:
    """Return the product's revisions after this history."""
    revisions = Revisions(REVISION_COUNT_MAX, term or "any")
    for change in history:
        if change == REVISION_RETURNED:
            revisions.newest()
        else:
            revisions.take(_subjects(change), None)
    return revisions


def _subjects(member: int) -> tuple[Subject, ...]:
    return member_subject(MemberRef(group="", member_id=str(member))), PartitionKey(1)


@cache
def _newest(term: str, history: tuple[int, ...]) -> str:
    return _revisions(term, history).newest()


@cache
def _is_outdated(term: str, history: tuple[int, ...], member: int, named: str) -> bool:
    try:
        _revisions(term, history).take(_subjects(member), named)
    except Outdated:
        return True
    return False
