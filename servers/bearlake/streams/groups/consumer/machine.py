"""One consumer group of KIP-848, for its coordinator: the requests of members of both protocols, and the end of the group as such.

When the last member that uses the consumer protocol goes and others stay, the group becomes a classic group (`migration`), if the settings
allow it.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping

from typing_extensions import override

from bearlake.metadata.model import PartitionKey
from bearlake.streams.groups.consumer import snapshot
from bearlake.streams.groups.consumer.classic_members import ClassicMembers
from bearlake.streams.groups.consumer.engine import Engine
from bearlake.streams.groups.consumer.engine_machine import EngineMachine
from bearlake.streams.groups.consumer.heartbeats import Heartbeats
from bearlake.streams.groups.consumer.model import LEAVES, ConsumerGroup, ConsumerMember, Heartbeat, HeartbeatAnswer
from bearlake.streams.groups.consumer.settings import ConsumerGroupSettings
from bearlake.streams.groups.consumer.subscriptions import Topics
from bearlake.streams.groups.model import Joined, JoinRequest, MemberRef, Synced
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.room import Room


class ConsumerMachine(EngineMachine[ConsumerGroup]):
    """Runs one group's protocol. Use it from the event loop's thread only."""

    def __init__(
        self,
        group: ConsumerGroup,
        *,
        topics: Topics,
        room: Room,
        settings: Callable[[], ConsumerGroupSettings],
        on_save: Callable[[int], None],
        on_downgrade: Callable[[], None] = lambda: None,
        may_expire: Callable[[], bool] = lambda: True,
    ) -> None:
        """See `Engine`. `on_downgrade`: all members use the classic protocol now, and the settings allow the group to become a classic one;
        the caller replaces this machine."""
        self.group = group
        self.engine = Engine(
            group,
            topics=topics,
            room=room,
            settings=settings,
            on_save=on_save,
            may_expire=may_expire,
            on_expired=self._remove,
        )
        self._on_downgrade = on_downgrade
        self._heartbeats = Heartbeats(self.engine)
        self._classic = ClassicMembers(self.engine)

    # -- members of the consumer protocol ------------------------------------------------------------------------

    def beat(self, asked: Heartbeat) -> asyncio.Future[HeartbeatAnswer]:
        """Join, stay, or leave; the future completes when the group is saved. Raises `GroupRefusal`."""
        self._check_alive()
        if asked.epoch > LEAVES:
            return self._heartbeats.beat(asked)
        left = self._heartbeats.leave(asked)
        answer = HeartbeatAnswer(member_id=asked.member_id, epoch=asked.epoch)
        if left is not None:
            self._remove(left)
        if self.engine.is_closed:  # a classic group now, which saves itself
            future: asyncio.Future[HeartbeatAnswer] = asyncio.get_running_loop().create_future()
            future.set_result(answer)
            return future
        return self.engine.answered(answer)

    def _remove(self, member: ConsumerMember) -> None:
        self.engine.remove(member)
        if self.may_downgrade():
            self._on_downgrade()

    def may_downgrade(self, except_id: str | None = None) -> bool:
        """Whether the group, without the member `except_id`, may become a classic group."""
        return self.engine.settings.downgrades and self.group.uses_only_classic(except_id)

    def check_fetch(self, member_id: str, epoch: int) -> None:
        """Raise `GroupRefusal` unless the member may read offsets in this epoch."""
        self._check_alive()
        member = self.group.members.get(member_id)
        if member is None:
            raise GroupRefusal(Problem.UNKNOWN_MEMBER)
        if epoch != member.epoch:
            raise GroupRefusal(Problem.STALE_MEMBER_EPOCH if member.classic is None else Problem.ILLEGAL_GENERATION)

    # -- members of the classic protocol -------------------------------------------------------------------------

    @override
    def join(self, request: JoinRequest) -> asyncio.Future[Joined]:
        self._check_alive()
        return self._classic.join(request)

    @override
    def sync(
        self, ref: MemberRef, protocol: tuple[str | None, str | None], assignments: Mapping[str, bytes]
    ) -> asyncio.Future[Synced]:
        self._check_alive()
        return self._classic.sync(ref, protocol)

    @override
    def heartbeat(self, ref: MemberRef) -> None:
        self._check_alive()
        self._classic.heartbeat(ref)

    @override
    def leave(self, ref: MemberRef) -> str:
        self._check_alive()
        member = self._classic.find(ref)
        self._remove(member)
        self.engine.save()
        return member.member_id

    @override
    def check_commit(
        self, ref: MemberRef, partitions: Collection[PartitionKey] = (), *, knows_epochs: bool = False
    ) -> None:
        """A member of the consumer protocol may commit in an older epoch for partitions that it has had since then (KIP-1251)."""
        self._check_alive()
        if ref.generation < 0 and not self.group.members:
            return
        member = self._classic.find(ref) if ref.member_id else None
        if member is None:
            raise GroupRefusal(Problem.UNKNOWN_MEMBER)
        if member.classic is not None:
            if ref.generation != member.epoch:
                raise GroupRefusal(Problem.ILLEGAL_GENERATION)
            return
        if not knows_epochs:
            raise GroupRefusal(Problem.UNSUPPORTED_VERSION)
        if ref.generation == member.epoch:
            return
        for key in partitions:
            since = member.assigned.get(key, member.revoking.get(key))
            if ref.generation > member.epoch or since is None or since > ref.generation:
                raise GroupRefusal(Problem.STALE_MEMBER_EPOCH)

    @override
    def encode(self) -> tuple[str, bytes]:
        return self.group.protocol_type, snapshot.encode(self.group)
