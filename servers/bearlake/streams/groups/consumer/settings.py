"""Settings of consumer groups whose coordinator assigns the partitions (KIP-848)."""

from collections.abc import Sequence
from dataclasses import dataclass

from bearlake.errors import Invalid

ASSIGNORS = ("uniform", "range")
"""The assignors that exist; `assignors.py` has them."""
POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")
"""Policies of migration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupSettings:
    """Limits of groups of the protocol `consumer`. Kafka's names begin with `group.consumer.`."""

    session_timeout_ms: int = 45_000
    """Time (ms) without a heartbeat after which a member is removed; a group's config `consumer.session.timeout.ms` replaces it."""
    session_timeout_min_ms: int = 45_000
    """Smallest session timeout (ms) that a group's config may set."""
    session_timeout_max_ms: int = 60_000
    """Largest session timeout (ms) that a group's config may set."""
    heartbeat_interval_ms: int = 5_000
    """Time (ms) between two heartbeats of a member; a group's config `consumer.heartbeat.interval.ms` replaces it."""
    heartbeat_interval_min_ms: int = 5_000
    """Smallest heartbeat interval (ms) that a group's config may set."""
    heartbeat_interval_max_ms: int = 15_000
    """Largest heartbeat interval (ms) that a group's config may set."""
    assignment_interval_ms: int = 1_000
    """Shortest time (ms) between two assignments of a group, so that many members that join at once cost few; a group's config
    `consumer.assignment.interval.ms` replaces it."""
    assignment_interval_min_ms: int = 0
    """Smallest assignment interval (ms) that a group's config may set."""
    assignment_interval_max_ms: int = 15_000
    """Largest assignment interval (ms) that a group's config may set."""
    size_max: int = 10_000
    """Members of one group. A member costs about 2 KiB of memory, and each save of the group writes all of them."""
    topic_count_max: int = 20_000
    """Topic names that one member may subscribe to; a pattern may match more. A request with so many names holds the event loop for about
    0.1 s, and Kafka's own limit, a record of 1 MiB, is reached with as many names of 50 bytes."""
    assignors: tuple[str, ...] = ("uniform", "range")
    """Assignors that members may ask for; the first one is used if nobody asks."""
    migration_policy: str = "bidirectional"
    """Whether a group changes its protocol while it has members: `upgrade` (classic to consumer, when the first member of the new protocol
    joins), `downgrade` (back, when the last one leaves), `bidirectional`, `disabled`."""
    pattern_refresh_ms: int = 600_000
    """Time (ms) after which a topic pattern is compared with all topics again though no topic changed: the member's rights may have."""
    pattern_interval_ms: int = 1_000
    """Shortest time (ms) between two comparisons of a pattern with all topics: topics may change all the time."""
    pattern_bytes_max: int = 1_024
    """Length (bytes) of a topic pattern."""
    pattern_memory_bytes: int = 1_048_576
    """Memory (bytes) that a compiled pattern may use; RE2 refuses patterns that need more."""

    def __post_init__(self) -> None:
        """Raise `Invalid` for names that do not exist."""
        unknown = set(self.assignors) - set(ASSIGNORS)
        if unknown or not self.assignors:
            raise Invalid(f"assignors: expected some of {', '.join(ASSIGNORS)}, found {', '.join(unknown) or 'none'}")
        if self.migration_policy not in POLICIES:
            raise Invalid(f"migration_policy {self.migration_policy!r}: expected one of {', '.join(POLICIES)}")

    def ordered(self) -> Sequence[tuple[str, int, str, int]]:
        """Return pairs of settings whose first must not be larger than the second: name, value, name, value."""
        found = []
        for stem in ("session_timeout", "heartbeat_interval", "assignment_interval"):
            names = f"{stem}_min_ms", f"{stem}_ms", f"{stem}_max_ms"
            for smaller, larger in (names[:2], names[1:]):
                found.append((smaller, int(getattr(self, smaller)), larger, int(getattr(self, larger))))
        found.append(
            ("heartbeat_interval_ms", self.heartbeat_interval_ms, "session_timeout_ms", self.session_timeout_ms)
        )
        return found

    @property
    def upgrades(self) -> bool:
        """Whether a classic group with members becomes a consumer group."""
        return self.migration_policy in ("upgrade", "bidirectional")

    @property
    def downgrades(self) -> bool:
        """Whether a consumer group whose members all use the classic protocol becomes a classic group."""
        return self.migration_policy in ("downgrade", "bidirectional")
