"""The state machine of one classic group: join, sync, heartbeat, leave, expiry.

    EMPTY ──join──> PREPARING ──all joined, or the rebalance timeout──> COMPLETING ──leader's sync, saved──> STABLE
      ^                 ^                                                   │                                  │
      └── last leaves ──┴────────────── join, leave or expiry of a member ──┴──────────────────────────────────┘

Nothing here waits or does I/O; members wait on futures, time is the event loop's. `on_save` is called when the group must be saved.
Protocol metadata and assignments are opaque bytes, so `connect`, `sr` and others work like `consumer`.

Source: Apache Kafka, GroupCoordinator (classic protocol); KIP-394 (member ids), KIP-345 (static members), KIP-814.
"""

import asyncio
import uuid
from collections.abc import Callable, Mapping
from typing import TypeVar

from bearlake.streams.groups.model import Group, GroupState, Joined, JoinRequest, Member, Protocols, Synced
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.telemetry import metrics

T = TypeVar("T")


class Rebalancer:
    """Runs one group's protocol."""

    def __init__(self, group: Group, *, initial_delay_ms: int, size_max: int, on_save: Callable[[], None]) -> None:
        """`on_save` starts saving the group; `saved` or `save_failed` must be called when a save of COMPLETING is done."""
        self.group = group
        self._initial_delay_ms = initial_delay_ms
        self._size_max = size_max
        self._on_save = on_save
        self._loop = asyncio.get_running_loop()
        self._round_timer: asyncio.TimerHandle | None = None
        self._sync_timer: asyncio.TimerHandle | None = None
        self._is_delaying = False
        for member in group.members.values():
            self._expect(member)

    def close(self, problem: Problem) -> None:
        """Stop all timers and refuse everybody who waits."""
        group = self.group
        for timer in (self._round_timer, self._sync_timer, *group.pending.values()):
            if timer is not None:
                timer.cancel()
        for member in group.members.values():
            if member.timer is not None:
                member.timer.cancel()
            _refuse(member, problem)
        group.state = GroupState.DEAD

    # -- join ----------------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest) -> asyncio.Future[Joined]:
        """Join or rejoin; the future is done when the round is. Raises `GroupRefusal`."""
        group = self.group
        is_pending = request.member_id in group.pending
        if request.member_id and not is_pending:
            return self._rejoin(request)
        if not self._supports(request):
            raise GroupRefusal(Problem.INCONSISTENT_PROTOCOL)
        if is_pending:
            group.pending.pop(request.member_id).cancel()
            return self._add(request, request.member_id)
        return self._join_new(request)

    def _supports(self, request: JoinRequest) -> bool:
        group = self.group
        if request.instance_id in group.static and len(group.members) == 1:
            return bool(request.protocols)  # it takes its own old place, alone
        return group.supports(request.protocol_type, request.protocols)

    def _join_new(self, request: JoinRequest) -> asyncio.Future[Joined]:
        group = self.group
        member_id = f"{request.instance_id or request.client_id}-{uuid.uuid4()}"
        if request.instance_id is not None:
            if request.instance_id in group.static:
                return self._replace_static(request, member_id)
            return self._add(request, member_id)
        if request.requires_known_id:
            self._check_size()
            group.pending[member_id] = self._loop.call_later(
                request.session_timeout_ms / 1000, self._pending_expired, member_id
            )
            raise GroupRefusal(Problem.MEMBER_ID_REQUIRED, member_id=member_id)
        return self._add(request, member_id)

    def _check_size(self) -> None:
        if len(self.group.members) + len(self.group.pending) >= self._size_max:
            raise GroupRefusal(Problem.GROUP_FULL)

    def _add(self, request: JoinRequest, member_id: str) -> asyncio.Future[Joined]:
        group = self.group
        self._check_size()
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
        if not group.leader or group.leader not in group.members:
            group.leader = member_id
        self._expect(member)
        return self._await_join(member)

    def _rejoin(self, request: JoinRequest) -> asyncio.Future[Joined]:
        group = self.group
        member = self._member(request.member_id, request.instance_id)
        if request.protocol_type != group.protocol_type or not (
            {name for name, _ in request.protocols} & group.common_protocols(without=member.member_id)
            or len(group.members) == 1
        ):
            raise GroupRefusal(Problem.INCONSISTENT_PROTOCOL)
        self._expect(member)
        is_same = member.protocols == request.protocols
        answers_at_once = group.state is GroupState.COMPLETING and is_same
        if group.state is GroupState.STABLE and is_same and group.leader != member.member_id:
            answers_at_once = True
        if answers_at_once:
            return _done(self._loop, self._joined(member))
        self._update(member, request)
        return self._await_join(member)

    def _update(self, member: Member, request: JoinRequest) -> None:
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id = request.client_id
        member.client_host = request.client_host

    def _replace_static(self, request: JoinRequest, member_id: str) -> asyncio.Future[Joined]:
        """A static member came back without its id: it takes the old one's place, which is fenced (KIP-345)."""
        group = self.group
        assert request.instance_id is not None
        old_id = group.static[request.instance_id]
        member = group.members.pop(old_id)
        _refuse(member, Problem.FENCED_INSTANCE)
        old_protocols = member.protocols
        old_leader = group.leader
        member.member_id = member_id
        group.members[member_id] = member
        group.static[request.instance_id] = member_id
        if old_leader == old_id:
            group.leader = member_id
        self._update(member, request)
        self._expect(member)
        if group.state is GroupState.STABLE and self._is_same_choice(member, old_protocols):
            self._on_save()
            is_leader = group.leader == member_id
            return _done(
                self._loop,
                Joined(
                    generation=group.generation,
                    protocol_type=group.protocol_type,
                    protocol_name=group.protocol_name,
                    leader=group.leader if request.can_skip_assignment else old_leader,
                    member_id=member_id,
                    members=group.joined_members() if is_leader and request.can_skip_assignment else (),
                    skips_assignment=is_leader and request.can_skip_assignment,
                ),
            )
        return self._await_join(member)

    def _is_same_choice(self, member: Member, old_protocols: Protocols) -> bool:
        group = self.group
        return group.protocol_name == group.elect_protocol() and member.metadata(group.protocol_name) == dict(
            old_protocols
        ).get(group.protocol_name)

    def _await_join(self, member: Member) -> asyncio.Future[Joined]:
        if member.joining is not None and not member.joining.done():
            member.joining.set_exception(GroupRefusal(Problem.REBALANCE_IN_PROGRESS))
            _retrieve(member.joining)
        member.joining = self._loop.create_future()
        future = member.joining
        self._prepare()
        return future

    # -- rounds --------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Start a round unless one is under way; complete it when everybody is there."""
        group = self.group
        if group.state is not GroupState.PREPARING:
            was_empty = group.state is GroupState.EMPTY
            if group.state is GroupState.COMPLETING:
                for member in group.members.values():
                    _refuse_sync(member, Problem.REBALANCE_IN_PROGRESS)
            group.state = GroupState.PREPARING
            self._is_delaying = was_empty and self._initial_delay_ms > 0
            timeout_ms = max((member.rebalance_timeout_ms for member in group.members.values()), default=0)
            self._arm_round(self._initial_delay_ms if self._is_delaying else timeout_ms)
        self._complete_if_all_joined()

    def _arm_round(self, timeout_ms: int) -> None:
        for timer in (self._round_timer, self._sync_timer):
            if timer is not None:
                timer.cancel()
        self._sync_timer = None
        self._round_timer = self._loop.call_later(timeout_ms / 1000, self._round_over)

    def _complete_if_all_joined(self) -> None:
        group = self.group
        if group.state is not GroupState.PREPARING or self._is_delaying or group.pending:
            return
        if all(member.joining is not None for member in group.members.values()):
            self._complete()

    def _round_over(self) -> None:
        self._is_delaying = False
        if self.group.state is GroupState.PREPARING:
            self._complete()

    def _complete(self) -> None:
        """End the joining phase with those who are there; absent static members stay until their session expires."""
        group = self.group
        if self._round_timer is not None:
            self._round_timer.cancel()
            self._round_timer = None
        for member in [m for m in group.members.values() if m.joining is None and m.instance_id is None]:
            self._drop(member)
        if not group.members:
            self._become_empty()
            return
        leader = group.members.get(group.leader)
        if leader is None or leader.joining is None:
            joined = [member for member in group.members.values() if member.joining is not None]
            if not joined:
                timeout_ms = max(member.rebalance_timeout_ms for member in group.members.values())
                self._arm_round(timeout_ms)
                return
            group.leader = joined[0].member_id
        group.generation += 1
        group.protocol_name = group.elect_protocol()
        group.state = GroupState.COMPLETING
        for member in group.members.values():
            if member.joining is not None:
                future, member.joining = member.joining, None
                if not future.done():
                    future.set_result(self._joined(member))
                self._expect(member)
        timeout_ms = max(member.rebalance_timeout_ms for member in group.members.values())
        self._sync_timer = self._loop.call_later(timeout_ms / 1000, self._sync_over)

    def _joined(self, member: Member) -> Joined:
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
        self._on_save()

    # -- sync ----------------------------------------------------------------------------------------------------

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
    ) -> asyncio.Future[Synced]:
        """Give (leader) or get the assignment; done when the group is saved. Raises `GroupRefusal`."""
        group = self.group
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        for given, present in zip(protocol, (group.protocol_type, group.protocol_name), strict=True):
            if given is not None and given != present:
                raise GroupRefusal(Problem.INCONSISTENT_PROTOCOL)
        if group.state is GroupState.PREPARING:
            raise GroupRefusal(Problem.REBALANCE_IN_PROGRESS)
        if group.state is GroupState.EMPTY:
            raise GroupRefusal(Problem.UNKNOWN_MEMBER)
        self._expect(member)
        if group.state is GroupState.STABLE:
            return _done(self._loop, self._synced(member))
        _refuse_sync(member, Problem.REBALANCE_IN_PROGRESS)
        member.syncing = self._loop.create_future()
        future = member.syncing
        if group.leader == member_id:
            for other in group.members.values():
                other.assignment = assignments.get(other.member_id, b"")
            self._on_save()
        return future

    def saved(self, generation: int) -> None:
        """The assignment of this generation is safe: everybody gets theirs."""
        group = self.group
        if group.state is not GroupState.COMPLETING or group.generation != generation:
            return
        group.state = GroupState.STABLE
        metrics.GROUP_REBALANCES.inc()
        for member in group.members.values():
            if member.syncing is not None:
                future, member.syncing = member.syncing, None
                if not future.done():
                    future.set_result(self._synced(member))

    def save_failed(self, generation: int) -> None:
        """The assignment could not be saved: everybody joins again."""
        group = self.group
        if group.state is GroupState.COMPLETING and group.generation == generation:
            for member in group.members.values():
                member.assignment = b""
                _refuse_sync(member, Problem.REBALANCE_IN_PROGRESS)
            self._prepare()

    def _synced(self, member: Member) -> Synced:
        group = self.group
        return Synced(
            protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
        )

    def _sync_over(self) -> None:
        """The leader brought no assignment within the rebalance timeout: start over without those who did not sync."""
        self._sync_timer = None
        group = self.group
        if group.state is GroupState.COMPLETING:
            for member in [m for m in group.members.values() if m.syncing is None]:
                self._drop(member)
            if group.members:
                self._prepare()
            else:
                self._become_empty()

    # -- heartbeat, leave, expiry --------------------------------------------------------------------------------

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """The member is alive. Raises `GroupRefusal`; REBALANCE_IN_PROGRESS asks it to join again."""
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        self._expect(member)
        if self.group.state is GroupState.PREPARING:
            raise GroupRefusal(Problem.REBALANCE_IN_PROGRESS)

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """Raise `GroupRefusal` unless this member may commit offsets now; generation -1 is a client that manages itself."""
        group = self.group
        if generation < 0 and group.state is GroupState.EMPTY:
            return
        if member_id == "" and instance_id is None and group.state is not GroupState.EMPTY:
            raise GroupRefusal(Problem.UNKNOWN_MEMBER)
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        if group.state is GroupState.COMPLETING:
            raise GroupRefusal(Problem.REBALANCE_IN_PROGRESS)
        self._expect(member)

    def leave(self, member_id: str, instance_id: str | None) -> str:
        """Remove a member; returns its id. Raises `GroupRefusal`."""
        group = self.group
        if member_id in group.pending:
            group.pending.pop(member_id).cancel()
            self._complete_if_all_joined()
            return member_id
        if member_id == "" and instance_id is not None:
            if instance_id not in group.static:
                raise GroupRefusal(Problem.UNKNOWN_MEMBER)
            member = group.members[group.static[instance_id]]
        else:
            member = self._member(member_id, instance_id)
        self._remove(member)
        return member.member_id

    def _remove(self, member: Member) -> None:
        self._drop(member)
        if self.group.state in (GroupState.STABLE, GroupState.COMPLETING):
            self._prepare()
        else:
            self._complete_if_all_joined()

    def _drop(self, member: Member) -> None:
        group = self.group
        del group.members[member.member_id]
        if member.instance_id is not None:
            group.static.pop(member.instance_id, None)
        if member.timer is not None:
            member.timer.cancel()
        _refuse(member, Problem.UNKNOWN_MEMBER)
        if group.leader == member.member_id:
            group.leader = next(iter(group.members), "")

    def _member(self, member_id: str, instance_id: str | None) -> Member:
        group = self.group
        if instance_id is not None:
            known = group.static.get(instance_id)
            if known is None:
                raise GroupRefusal(Problem.UNKNOWN_MEMBER)
            if known != member_id:
                raise GroupRefusal(Problem.FENCED_INSTANCE)
        member = group.members.get(member_id)
        if member is None:
            raise GroupRefusal(Problem.UNKNOWN_MEMBER)
        return member

    def _check_generation(self, generation: int) -> None:
        if generation != self.group.generation:
            raise GroupRefusal(Problem.ILLEGAL_GENERATION)

    def _expect(self, member: Member) -> None:
        """Give the member a fresh session."""
        member.deadline = self._loop.time() + member.session_timeout_ms / 1000
        if member.timer is None:
            member.timer = self._loop.call_at(member.deadline, self._session_over, member)

    def _session_over(self, member: Member) -> None:
        member.timer = None
        if self.group.members.get(member.member_id) is not member:
            return
        is_waiting = member.joining is not None or member.syncing is not None
        if is_waiting:
            self._expect(member)  # it waits for us, not we for it
        elif member.deadline > self._loop.time():
            member.timer = self._loop.call_at(member.deadline, self._session_over, member)
        else:
            self._remove(member)

    def _pending_expired(self, member_id: str) -> None:
        self.group.pending.pop(member_id, None)
        self._complete_if_all_joined()


def _done(loop: asyncio.AbstractEventLoop, result: T) -> asyncio.Future[T]:
    future: asyncio.Future[T] = loop.create_future()
    future.set_result(result)
    return future


def _refuse(member: Member, problem: Problem) -> None:
    if member.joining is not None:
        if not member.joining.done():
            member.joining.set_exception(GroupRefusal(problem))
            _retrieve(member.joining)
        member.joining = None
    _refuse_sync(member, problem)


def _refuse_sync(member: Member, problem: Problem) -> None:
    if member.syncing is not None:
        if not member.syncing.done():
            member.syncing.set_exception(GroupRefusal(problem))
            _retrieve(member.syncing)
        member.syncing = None


def _retrieve(future: asyncio.Future[Joined] | asyncio.Future[Synced]) -> None:
    """The one who waited may have gone: its refusal is then nobody's, and not worth a warning."""
    future.exception()
