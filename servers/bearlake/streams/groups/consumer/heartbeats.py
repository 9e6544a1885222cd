"""Heartbeats of members that use the consumer protocol: they join, report what they have, learn what they may have, and leave.

Source: KIP-848, KIP-345 and KIP-1082; Apache Kafka, GroupMetadataManager (order of checks, texts of errors).
"""

import asyncio
import uuid
from dataclasses import replace

from bearlake.streams.groups.consumer.engine import Engine
from bearlake.streams.groups.consumer.model import (
    LEAVES_FOR_A_WHILE,
    ConsumerMember,
    Heartbeat,
    HeartbeatAnswer,
    MemberState,
)
from bearlake.streams.groups.consumer.settings import ConsumerGroupSettings
from bearlake.streams.groups.problems import GroupRefusal, Problem

_LOST = "The member must abandon all its partitions and rejoin."


class Heartbeats:
    """The requests of one group's members."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._group = engine.group

    def beat(self, asked: Heartbeat) -> asyncio.Future[HeartbeatAnswer]:
        """Join or stay in the group. Raises `GroupRefusal`."""
        engine = self._engine
        check_assignor(asked, engine.settings)
        is_known = asked.member_id in self._group.members or asked.instance_id in self._group.static
        if not is_known and asked.epoch == 0:
            engine.check_size()
        member = self._member(asked)
        had = member.assigned
        is_new = self._update(member, asked)
        engine.advance(member, asked.owned, is_new=is_new)
        engine.renew(member)
        has_changed = had is not member.assigned and had.keys() != member.assigned.keys()
        has_news = asked.is_full or has_changed
        return engine.answered(
            HeartbeatAnswer(
                member_id=member.member_id,
                epoch=member.epoch,
                heartbeat_interval_ms=engine.settings.heartbeat_interval_ms,
                assigned=tuple(member.assigned) if has_news else None,
            )
        )

    def leave(self, asked: Heartbeat) -> ConsumerMember | None:
        """Find the member that leaves for good, for the caller to remove; None if it leaves for a while. Raises `GroupRefusal`."""
        member = self._known(asked)
        if asked.epoch == LEAVES_FOR_A_WHILE and asked.instance_id is not None:
            self._group.disown(member)
            member.revoking = {}
            member.state = MemberState.STABLE  # the next coordinator must not wait for it to give anything up
            member.epoch = LEAVES_FOR_A_WHILE
            self._group.own(member)
            self._engine.rebalances.cancel(member.member_id)
            self._engine.touch(member)
            return None
        return member

    # -- who it is -----------------------------------------------------------------------------------------------

    def _member(self, asked: Heartbeat) -> ConsumerMember:
        """Return the member, a new one if it joins."""
        if asked.epoch != 0:
            member = self._known(asked)
            _check_epoch(member, asked)
            return member
        member_id = asked.member_id or str(uuid.uuid4())  # before version 1, the coordinator chooses the id
        if asked.instance_id is not None and asked.instance_id in self._group.static:
            return self._again(asked, member_id)
        known = self._group.members.get(member_id)
        if known is not None:
            _check_epoch(known, asked)
            return known
        member = ConsumerMember(
            member_id=member_id,
            instance_id=asked.instance_id,
            rack_id=asked.rack_id,
            client_id=asked.client_id,
            client_host=asked.client_host,
            topics=tuple(sorted(set(asked.topics or ()))),
            pattern=asked.pattern or "",
            matches=asked.matches or frozenset(),
        )
        self._engine.add(member)
        return member

    def _again(self, asked: Heartbeat, member_id: str) -> ConsumerMember:
        """A static member joins again: it takes its place with a new id if the old one has left for a while (KIP-345)."""
        assert asked.instance_id is not None
        member = self._group.members[self._group.static[asked.instance_id]]
        if member.classic is None and member.epoch != LEAVES_FOR_A_WHILE:
            raise GroupRefusal(
                Problem.UNRELEASED_INSTANCE,
                f"Static member {member_id} with instance id {asked.instance_id} cannot join the group because the instance id is owned"
                f" by {member.member_id} member.",
            )
        if self._group.members.get(member_id, member) is not member:
            raise GroupRefusal(
                Problem.INVALID_REQUEST, f"Member id {member_id} belongs to another member of the group."
            )
        self._engine.rename(member, replace(self._described(member, asked), member_id=member_id))
        return member

    def _known(self, asked: Heartbeat) -> ConsumerMember:
        if asked.instance_id is None:
            member = self._group.members.get(asked.member_id)
            if member is None:
                text = f"Member {asked.member_id} is not a member of group {self._group.name}."
                raise GroupRefusal(Problem.UNKNOWN_MEMBER, text)
            return member
        known = self._group.static.get(asked.instance_id)
        if known is None:
            raise GroupRefusal(Problem.UNKNOWN_MEMBER, f"Instance id {asked.instance_id} is unknown.")
        if known != asked.member_id:
            text = f"Static member {asked.member_id} with instance id {asked.instance_id} was fenced by member {known}."
            raise GroupRefusal(Problem.FENCED_INSTANCE, text)
        return self._group.members[known]

    # -- what it says --------------------------------------------------------------------------------------------

    def _update(self, member: ConsumerMember, asked: Heartbeat) -> bool:
        """Take over what the member says; returns whether it subscribes to other topics than before."""
        said = _said(member, asked)
        before = (
            member.client_id,
            member.client_host,
            member.rack_id,
            member.assignor,
            member.rebalance_timeout_ms,
            member.classic,
        )
        pattern = member.pattern if asked.pattern is None else asked.pattern
        matches = member.matches if asked.matches is None else asked.matches
        if pattern == member.pattern and asked.matched_version < self._engine.subscriptions.since:
            # Compared before this server took the group over, perhaps without the newest topics.
            matches = member.matches
        if not pattern:
            matches = frozenset()
        topics = member.topics if asked.topics is None else asked.topics
        if said != before or topics is not member.topics or pattern != member.pattern:
            self._engine.make_room(self._described(member, asked))
        if said != before:
            member.client_id, member.client_host, member.rack_id, member.assignor, member.rebalance_timeout_ms, _ = said
            if member.classic is not None:
                member.classic = None
                self._engine.rebalances.cancel(member.member_id)
            self._engine.touch(member)
        return self._engine.subscribe(member, topics, pattern, matches)

    def _described(self, member: ConsumerMember, asked: Heartbeat) -> ConsumerMember:
        """Return a copy of the member that says of itself what it asks with."""
        client_id, client_host, rack_id, *_ = _said(member, asked)
        return replace(
            member,
            client_id=client_id,
            client_host=client_host,
            rack_id=rack_id,
            topics=member.topics if asked.topics is None else tuple(dict.fromkeys(asked.topics)),
            pattern=member.pattern if asked.pattern is None else asked.pattern,
            classic=None,
        )


def _said(member: ConsumerMember, asked: Heartbeat) -> tuple[str, str, str | None, str | None, int, None]:
    """Return client id and host, rack, assignor and rebalance timeout of the member, and that it uses the consumer protocol."""
    return (
        asked.client_id,
        asked.client_host,
        member.rack_id if asked.rack_id is None else asked.rack_id,
        member.assignor if asked.assignor is None else asked.assignor,
        member.rebalance_timeout_ms if asked.rebalance_timeout_ms is None else asked.rebalance_timeout_ms,
        None,
    )


def check_assignor(asked: Heartbeat, settings: ConsumerGroupSettings) -> None:
    """Raise `GroupRefusal` unless the group may use the assignor that the member asks for, if it asks for one."""
    if asked.assignor is not None and asked.assignor not in settings.assignors:
        text = (
            f"ServerAssignor {asked.assignor} is not supported. Supported assignors: {', '.join(settings.assignors)}."
        )
        raise GroupRefusal(Problem.UNSUPPORTED_ASSIGNOR, text)


def _check_epoch(member: ConsumerMember, asked: Heartbeat) -> None:
    """Raise `GroupRefusal` unless the member is in the epoch that it names, or may have missed the answer that began its epoch."""
    if asked.epoch == 0:
        return  # it rejoins
    if asked.epoch > member.epoch:
        raise GroupRefusal(
            Problem.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a greater member epoch ({asked.epoch}) than the one known by the group coordinator"
            f" ({member.epoch}). {_LOST}",
        )
    has_missed = asked.epoch == member.previous_epoch and _is_subset(asked, member)
    if asked.epoch < member.epoch and not has_missed:
        raise GroupRefusal(
            Problem.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a smaller member epoch ({asked.epoch}) than the one known by the group coordinator"
            f" ({member.epoch}). {_LOST}",
        )


def _is_subset(asked: Heartbeat, member: ConsumerMember) -> bool:
    return asked.owned is not None and all(key in member.assigned for key in asked.owned)
