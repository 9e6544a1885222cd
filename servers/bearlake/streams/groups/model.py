"""A group and its members in memory, and the snapshot in the store that outlives the coordinator.

The snapshot is JSON (version 1) with bytes in base64, so that an operator can read it. The coordinator saves a group once per rebalance,
so size and speed do not matter.
"""

import asyncio
import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from bearlake.errors import Corrupt
from bearlake.streams.groups.problems import GroupRefusal, Problem

SNAPSHOT_VERSION = 1


class GroupKind(Enum):
    """The protocol that a group uses; clients see the values."""

    CLASSIC = "classic"
    """The leader among the members assigns the partitions."""
    CONSUMER = "consumer"
    """The coordinator assigns the partitions (KIP-848, `streams/groups/consumer`)."""
    SHARE = "share"
    """Members may have the same partitions, and acquire single records (KIP-932, `streams/groups/share`)."""
    STREAMS = "streams"
    """The coordinator assigns tasks of a topology (KIP-1071, `streams/groups/tasks`)."""


class GroupState(Enum):
    """States of a group; clients see the values."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    """Only streams groups: topics that the topology needs are missing, or do not fit."""
    ASSIGNING = "Assigning"
    """Only consumer groups and streams groups: the target assignment is older than the group's last change."""
    RECONCILING = "Reconciling"
    """Only consumer groups and streams groups: members are on the way to the target assignment."""
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


Protocols = tuple[tuple[str, bytes], ...]
"""Names and metadata of the assignment protocols that a member supports, most preferred first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRef:
    """The sender of a request about a group: a member in the generation that it knows, or a client outside the group protocol."""

    group: str
    member_id: str = ""
    """Empty: a static member that names only its instance id, or a client outside the group protocol."""
    generation: int = -1
    """-1: a client outside the group protocol, or a request without a generation (leave)."""
    instance_id: str | None = None
    """The group instance id of a static member (KIP-345)."""

    @property
    def is_anonymous(self) -> bool:
        """Whether the sender names no member."""
        return self.member_id == "" and self.instance_id is None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A request to join. Timeouts are in ms; `member_id` is empty for a new member; bytes are opaque."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    requires_known_id: bool
    """The client understands MEMBER_ID_REQUIRED and joins again with the id (KIP-394)."""
    can_skip_assignment: bool
    """The client understands `Joined.skips_assignment` (KIP-814)."""

    def sender(self, group: str) -> MemberRef:
        """Return who asks to join the group."""
        return MemberRef(group=group, member_id=self.member_id, instance_id=self.instance_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """A member in the leader's join answer."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The answer to a join: the generation and, for the leader, all members."""

    generation: int
    protocol_type: str
    protocol_name: str
    leader: str
    member_id: str
    members: Sequence[JoinedMember] = ()
    skips_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """The answer to a sync: this member's assignment."""

    protocol_type: str
    protocol_name: str
    assignment: bytes


