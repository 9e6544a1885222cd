"""Settings of streams groups (KIP-1071)."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupSettings:
    """Limits of streams groups. Kafka's names begin with `group.streams.`."""

    session_timeout_ms: int = 45_000
    """Time (ms) without a heartbeat after which a member is removed; a group's config `streams.session.timeout.ms` replaces it."""
    session_timeout_min_ms: int = 45_000
    """Smallest session timeout (ms) that a group's config may set."""
    session_timeout_max_ms: int = 60_000
    """Largest session timeout (ms) that a group's config may set."""
    heartbeat_interval_ms: int = 5_000
    """Time (ms) between two heartbeats of a member; a group's config `streams.heartbeat.interval.ms` replaces it."""
    heartbeat_interval_min_ms: int = 5_000
    """Smallest heartbeat interval (ms) that a group's config may set."""
    heartbeat_interval_max_ms: int = 15_000
    """Largest heartbeat interval (ms) that a group's config may set."""
    assignment_interval_ms: int = 1_000
    """Shortest time (ms) between two assignments of a group; a group's config `streams.assignment.interval.ms` replaces it."""
    assignment_interval_min_ms: int = 0
    """Smallest assignment interval (ms) that a group's config may set."""
    assignment_interval_max_ms: int = 15_000
    """Largest assignment interval (ms) that a group's config may set."""
    initial_rebalance_delay_ms: int = 3_000
    """Time (ms) for which the first assignment of an empty group waits for more members; a group's config
    `streams.initial.rebalance.delay.ms` replaces it. A longer delay saves tasks that move at once, and lets an application start later."""
    num_standby_replicas: int = 0
    """Standby tasks of each task with state; a group's config `streams.num.standby.replicas` replaces it. A standby reads the changelog all
    the time, and saves the restore when its member takes the task over."""
    standby_replicas_max: int = 2
    """Most standby tasks of each task that a group's config may set."""
    size_max: int = 10_000
    """Members of one group. A member costs about 2 KiB of memory, and each save of the group writes all of them: 0.7 MB for 1,000 members
    and 10,000 tasks, 7 MB for 10,000 members and 100,000 tasks, 2.5 MB more with a standby of each task."""
    topology_bytes_max: int = 1_048_576
    """Size (bytes) of the names and configs of a topology; topics that copartition groups name count again. Kafka's limit is a record of
    1 MiB. Each save of a group writes it."""
    topic_count_max: int = 10_000
    """Topics that one topology may name."""
    task_count_max: int = 100_000
    """Tasks of one group, without standbys; a group whose topics have more partitions gets no tasks. Assigning so many
    takes half a second, in a thread."""
    topics_create_ms: int = 5_000
    """Time (ms) in which one heartbeat creates internal topics; the next one creates those that are left."""

    def ordered(self) -> Sequence[tuple[str, int, str, int]]:
        """Return pairs of settings whose first must not be larger than the second: name, value, name, value."""
        found = []
        for stem in ("session_timeout", "heartbeat_interval", "assignment_interval"):
            names = f"{stem}_min_ms", f"{stem}_ms", f"{stem}_max_ms"
            for smaller, larger in (names[:2], names[1:]):
                found.append((smaller, int(getattr(self, smaller)), larger, int(getattr(self, larger))))
        found += [
            ("heartbeat_interval_ms", self.heartbeat_interval_ms, "session_timeout_ms", self.session_timeout_ms),
            ("num_standby_replicas", self.num_standby_replicas, "standby_replicas_max", self.standby_replicas_max),
        ]
        return found
