"""Settings of consumer groups."""

from dataclasses import dataclass, field

from bearlake.streams.groups.consumer.settings import ConsumerGroupSettings
from bearlake.streams.groups.share.settings import ShareGroupSettings
from bearlake.streams.groups.tasks.settings import StreamsGroupSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Limits of consumer groups."""

    session_timeout_min_ms: int = 6_000
    """Smallest session timeout (ms) that a member may ask for."""
    session_timeout_max_ms: int = 1_800_000
    """Largest session timeout (ms) that a member may ask for."""
    initial_rebalance_delay_ms: int = 0
    """Wait (ms) for more members before the first rebalance of an empty group; saves rebalances if many members start at once."""
    size_max: int = 10_000
    """Members of one group."""
    group_bytes_max: int = 67_108_864
    """Size (bytes) of what all members of one group say of themselves: ids, subscriptions, metadata of protocols, and in a classic group
    the assignments. A member that would exceed it gets GROUP_MAX_SIZE_REACHED, a new member at three quarters of it. Kafka's limit is a
    record of 1 MiB. Each save of a group writes it."""
    bytes_max: int = 268_435_456
    """Size (bytes) of what the members of all groups say that one server coordinates. A group that would take more than all groups leave
    free gets COORDINATOR_NOT_AVAILABLE for the member."""
    revision_count_max: int = 10_000
    """Members and partitions per group whose last request is remembered, so that late forwarded requests about them are refused. Beyond the
    limit, forwarded requests need another round trip more often."""
    count_max: int = 100_000
    """Groups that one server coordinates at once; more are refused until some are idle."""
    offset_metadata_bytes_max: int = 4_096
    """Largest metadata string (bytes) of a committed offset."""
    idle_ms: int = 600_000
    """Time (ms) after which a coordinator releases an empty group. The group's offsets stay; a group without offsets is deleted."""
    coordinator_wait_ms: int = 15_000
    """Time (ms) for which a member on this server looks for a new coordinator after the coordinator of its group failed or moved. Must be
    longer than `server.timeout_ms`; otherwise the member gets an error although a new coordinator is about to take over."""
    peer_answer_ms: int = 5_000
    """Time (ms) in which a coordinator on another server must answer. Joins and syncs are sent again for as long as the coordinator tells
    them to wait."""
    peer_waits_max: int = 1_024
    """Joins and syncs of members on this server that wait at one other server at once."""
    consumer: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)
    """Groups whose coordinator assigns the partitions (KIP-848)."""
    share: ShareGroupSettings = field(default_factory=ShareGroupSettings)
    """Share groups, whose members acquire single records (KIP-932)."""
    streams: StreamsGroupSettings = field(default_factory=StreamsGroupSettings)
    """Streams groups, whose members get tasks of a topology (KIP-1071)."""