@dataclass(slots=True, kw_only=True)
class Member:
    """One member. The futures are set while the member waits for its round or its assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    joining: asyncio.Future[Joined] | None = None
    syncing: asyncio.Future[Synced] | None = None
    deadline: float = 0.0
    """Loop time at which the session expires unless the member sends a request first."""
    timer: asyncio.TimerHandle | None = None
    timer_at: float = 0.0
    """Loop time at which `timer` runs (uvloop handles cannot always report it)."""
    is_new: bool = False
    """The member's first round is not complete."""

    @property
    def is_waiting(self) -> bool:
        """Whether the member waits for its round or its assignment."""
        return self.joining is not None or self.syncing is not None

    def metadata(self, protocol: str) -> bytes:
        """Return the member's metadata for a protocol that it supports."""
        return next(metadata for name, metadata in self.protocols if name == protocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What lists show of a group."""

    kind: GroupKind
    protocol_type: str
    state: GroupState
    generation: int
    """The generation, or the epoch of a consumer group."""
    member_count: int
    pending_count: int = 0
    """Clients that must join again with the member id that they got."""

    @property
    def is_unused(self) -> bool:
        """Whether the group never had a generation, and nobody is about to join."""
        return not (self.generation or self.member_count or self.pending_count)


@dataclass(slots=True, kw_only=True)
class Group:
    """One group in its coordinator's memory; for readers, also a consumer group (`consumer/view.py`)."""

    name: str
    kind: GroupKind = GroupKind.CLASSIC
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol_name: str = ""
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    """Member id by group instance id."""
    pending: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    """Ids returned with MEMBER_ID_REQUIRED; their clients must join again with the id."""

    def encode(self) -> bytes:
        """Encode the snapshot: generation, leader, protocol, and the members with their assignments."""
        members = [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "session_timeout_ms": member.session_timeout_ms,
                "rebalance_timeout_ms": member.rebalance_timeout_ms,
                "protocols": [[name, _text(metadata)] for name, metadata in member.protocols],
                "assignment": _text(member.assignment),
            }
            for member in self.members.values()
        ]
        return json.dumps(
            {
                "version": SNAPSHOT_VERSION,
                "generation": self.generation,
                "protocol_name": self.protocol_name,
                "leader": self.leader,
                "members": members,
            }
        ).encode()

    @classmethod
    def decode(cls, name: str, protocol_type: str, snapshot: bytes) -> "Group":
        """Decode a snapshot into a group: STABLE with its members, or EMPTY. Raises `Corrupt`."""
        try:
            values: dict[str, Any] = json.loads(snapshot)
            if values["version"] != SNAPSHOT_VERSION:
                raise Corrupt(
                    f"snapshot of group {name!r} has version {values['version']}, expected {SNAPSHOT_VERSION}"
                )
            group = cls(
                name=name,
                generation=values["generation"],
                protocol_type=protocol_type,
                protocol_name=values["protocol_name"],
                leader=values["leader"],
            )
            for item in values["members"]:
                protocols = tuple((key, _bytes(metadata)) for key, metadata in item.pop("protocols"))
                member = Member(protocols=protocols, assignment=_bytes(item.pop("assignment")), **item)
                group.members[member.member_id] = member
                if member.instance_id is not None:
                    group.static[member.instance_id] = member.member_id
        except (KeyError, TypeError, ValueError) as error:
            raise Corrupt(f"snapshot of group {name!r} is damaged: {error}") from error
        group.state = GroupState.STABLE if group.members else GroupState.EMPTY
        return group

    def member(self, ref: MemberRef) -> Member:
        """Return the member that sent a request, after checking that a static member still owns its instance id.

        Raises:
            GroupRefusal: UNKNOWN_MEMBER, or FENCED_INSTANCE if another client took the instance id over (KIP-345).
        """
        if ref.instance_id is not None:
            known = self.static.get(ref.instance_id)
            if known is not None and known != ref.member_id:
                raise GroupRefusal(Problem.FENCED_INSTANCE)
            if known is None:
                raise GroupRefusal(Problem.UNKNOWN_MEMBER)
        member = self.members.get(ref.member_id)
        if member is None:
            raise GroupRefusal(Problem.UNKNOWN_MEMBER)
        return member

    @property
    def rebalance_timeout_ms(self) -> int:
        """Time (ms) that a round waits for its members: the largest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols fits the group: same type, and one protocol that every member supports."""
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        common = self.common_protocols()
        return protocol_type == self.protocol_type and any(name in common for name, _ in protocols)

    def common_protocols(self) -> set[str]:
        """Protocols that every member supports."""
        sets = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set.intersection(*sets) if sets else set()

    def elect_protocol(self) -> str:
        """Choose the common protocol that most members prefer; the leader's preference breaks ties."""
        common = self.common_protocols()
        votes: dict[str, int] = {}
        leader = self.members.get(self.leader) or next(iter(self.members.values()))
        for name, _ in leader.protocols:
            if name in common:
                votes[name] = 0
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if name in common)] += 1
        return max(votes, key=lambda name: votes[name])

    def joined_members(self) -> list[JoinedMember]:
        """Return all members with their metadata for the elected protocol."""
        return [
            JoinedMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self.members.values()
        ]


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _bytes(value: str) -> bytes:
    return base64.b64decode(value, validate=True)
