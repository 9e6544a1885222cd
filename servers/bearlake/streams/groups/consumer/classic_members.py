"""Requests of members that still use the classic protocol, in a consumer group: JoinGroup, SyncGroup, Heartbeat.

The coordinator assigns for them, too. A join takes the member one step on (`reconciling`) and answers at once, a sync returns what the
member has, and a heartbeat asks it to join again for the next step. The member's epoch is the generation that it knows.

Source: KIP-848 (online migration); Apache Kafka, GroupMetadataManager.
"""

import asyncio
import uuid
from dataclasses import replace

from bearlake.errors import Corrupt
from bearlake.metadata.model import PartitionKey
from bearlake.streams.groups import assignment
from bearlake.streams.groups.consumer import embedded, view
from bearlake.streams.groups.consumer.engine import Engine
from bearlake.streams.groups.consumer.model import ClassicMember, ConsumerGroup, ConsumerMember, MemberState
from bearlake.streams.groups.model import Joined, JoinRequest, MemberRef, Synced
from bearlake.streams.groups.problems import GroupRefusal, Problem


class ClassicMembers:
    """The requests of one group's classic members."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._group = engine.group

    def join(self, request: JoinRequest) -> asyncio.Future[Joined]:
        """Join or join again. Raises `GroupRefusal`."""
        engine = self._engine
        if request.member_id not in self._group.members and request.instance_id not in self._group.static:
            engine.check_size()
        if not self._supports(request):
            raise GroupRefusal(Problem.INCONSISTENT_PROTOCOL)
        if request.member_id == "" and request.instance_id is None and request.requires_known_id:
            raise GroupRefusal(Problem.MEMBER_ID_REQUIRED, member_id=f"{request.client_id}-{uuid.uuid4()}")
        try:
            subscription = embedded.decode(request.protocols)
        except Corrupt as error:
            raise GroupRefusal(Problem.INCONSISTENT_PROTOCOL, str(error)) from error
        if len(subscription.topics) > engine.settings.topic_count_max:
            text = f"the subscription has {len(subscription.topics)} topics, the limit is {engine.settings.topic_count_max}"
            raise GroupRefusal(Problem.INCONSISTENT_PROTOCOL, text)
        member = self._joining(request, subscription.topics)
        is_new = self._update(member, request, subscription.topics)
        engine.advance(member, self._keys(subscription.owned), is_new=is_new)
        engine.renew(member)
        engine.rebalances.set(member.member_id, member.rebalance_timeout_ms)  # until it syncs
        return engine.answered(
            Joined(
                generation=member.epoch,
                protocol_type=ConsumerGroup.protocol_type,
                protocol_name=request.protocols[0][0],
                leader="",
                member_id=member.member_id,
            )
        )

    def sync(self, ref: MemberRef, protocol: tuple[str | None, str | None]) -> asyncio.Future[Synced]:
        """Return the member's partitions. Raises `GroupRefusal`."""
        member, classic = self._classic(ref)
        protocol_name = classic.protocols[0][0]
        for given, present in zip(protocol, (ConsumerGroup.protocol_type, protocol_name), strict=True):
            if given is not None and given != present:
                raise GroupRefusal(Problem.INCONSISTENT_PROTOCOL)
        if self._group.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
            self._await_join(member)
            raise GroupRefusal(Problem.REBALANCE_IN_PROGRESS)
        self._engine.rebalances.cancel(member.member_id)
        self._engine.renew(member)
        names = {topic.number: name for name, topic in self._group.topics.items()}
        partitions = view.by_name(member.assigned, names.get)
        return self._engine.answered(
            Synced(
                protocol_type=ConsumerGroup.protocol_type,
                protocol_name=protocol_name,
                assignment=assignment.encode_assignment(partitions),
            )
        )

    def heartbeat(self, ref: MemberRef) -> None:
        """Renew the member's session. Raises `GroupRefusal`; REBALANCE_IN_PROGRESS asks the member to join again."""
        member, _ = self._classic(ref)
        self._engine.renew(member)
        is_free = member.state is MemberState.UNRELEASED and not self._waits(member)
        if member.epoch < self._group.epoch or member.state is MemberState.UNREVOKED or is_free:
            self._await_join(member)
            raise GroupRefusal(Problem.REBALANCE_IN_PROGRESS)

    # -- who it is -----------------------------------------------------------------------------------------------

    def find(self, ref: MemberRef) -> ConsumerMember:
        """Return the member that sent a request, by its instance id alone if it names no member id. Raises `GroupRefusal`."""
        member_id = ref.member_id
        if ref.instance_id is not None:
            known = self._group.static.get(ref.instance_id)
            if known is None:
                raise GroupRefusal(Problem.UNKNOWN_MEMBER)
            if member_id not in ("", known):
                raise GroupRefusal(Problem.FENCED_INSTANCE)
            member_id = known
        member = self._group.members.get(member_id)
        if member is None:
            raise GroupRefusal(Problem.UNKNOWN_MEMBER)
        return member

    def _classic(self, ref: MemberRef) -> tuple[ConsumerMember, ClassicMember]:
        member = self.find(ref)
        if member.classic is None or ref.member_id == "":
            raise GroupRefusal(Problem.UNKNOWN_MEMBER)
        if ref.generation != member.epoch:
            raise GroupRefusal(Problem.ILLEGAL_GENERATION)
        return member, member.classic

    def _joining(self, request: JoinRequest, topics: list[str]) -> ConsumerMember:
        group = self._group
        if request.instance_id is not None and (request.member_id or request.instance_id in group.static):
            if request.member_id:
                return self.find(request.sender(group.name))
            member = group.members[group.static[request.instance_id]]
            member_id = f"{request.instance_id}-{uuid.uuid4()}"
            self._engine.rename(member, replace(_described(member, request, topics), member_id=member_id))
            return member
        known = group.members.get(request.member_id)
        if known is not None:
            return known
        member_id = request.member_id or f"{request.instance_id or request.client_id}-{uuid.uuid4()}"
        member = ConsumerMember(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topics=tuple(sorted(set(topics))),
            classic=_classic(request),
        )
        self._engine.add(member)
        return member

    def _supports(self, request: JoinRequest) -> bool:
        """Whether the request has a protocol that all other classic members support, so that the group could become classic again."""
        names = {name for name, _ in request.protocols}
        for member in self._group.members.values():
            if member.classic is not None and member.member_id != request.member_id:
                names &= {name for name, _ in member.classic.protocols}
        return request.protocol_type == ConsumerGroup.protocol_type and bool(names)

    # -- what it says --------------------------------------------------------------------------------------------

    def _update(self, member: ConsumerMember, request: JoinRequest, topics: list[str]) -> bool:
        """Take over what the member says; returns whether it subscribes to other topics than before."""
        self._engine.make_room(_described(member, request, topics))
        member.client_id, member.client_host = request.client_id, request.client_host
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.assignor = None
        member.classic = _classic(request)
        self._engine.touch(member)
        return self._engine.subscribe(member, topics, "", frozenset())

    def _keys(self, owned: assignment.Partitions) -> list[PartitionKey]:
        topics = self._group.topics
        return [
            PartitionKey(topics[name].first_key | index)
            for name, indexes in owned.items()
            if name in topics
            for index in indexes
            if 0 <= index < topics[name].partition_count
        ]

    def _await_join(self, member: ConsumerMember) -> None:
        """Give the member its rebalance timeout to join again."""
        if member.member_id not in self._engine.rebalances:
            self._engine.rebalances.set(member.member_id, member.rebalance_timeout_ms)

    def _waits(self, member: ConsumerMember) -> bool:
        """Whether another member has a partition that this one should have."""
        target = self._group.target.get(member.member_id, frozenset())
        return any(
            key not in member.assigned and self._group.owners.get(key, member.member_id) != member.member_id
            for key in target
        )


def _described(member: ConsumerMember, request: JoinRequest, topics: list[str]) -> ConsumerMember:
    """Return a copy of the member that says of itself what it joins with."""
    return replace(
        member,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=tuple(dict.fromkeys(topics)),
        pattern="",
        classic=_classic(request),
    )


def _classic(request: JoinRequest) -> ClassicMember:
    return ClassicMember(session_timeout_ms=request.session_timeout_ms, protocols=request.protocols)
