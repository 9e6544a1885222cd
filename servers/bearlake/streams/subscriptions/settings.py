"""Limits of subscriptions and their dispatchers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSettings:
    """How subscriptions are dispatched, saved and limited."""

    read_bytes_max: int = 1024 * 1024
    """Bytes that a subscription reads at once. Also the most that it holds of entries that wait for permits (except for a single larger
    entry)."""
    replay_range_count_max: int = 16
    """Separate offset ranges that one read of entries for redelivery may cover."""
    burst_entry_count_max: int = 20
    """Shared: consecutive entries for one consumer before the next consumer's turn. Source: dispatcherMaxRoundRobinBatchSize."""
    unacknowledged_per_consumer_max: int = 50_000
    """Shared, Key_Shared: a consumer with this many unacknowledged messages gets no more until it has acknowledged half of them, as in
    Pulsar."""
    unacknowledged_per_subscription_max: int = 200_000
    """Shared, Key_Shared: the same limit for all consumers of a subscription in one partition together (about 200 bytes of memory per
    message), as in Pulsar."""
    range_count_max: int = 10_000
    """Acknowledged ranges of a cursor at which delivery of new entries pauses until gaps between the ranges close. A cursor below the limit
    is saved completely."""
    held_entry_count_max: int = 20_000
    """Key_Shared: entries that may wait for the consumer of their key while entries of other consumers are read (about 200 bytes each)."""
    delayed_entry_count_max: int = 200_000
    """Entries that may wait for their delivery time (about 250 bytes each); at the limit, reading stops until the first entries are due."""
    known_entry_count_max: int = 1_000_000
    """Exclusive, Failover: unacknowledged entries whose length is remembered (8 bytes each); acknowledging other entries costs a read."""
    unresolved_ack_count_max: int = 10_000
    """Acknowledgements that wait for such a read, per subscription; further acknowledgements are refused, so their entries are
    redelivered."""
    resolve_wait_ms: int = 10_000
    """Longest time (ms) that the receipt of an acknowledgement waits for such a read; then the receipt is an error, and the read
    continues."""
    handover_ms: int = 1_000
    """Failover: time (ms) that the previously active consumer has to acknowledge its entries before they go to the next consumer."""
    last_ack_wait_ms: int = 250
    """Longest time (ms) that consumers have to acknowledge delivered entries when this server drains: clients collect acknowledgements for
    100 ms. The next server redelivers unacknowledged entries."""
    save_ms: int = 250
    """Longest time (ms) before moved cursors are saved if no client waits; unsaved acknowledgements are redelivered after a crash."""
    retry_pause_ms: int = 200
    """Pause (ms) before the next request to a store that did not answer."""
    tail_wait_ms: int = 30_000
    """Longest wait (ms) of one read at the end of a partition."""
    idle_ms: int = 60_000
    """Time (ms) without consumers after which a partition is released, so that any server may take it."""
    consumer_count_max: int = 100_000
    """Consumers attached to one server."""
    consumer_per_subscription_max: int = 5_000
    """Consumers of one subscription in one partition."""
    partition_count_max: int = 50_000
    """Partitions that one server dispatches; more are refused until some are idle."""
    subscription_per_partition_max: int = 2_000
    """Durable subscriptions of one partition, and as many share groups."""
