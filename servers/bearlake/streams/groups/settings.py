"""Settings of consumer groups."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Limits of consumer groups."""

    session_timeout_min_ms: int = 6_000
    """Smallest session timeout (ms) that a member may ask for."""
    session_timeout_max_ms: int = 1_800_000
    """Largest session timeout (ms) that a member may ask for."""
    initial_rebalance_delay_ms: int = 0
    """Wait (ms) for more members before the first rebalance of an empty group; saves rebalances when many start at once."""
    size_max: int = 10_000
    """Members of one group."""
    revision_count_max: int = 10_000
    """Members and partitions per group whose last request is remembered, so that late forwarded requests about them are refused. With more,
    forwarded requests need another round trip more often."""
    count_max: int = 100_000
    """Groups that one server coordinates at once; more are refused until some fall idle."""
    offset_metadata_bytes_max: int = 4_096
    """Largest text (bytes) that a committed offset may carry."""
    idle_ms: int = 600_000
    """Time (ms) after which an empty group is given up by its coordinator; its offsets stay, and without any it is deleted."""
    coordinator_wait_ms: int = 15_000
    """Time (ms) that a member in this server looks for its group's coordinator after that one died or moved. Must be longer than
    `server.timeout_ms`, or a member is told of a death that it could have waited for."""
    peer_answer_ms: int = 5_000
    """Time (ms) in which a coordinator in another server must answer; joins and syncs are asked again for as long as it says to wait."""
    peer_waits_max: int = 1_024
    """Joins and syncs of this server's members that wait at one other server at once."""
