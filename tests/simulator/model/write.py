"""The write path: put, commit, reply, trim, forbid, delete, forget, expire; two servers, one client with three batches, one partition.

The ledger's own code (`rules.py`) decides about sequences and offsets, and `metadata/tokens.py` about the floor. `_commit` implements
again the order in which a token's row, the floor and the server's epoch decide; in the product, that is `commit_object` and
`forbid_tokens` in SQL, and `metadata/sqlite/commits.py`.

This part assumes of the other parts that a swap keeps the records at each offset and deletes no object that the index names
(`compaction.py` checks both). It promises them that a committed object's bytes exist until nothing names the object.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bearlake.metadata.tokens import Forgotten, below_floor, surely_not_stored
from simulator.model import producers, rules
from simulator.model.guards import guard
from simulator.model.part import Action, Step
from simulator.model.producers import Client
from simulator.model.write_promises import broken
from simulator.model.write_state import (
    ANSWERED,
    ANSWERS,
    COMMITTED,
    COMMITTING,
    ENDED,
    FORBIDDEN,
    NO_ROW,
    OLD,
    OUT_OF_ORDER,
    PRODUCER_FENCED,
    REFUSED,
    REQUESTED,
    RETRY,
    SENT,
    SERVER_FENCED,
    SERVERS,
    STORED,
    UNAVAILABLE,
    UNEXPECTED_OFFSET,
    UNKNOWN_PRODUCER,
    UNSENT,
    UNSURE,
    Attempt,
    State,
)  # fmt: skip

ANSWER_OF: Final = {
    rules.ACCEPTED: STORED,
    rules.DUPLICATE: STORED,
    rules.OUT_OF_ORDER: OUT_OF_ORDER,
    rules.FENCED: PRODUCER_FENCED,
    rules.UNEXPECTED_OFFSET: UNEXPECTED_OFFSET,
    rules.UNKNOWN_PRODUCER: UNKNOWN_PRODUCER,
    rules.UNSURE: UNSURE,
}
BELOW_FLOOR: Final = SERVER_FENCED if surely_not_stored(Forgotten()) else UNSURE
"""The answer to a client, by the product's rule, if its token is below the floor."""

SEND = Action("the client sends batch {} (epoch {}, sequence {}) to server {}, as attempt {}")
TAKE = Action("server {} takes attempt {}: its token is {}, its object is stored, and the commit is sent")
TAKE_EARLY = Action("server {} takes attempt {}: its token is {}, its object is not stored yet, and the commit is sent")
PUT_FAILS = Action(
    "server {} takes attempt {}; its object cannot be stored; it answers 'not stored'", is_progress=False
)
COMMIT = Action("the metadata store executes the commit of attempt {}: {}; the reply is lost", is_progress=False)
ANSWER = Action("the metadata store executes the commit of attempt {}: {}; the server receives the result and answers")
HEAR = Action("the client receives the answer to attempt {}: {}")
GIVE_UP = Action("the client stops waiting for attempt {}", is_progress=False)
BUMP = Action("another partition makes the client take a new epoch", is_progress=False)
SUPERSEDE = Action("a newer process registers under the name of server {}, which keeps running", is_progress=False)
FORBID = Action("the sweep forbids the token of attempt {} and deletes its object", is_progress=False)
UNUSED = Action("the sweep deletes the object of attempt {}, which nothing names", is_progress=False)
FORGET = Action("the metadata store forgets the token of attempt {}", is_progress=False)
RAISE_FLOOR = Action("the token floor rises above the old span of time", is_progress=False)
TRIM = Action("the partition is trimmed to its end", is_progress=False)
EXPIRE = Action("the state of the producer expires", is_progress=False)
SPANS: Final = ("old", "recent")
TOKENS: Final = ("wal/2026010100/", "wal/2026010200/")
FLOORS: Final = ("", "wal/2026010123/")
IS_BELOW: Final = {
    (bool(span), floor): below_floor(TOKENS[span], FLOORS[floor]) is not None for span in (0, 1) for floor in (0, 1)
}
"""Whether a token of a time span is below a floor, by the product's rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteGuards:
    """The rules of the write path."""

    object_first: bool = guard("a server sends a commit only after the object is stored")
    commits_in_seal_order: bool = guard("a server sends a commit only after the commits before it are decided")
    acknowledge_third: bool = guard("a server answers 'stored' only after the metadata store has committed")
    token_decided_once: bool = guard("a token that has a row gets the row's answer")
    refused_leaves_trace: bool = guard("a commit that is refused entirely leaves a row too")
    floor_checked_in_commit: bool = guard("a commit below the token floor makes no new decision")
    below_floor_is_unsure: bool = guard("an answer 'below the floor' does not count as 'not stored'")
    forget_only_below_floor: bool = guard("a row is forgotten only below the token floor")
    ban_before_delete: bool = guard("an orphan is deleted only after its token is forbidden")
    delete_only_unreferenced: bool = guard("a committed object is deleted only when no readable offset is in it")
    unknown_starts_at_zero: bool = guard("an unknown producer starts at sequence 0")
    sequence_has_no_gap: bool = guard("a known producer continues with the next sequence")
    five_batches_remembered: bool = guard("a producer's last five batches are remembered")
    epoch_bump_starts_at_zero: bool = guard("a newer producer epoch starts at sequence 0")
    older_epoch_fenced: bool = guard("an older producer epoch is refused")
    young_id_is_out_of_order: bool = guard(
        "an unknown id above all that expired gets OUT_OF_ORDER, not UNKNOWN_PRODUCER"
    )
    expected_offset_checked: bool = guard("a batch that expects an offset is accepted only there")
    superseded_server_refused: bool = guard("a commit of a superseded server is refused")
    expiry_raises_position_floor: bool = guard(
        "expiry of a producer's state writes an entry of the log, and raises the position floor to it"
    )
    position_floor_checked_in_commit: bool = guard(
        "a commit that had not seen the position floor decides no first batch of a producer that may have expired"
    )
    seen_before_batches: bool = guard("a commit names a position that its server had seen before it sent the commit")
    seen_at_arrival: bool = guard(
        "the server reads that position when the request arrives, not when it processes the request"
    )
    retries_end_before_expiry: bool = guard(
        "(assumed) no client sends a batch again after its producer's state has expired"
    )
    server_changed_when_idle: bool = guard(
        "(assumed) an idempotent client moves to another server only when no request is pending"
    )
    bump_only_when_accounted: bool = guard(
        "(assumed) librdkafka starts a new epoch only if no attempt of an earlier batch is pending in another server"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteBounds:
    """The bounds of the exploration."""

    batch_count: int = 3
    attempt_count: int = 4
    epoch_count: int = 2
    """Number of producer epochs of the client."""
    server_trouble: bool = True
    """Whether servers can be superseded."""
    store_trouble: bool = True
    """Whether tokens can be forgotten, the floor can rise, partitions can be trimmed, and producers can expire."""
    came_back: bool = False
    """Whether the client's state has expired before the start."""


