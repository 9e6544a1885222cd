"""Requests of a classic group's members: join, sync, heartbeat, leave, and the check before an offset commit.

Protocol metadata and assignments are opaque bytes, so `connect`, `sr` and other protocol types work like `consumer`. `rebalance_rounds.py`
has the states, rounds and sessions.

Source: Apache Kafka, GroupCoordinator (classic protocol): checks run in Kafka's order, so that clients get the codes that they expect;
KIP-394 (member ids), KIP-345 (static members), KIP-814 (a static leader skips the assignment). Deliberate differences:
- An absent static member keeps its place until its own session expires. Kafka renews its session with each round, and removes the member
  if it does not sync within the rebalance timeout after a round.
- Member ids that are pending (KIP-394) count as members for `size_max`.
"""

import asyncio
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from typing_extensions import override

from bearlake.metadata.model import PartitionKey
from bearlake.streams.groups.machines import GroupMachine
from bearlake.streams.groups.model import (
    Group,
    GroupKind,
    GroupState,
    Joined,
    JoinRequest,
    Member,
    MemberRef,
    Summary,
    Synced,
)
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.rebalance_rounds import RebalanceRounds, octets
from bearlake.streams.groups.room import ASSIGNMENTS, Room
from bearlake.streams.groups.waiting import done_join, done_sync, refuse_all, refuse_join, refuse_sync


