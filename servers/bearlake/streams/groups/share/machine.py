"""One share group, for its coordinator: the heartbeats of its members (KIP-932).

Source: Apache Kafka 4.3, GroupMetadataManager (order of checks, texts of errors).
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from typing_extensions import override

from bearlake.metadata.model import PartitionKey
from bearlake.streams.groups.consumer.engine_machine import EngineMachine
from bearlake.streams.groups.consumer.model import LEAVES, ConsumerMember, Heartbeat, HeartbeatAnswer
from bearlake.streams.groups.consumer.subscriptions import Topics
from bearlake.streams.groups.model import Joined, JoinRequest, MemberRef, Synced
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.room import Room
from bearlake.streams.groups.share import snapshot
from bearlake.streams.groups.share.engine import ShareEngine, engine_settings
from bearlake.streams.groups.share.model import ShareGroup
from bearlake.streams.groups.share.settings import ShareGroupSettings


class ShareMachine(EngineMachine[ShareGroup]):
    """Runs one group's protocol. Use it from the event loop's thread only."""

    def __init__(
        self,
        group: ShareGroup,
        *,
        topics: Topics,
        room: Room,
        settings: Callable[[], ShareGroupSettings],
        on_save: Callable[[int], None],
        may_expire: Callable[[], bool] = lambda: True,
    ) -> None:
        """See `Engine`."""
        self.group = group
        self.engine = ShareEngine(
            group,
            topics=topics,
            room=room,
            settings=lambda: engine_settings(settings()),
            on_save=on_save,
            may_expire=may_expire,
            on_expired=lambda member: self.engine.remove(member),
        )

    # -- members -------------------------------------------------------------------------------------------------

    def beat(self, asked: Heartbeat) -> asyncio.Future[HeartbeatAnswer]:
        """Join, stay, or leave; the future completes when the group is saved. Raises `GroupRefusal`."""
        self._check_alive()
        if asked.epoch == LEAVES:
            self.engine.remove(self._known(asked.member_id))
            return self.engine.answered(HeartbeatAnswer(member_id=asked.member_id, epoch=LEAVES))
        member = self._member(asked)
        before = member.assigned
        self._update(member, asked)
        self.engine.advance(member, None)
        self.engine.renew(member)
        self._note_topics({topic.number: topic.partition_count for topic in self.group.topics.values()})
        has_news = asked.epoch != member.epoch or before.keys() != member.assigned.keys()
        return self.engine.answered(
            HeartbeatAnswer(
                member_id=member.member_id,
                epoch=member.epoch,
                heartbeat_interval_ms=self.engine.settings.heartbeat_interval_ms,
                assigned=tuple(member.assigned) if has_news else None,
            )
        )

    def _member(self, asked: Heartbeat) -> ConsumerMember:
        """Return the member, a new one if it joins."""
        known = self.group.members.get(asked.member_id)
        if asked.epoch == 0 and known is None:
            self.engine.check_size()
            member = ConsumerMember(
                member_id=asked.member_id,
                rack_id=asked.rack_id,
                client_id=asked.client_id,
                client_host=asked.client_host,
                topics=tuple(sorted(set(asked.topics or ()))),
            )
            self.engine.add(member)
            return member
        member = self._known(asked.member_id)
        if asked.epoch not in (0, member.epoch, member.previous_epoch):
            size = "greater" if asked.epoch > member.epoch else "smaller"
            raise GroupRefusal(
                Problem.FENCED_MEMBER_EPOCH,
                f"The share group member has a {size} member epoch ({asked.epoch}) than the one known by the group coordinator"
                f" ({member.epoch}). The member must abandon all its partitions and rejoin.",
            )
        return member

    def _known(self, member_id: str) -> ConsumerMember:
        member = self.group.members.get(member_id)
        if member is None:
            text = f"Member {member_id} is not a member of group {self.group.name}."
            raise GroupRefusal(Problem.UNKNOWN_MEMBER, text)
        return member

    def _update(self, member: ConsumerMember, asked: Heartbeat) -> None:
        rack_id = member.rack_id if asked.rack_id is None else asked.rack_id
        said = asked.client_id, asked.client_host, rack_id
        topics = member.topics if asked.topics is None else tuple(dict.fromkeys(asked.topics))
        if asked.topics is not None or said != (member.client_id, member.client_host, member.rack_id):
            client_id, client_host, _ = said
            self.engine.make_room(
                replace(member, client_id=client_id, client_host=client_host, rack_id=rack_id, topics=topics)
            )
        if said != (member.client_id, member.client_host, member.rack_id):
            member.client_id, member.client_host, member.rack_id = said
            self.engine.touch(member)
        if asked.topics is not None:
            self.engine.subscribe(member, topics, "", frozenset())

    # -- the group -----------------------------------------------------------------------------------------------

    def _note_topics(self, partition_counts: Mapping[int, int]) -> None:
        if partition_counts.keys() - self.group.known.keys():
            self.group.known = {**partition_counts, **self.group.known}
            self.engine.touch()

    def note_topics(self, partition_counts: Mapping[int, int]) -> asyncio.Future[None]:
        """Record that the group has state in these streams, given by number; the future completes when that is saved.

        Raises `GroupRefusal`.
        """
        self._check_alive()
        if not self.group.epoch:
            self.group.epoch = self.group.assignment_epoch = 1
            self.engine.touch()
        self._note_topics(partition_counts)
        return self.engine.answered(None)

    def forget_topic(self, number: int) -> asyncio.Future[None]:
        """Record that the group has no state in this stream; the future completes when that is saved. Raises `GroupRefusal`."""
        self._check_alive()
        if number in self.group.known:
            del self.group.known[number]
            self.engine.touch()
        return self.engine.answered(None)

    @override
    def join(self, request: JoinRequest) -> asyncio.Future[Joined]:
        self._check_alive()
        raise GroupRefusal(Problem.INCONSISTENT_PROTOCOL)

    @override
    def sync(
        self, ref: MemberRef, protocol: tuple[str | None, str | None], assignments: Mapping[str, bytes]
    ) -> asyncio.Future[Synced]:
        self._check_alive()
        raise GroupRefusal(Problem.UNKNOWN_MEMBER)

    @override
    def heartbeat(self, ref: MemberRef) -> None:
        self._check_alive()
        raise GroupRefusal(Problem.UNKNOWN_MEMBER)

    @override
    def leave(self, ref: MemberRef) -> str:
        self._check_alive()
        raise GroupRefusal(Problem.UNKNOWN_MEMBER)

    @override
    def check_commit(
        self, ref: MemberRef, partitions: Collection[PartitionKey] = (), *, knows_epochs: bool = False
    ) -> None:
        """A share group has no committed offsets."""
        self._check_alive()
        raise GroupRefusal(Problem.NOT_FOUND, f"Group {self.group.name} is not a consumer group.")

    @override
    def encode(self) -> tuple[str, bytes]:
        return self.group.protocol_type, snapshot.encode(self.group)