class WritePart:
    """The part `write` of the model. The order of fields in a step's arguments is that of its action's text."""

    must_finish = False

    def __init__(self, client: Client, bounds: WriteBounds, guards: WriteGuards) -> None:
        self.name = f"write-{client.name.lower()}"
        self._client = client
        self._bounds = bounds
        self._guards = guards
        self._decide = rules.decide_by(guards)
        self._is_idempotent = client in producers.IDEMPOTENT
        self._counts = int(self._is_idempotent and bounds.store_trouble)
        """Whether positions matter; they do only if producers can expire."""

    def initial(self) -> State:
        """An old batch is in the log, and nothing was sent; a client that returns used sequence 0 long ago."""
        came_back = self._bounds.came_back
        return State(
            attempts=(), servers=(False, False), log=(OLD,), start=0, producer=(), may_have_expired=came_back, floor=0, position=0,
            position_floor=0, epoch=0, first=-int(came_back), batches=(UNSENT,) * self._bounds.batch_count, is_bumping=False, is_over=False,
            is_blind=False,
        )  # fmt: skip

    def violation(self, state: State) -> str:
        """The promise that this state breaks, or "" (`write_promises.py`)."""
        return broken(self._client, state)

    def is_quiescent(self, state: State) -> bool:
        """Never called: `must_finish` is false."""
        return True

    def steps(self, state: State) -> Sequence[Step[State]]:
        """Return all steps that are possible next."""
        found: list[Step[State]] = []
        self._send(state, found)
        for at, attempt in enumerate(state.attempts):
            if attempt.stage == REQUESTED:
                self._serve(state, at, attempt, found)
            if attempt.is_awaited:
                self._await(state, at, attempt, found)
            if attempt.is_sent:
                self._execute(state, at, attempt, found)
                if self._bounds.store_trouble:
                    self._sweep(state, at, attempt, found)
        if self._bounds.server_trouble:
            self._trouble_servers(state, found)
        if self._bounds.store_trouble:
            self._age(state, found)
        return found

    # -- the client ----------------------------------------------------------------------------------------------

    def _send(self, state: State, found: list[Step[State]]) -> None:
        number = len(state.attempts)
        if number == self._bounds.attempt_count or state.epoch == self._bounds.epoch_count:
            return
        if self._may_bump(state):
            found.append(Step(BUMP, (), producers.disturbed(self._client, state)))
        for batch in producers.to_send(self._client, state):
            batches = (*state.batches[:batch], SENT, *state.batches[batch + 1 :])
            epoch, sequence = (state.epoch, batch - state.first) if self._is_idempotent else (0, 0)
            is_first = all(attempt.batch != batch or attempt.epoch != epoch for attempt in state.attempts)
            for server in self._servers(state):
                made = Attempt(batch, epoch, sequence, server, is_first, seen=state.position)
                after = state._replace(attempts=(*state.attempts, made), batches=batches)
                found.append(Step(SEND, (batch, epoch, sequence, SERVERS[server], number), after))

    def _may_bump(self, state: State) -> bool:
        """Return whether the client may take a new epoch: Java waits for batches in flight, librdkafka starts waiting."""
        if not self._is_idempotent or state.is_over or state.is_bumping or state.epoch + 1 == self._bounds.epoch_count:
            return False
        if self._client is Client.JAVA and SENT in state.batches:
            return False
        is_sure = producers.is_accounted(state, self._bounds.batch_count)
        return bool(state.attempts) and (is_sure or not self._guards.bump_only_when_accounted)

    def _servers(self, state: State) -> tuple[int, ...]:
        """Return the servers for the next batch: an idempotent client changes servers only when no reply is pending."""
        if not state.attempts:
            return (0,)  # the servers are interchangeable
        waits_at = {attempt.server for attempt in state.attempts if attempt.is_awaited}
        stays = self._is_idempotent and self._guards.server_changed_when_idle
        return tuple(waits_at) if waits_at and stays else (0, 1)

    def _await(self, state: State, at: int, attempt: Attempt, found: list[Step[State]]) -> None:
        """The client receives the reply or stops waiting. Replies on a connection arrive in order."""
        is_answered = attempt.stage == ANSWERED
        silent = attempt._replace(is_awaited=False, answer=0, stage=ENDED if is_answered else attempt.stage)
        after = state.with_attempt(at, silent)
        found.append(Step(GIVE_UP, (at,), producers.timed_out(self._client, after, attempt.batch)))
        earlier = state.attempts[:at]
        if is_answered and not any(other.is_awaited and other.server == attempt.server for other in earlier):
            answered = attempt._replace(is_awaited=False, stage=ENDED)
            waits = self._guards.bump_only_when_accounted
            after = producers.received(
                self._client, state.with_attempt(at, answered), answered, waits_for_account=waits
            )
            found.append(Step(HEAR, (at, ANSWERS[attempt.answer]), after))

    # -- servers -------------------------------------------------------------------------------------------------

    def _serve(self, state: State, at: int, attempt: Attempt, found: list[Step[State]]) -> None:
        """A server takes a request. Requests on a connection arrive in order; commits are sent in the order of sealing."""
        guards, server = self._guards, SERVERS[attempt.server]
        earlier = [other for other in state.attempts[:at] if other.server == attempt.server]
        if any(other.stage == REQUESTED and other.is_awaited for other in earlier):
            return
        if attempt.is_awaited:
            failed = attempt._replace(stage=ANSWERED, answer=UNAVAILABLE)
            found.append(Step(PUT_FAILS, (server, at, ANSWERS[UNAVAILABLE]), state.with_attempt(at, failed)))
            decided = self._decided(state, failed)
            if decided != failed:
                found.append(Step(PUT_FAILS, (server, at, ANSWERS[decided.answer]), state.with_attempt(at, decided)))
        if guards.commits_in_seal_order and any(other.stage == COMMITTING for other in earlier):
            return
        seen = attempt.seen if guards.seen_at_arrival else state.position
        for is_recent in (False, True) if self._bounds.store_trouble else (True,):
            sent = attempt._replace(stage=COMMITTING, is_sent=True, is_there=True, is_recent=is_recent, seen=seen)
            if not guards.acknowledge_third:
                sent = sent._replace(stage=ANSWERED, answer=STORED)
            found.append(Step(TAKE, (server, at, SPANS[is_recent]), state.with_attempt(at, sent)))
            if not guards.object_first:
                sent = sent._replace(is_there=False)
                found.append(Step(TAKE_EARLY, (server, at, SPANS[is_recent]), state.with_attempt(at, sent)))

    def _decided(self, state: State, attempt: Attempt) -> Attempt:
        """Return the answer of a commit that accepts nothing (`streams/unstored_batches.py`): duplicate, unknown or fenced producer."""
        if not self._is_idempotent:
            return attempt
        known, end = state.producer, len(state.log)
        behind = state.may_have_expired, attempt.seen, state.position_floor
        kind, base, _ = self._decide(known, end, attempt.epoch, attempt.sequence, rules.NEVER, *behind)
        answer = ANSWER_OF[kind]
        if answer not in (STORED, UNKNOWN_PRODUCER, PRODUCER_FENCED):
            return attempt
        return attempt._replace(answer=answer, row=REFUSED, result=answer, offset=base)

    # -- the stores ----------------------------------------------------------------------------------------------

    def _execute(self, state: State, at: int, attempt: Attempt, found: list[Step[State]]) -> None:
        """A commit arrives at the metadata store; the server may receive the result."""
        answer, after = self._commit(state, at, attempt)
        if after is not state:
            found.append(Step(COMMIT, (at, ANSWERS[answer]), after))
        if attempt.stage == COMMITTING:
            stage, kept = (ANSWERED, answer) if attempt.is_awaited else (ENDED, 0)
            made = after.attempts[at]._replace(stage=stage, answer=kept)
            found.append(Step(ANSWER, (at, ANSWERS[answer]), after.with_attempt(at, made)))

    def _commit(self, state: State, at: int, attempt: Attempt) -> tuple[int, State]:
        """Apply a commit request on arrival: check row, floor, server, sequences and offsets, in this order."""
        guards = self._guards
        if attempt.row != NO_ROW and (guards.token_decided_once or attempt.row == FORBIDDEN):
            return (SERVER_FENCED if attempt.row == FORBIDDEN else attempt.result), state
        if guards.floor_checked_in_commit and IS_BELOW[attempt.is_recent, state.floor]:
            return (BELOW_FLOOR if guards.below_floor_is_unsure else SERVER_FENCED), state
        if guards.superseded_server_refused and state.servers[attempt.server]:
            return SERVER_FENCED, state
        known, end = state.producer, len(state.log)
        epoch, sequence = (attempt.epoch, attempt.sequence) if self._is_idempotent else (-1, -1)
        expected = attempt.batch + 1 if self._client is Client.CONDITIONAL else -1
        seen = attempt.seen if guards.seen_before_batches else state.position
        behind = state.may_have_expired, seen, state.position_floor
        kind, base, made = self._decide(known, end, epoch, sequence, expected, *behind)
        answer = ANSWER_OF[kind]
        if kind == rules.ACCEPTED:
            row = attempt._replace(row=COMMITTED, result=answer, offset=end)
            after = state.with_attempt(at, row)
            return answer, after._replace(
                log=(*state.log, at + 1), producer=made, position=state.position + self._counts
            )
        if not guards.refused_leaves_trace:
            return answer, state
        offset = base if kind == rules.DUPLICATE else 0
        return answer, state.with_attempt(at, attempt._replace(row=REFUSED, result=answer, offset=offset))

    def _sweep(self, state: State, at: int, attempt: Attempt, found: list[Step[State]]) -> None:
        guards = self._guards
        if attempt.is_there:
            gone = attempt._replace(is_there=False)
            if attempt.row in (NO_ROW, FORBIDDEN):
                row = FORBIDDEN if guards.ban_before_delete else attempt.row
                found.append(Step(FORBID, (at,), state.with_attempt(at, gone._replace(row=row))))
            elif attempt.row == REFUSED or _is_unread(state, at) or not guards.delete_only_unreferenced:
                found.append(Step(UNUSED, (at,), state.with_attempt(at, gone)))
        is_free = attempt.row in (FORBIDDEN, REFUSED) or (
            attempt.row == COMMITTED and not attempt.is_there and _is_unread(state, at)
        )
        if is_free and (IS_BELOW[attempt.is_recent, state.floor] or not guards.forget_only_below_floor):
            forgotten = attempt._replace(row=NO_ROW, result=0, offset=0)
            found.append(Step(FORGET, (at,), state.with_attempt(at, forgotten)))

    # -- time and trouble ----------------------------------------------------------------------------------------

    def _trouble_servers(self, state: State, found: list[Step[State]]) -> None:
        for server, is_superseded in enumerate(state.servers):
            if not is_superseded and any(attempt.server == server and attempt.is_sent for attempt in state.attempts):
                servers = (True, state.servers[1]) if server == 0 else (state.servers[0], True)
                found.append(Step(SUPERSEDE, (SERVERS[server],), state._replace(servers=servers)))

    def _age(self, state: State, found: list[Step[State]]) -> None:
        if not state.floor and any(attempt.is_sent and not attempt.is_recent for attempt in state.attempts):
            found.append(Step(RAISE_FLOOR, (), state._replace(floor=1)))
        if state.start < len(state.log) and len(state.log) > 1:
            found.append(Step(TRIM, (), state._replace(start=len(state.log))))
        if state.producer:
            self._expire(state, found)

    def _expire(self, state: State, found: list[Step[State]]) -> None:
        if self._guards.retries_end_before_expiry and any(status in (SENT, RETRY) for status in state.batches):
            return
        entry = state.position + 1
        after = state._replace(producer=(), may_have_expired=True, position=entry)
        if self._guards.expiry_raises_position_floor:
            after = after._replace(position_floor=entry)
        found.append(Step(EXPIRE, (), after))


def _is_unread(state: State, at: int) -> bool:
    """Return whether no readable offset lies in the attempt's object."""
    return at + 1 not in state.log[state.start :]
