"""A consumer group of KIP-848 and its members, and the heartbeat that members send.

Partitions are `PartitionKey`s: a key names one incarnation of a stream, so it says as much as Kafka's topic id with an index.

Source: KIP-848; Apache Kafka 4.3, whose state names clients see.
"""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, NamedTuple

from bearlake.metadata.model import PartitionKey
from bearlake.streams.groups.model import GroupKind, GroupState, Protocols
from bearlake.streams.groups.room import octets_of

LEAVES = -1
"""Member epoch of a heartbeat with which a member leaves."""
LEAVES_FOR_A_WHILE = -2
"""Member epoch of a heartbeat with which a static member leaves but keeps its partitions until its session expires."""


class Topic(NamedTuple):
    """What a group knows about a topic: the stream's number, and its partitions."""

    number: int
    partition_count: int
    first_key: int

    def partitions(self) -> range:
        """Return the keys of all partitions, by index."""
        return range(self.first_key, self.first_key + self.partition_count)


class MemberState(Enum):
    """Where a member is on the way to its target assignment."""

    STABLE = "stable"
    """It has what it should have in its epoch."""
    UNREVOKED = "unrevoked"
    """It must give partitions up before it can go on to the next epoch."""
    UNRELEASED = "unreleased"
    """It waits for partitions that other members have not given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A ConsumerGroupHeartbeat. None means that the value has not changed since the member's last request."""

    member_id: str
    epoch: int
    """0 joins; `LEAVES`, `LEAVES_FOR_A_WHILE`."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    topics: Sequence[str] | None = None
    """Subscribed topic names."""
    pattern: str | None = None
    """Topic pattern; an empty pattern matches nothing."""
    matches: frozenset[str] | None = None
    """The topics that match the member's pattern now, and that the member may see; None: not known, keep the last ones."""
    matched_version: int = 0
    """Version of this server's view of all streams that `matches` is from."""
    assignor: str | None = None
    owned: Collection[PartitionKey] | None = None
    """The partitions that the member has and does not give up."""
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """Whether the member sent all it has to say: after it joined, and after errors."""
        return self.epoch == 0 or (
            self.rebalance_timeout_ms is not None
            and (self.topics is not None or self.pattern is not None)
            and self.owned is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """The answer to a heartbeat."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Collection[PartitionKey] | None = None
    """The partitions that the member may have; None: no news."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMember:
    """What a member that uses the classic protocol said when it joined."""

    session_timeout_ms: int
    protocols: Protocols


@dataclass(slots=True, kw_only=True)
class ConsumerMember:
    """One member. `assigned` and `revoking` map partitions to the member epoch in which the member got them."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = 0
    topics: Sequence[str] = ()
    pattern: str = ""
    matches: frozenset[str] = frozenset()
    assignor: str | None = None
    classic: ClassicMember | None = None
    """Set while the member uses the classic protocol."""
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: dict[PartitionKey, int] = field(default_factory=dict)
    revoking: dict[PartitionKey, int] = field(default_factory=dict)
    """Partitions that the member must still give up; nobody else may get them."""
    streams: frozenset[int] = frozenset()
    """Numbers of the subscribed streams that exist; follows from the subscription and the group's topics."""
    encoded: str | None = None
    """The member in the snapshot; None after a change."""

    def subscribed(self) -> AbstractSet[str]:
        """Return the names of all topics that the member subscribes to."""
        return self.matches.union(self.topics)

    def is_reconciled(self, epoch: int) -> bool:
        """Whether the member has reached the target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch


def octets(member: ConsumerMember) -> int:
    """Return the size (bytes) of what the member says of itself. Members share the topics that a pattern matches, so these do not count."""
    names = octets_of(
        [member.member_id, member.instance_id, member.rack_id, member.client_id, member.client_host, member.pattern]
    )
    protocols = () if member.classic is None else member.classic.protocols
    return names + octets_of(member.topics) + sum(octets_of([name]) + len(metadata) for name, metadata in protocols)


@dataclass(slots=True, kw_only=True)
class ConsumerGroup:
    """One group in its coordinator's memory."""

    kind: ClassVar[GroupKind] = GroupKind.CONSUMER
    protocol_type: ClassVar[str] = "consumer"

    name: str
    epoch: int = 0
    """Grows with every change of members, subscriptions or topics."""
    assignment_epoch: int = 0
    """The group epoch that `target` is for."""
    assignor: str = ""
    """The assignor that computed `target`."""
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    """Member id by group instance id."""
    target: dict[str, frozenset[PartitionKey]] = field(default_factory=dict)
    """The partitions that each member should have."""
    topics: Mapping[str, Topic] = field(default_factory=dict)
    """The subscribed topics that exist."""
    owners: dict[PartitionKey, str] = field(default_factory=dict)
    """The member that has a partition or must still give it up."""
    digests: dict[frozenset[str], str] = field(default_factory=dict)
    """Digests of the members' `matches`, for the snapshot."""

    @property
    def state(self) -> GroupState:
        """The state that clients see."""
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def add(self, member: ConsumerMember) -> None:
        """Add a member, or replace the one with its id."""
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self.own(member)

    def remove(self, member: ConsumerMember) -> None:
        """Remove a member, and free its partitions."""
        self.disown(member)
        del self.members[member.member_id]
        self.target.pop(member.member_id, None)
        if member.instance_id is not None and self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]

    def own(self, member: ConsumerMember) -> None:
        """Record what the member has."""
        for key in (*member.assigned, *member.revoking):
            self.owners[key] = member.member_id

    def disown(self, member: ConsumerMember) -> None:
        """Forget what the member has."""
        for key in (*member.assigned, *member.revoking):
            if self.owners.get(key) == member.member_id:
                del self.owners[key]

    def preferred_assignor(self, default: str) -> str:
        """Return the assignor that most members ask for; the first in order of names among equals, `default` if nobody asks."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member.assignor is not None:
                votes[member.assignor] = votes.get(member.assignor, 0) + 1
        return max(sorted(votes), key=lambda name: votes[name]) if votes else default

    def uses_only_classic(self, except_id: str | None = None) -> bool:
        """Whether all members, without `except_id`, use the classic protocol; False if there are none."""
        others = [member for member in self.members.values() if member.member_id != except_id]
        return bool(others) and all(member.classic is not None for member in others)
