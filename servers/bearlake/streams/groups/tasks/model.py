"""A streams group of KIP-1071 and its members, the heartbeat that members send, and the answer.

Source: KIP-1071; Apache Kafka 4.3, whose state names clients see. Warm-up tasks are not assigned, as in Kafka 4.3.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from bearlake.streams.groups.consumer.model import MemberState, Topic
from bearlake.streams.groups.model import GroupKind, GroupState
from bearlake.streams.groups.room import octets_of
from bearlake.streams.groups.tasks.configuring import Configured, Status
from bearlake.streams.groups.tasks.topology import InternalTopic, Topology

NOT_VALIDATED = -1


class TaskId(NamedTuple):
    """One task of a subtopology."""

    subtopology_id: str
    partition: int


class Tasks(NamedTuple):
    """Tasks by what they do."""

    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()


class Endpoint(NamedTuple):
    """Where an application answers interactive queries."""

    host: str
    port: int


class EndpointPartitions(NamedTuple):
    """The partitions whose state an application can be asked for: indexes by topic."""

    endpoint: Endpoint
    active: Mapping[str, Sequence[int]]
    standby: Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsHeartbeat:
    """A StreamsGroupHeartbeat. None means that the value has not changed since the member's last request."""

    member_id: str
    epoch: int
    """0 joins; `LEAVES`."""
    endpoint_epoch: int = -1
    """The version of `StreamsAnswer.endpoints` that the member has."""
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    topology: Topology | None = None
    """Set when the member joins."""
    process_id: str | None = None
    """The application's process, which may have several members."""
    endpoint: Endpoint | None = None
    tags: Mapping[str, str] | None = None
    owned: Tasks | None = None
    """The tasks that the member has and does not give up."""
    shuts_down: bool = False
    """The whole application shall end."""
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsAnswer:
    """The answer to a heartbeat."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    tasks: Tasks | None = None
    """The tasks that the member may have; None: no news."""
    statuses: Sequence[Status] = ()
    endpoint_epoch: int = -1
    endpoints: Sequence[EndpointPartitions] | None = None
    """None: no news."""
    missing: Sequence[InternalTopic] = ()
    """Internal topics that must be created."""


@dataclass(slots=True, kw_only=True)
class StreamsMember:
    """One member. `active` and `revoking_active` map tasks to the member epoch in which the member got them."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = 0
    topology_epoch: int = 0
    process_id: str = ""
    endpoint: Endpoint | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    active: dict[TaskId, int] = field(default_factory=dict)
    standby: frozenset[TaskId] = frozenset()
    revoking_active: dict[TaskId, int] = field(default_factory=dict)
    revoking_standby: frozenset[TaskId] = frozenset()
    """Tasks that the member must still give up."""
    encoded: str | None = None
    """The member in the snapshot, without its target; None after a change."""

    def description(self) -> tuple[object, ...]:
        """Return what the member has told about itself."""
        return (
            self.rack_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.topology_epoch,
            self.process_id,
            self.endpoint,
            self.tags,
        )

    def describe_as(self, other: "StreamsMember") -> None:
        """Take over what the other one has told."""
        self.rack_id, self.client_id, self.client_host = other.rack_id, other.client_id, other.client_host
        self.rebalance_timeout_ms, self.topology_epoch = other.rebalance_timeout_ms, other.topology_epoch
        self.process_id, self.endpoint, self.tags = other.process_id, other.endpoint, other.tags

    def octets(self) -> int:
        """Return the size (bytes) of what the member has told about itself."""
        host = "" if self.endpoint is None else self.endpoint.host
        names = [self.member_id, self.rack_id, self.client_id, self.client_host, self.process_id, host]
        return octets_of(names) + octets_of(self.tags.keys()) + octets_of(self.tags.values())

    def tasks(self) -> Tasks:
        """Return the tasks that the member may have."""
        return Tasks(frozenset(self.active), self.standby)

    def is_reconciled(self, epoch: int) -> bool:
        """Whether the member has reached the target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch


@dataclass(slots=True, kw_only=True)
class StreamsGroup:
    """One group in its coordinator's memory."""

    kind: ClassVar[GroupKind] = GroupKind.STREAMS
    protocol_type: ClassVar[str] = "streams"

    name: str
    epoch: int = 0
    """Grows with every change of members, topics or configs. At least 2 in a group with members: a member that waits for the first
    assignment is in epoch 1."""
    assignment_epoch: int = 0
    """The group epoch that `target` is for."""
    validated_epoch: int = NOT_VALIDATED
    """The epoch of the topology if its topics allow tasks, else `NOT_VALIDATED`."""
    standby_count: int = 0
    """Standby tasks per active task of the newest epoch."""
    topology: Topology | None = None
    topics: Mapping[str, Topic] = field(default_factory=dict)
    """The required topics that exist."""
    configured: Configured | None = None
    """Follows from `topology` and `topics`."""
    subtopology_of: Mapping[int, str] = field(default_factory=dict)
    """The subtopology that reads a stream, by the stream's number; follows from `topology` and `topics`."""
    members: dict[str, StreamsMember] = field(default_factory=dict)
    target: dict[str, Tasks] = field(default_factory=dict)
    """The tasks that each member should have."""
    target_texts: dict[str, str] = field(default_factory=dict)
    """`target` in the snapshot, as far as it has been asked for."""
    inputs_text: tuple[Topology | None, Mapping[str, Topic], str] | None = None
    """`topology` and `topics`, and what the snapshot has of them."""
    owners: dict[TaskId, str] = field(default_factory=dict)
    """The member that has an active task or must still give it up."""
    standbys: dict[TaskId, set[str]] = field(default_factory=dict)
    """The members that have a standby task or must still give it up."""
    shutdown_by: str | None = None
    """The member that wants the application to end; not saved."""
    endpoint_epoch: int = -1
    """Version of what members know of endpoints; not saved."""
    endpoints: tuple[tuple[int, Mapping[str, Topic]], Sequence[EndpointPartitions]] | None = None
    """The endpoints, and what they are for: `endpoint_epoch` and `topics`; not saved."""

    @property
    def state(self) -> GroupState:
        """The state that clients see."""
        if not self.members:
            return GroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_epoch:
            return GroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def add(self, member: StreamsMember) -> None:
        """Add a member."""
        self.members[member.member_id] = member
        self.own(member)

    def remove(self, member: StreamsMember) -> None:
        """Remove a member, and free its tasks."""
        self.disown(member)
        del self.members[member.member_id]
        self.target.pop(member.member_id, None)
        self.target_texts.pop(member.member_id, None)
        if not self.members:
            self.shutdown_by = None

    def take_target(self, target: Mapping[str, Tasks], texts: Mapping[str, str] | None) -> None:
        """Take over an assignment; `texts` None: the snapshot makes the texts of those that have changed."""
        if texts is None:
            kept = self.target_texts
            texts = {
                name: kept[name] for name, tasks in target.items() if name in kept and self.target.get(name) == tasks
            }
        self.target, self.target_texts = dict(target), dict(texts)

    def own(self, member: StreamsMember) -> None:
        """Record what the member has."""
        for task in (*member.active, *member.revoking_active):
            self.owners[task] = member.member_id
        for task in (*member.standby, *member.revoking_standby):
            self.standbys.setdefault(task, set()).add(member.member_id)

    def disown(self, member: StreamsMember) -> None:
        """Forget what the member has."""
        for task in (*member.active, *member.revoking_active):
            if self.owners.get(task) == member.member_id:
                del self.owners[task]
        for task in (*member.standby, *member.revoking_standby):
            holders = self.standbys.get(task, set())
            holders.discard(member.member_id)
            if not holders:
                self.standbys.pop(task, None)

    def is_in_process(self, member_ids: Iterable[str], process_id: str) -> bool:
        """Whether one of these members belongs to the process."""
        return any(self.members[member_id].process_id == process_id for member_id in member_ids)
