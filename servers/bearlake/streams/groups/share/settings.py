"""Settings of share groups (KIP-932)."""

from collections.abc import Sequence
from dataclasses import dataclass

from bearlake.errors import Invalid

ASSIGNOR = "simple"
"""The only assignor of share groups."""
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
STORED_LOCKS_MAX = 100_000
"""Records in flight whose state surely fits into one cursor (256 KiB): each takes two bytes, a gap of the log a few more."""
STORED_DELIVERIES_MAX = 100
"""Deliveries that are stored in one byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupSettings:
    """Limits of share groups. Kafka's names begin with `group.share.`."""

    session_timeout_ms: int = 45_000
    """Time (ms) without a heartbeat after which a member is removed; a group's config `share.session.timeout.ms` replaces it."""
    session_timeout_min_ms: int = 45_000
    """Smallest session timeout (ms) that a group's config may set."""
    session_timeout_max_ms: int = 60_000
    """Largest session timeout (ms) that a group's config may set."""
    heartbeat_interval_ms: int = 5_000
    """Time (ms) between two heartbeats of a member; a group's config `share.heartbeat.interval.ms` replaces it."""
    heartbeat_interval_min_ms: int = 5_000
    """Smallest heartbeat interval (ms) that a group's config may set."""
    heartbeat_interval_max_ms: int = 15_000
    """Largest heartbeat interval (ms) that a group's config may set."""
    assignment_interval_ms: int = 1_000
    """Shortest time (ms) between two assignments of a group; a group's config `share.assignment.interval.ms` replaces it."""
    assignment_interval_min_ms: int = 0
    """Smallest assignment interval (ms) that a group's config may set."""
    assignment_interval_max_ms: int = 15_000
    """Largest assignment interval (ms) that a group's config may set."""
    record_lock_duration_ms: int = 30_000
    """Time (ms) for which a member has acquired records for itself; a group's config `share.record.lock.duration.ms` replaces it."""
    record_lock_duration_min_ms: int = 15_000
    """Smallest lock duration (ms) that a group's config may set."""
    record_lock_duration_max_ms: int = 60_000
    """Largest lock duration (ms) that a group's config may set."""
    delivery_count_limit: int = 5
    """Deliveries of a record, after which it is given up; a group's config `share.delivery.count.limit` replaces it."""
    delivery_count_limit_min: int = 2
    """Smallest number of deliveries that a group's config may set."""
    delivery_count_limit_max: int = 10
    """Largest number of deliveries that a group's config may set."""
    partition_record_locks: int = 2_000
    """Records of one partition from the first open one on that may be in flight; a group's config `share.partition.max.record.locks`
    replaces it. A record that was acknowledged alone costs up to 200 bytes of memory and 3 bytes in each save."""
    partition_record_locks_min: int = 100
    """Smallest number of records in flight that a group's config may set."""
    partition_record_locks_max: int = 10_000
    """Largest number of records in flight that a group's config may set."""
    size_max: int = 200
    """Members of one group."""
    session_count_max: int = 2_000
    """Share sessions on one server. A session is about 1 KiB, and 200 bytes for each of its partitions."""
    session_per_connection_max: int = 16
    """Share sessions of one connection. A client has one per member."""
    session_partition_count_max: int = 10_000
    """Partitions of one share session."""
    session_partition_total_max: int = 200_000
    """Partitions of all share sessions on one server together, some 200 bytes each."""
    auto_offset_reset: str = "latest"
    """Where a group begins in a partition that is new to it: `earliest`, `latest`, or `by_duration:` with an ISO 8601 duration; a group's
    config `share.auto.offset.reset` replaces it."""
    isolation_level: str = "read_uncommitted"
    """Whether members get records of open and aborted transactions; a group's config `share.isolation.level` replaces it."""
    renew_acknowledge_enable: bool = True
    """Whether members may renew the locks of records; a group's config `share.renew.acknowledge.enable` replaces it."""

    def __post_init__(self) -> None:
        """Raise `Invalid` for values that do not exist."""
        if self.isolation_level not in ISOLATION_LEVELS:
            raise Invalid(f"isolation_level {self.isolation_level!r}: expected one of {', '.join(ISOLATION_LEVELS)}")
        if self.partition_record_locks_max > STORED_LOCKS_MAX:
            raise Invalid(
                f"partition_record_locks_max {self.partition_record_locks_max}: at most {STORED_LOCKS_MAX} can be saved"
            )
        if self.delivery_count_limit_max > STORED_DELIVERIES_MAX:
            raise Invalid(f"delivery_count_limit_max {self.delivery_count_limit_max}: at most {STORED_DELIVERIES_MAX}")

    def ordered(self) -> Sequence[tuple[str, int, str, int]]:
        """Return pairs of settings whose first must not be larger than the second: name, value, name, value."""
        found = []
        for stem, unit in (
            ("session_timeout", "_ms"),
            ("heartbeat_interval", "_ms"),
            ("assignment_interval", "_ms"),
            ("record_lock_duration", "_ms"),
            ("delivery_count_limit", ""),
            ("partition_record_locks", ""),
        ):
            names = f"{stem}_min{unit}", f"{stem}{unit}", f"{stem}_max{unit}"
            for smaller, larger in (names[:2], names[1:]):
                found.append((smaller, int(getattr(self, smaller)), larger, int(getattr(self, larger))))
        found.append(
            ("heartbeat_interval_ms", self.heartbeat_interval_ms, "session_timeout_ms", self.session_timeout_ms)
        )
        return found
