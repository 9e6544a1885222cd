"""One streams group, for its coordinator: the heartbeats of its members (KIP-1071).

Source: Apache Kafka 4.3, GroupMetadataManager (order of checks, texts of errors).
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from typing_extensions import override

from bearlake.metadata.model import PartitionKey, partition_index, stream_number
from bearlake.streams.groups.consumer.model import LEAVES
from bearlake.streams.groups.consumer.subscriptions import Topics
from bearlake.streams.groups.machines import GroupMachine
from bearlake.streams.groups.model import Group, Joined, JoinRequest, MemberRef, Summary, Synced
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.room import TOPOLOGY, Room
from bearlake.streams.groups.tasks import snapshot, view
from bearlake.streams.groups.tasks.configuring import Status, StatusCode
from bearlake.streams.groups.tasks.endpoints import endpoints_of
from bearlake.streams.groups.tasks.engine import StreamsEngine
from bearlake.streams.groups.tasks.model import StreamsAnswer, StreamsGroup, StreamsHeartbeat, StreamsMember, TaskId
from bearlake.streams.groups.tasks.settings import StreamsGroupSettings

_LOST = "The member must abandon all its partitions and rejoin."


class StreamsMachine(GroupMachine):
    """Runs one group's protocol. Use it from the event loop's thread only."""

    def __init__(
        self,
        group: StreamsGroup,
        *,
        topics: Topics,
        room: Room,
        settings: Callable[[], StreamsGroupSettings],
        on_save: Callable[[int], None],
        may_expire: Callable[[], bool] = lambda: True,
    ) -> None:
        """See `StreamsEngine`."""
        self.group = group
        self.engine = StreamsEngine(
            group, topics=topics, room=room, settings=settings, on_save=on_save, may_expire=may_expire
        )

    # -- members -------------------------------------------------------------------------------------------------

    def beat(self, asked: StreamsHeartbeat) -> asyncio.Future[StreamsAnswer]:
        """Join, stay, or leave; the future completes when the group is saved. Raises `GroupRefusal`.

        The member's topology has passed `configuring.check`.
        """
        self._check_alive()
        if asked.epoch == LEAVES:
            return self._leave(asked)
        engine, group = self.engine, self.group
        known = self._find(asked)
        described = _described(StreamsMember(member_id=asked.member_id) if known is None else known, asked)
        topology = asked.topology if group.topology is None else None
        engine.room.check(asked.member_id, described.octets() + (0 if topology is None else topology.octets()))
        self._take_topology(asked)
        engine.refresh()
        self._check_tasks(asked)
        endpoint = None if known is None else known.endpoint
        member = self._update(known, described)
        before = member.tasks()
        delayed = engine.advance(member, asked.owned)
        engine.renew(member)
        if asked.shuts_down and group.shutdown_by is None:
            group.shutdown_by = member.member_id
        tasks = member.tasks()
        has_changed = asked.epoch == 0 or tasks != before
        if (has_changed and member.endpoint is not None) or member.endpoint != endpoint:
            group.endpoint_epoch += 1
        has_missed = asked.owned is not None and asked.owned != tasks  # the answer that gave the tasks may be lost
        return engine.answered(
            StreamsAnswer(
                member_id=member.member_id,
                epoch=member.epoch,
                heartbeat_interval_ms=engine.settings.heartbeat_interval_ms,
                tasks=tasks if has_changed or has_missed else None,
                statuses=self._statuses(member, delayed),
                endpoint_epoch=group.endpoint_epoch,
                endpoints=endpoints_of(group) if group.endpoint_epoch != asked.endpoint_epoch else None,
                missing=() if group.configured is None else group.configured.missing,
            )
        )

    def _leave(self, asked: StreamsHeartbeat) -> asyncio.Future[StreamsAnswer]:
        member = self._known(asked.member_id)
        if asked.shuts_down and self.group.shutdown_by is None:
            self.group.shutdown_by = member.member_id
        self.engine.remove(member)
        return self.engine.answered(StreamsAnswer(member_id=asked.member_id, epoch=LEAVES))

    def _find(self, asked: StreamsHeartbeat) -> StreamsMember | None:
        """Return the member that asks; None if it is new. Raises `GroupRefusal`."""
        member = self.group.members.get(asked.member_id)
        if member is None and asked.epoch == 0:
            self.engine.check_size()
            return None
        member = self._known(asked.member_id)
        if asked.epoch not in (0, member.epoch) and not _has_missed(asked, member):
            size = "greater" if asked.epoch > member.epoch else "smaller"
            raise GroupRefusal(
                Problem.FENCED_MEMBER_EPOCH,
                f"The streams group member has a {size} member epoch ({asked.epoch}) than the one known by the group coordinator"
                f" ({member.epoch}). {_LOST}",
            )
        return member

    def _known(self, member_id: str) -> StreamsMember:
        member = self.group.members.get(member_id)
        if member is None:
            text = f"Member {member_id} is not a member of group {self.group.name}."
            raise GroupRefusal(Problem.UNKNOWN_MEMBER, text)
        return member

    def _take_topology(self, asked: StreamsHeartbeat) -> None:
        """Take over the topology of the first member, and compare that of others. Raises `GroupRefusal`."""
        group, topology = self.group, asked.topology
        if topology is None or topology == group.topology:
            return
        if group.topology is None:
            self.engine.room.restore(TOPOLOGY, topology.octets())
            group.topology = topology
            self.engine.touch()
        elif topology.epoch >= group.topology.epoch:
            raise GroupRefusal(Problem.INVALID_REQUEST, "Topology updates are not supported yet.")

    def _check_tasks(self, asked: StreamsHeartbeat) -> None:
        """Raise `GroupRefusal` if the member reports tasks that do not exist."""
        configured = self.group.configured
        if asked.owned is None or configured is None or not configured.is_ready:
            return
        for task in (*asked.owned.active, *asked.owned.standby):
            count = configured.task_counts.get(task.subtopology_id)
            if count is None:
                text = f"Subtopology {task.subtopology_id} does not exist in the topology."
                raise GroupRefusal(Problem.INVALID_REQUEST, text)
            if not 0 <= task.partition < count:
                raise GroupRefusal(
                    Problem.INVALID_REQUEST,
                    f"Task {task.partition} for subtopology {task.subtopology_id} is invalid."
                    f" Number of tasks for this subtopology: {count}",
                )

    def _update(self, known: StreamsMember | None, described: StreamsMember) -> StreamsMember:
        """Take over what the member says of itself; returns the member."""
        self.engine.room.restore(described.member_id, described.octets())
        if known is None:
            self.engine.add(described)
            return described
        if known.description() != described.description():
            known.describe_as(described)
            self.engine.changed(known)
        return known

    def _statuses(self, member: StreamsMember, delayed: Status | None) -> list[Status]:
        group = self.group
        found = []
        if group.topology is not None and member.topology_epoch < group.topology.epoch:
            text = f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch {group.topology.epoch}."
            found.append(Status(StatusCode.STALE_TOPOLOGY, text))
        if delayed is not None:
            found.append(delayed)
        if group.configured is not None and group.configured.problem is not None:
            found.append(group.configured.problem)
        if group.shutdown_by is not None:
            text = (
                f"Streams group member {group.shutdown_by} encountered a fatal error and requested a shutdown"
                " for the entire application."
            )
            found.append(Status(StatusCode.SHUTDOWN_APPLICATION, text))
        return found

    # -- offsets -------------------------------------------------------------------------------------------------

    def check_fetch(self, member_id: str, epoch: int) -> None:
        """Raise `GroupRefusal` unless the member may read offsets in this epoch."""
        self._check_alive()
        member = self._known(member_id)
        if epoch != member.epoch:
            raise GroupRefusal(Problem.STALE_MEMBER_EPOCH, _stale(epoch, member.epoch))

    @override
    def check_commit(
        self, ref: MemberRef, partitions: Collection[PartitionKey] = (), *, knows_epochs: bool = False
    ) -> None:
        """A member may commit in an older epoch for partitions whose task it has had since then (KIP-1251)."""
        self._check_alive()
        if ref.generation < 0 and not self.group.members:
            return
        member = self._known(ref.member_id)
        if not knows_epochs:
            raise GroupRefusal(Problem.UNSUPPORTED_VERSION)
        if ref.generation == member.epoch:
            return
        for key in partitions:
            task = TaskId(self.group.subtopology_of.get(stream_number(key), ""), partition_index(key))
            since = member.active.get(task, member.revoking_active.get(task))
            if ref.generation > member.epoch or since is None or since > ref.generation:
                raise GroupRefusal(Problem.STALE_MEMBER_EPOCH, _stale(ref.generation, member.epoch))

    # -- the group -----------------------------------------------------------------------------------------------

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
    def renew_session(self, member_id: str) -> None:
        member = self.group.members.get(member_id)
        if member is not None and not self.engine.is_closed:
            self.engine.renew(member)

    @override
    def close(self, problem: Problem) -> None:
        self.engine.close(problem)

    @override
    def saved(self, ticket: int) -> None:
        self.engine.saved(ticket)

    @override
    def save_failed(self, ticket: int) -> None:
        self.engine.save_failed(ticket)

    @override
    def encode(self) -> tuple[str, bytes]:
        return self.group.protocol_type, snapshot.encode(self.group)

    @override
    def view(self) -> Group:
        return view.classic_view(self.group, self.engine.settings.session_timeout_ms)

    @override
    def summary(self) -> Summary:
        group = self.group
        return Summary(
            kind=group.kind,
            protocol_type=group.protocol_type,
            state=group.state,
            generation=group.epoch,
            member_count=len(group.members),
        )

    @override
    def static_id(self, member_id: str) -> str | None:
        return None

    def _check_alive(self) -> None:
        if self.engine.is_closed:  # released since the look-up
            raise GroupRefusal(Problem.NOT_COORDINATOR)


def _described(member: StreamsMember, asked: StreamsHeartbeat) -> StreamsMember:
    """Return a copy of the member that says of itself what it asks with."""
    return replace(
        member,
        client_id=asked.client_id,
        client_host=asked.client_host,
        rack_id=member.rack_id if asked.rack_id is None else asked.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if asked.rebalance_timeout_ms is None
        else asked.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch if asked.topology is None else asked.topology.epoch,
        process_id=member.process_id if asked.process_id is None else asked.process_id,
        endpoint=member.endpoint if asked.endpoint is None else asked.endpoint,
        tags=member.tags if asked.tags is None else asked.tags,
    )


def _has_missed(asked: StreamsHeartbeat, member: StreamsMember) -> bool:
    """Whether the member may have missed the answer that began its epoch."""
    owned = asked.owned
    return (
        owned is not None
        and asked.epoch == member.previous_epoch
        and owned.active <= member.active.keys()
        and owned.standby <= member.standby
    )


def _stale(received: int, expected: int) -> str:
    return f"The received member epoch {received} does not match the expected member epoch {expected}."
