"""Computes the target assignment of a streams group: at once, or in a thread if that takes long.

Members go on with the former target while the thread works. It reads only copies, so its result is for the group as it was. The result is
dropped if the topics have changed meanwhile. Members that have left meanwhile are left out of it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from bearlake.streams.groups.tasks import assignor, snapshot
from bearlake.streams.groups.tasks.configuring import Configured
from bearlake.streams.groups.tasks.model import StreamsGroup, Tasks
from bearlake.telemetry.containment import noticed

log = logging.getLogger(__name__)

AT_ONCE_MAX = 2_000
"""Members, tasks and standbys of an assignment that is computed on the event loop: about 5 ms."""


_Assigned = tuple[Mapping[str, Tasks], Mapping[str, str]]
"""The tasks of members, and their texts in the snapshot."""


class Assigning:
    """The computation of one group's assignments; at most one runs at a time."""

    def __init__(
        self,
        group: StreamsGroup,
        on_done: Callable[[int, Mapping[str, Tasks], Mapping[str, str] | None], None],
        *,
        on_late: Callable[[], None],
    ) -> None:
        """`on_done` gets the group epoch that an assignment is for, the tasks of the members, and their texts in the snapshot if a thread
        computed the assignment; then `on_late` is called after it."""
        self._group = group
        self._on_done = on_done
        self._on_late = on_late
        self._running: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a thread computes an assignment."""
        return self._running is not None

    def start(self) -> None:
        """Compute the assignment of the group's epoch: now, or in a thread."""
        group = self._group
        configured, topology = group.configured, group.topology
        if topology is None or configured is None or not configured.is_ready:
            self._on_done(group.epoch, {member_id: Tasks() for member_id in group.members}, None)
            return
        runners = [
            assignor.Runner(member.member_id, member.process_id, group.target.get(member.member_id, Tasks()))
            for member in group.members.values()
        ]
        stateful = [item.subtopology_id for item in topology.subtopologies if item.is_stateful]
        counts, standby_count = configured.task_counts, group.standby_count
        if len(runners) + sum(counts.values()) * (1 + standby_count) <= AT_ONCE_MAX:
            self._on_done(group.epoch, assignor.assign(runners, counts, stateful, standby_count), None)
            return
        work = partial(_assign, runners, counts, stateful, standby_count)
        self._running = asyncio.get_running_loop().create_task(self._finish(work, group.epoch, configured))
        self._running.add_done_callback(noticed(log, "assign the tasks of a streams group"))

    async def _finish(self, work: Callable[[], _Assigned], epoch: int, configured: Configured) -> None:
        try:
            target, texts = await asyncio.to_thread(work)
        finally:
            self._running = None
        members = self._group.members
        if self._group.configured is configured:
            present = {member_id: tasks for member_id, tasks in target.items() if member_id in members}
            self._on_done(epoch, present, {member_id: texts[member_id] for member_id in present})
            self._on_late()

    def close(self) -> None:
        """Drop the assignment that a thread computes."""
        if self._running is not None:
            self._running.cancel()
            self._running = None


def _assign(
    runners: Sequence[assignor.Runner], counts: Mapping[str, int], stateful: Sequence[str], standby_count: int
) -> _Assigned:
    target = assignor.assign(runners, counts, stateful, standby_count)
    return target, {member_id: snapshot.target_text(tasks) for member_id, tasks in target.items()}
