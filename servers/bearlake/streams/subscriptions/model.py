"""The values of subscriptions: types, consumers as they describe themselves, deliveries, acknowledgements, what is shown of them.

An *entry* is one stored record batch: offsets `[base, end)`. Whoever consumes gets entries whole and acknowledges their offsets one by
one or whole; an entry is identified by its base offset, also by clients that do not know how many records it has.

Source: the four types, permits, cumulative and individual acknowledgements are Apache Pulsar's ("Subscriptions"; PIP-34 and PIP-379
for Key_Shared; PIP-54 for acknowledgements inside an entry); nothing here knows its wire format.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from bearlake.errors import Conflict
from bearlake.metadata.model import ServerRef

EARLIEST = -2
"""In place of an offset: the partition's start. The numbers are those of `offsets.OffsetSpec`."""
LATEST = -1
"""In place of an offset: the partition's end."""

SLOT_COUNT = 65_536
"""Slots into which Key_Shared hashes ordering keys; sticky ranges are given in them."""


class SubscriptionType(Enum):
    """How the consumers of a subscription share a partition."""

    EXCLUSIVE = "Exclusive"
    """One consumer; a second one is refused."""
    FAILOVER = "Failover"
    """One active consumer; the others stand by."""
    SHARED = "Shared"
    """Entries go to whoever has permits, in turn; no order."""
    KEY_SHARED = "Key_Shared"
    """Entries with equal ordering keys go to one consumer at a time, in order."""


class Closed(Enum):
    """Why an attachment ended without its consumer's wish."""

    MOVED = "moved"
    """This server gives the partition up (it drains): attach at another one. What was acknowledged is saved, the lease is free."""
    FENCED = "fenced"
    """Another server has taken the partition over: look it up again."""
    RESET = "reset"
    """The cursor was moved (seek, reset): attach again, deliveries go on from there."""
    UNSUBSCRIBED = "unsubscribed"
    """The subscription was deleted."""
    DELETED = "deleted"
    """The stream was deleted."""
    FAILED = "failed"
    """The partition cannot be read; attach again later."""


class Busy(Conflict):
    """An Exclusive subscription has its consumer already, or connected consumers use it with another type: try later or elsewhere."""


class Overlap(Conflict):
    """A sticky consumer asks for slots that another one has, or AUTO_SPLIT and STICKY consumers meet in one subscription."""


class NotHolder(Conflict):
    """`holder` dispatches the partition, this server does not (None: this server must not take it over, it drains): go there."""

    def __init__(self, message: str, holder: ServerRef | None) -> None:
        super().__init__(message)
        self.holder = holder


class EntryTraits(NamedTuple):
    """What a dispatcher must know of an entry's contents.

    `ordering_key`: of its first message, empty if none. `deliver_at_ms`: not to be delivered before (ms since 1970; 0: at once).
    `chunk_of`: entries with the same non-empty value go to the same consumer, up to the one that `is_last_chunk`.
    """

    ordering_key: bytes = b""
    deliver_at_ms: int = 0
    chunk_of: bytes = b""
    is_last_chunk: bool = True


class Delivery(NamedTuple):
    """One entry on its way to a consumer.

    `batch` is the record batch with its base offset in place, valid while it is referenced. `redelivery_count` is 0 the first time.
    `acknowledged` are the offset ranges `[start, end)` of the entry that are acknowledged already, sorted; not all of it is.
    """

    base_offset: int
    record_count: int
    batch: memoryview
    redelivery_count: int
    acknowledged: Sequence[tuple[int, int]]

    @property
    def open_count(self) -> int:
        """How many offsets of the entry are not acknowledged."""
        if not self.acknowledged:
            return self.record_count
        return self.record_count - sum([end - start for start, end in self.acknowledged])


class EntryAck(NamedTuple):
    """Acknowledges the entry at `base_offset` but for the offsets `base_offset + i` whose bit `i` in `open_bits` is set (0: all of it)."""

    base_offset: int
    open_bits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSpec:
    """How a consumer wants to attach."""

    type: SubscriptionType
    name: str
    """The consumer's name; decides, with the priority, who is active in Failover, and the slots in Key_Shared."""
    is_durable: bool = True
    """False: the cursor is kept in memory, by this server, until the last consumer has gone; any server takes it."""
    position: int = LATEST
    """Where the subscription starts if it does not exist yet: an offset, `EARLIEST` or `LATEST`."""
    priority: int = 0
    """Smaller is served first (Shared) or becomes active (Failover)."""
    partition_index: int = -1
    """Failover: spreads the active consumers of a stream's partitions; -1: a stream that is not partitioned for its clients."""
    sticky_ranges: Sequence[tuple[int, int]] = ()
    """Key_Shared: slot ranges `[start, end)` this consumer has for itself (STICKY); empty: slots are split automatically."""
    is_out_of_order_allowed: bool = False
    """Key_Shared: a key may go to another consumer before its pending entries are acknowledged."""
    subscription_properties: Mapping[str, str] = field(default_factory=dict)
    """Kept with a subscription that this consumer creates."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Shown in statistics only."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """Where it comes from, in the words of its protocol (an address, a client's version); shown in statistics only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStats:
    """What is shown of an attached consumer; counts since it attached."""

    name: str
    priority: int
    is_active: bool
    permits: int
    """Messages that it may still be sent."""
    unacknowledged_count: int
    """Messages that it was sent and has not acknowledged (Shared and Key_Shared; else 0)."""
    is_blocked: bool
    """Whether it gets nothing because of its unacknowledged messages."""
    delivered_message_count: int
    delivered_bytes: int
    redelivered_message_count: int
    acknowledged_count: int
    slot_ranges: Sequence[tuple[int, int]]
    """Key_Shared: the slots it has, `[start, end)`."""
    metadata: Mapping[str, str]
    origin: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStats:
    """What is shown of a subscription in one partition."""

    name: str
    type: SubscriptionType | None
    """None while it has no consumer."""
    is_durable: bool
    mark_delete: int
    """All offsets below are acknowledged."""
    read_offset: int
    """The next offset to be read for the first time."""
    backlog_count: int
    """Offsets in `[mark_delete, end)` that are not acknowledged."""
    range_count: int
    """Acknowledged ranges above `mark_delete`."""
    unacknowledged_count: int
    delayed_count: int
    """Entries that wait for their time."""
    redelivery_count: int
    """Entries that wait to be delivered again."""
    properties: Mapping[str, str]
    consumers: Sequence[ConsumerStats]