class Rebalancer(GroupMachine):
    """Runs one classic group's protocol."""

    def __init__(
        self,
        group: Group,
        *,
        initial_delay_ms: int,
        size_max: int,
        room: Room,
        on_save: Callable[[int], None],
        may_expire: Callable[[], bool] = lambda: True,
    ) -> None:
        """A group of at most `size_max` members, which keep in `room` what they say of themselves."""
        self.group = group
        self.rounds = RebalanceRounds(
            group, initial_delay_ms=initial_delay_ms, room=room, on_save=on_save, may_expire=may_expire
        )
        """The group's rounds and sessions; the owner of the group reports saves to it and closes it."""
        self._loop = asyncio.get_running_loop()
        self._size_max = size_max

    # -- join ----------------------------------------------------------------------------------------------------

    @override
    def join(self, request: JoinRequest) -> asyncio.Future[Joined]:
        """Join or rejoin; the future completes with the round. Raises `GroupRefusal`."""
        group = self.group
        self._check_alive()
        if not group.supports(request.protocol_type, request.protocols):
            raise GroupRefusal(Problem.INCONSISTENT_PROTOCOL)
        if request.member_id == "":
            return self._join_new(request)
        if request.member_id in group.pending and request.instance_id is None:
            self.rounds.room.check_newcomer(octets(request.member_id, None, request))
            self.rounds.end_pending(request.member_id)
            return self._add(request, request.member_id)
        return self._rejoin(request)

    def _join_new(self, request: JoinRequest) -> asyncio.Future[Joined]:
        group = self.group
        member_id = f"{request.instance_id or request.client_id}-{uuid.uuid4()}"
        if request.instance_id in group.static:
            return self._replace_static(request, member_id)
        if request.instance_id is None and request.requires_known_id:
            self._check_size()
            self.rounds.expect_pending(member_id, request.session_timeout_ms)
            raise GroupRefusal(Problem.MEMBER_ID_REQUIRED, member_id=member_id)
        return self._add(request, member_id)

    def _check_size(self) -> None:
        if len(self.group.members) + len(self.group.pending) >= self._size_max:
            raise GroupRefusal(Problem.GROUP_FULL)

    def _add(self, request: JoinRequest, member_id: str) -> asyncio.Future[Joined]:
        group = self.group
        self._check_size()
        self.rounds.room.take(member_id, octets(member_id, request.instance_id, request))
        member = Member(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
        )
        if not group.members:
            group.protocol_type = request.protocol_type
        group.members[member_id] = member
        if request.instance_id is not None:
            group.static[request.instance_id] = member_id
        if group.leader not in group.members:
            group.leader = member_id
        self.rounds.add_newcomer()
        self.rounds.expect_new(member)
        return self._await_round(member)

    def _rejoin(self, request: JoinRequest) -> asyncio.Future[Joined]:
        group = self.group
        member = group.member(request.sender(group.name))
        is_same = member.protocols == request.protocols
        is_follower = group.leader != member.member_id
        if not member.is_new:
            self.rounds.expect(member)
        # Repeat the previous answer, which may have been lost. But a rejoining leader has seen a change and needs a round.
        if is_same and (group.state is GroupState.COMPLETING or (group.state is GroupState.STABLE and is_follower)):
            return done_join(self._loop, self.rounds.joined(member))
        self.rounds.room.take(member.member_id, octets(member.member_id, member.instance_id, request))
        _update(member, request)
        return self._await_round(member)

    def _replace_static(self, request: JoinRequest, member_id: str) -> asyncio.Future[Joined]:
        """A static member joins again without its id: it replaces its old member id, which is fenced (KIP-345)."""
        group = self.group
        assert request.instance_id is not None
        old_id, old_leader = group.static[request.instance_id], group.leader
        member = group.members[old_id]
        self.rounds.room.take(old_id, octets(member_id, request.instance_id, request))
        refuse_all(member, Problem.FENCED_INSTANCE)
        self.rounds.rename(member, member_id)
        _update(member, request)
        self.rounds.expect(member)
        if group.state is GroupState.STABLE and group.protocol_name == group.elect_protocol():
            future = _wait(self._loop, member)
            self.rounds.save_replaced(member, self._as_before(member, old_leader, request.can_skip_assignment))
            return future
        if group.state is GroupState.COMPLETING:
            self.rounds.prepare()  # the leader may be assigning partitions to the old id
        return self._await_round(member)

    def _as_before(self, member: Member, old_leader: str, can_skip_assignment: bool) -> Joined:
        """Build an answer that continues the current generation. The member must not assign: a stable group accepts no assignment.

        From JoinGroup version 9 on, the answer tells a leader to skip the assignment (KIP-814). In older versions, the answer names the old
        id as the leader's, so that the member acts as a follower.
        """
        group = self.group
        is_leader = group.leader == member.member_id
        skips = is_leader and can_skip_assignment
        return Joined(
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader if can_skip_assignment else old_leader,
            member_id=member.member_id,
            members=group.joined_members() if skips else (),
            skips_assignment=skips,
        )

    def _await_round(self, member: Member) -> asyncio.Future[Joined]:
        refuse_join(member, Problem.REBALANCE_IN_PROGRESS)  # an earlier attempt of the same client
        future = _wait(self._loop, member)
        self.rounds.prepare()
        return future

    # -- sync ----------------------------------------------------------------------------------------------------

    @override
    def sync(
        self,
        ref: MemberRef,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
    ) -> asyncio.Future[Synced]:
        """Provide (leader) or get the assignment; the future completes when the group is saved. Raises `GroupRefusal`."""
        self._check_alive()
        group = self.group
        member = group.member(ref)
        self._check_generation(ref.generation)
        for given, present in zip(protocol, (group.protocol_type, group.protocol_name), strict=True):
            if given is not None and given != present:
                raise GroupRefusal(Problem.INCONSISTENT_PROTOCOL)
        if group.state is GroupState.COMPLETING and group.leader == ref.member_id:
            # Before the sync counts: the round must not wait for a leader whose assignment does not fit.
            self.rounds.room.take(ASSIGNMENTS, sum(map(len, assignments.values())))
        self.rounds.record_sync(member)
        if group.state is GroupState.PREPARING:
            raise GroupRefusal(Problem.REBALANCE_IN_PROGRESS)
        self.rounds.expect(member)
        if group.state is GroupState.STABLE:
            return done_sync(self._loop, group, member)
        refuse_sync(member, Problem.REBALANCE_IN_PROGRESS)
        future: asyncio.Future[Synced] = self._loop.create_future()
        member.syncing = future
        if group.leader == ref.member_id:
            for other in group.members.values():
                other.assignment = assignments.get(other.member_id, b"")
            self.rounds.save_assignment()
        return future

    # -- heartbeat, commit, leave --------------------------------------------------------------------------------

    @override
    def heartbeat(self, ref: MemberRef) -> None:
        """Renew the member's session. Raises `GroupRefusal`; REBALANCE_IN_PROGRESS asks the member to join again."""
        self._check_alive()
        member = self.group.member(ref)
        self._check_generation(ref.generation)
        self.rounds.expect(member)
        if self.group.state is GroupState.PREPARING:
            raise GroupRefusal(Problem.REBALANCE_IN_PROGRESS)

    @override
    def check_commit(
        self, ref: MemberRef, partitions: Collection[PartitionKey] = (), *, knows_epochs: bool = False
    ) -> None:
        """Raise `GroupRefusal` unless the member may commit offsets now; generation -1 means a client outside the group protocol."""
        self._check_alive()
        group = self.group
        if group.state is GroupState.EMPTY:
            if ref.generation < 0:
                return
            if group.generation == 0:  # the group never had a generation
                raise GroupRefusal(Problem.ILLEGAL_GENERATION)
        member = group.member(ref)
        self._check_generation(ref.generation)
        if group.state is GroupState.COMPLETING:
            raise GroupRefusal(Problem.REBALANCE_IN_PROGRESS)
        self.rounds.expect(member)

    @override
    def leave(self, ref: MemberRef) -> str:
        """Remove a member, by its instance id alone if `ref.member_id` is empty; returns its id. Raises `GroupRefusal`."""
        self._check_alive()
        group = self.group
        if ref.member_id in group.pending:
            self.rounds.forget_pending(ref.member_id)
            return ref.member_id
        if ref.member_id == "" and ref.instance_id is not None:
            ref = replace(ref, member_id=group.static.get(ref.instance_id, ""))
        self.rounds.remove(group.member(ref))
        return ref.member_id

    # -- the group -----------------------------------------------------------------------------------------------

    @override
    def renew_session(self, member_id: str) -> None:
        self.rounds.renew_session(member_id)

    @override
    def close(self, problem: Problem) -> None:
        self.rounds.close(problem)

    @override
    def saved(self, ticket: int) -> None:
        self.rounds.saved(ticket)

    @override
    def save_failed(self, ticket: int) -> None:
        self.rounds.save_failed(ticket)

    @override
    def encode(self) -> tuple[str, bytes]:
        return self.group.protocol_type, self.group.encode()

    @override
    def view(self) -> Group:
        return self.group

    @override
    def summary(self) -> Summary:
        group = self.group
        return Summary(
            kind=GroupKind.CLASSIC,
            protocol_type=group.protocol_type,
            state=group.state,
            generation=group.generation,
            member_count=len(group.members),
            pending_count=len(group.pending),
        )

    @override
    def static_id(self, member_id: str) -> str | None:
        member = self.group.members.get(member_id)
        return None if member is None else member.instance_id

    def _check_alive(self) -> None:
        if self.group.state is GroupState.DEAD:  # released since the look-up
            raise GroupRefusal(Problem.NOT_COORDINATOR)

    def _check_generation(self, generation: int) -> None:
        if generation != self.group.generation:
            raise GroupRefusal(Problem.ILLEGAL_GENERATION)


def _update(member: Member, request: JoinRequest) -> None:
    member.protocols = request.protocols
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.client_id = request.client_id
    member.client_host = request.client_host


def _wait(loop: asyncio.AbstractEventLoop, member: Member) -> asyncio.Future[Joined]:
    future: asyncio.Future[Joined] = loop.create_future()
    member.joining = future
    return future
