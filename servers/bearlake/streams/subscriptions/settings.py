"""Limits of subscriptions and their dispatchers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSettings:
    """How subscriptions are dispatched, saved and bounded."""

    read_bytes_max: int = 1024 * 1024
    """Bytes that a subscription reads at once, and so the most it holds of entries that wait for permits (one larger entry excepted)."""
    replay_range_count_max: int = 16
    """Places of the log that one read of entries to be delivered again may visit."""
    burst_entry_count_max: int = 20
    """Shared: entries in a row for one consumer before it is the next one's turn. Source: dispatcherMaxRoundRobinBatchSize."""
    unacknowledged_per_consumer_max: int = 50_000
    """Shared, Key_Shared: a consumer with so many unacknowledged messages gets no more until half are acknowledged. As Pulsar's."""
    unacknowledged_per_subscription_max: int = 200_000
    """Shared, Key_Shared: the same for all consumers of a subscription in one partition (about 200 bytes of memory each). As Pulsar's."""
    range_count_max: int = 10_000
    """Acknowledged ranges of a cursor above which nothing new is delivered until the holes between them close; saved whole below that."""
    held_entry_count_max: int = 20_000
    """Key_Shared: entries that may wait for their key's consumer while others' are read past them (about 200 bytes each)."""
    delayed_entry_count_max: int = 200_000
    """Entries that may wait for their time (about 250 bytes each); with so many, reading stops until the first are due."""
    known_entry_count_max: int = 1_000_000
    """Exclusive, Failover: unacknowledged entries whose length is remembered (8 bytes each); acknowledging others costs a read."""
    unresolved_ack_count_max: int = 10_000
    """Acknowledgements that wait for such a read, per subscription; further ones are refused, so their entries come again."""
    resolve_wait_ms: int = 10_000
    """Longest time (ms) that the receipt of an acknowledgement waits for such a read; then it is an error, and the read is still tried."""
    handover_ms: int = 1_000
    """Failover: how long a consumer that was active may take to acknowledge what it has before the next one gets that."""
    last_ack_wait_ms: int = 250
    """Longest time (ms) that consumers have, when this server drains, to acknowledge what they were given: clients collect
    acknowledgements for 100 ms. What they do not acknowledge is delivered again by the next server."""
    save_ms: int = 250
    """Longest time (ms) before moved cursors are saved when nobody waits; what is not saved is delivered again after a crash."""
    retry_pause_ms: int = 200
    """Pause (ms) before the stores are asked again after they did not answer."""
    tail_wait_ms: int = 30_000
    """Longest wait (ms) of one read at the end of a partition."""
    idle_ms: int = 60_000
    """Time (ms) without consumers after which a partition is given up, so that any server may take it."""
    consumer_count_max: int = 100_000
    """Consumers attached to one server."""
    consumer_per_subscription_max: int = 5_000
    """Consumers of one subscription in one partition."""
    partition_count_max: int = 50_000
    """Partitions that one server dispatches; more are refused until some fall idle."""
    subscription_per_partition_max: int = 2_000
    """Durable subscriptions of one partition."""
