"""Values of subscriptions: types, consumer specs, deliveries, acknowledgements, statistics.

An *entry* is one stored record batch: offsets `[base, end)`. Consumers get whole entries, and acknowledge whole entries or single offsets.
The base offset identifies an entry, also for clients that do not know its number of records.

Source: the four types, permits, cumulative and individual acknowledgements are Apache Pulsar's ("Subscriptions"; PIP-34 and PIP-379
for Key_Shared; PIP-54 for acknowledgements inside an entry). This package does not depend on Pulsar's wire format.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from bearlake.errors import Conflict, Unavailable
from bearlake.metadata.model import ServerRef

EARLIEST = -2
"""Special offset: the partition's start. The numbers are those of `offsets.OffsetSpec`."""
LATEST = -1
"""Special offset: the partition's end."""

SLOT_COUNT = 65_536
"""Number of slots into which Key_Shared hashes ordering keys; sticky ranges are ranges of slots."""


class SubscriptionType(Enum):
    """How the consumers of a subscription share a partition."""

    EXCLUSIVE = "Exclusive"
    """One consumer; a second one is refused."""
    FAILOVER = "Failover"
    """One active consumer; the others are on standby."""
    SHARED = "Shared"
    """Entries go to the consumers with permits, in turn; no order."""
    KEY_SHARED = "Key_Shared"
    """Entries with equal ordering keys go to one consumer at a time, in order."""


class Closed(Enum):
    """Why the server ended an attachment."""

    MOVED = "moved"
    """This server released the partition (it drains): attach at another server. All acknowledgements are saved and the lease is free."""
    FENCED = "fenced"
    """Another server has taken the partition over: look it up again."""
    RESET = "reset"
    """The cursor was moved (seek, reset): attach again; delivery continues from there."""
    UNSUBSCRIBED = "unsubscribed"
    """The subscription was deleted."""
    DELETED = "deleted"
    """The stream was deleted."""
    DENIED = "denied"
    """The client may no longer read the stream."""
    FAILED = "failed"
    """The partition cannot be read; attach again later."""
    DAMAGED = "damaged"
    """Entries are damaged in the store. Attach again: `Damaged` is raised until they are repaired."""


class Damaged(Unavailable):
    """Entries of the subscription are damaged in the store: attach again after their repair, or move the cursor past them."""


class Busy(Conflict):
    """The Exclusive subscription already has a consumer, or its consumers use another type: try again later or elsewhere."""


class Overlap(Conflict):
    """A sticky consumer requests slots of another consumer, or a subscription would mix AUTO_SPLIT and STICKY consumers."""


class NotHolder(Conflict):
    """Server `holder` dispatches the partition: attach there. None: this server is draining and must not take the partition over."""

    def __init__(self, message: str, holder: ServerRef | None) -> None:
        super().__init__(message)
        self.holder = holder


class EntryTraits(NamedTuple):
    """Properties of an entry's content that the dispatcher needs.

    `ordering_key`: the key of the first message, empty if none. `deliver_at_ms`: earliest delivery (ms since 1970; 0: at once).
    `chunk_of`: entries with the same non-empty value go to the same consumer, up to the entry with `is_last_chunk`.
    """

    ordering_key: bytes = b""
    deliver_at_ms: int = 0
    chunk_of: bytes = b""
    is_last_chunk: bool = True


class Delivery(NamedTuple):
    """One entry being delivered to a consumer.

    `batch` is the record batch with its base offset in place, valid while it is referenced. `redelivery_count` is 0 the first time.
    `acknowledged` has the sorted offset ranges `[start, end)` of the entry that are already acknowledged, never the whole entry.
    """

    base_offset: int
    record_count: int
    batch: memoryview
    redelivery_count: int
    acknowledged: Sequence[tuple[int, int]]

    @property
    def open_count(self) -> int:
        """Number of offsets of the entry that are not acknowledged."""
        if not self.acknowledged:
            return self.record_count
        return self.record_count - sum([end - start for start, end in self.acknowledged])


class EntryAck(NamedTuple):
    """Acknowledges the entry at `base_offset`, except offsets `base_offset + i` whose bit `i` is set in `open_bits` (0: all of it)."""

    base_offset: int
    open_bits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSpec:
    """How a consumer attaches."""

    type: SubscriptionType
    name: str
    """The consumer's name; with the priority it decides the active consumer in Failover; it decides the slots in Key_Shared."""
    is_durable: bool = True
    """False: this server keeps the cursor in memory until the last consumer detaches; any server accepts such a subscription."""
    position: int = LATEST
    """Start of a new subscription: an offset, `EARLIEST` or `LATEST`."""
    priority: int = 0
    """The smallest number is served first (Shared) or becomes active (Failover)."""
    partition_index: int = -1
    """Failover: partition index, used to spread active consumers over partitions; -1: clients see an unpartitioned stream."""
    sticky_ranges: Sequence[tuple[int, int]] = ()
    """Key_Shared: slot ranges `[start, end)` reserved for this consumer (STICKY); empty: slots are split automatically."""
    is_out_of_order_allowed: bool = False
    """Key_Shared: whether a key may move to another consumer before its unacknowledged entries are acknowledged."""
    subscription_properties: Mapping[str, str] = field(default_factory=dict)
    """Stored with a subscription that this consumer creates."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Shown in statistics only."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """The client's origin in terms of its protocol (an address, a client version); shown in statistics only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStats:
    """Statistics of an attached consumer; counts since it attached."""

    name: str
    priority: int
    is_active: bool
    permits: int
    """Messages that the server may still send it."""
    unacknowledged_count: int
    """Messages delivered and not acknowledged (Shared and Key_Shared; else 0)."""
    is_blocked: bool
    """Whether too many unacknowledged messages stop its deliveries."""
    delivered_message_count: int
    delivered_bytes: int
    redelivered_message_count: int
    acknowledged_count: int
    slot_ranges: Sequence[tuple[int, int]]
    """Key_Shared: the consumer's slots, `[start, end)`."""
    metadata: Mapping[str, str]
    origin: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStats:
    """Statistics of a subscription in one partition."""

    name: str
    type: SubscriptionType | None
    """None while there are no consumers."""
    is_durable: bool
    mark_delete: int
    """All smaller offsets are acknowledged."""
    read_offset: int
    """The next offset to be read for the first time."""
    backlog_count: int
    """Offsets in `[mark_delete, end)` that are not acknowledged."""
    range_count: int
    """Acknowledged ranges above `mark_delete`."""
    unacknowledged_count: int
    delayed_count: int
    """Number of delayed entries."""
    redelivery_count: int
    """Number of entries waiting for redelivery."""
    properties: Mapping[str, str]
    consumers: Sequence[ConsumerStats]
