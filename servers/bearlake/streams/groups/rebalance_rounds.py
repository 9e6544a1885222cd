"""Rounds and sessions of one classic group: timers, states, and the transitions between them.

    EMPTY ──join──> PREPARING ──all joined, or the rebalance timeout──> COMPLETING ──leader's sync, saved──> STABLE
      ^                 ^                                                   │                                  │
      └── last leaves ──┴────────────── join, leave or expiry of a member ──┴──────────────────────────────────┘

This module does no I/O and never waits; members wait on futures, and time is the event loop's clock. Each save has a ticket number. The
newest save covers all earlier ones, so the outcome of an older save is ignored.

Source: Apache Kafka, GroupCoordinator (classic protocol); KIP-134 (initial delay), KIP-345 (static members).
"""

import asyncio
from collections.abc import Callable, Iterable

from bearlake.streams.groups.model import Group, GroupState, Joined, JoinRequest, Member
from bearlake.streams.groups.problems import Problem
from bearlake.streams.groups.room import ASSIGNMENTS, Room, octets_of
from bearlake.streams.groups.waiting import finish_join, finish_sync, refuse_all, refuse_join, refuse_sync
from bearlake.telemetry import metrics

LATE_S = 1.0
"""A timer that runs later than this shows that the process was stalled; requests of members may be waiting unread."""
GRACE_MS_MIN = 1_000
"""Shortest grace time that members get after such a pause."""
NEW_MEMBER_JOIN_MS = 300_000
"""Longest wait (ms) of a new member's first join: the member cannot send heartbeats yet, and its client may be gone. As in Kafka."""


