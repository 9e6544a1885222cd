"""What changes a streams group: members, topics, epochs, the target assignment, and sessions.

Each change is in memory at once; answers wait for saves (`../saving.py`). The target assignment is computed at most once per
`assignment_interval_ms`, and for the first members of an empty group after `initial_rebalance_delay_ms`, so that the members that start
together are assigned together.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from bearlake.metadata.model import PARTITION_BITS
from bearlake.streams.groups.consumer.deadlines import Deadlines
from bearlake.streams.groups.consumer.model import MemberState, Topic
from bearlake.streams.groups.consumer.subscriptions import Topics
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.room import TOPOLOGY, Room
from bearlake.streams.groups.saving import Saving
from bearlake.streams.groups.tasks import snapshot
from bearlake.streams.groups.tasks.assigning import Assigning
from bearlake.streams.groups.tasks.configuring import AT_ONCE_MAX, Configured, CountOf, Status, StatusCode, configure
from bearlake.streams.groups.tasks.model import NOT_VALIDATED, StreamsGroup, StreamsMember, Tasks
from bearlake.streams.groups.tasks.reconciling import reconcile
from bearlake.streams.groups.tasks.settings import StreamsGroupSettings
from bearlake.streams.groups.tasks.topology import Topology
from bearlake.telemetry import metrics
from bearlake.telemetry.containment import noticed

log = logging.getLogger(__name__)

_INITIAL_DELAY = Status(
    StatusCode.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay."
)
_INTERVAL = Status(StatusCode.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval.")
_COMPUTING = Status(StatusCode.ASSIGNMENT_DELAYED, "Assignment delayed until it is computed.")


class _Prepared(NamedTuple):
    """What follows from a topology and the topics that exist, and what the snapshot has of both."""

    topology: Topology
    topics: Mapping[str, Topic]
    configured: Configured
    text: str


class StreamsEngine(Saving):
    """The state of one group, with its timers."""

    def __init__(
        self,
        group: StreamsGroup,
        *,
        topics: Topics,
        room: Room,
        settings: Callable[[], StreamsGroupSettings],
        on_save: Callable[[int], None],
        may_expire: Callable[[], bool],
    ) -> None:
        """`settings` returns those of this group now. `on_save`: see `Saving`; `may_expire`: see `RebalanceRounds`."""
        super().__init__(on_save)
        self.group = group
        self.room = room
        self._topics = topics
        self._settings = settings
        self.sessions = Deadlines(self._expired, may_expire)
        self.rebalances = Deadlines(self._expired, may_expire)
        """Members that must give up tasks in their rebalance timeout."""
        self._assigning = Assigning(group, self._assigned, on_late=self.save)
        self._assigned_at: float | None = None
        self._delay: asyncio.TimerHandle | None = None
        """Runs until the first assignment of a group that was empty."""
        self._version = -1
        self._prepared: _Prepared | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._preparing_count = 0
        """Callers in a block of `prepared`."""
        self._is_due = False
        """Something has changed, and the group's epoch has not yet."""
        if group.topology is not None:
            room.restore(TOPOLOGY, group.topology.octets())
        for member in group.members.values():
            room.restore(member.member_id, member.octets())
            self.renew(member)
            if member.state is MemberState.UNREVOKED:
                self.rebalances.set(member.member_id, member.rebalance_timeout_ms)

    @property
    def settings(self) -> StreamsGroupSettings:
        """The settings of this group now."""
        return self._settings()

    @property
    def is_assigning(self) -> bool:
        """Whether a thread computes an assignment."""
        return self._assigning.is_running

    def close(self, problem: Problem) -> None:
        """Stop all timers and refuse all waiting members."""
        self.is_closed = True
        self.sessions.close()
        self.rebalances.close()
        self._end_delay()
        self._assigning.close()
        self.room.close()
        self.refuse_all(problem)

    def touch(self, member: StreamsMember | None = None) -> None:
        """Record a change of the group, or of the member."""
        if member is not None:
            member.encoded = None
        self.count_change()

    # -- members -------------------------------------------------------------------------------------------------

    def add(self, member: StreamsMember) -> None:
        """Add a new member; the group gets a new epoch when the member advances."""
        group, delay_ms = self.group, self.settings.initial_rebalance_delay_ms
        if not group.members and delay_ms > 0 and self._delay is None:
            self._delay = self._loop.call_later(delay_ms / 1000, self._first)
        group.epoch = max(group.epoch, 1)
        group.add(member)
        self.changed(member)

    def changed(self, member: StreamsMember) -> None:
        """Record that what the member says of itself has changed; the group gets a new epoch when the member advances."""
        self._is_due = True
        self.touch(member)

    def remove(self, member: StreamsMember) -> None:
        """Remove the member; the group gets a new epoch."""
        self.sessions.cancel(member.member_id)
        self.rebalances.cancel(member.member_id)
        self.group.remove(member)
        self.room.leave(member.member_id)
        if member.endpoint is not None:
            self.group.endpoint_epoch += 1
        if not self.group.members:
            self._end_delay()
        self._bump()

    def check_size(self) -> None:
        """Raise `GroupRefusal` if the group is full."""
        if len(self.group.members) >= self.settings.size_max:
            raise GroupRefusal(
                Problem.GROUP_FULL,
                f"The streams group has reached its maximum capacity of {self.settings.size_max} members.",
            )

    def _bump(self) -> None:
        """Begin a new group epoch."""
        self._is_due = False
        self.group.epoch += 1
        metrics.GROUP_REBALANCES.inc()
        self.touch()

    # -- topics --------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Look the topology's topics up if any may have changed; the group gets a new epoch when a member advances."""
        group = self.group
        if group.topology is None or (self._version == self._topics.version and group.configured is not None):
            return
        self._version = self._topics.version
        found: Mapping[str, Topic] = self._present(group.topology)
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared[:2] == (group.topology, found):
            found = prepared.topics
        else:
            prepared = None
        if found != group.topics:
            group.topics = found
            self._is_due = True
            self.touch()
        elif group.configured is not None:
            return

        if prepared is not None:
            group.configured, group.inputs_text = prepared.configured, (group.topology, group.topics, prepared.text)
        else:
            group.configured = configure(group.topology, _counts(found), self.settings.task_count_max)
        group.subtopology_of = {
            found[name].number: subtopology.subtopology_id
            for subtopology in group.topology.subtopologies
            for name in subtopology.inputs()
            if name in found
        }
        validated = group.topology.epoch if group.configured.is_ready else NOT_VALIDATED
        if validated != group.validated_epoch:
            group.validated_epoch = validated
            self._is_due = True
            self.touch()

    @asynccontextmanager
    async def prepared(self, topology: Topology | None = None) -> AsyncIterator[None]:
        """Compute in a thread what `refresh` in the block would compute, if the topology is large.

        `topology`: that of a member that may be the group's first.

        At most one computation runs; all callers wait for it. It goes on when a caller is cancelled. The last caller that leaves its
        block drops what no `refresh` has taken.
        """
        self._preparing_count += 1
        try:
            while (missing := self._unprepared(topology)) is not None:
                if self._preparing is None:
                    self._preparing = self._loop.create_task(self._prepare(*missing))
                    self._preparing.add_done_callback(noticed(log, "prepare the tasks of a streams group"))
                await asyncio.shield(self._preparing)
            yield
        finally:
            self._preparing_count -= 1
            if not self._preparing_count:
                self._prepared = None

    def _unprepared(self, topology: Topology | None) -> tuple[Topology, dict[str, Topic]] | None:
        """Return what `refresh` would compute from, if that takes long and is not done."""
        group = self.group
        topology = group.topology or topology
        if self.is_closed or topology is None or topology.size() <= AT_ONCE_MAX:
            return None
        if group.configured is not None and self._version == self._topics.version:
            return None
        found = self._present(topology)
        if group.configured is not None and found == group.topics:
            return None
        is_prepared = self._prepared is not None and self._prepared[:2] == (topology, found)
        return None if is_prepared else (topology, found)

    async def _prepare(self, topology: Topology, topics: Mapping[str, Topic]) -> None:
        try:
            prepared = await asyncio.to_thread(_prepare, topology, topics, self.settings.task_count_max)
        finally:
            self._preparing = None
        if self._preparing_count:
            self._prepared = prepared

    def _present(self, topology: Topology) -> dict[str, Topic]:
        """Return the required topics that exist."""
        found = {}
        for name in topology.required():
            stream = self._topics.peek(name)
            if stream is not None:
                found[name] = Topic(stream.first_key >> PARTITION_BITS, stream.partition_count, stream.first_key)
        return found

    # -- assignment ----------------------------------------------------------------------------------------------

    def advance(self, member: StreamsMember, owned: Tasks | None) -> Status | None:
        """Assign if it is time, then move the member towards its target; returns why the assignment is late, if it is.

        The caller has called `refresh`.
        """
        group = self.group
        if self._is_due or group.standby_count != self._standby_count():
            group.standby_count = self._standby_count()
            self._bump()
        delayed = self._assign()
        target = group.target.get(member.member_id, Tasks())
        epoch = max(1, group.assignment_epoch)
        if reconcile(group, member, Tasks() if delayed is _INITIAL_DELAY else target, epoch, owned):
            self.touch(member)
            if member.state is MemberState.UNREVOKED:
                self.rebalances.set(member.member_id, member.rebalance_timeout_ms)
            else:
                self.rebalances.cancel(member.member_id)
        return delayed

    def _standby_count(self) -> int:
        settings = self.settings
        return min(settings.num_standby_replicas, settings.standby_replicas_max)

    def _assign(self) -> Status | None:
        """Compute the target assignment of the group's epoch, unless that must wait."""
        group = self.group
        if self._delay is not None:
            return _INITIAL_DELAY
        if group.epoch <= group.assignment_epoch:
            return None
        interval_ms = self.settings.assignment_interval_ms
        if self._assigned_at is not None and (self._loop.time() - self._assigned_at) * 1000 < interval_ms:
            return _INTERVAL
        if not self._assigning.is_running:
            self._assigning.start()
        return _COMPUTING if self._assigning.is_running else None

    def _assigned(self, epoch: int, target: Mapping[str, Tasks], texts: Mapping[str, str] | None) -> None:
        """Take over the target assignment of a group epoch."""
        self.group.take_target(target, texts)
        self.group.assignment_epoch = epoch
        self._assigned_at = self._loop.time()
        self.touch()

    def _first(self) -> None:
        """The initial delay has passed: assign to all who have joined, so that the next heartbeat of each learns its tasks."""
        self._delay = None
        self.refresh()
        self._assign()
        self.save()

    def _end_delay(self) -> None:
        if self._delay is not None:
            self._delay.cancel()
            self._delay = None

    # -- sessions ------------------------------------------------------------------------------------------------

    def renew(self, member: StreamsMember) -> None:
        """Start a new session timeout for the member."""
        self.sessions.set(member.member_id, self.settings.session_timeout_ms)

    def _expired(self, member_id: str) -> None:
        member = self.group.members.get(member_id)
        if member is not None:
            self.remove(member)
            self.save()


def _prepare(topology: Topology, topics: Mapping[str, Topic], task_count_max: int) -> _Prepared:
    configured = configure(topology, _counts(topics), task_count_max)
    return _Prepared(topology, topics, configured, snapshot.inputs_text(topology, topics))


def _counts(topics: Mapping[str, Topic]) -> CountOf:
    def count_of(name: str) -> int | None:
        topic = topics.get(name)
        return None if topic is None else topic.partition_count

    return count_of