class RebalanceRounds:
    """The timers and transitions of a group's rebalances; `Rebalancer` takes the members' requests."""

    def __init__(
        self,
        group: Group,
        *,
        initial_delay_ms: int,
        room: Room,
        on_save: Callable[[int], None],
        may_expire: Callable[[], bool] = lambda: True,
    ) -> None:
        """`on_save(ticket)` saves the group's current state; the caller must then call `saved(ticket)` or `save_failed(ticket)`.

        `may_expire` says whether this server may expire members: not while it does not know whether its own registration is live.
        """
        self.group = group
        self.room = room
        self._may_expire = may_expire
        self._initial_delay_ms = initial_delay_ms
        self._on_save = on_save
        self._loop = asyncio.get_running_loop()
        self._round_timer: asyncio.TimerHandle | None = None
        self._sync_timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        """Loop time at which the timer of the round or of its syncs is due."""
        self._is_delaying = False
        self._delay_left_ms = 0
        self._has_newcomer = False
        self._unsynced: set[str] = set()
        """Members of this generation that have not synced yet."""
        self._ticket = 0
        self._assignment_ticket = 0
        """Ticket of the save that makes this generation STABLE; 0 until the leader sends the assignment."""
        self._replaced: dict[str, Joined] = {}
        """Join answers, by member id, of static members whose new id is being saved."""
        for member in group.members.values():
            self.expect(member)
            room.restore(member.member_id, octets(member.member_id, member.instance_id, member))
        room.restore(ASSIGNMENTS, sum(len(member.assignment) for member in group.members.values()))

    def close(self, problem: Problem) -> None:
        """Stop all timers and refuse all waiting members."""
        group = self.group
        for timer in (self._round_timer, self._sync_timer, *group.pending.values()):
            if timer is not None:
                timer.cancel()
        group.pending.clear()
        for member in group.members.values():
            if member.timer is not None:
                member.timer.cancel()
            refuse_all(member, problem)
        self.room.close()
        group.state = GroupState.DEAD

    # -- joining phase -------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Start a round unless one is in progress; complete it once all members have joined."""
        group = self.group
        if group.state is not GroupState.PREPARING:
            is_first = group.state is GroupState.EMPTY and self._initial_delay_ms > 0
            for member in group.members.values():
                refuse_sync(member, Problem.REBALANCE_IN_PROGRESS)
            group.state = GroupState.PREPARING
            self._unsynced.clear()
            self._assignment_ticket = 0
            self._replaced.clear()  # these members count as joined
            timeout_ms = group.rebalance_timeout_ms
            self._is_delaying, self._has_newcomer = is_first, False
            self._delay_left_ms = max(timeout_ms - self._initial_delay_ms, 0)
            self._arm_round(self._initial_delay_ms if is_first else timeout_ms)
        self.complete_if_all_joined()

    def add_newcomer(self) -> None:
        """Handle a new member: it extends the initial delay of a new group's first round."""
        if self.group.state is GroupState.PREPARING and self.group.generation == 0:
            self._has_newcomer = True

    def complete_if_all_joined(self) -> None:
        """End the joining phase if all members have joined."""
        group = self.group
        if group.state is not GroupState.PREPARING or self._is_delaying or group.pending:
            return
        if all(member.joining is not None for member in group.members.values()):
            self._complete()

    def _arm_round(self, timeout_ms: int) -> None:
        for timer in (self._round_timer, self._sync_timer):
            if timer is not None:
                timer.cancel()
        self._sync_timer = None
        self._due_at = self._loop.time() + timeout_ms / 1000
        self._round_timer = self._loop.call_at(self._due_at, self._round_over)

    def _was_away(self, due_at: float) -> bool:
        """Whether the expiry of a timer proves nothing about members: the process was stalled, or cannot reach the store."""
        return self._loop.time() - due_at > LATE_S or not self._may_expire()

    def _grace_ms(self, members: Iterable[Member]) -> int:
        """Time (ms) in which live members send a request after this server was stalled."""
        longest_ms = max((member.session_timeout_ms for member in members), default=0)
        return max(GRACE_MS_MIN, min(longest_ms, self.group.rebalance_timeout_ms))

    def _round_over(self) -> None:
        missing = [member for member in self.group.members.values() if member.joining is None]
        if missing and self._was_away(self._due_at):
            self._arm_round(self._grace_ms(missing))
            return
        if self._is_delaying and self._has_newcomer and self._delay_left_ms > 0:
            self._has_newcomer = False
            delay_ms = min(self._initial_delay_ms, self._delay_left_ms)
            self._delay_left_ms -= delay_ms
            self._arm_round(delay_ms)
            return
        self._is_delaying = False
        if self.group.state is GroupState.PREPARING:
            self._complete()

    def _complete(self) -> None:
        """End the joining phase with the members that joined; absent static members stay until their session expires."""
        group = self.group
        if self._round_timer is not None:
            self._round_timer.cancel()
            self._round_timer = None
        for member in [m for m in group.members.values() if m.joining is None and m.instance_id is None]:
            self.drop(member)
        if not group.members:
            self._become_empty()
            return
        leader = group.members.get(group.leader)
        if leader is None or leader.joining is None:
            joined = next((member for member in group.members.values() if member.joining is not None), None)
            if joined is None:  # only absent static members: wait until one joins or all sessions expire
                self._arm_round(group.rebalance_timeout_ms)
                return
            group.leader = joined.member_id
        group.generation += 1
        group.protocol_name = group.elect_protocol()
        group.state = GroupState.COMPLETING
        self._assignment_ticket = 0
        for member in group.members.values():
            if member.joining is not None:
                finish_join(member, self.joined(member))
                member.is_new = False
                self._unsynced.add(member.member_id)
                self.expect(member)
        self._arm_sync(group.rebalance_timeout_ms)

    def _arm_sync(self, timeout_ms: int) -> None:
        self._due_at = self._loop.time() + timeout_ms / 1000
        self._sync_timer = self._loop.call_at(self._due_at, self._sync_over)

    def joined(self, member: Member) -> Joined:
        """Build the answer to a member's join in the current generation; the leader's answer lists all members."""
        group = self.group
        return Joined(
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader,
            member_id=member.member_id,
            members=group.joined_members() if group.leader == member.member_id else (),
        )

    def _become_empty(self) -> None:
        group = self.group
        group.state = GroupState.EMPTY
        group.generation += 1
        group.protocol_name = ""
        group.leader = ""
        self._save()

    # -- syncing phase -------------------------------------------------------------------------------------------

    def record_sync(self, member: Member) -> None:
        """Record that the member has asked for its assignment."""
        self._unsynced.discard(member.member_id)
        if not self._unsynced and self._sync_timer is not None:
            self._sync_timer.cancel()
            self._sync_timer = None

    def save_assignment(self) -> None:
        """Save the leader's assignment; the group becomes STABLE when the save succeeds."""
        self._assignment_ticket = self._save()

    def save_replaced(self, member: Member, answer: Joined) -> None:
        """Save a static member's new id, then answer its join, so that the next coordinator knows the id."""
        self._replaced[member.member_id] = answer
        self._save()

    def save(self) -> None:
        """Save the group as it is now."""
        self._save()

    def _save(self) -> int:
        self._ticket += 1
        self._on_save(self._ticket)
        return self._ticket

    def saved(self, ticket: int) -> None:
        """The save with this ticket succeeded: answer the members that waited for it."""
        group = self.group
        if ticket != self._ticket:
            return
        if group.state is GroupState.COMPLETING and ticket == self._assignment_ticket:
            group.state = GroupState.STABLE
            metrics.GROUP_REBALANCES.inc()
            for member in group.members.values():
                if member.syncing is not None:
                    finish_sync(member, group)
                    self.expect(member)
        replaced, self._replaced = self._replaced, {}
        for member_id, answer in replaced.items():
            present = group.members.get(member_id)
            if present is not None and present.joining is not None:
                finish_join(present, answer)
                self.expect(present)

    def save_failed(self, ticket: int) -> None:
        """The save with this ticket failed: refuse the members that waited for it, so that they retry; keep the generation.

        The leader sends the assignment again. A new generation would only fail in the same way, again and again without a pause.
        """
        group = self.group
        if ticket != self._ticket:
            return
        replaced, self._replaced = self._replaced, {}
        for member_id in replaced:
            if member_id in group.members:
                refuse_join(group.members[member_id], Problem.COORDINATOR_UNAVAILABLE)
        if group.state is GroupState.COMPLETING and ticket == self._assignment_ticket:
            self._assignment_ticket = 0
            for member in group.members.values():
                member.assignment = b""
                if member.syncing is not None:
                    refuse_sync(member, Problem.COORDINATOR_UNAVAILABLE)
                    self._unsynced.add(member.member_id)
                    self.expect(member)
            if self._sync_timer is None:
                self._arm_sync(group.rebalance_timeout_ms)

    def _sync_over(self) -> None:
        """Start a new round without the members (possibly the leader) that did not sync within the rebalance timeout."""
        self._sync_timer = None
        if self._was_away(self._due_at):
            self._arm_sync(self._grace_ms(self.group.members[member_id] for member_id in self._unsynced))
            return
        for member_id in sorted(self._unsynced):
            self.drop(self.group.members[member_id])
        self.prepare()

    # -- sessions ------------------------------------------------------------------------------------------------

    def expect(self, member: Member) -> None:
        """Start a new session timeout for the member."""
        self._expect_within(member, member.session_timeout_ms)

    def renew_session(self, member_id: str) -> None:
        """Renew the member's session: the member sent a request, whatever its outcome."""
        member = self.group.members.get(member_id)
        if member is not None and not member.is_new:
            self.expect(member)

    def expect_new(self, member: Member) -> None:
        """Give a newly added member, which does not know its id yet, time for its first round."""
        member.is_new = True
        self._expect_within(member, NEW_MEMBER_JOIN_MS)

    def _expect_within(self, member: Member, timeout_ms: int) -> None:
        member.deadline = self._loop.time() + timeout_ms / 1000
        if member.timer is not None and member.timer_at > member.deadline:
            member.timer.cancel()
            member.timer = None
        if member.timer is None:
            self._arm(member)

    def _arm(self, member: Member) -> None:
        member.timer_at = member.deadline
        member.timer = self._loop.call_at(member.deadline, self._session_over, member)

    def _session_over(self, member: Member) -> None:
        member.timer = None
        if self.group.members.get(member.member_id) is not member:
            return
        if member.deadline > self._loop.time():
            self._arm(member)
        elif member.is_waiting and not member.is_new:
            self.expect(member)  # the member waits for this server, so it cannot be late
        elif self._was_away(member.deadline):
            self.expect(member)
        else:
            self.remove(member)

    def expect_pending(self, member_id: str, timeout_ms: int) -> None:
        """Start a timer for an id sent with MEMBER_ID_REQUIRED: the client must join with the id in time."""
        self.room.take(member_id, octets_of([member_id]))
        self.group.pending[member_id] = self._loop.call_later(timeout_ms / 1000, self.forget_pending, member_id)

    def end_pending(self, member_id: str) -> None:
        """The client joins with its id."""
        self.group.pending.pop(member_id).cancel()
        self.room.leave(member_id)

    def forget_pending(self, member_id: str) -> None:
        """Stop waiting for a client to join with this id."""
        self.end_pending(member_id)
        self.complete_if_all_joined()

    def remove(self, member: Member) -> None:
        """Remove the member and rebalance the group."""
        self.drop(member)
        if self.group.state in (GroupState.STABLE, GroupState.COMPLETING):
            self.prepare()
        else:
            self.complete_if_all_joined()

    def drop(self, member: Member) -> None:
        """Remove the member without a rebalance."""
        group = self.group
        del group.members[member.member_id]
        self.room.leave(member.member_id)
        if not group.members:
            self.room.leave(ASSIGNMENTS)
        if member.instance_id is not None:
            group.static.pop(member.instance_id, None)
        if member.timer is not None:
            member.timer.cancel()
            member.timer = None
        self._unsynced.discard(member.member_id)
        self._replaced.pop(member.member_id, None)
        refuse_all(member, Problem.UNKNOWN_MEMBER)
        if group.leader == member.member_id:
            group.leader = next(iter(group.members), "")

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member a new id."""
        group = self.group
        assert member.instance_id is not None
        old_id = member.member_id
        del group.members[old_id]
        self._unsynced.discard(old_id)
        self._replaced.pop(old_id, None)
        member.member_id = member_id
        self.room.rename(old_id, member_id)
        group.members[member_id] = member
        group.static[member.instance_id] = member_id
        if group.leader == old_id:
            group.leader = member_id


def octets(member_id: str, instance_id: str | None, words: JoinRequest | Member) -> int:
    """Return the size (bytes) of what a member says of itself."""
    names = octets_of([member_id, instance_id, words.client_id, words.client_host])
    return names + sum(octets_of([name]) + len(metadata) for name, metadata in words.protocols)
