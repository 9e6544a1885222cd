"""The dispatcher interface: a state machine without I/O that decides what to read and which consumer gets each entry.

    Subscription (I/O)                        Dispatcher (pure)
        want()  ─────────────────────────────> Read(offset) | ReadAgain(bases) | None
        read from the log, and the traits of entries for which needs_traits()
        offer(entries) / offer_again(entries) > remembers them
        dispatch(now) ───────────────────────> AttachedConsumer.deliver(…)
        flow, acknowledge, redeliver ────────> changes what want() and dispatch() do

Guarantees: an entry is delivered while any of its offsets is unacknowledged, and never after; one consumer has it at a time.
Entries without records for consumers count as acknowledged once they are read.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from bearlake.streams.subscriptions.consumers import AttachedConsumer, StoredEntry
from bearlake.streams.subscriptions.cursor import AckCursor
from bearlake.streams.subscriptions.model import EntryAck, SubscriptionType
from bearlake.streams.subscriptions.settings import SubscriptionSettings


class Read(NamedTuple):
    """Read from `offset` on; wait for records at the partition's end."""

    offset: int


class ReadAgain(NamedTuple):
    """Read entries with these base offsets (ascending); the reader may read fewer."""

    bases: Sequence[int]


Want: TypeAlias = Read | ReadAgain | None


class Dispatcher(ABC):
    """The consumers of one subscription in one partition, while it has any."""

    def __init__(self, type_: SubscriptionType, cursor: AckCursor, settings: SubscriptionSettings) -> None:
        self.type = type_
        self.cursor = cursor
        self.settings = settings
        self.consumers: list[AttachedConsumer] = []
        self.read_offset = cursor.mark_delete
        """The next offset to be read."""

    # -- consumers -----------------------------------------------------------------------------------------------

    @abstractmethod
    def add(self, consumer: AttachedConsumer) -> None:
        """Add a consumer. Raises `Busy`, `Overlap`, `Invalid`, without a change."""

    @abstractmethod
    def remove(self, consumer: AttachedConsumer) -> None:
        """Remove a consumer and redeliver its entries."""

    @abstractmethod
    def is_active(self, consumer: AttachedConsumer) -> bool:
        """Whether the consumer may get entries."""

    def flow(self, consumer: AttachedConsumer, permits: int) -> None:
        """Grant the consumer `permits` more messages."""
        consumer.allow(permits)

    # -- reading and delivering ----------------------------------------------------------------------------------

    @abstractmethod
    def want(self) -> Want:
        """Return what to read next; None if nothing can be delivered now."""

    def needs_traits(self, entry: StoredEntry) -> bool:
        """Whether `offer` needs the traits of this entry."""
        return False

    @abstractmethod
    def offer(self, entries: Sequence[StoredEntry], now_ms: int) -> None:
        """Take entries read from `read_offset` on, in order; only the first entry may begin before it.

        They have their traits if `needs_traits` said so at any time since they were read.
        """

    @abstractmethod
    def offer_again(self, entries: Sequence[StoredEntry]) -> None:
        """Take entries requested with `ReadAgain`; delivers what it can at once and leaves the other entries unchanged."""

    @abstractmethod
    def dispatch(self, now_ms: int) -> None:
        """Deliver entries, and tell consumers whether they are active."""

    def next_due_ms(self) -> int | None:
        """Return when (ms since 1970) the next delayed entry is due; None if there is none."""
        return None

    # -- acknowledgements ----------------------------------------------------------------------------------------

    @abstractmethod
    def acknowledge(self, consumer: AttachedConsumer, ack: EntryAck, *, is_through: bool = False) -> bool:
        """Acknowledge an entry or parts of it; `is_through`: also all earlier entries (`ack` may then name any offset of the entry).

        Returns False if the dispatcher does not know the entry's extent: the caller looks it up and calls `acknowledge_read`.

        Raises:
            Invalid: `is_through` where consumers share the entries.
        """

    def acknowledge_run(self, consumer: AttachedConsumer, acks: Sequence[EntryAck], start: int) -> int:
        """Acknowledge, in one step, the entries from `acks[start]` on as far as they are known, whole and follow each other.

        Returns the number of acknowledgements that are done; 0: `acknowledge` handles the first one. The effect is that of `acknowledge`
        for each of them.
        """
        return 0

    @abstractmethod
    def acknowledge_read(
        self, consumer: AttachedConsumer, ack: EntryAck, base: int, end: int, *, is_through: bool = False
    ) -> None:
        """Acknowledge an entry, as `acknowledge` does, with the extent that the caller looked up."""

    @abstractmethod
    def redeliver(self, consumer: AttachedConsumer, bases: Sequence[int]) -> None:
        """Redeliver these entries of the consumer, to any consumer."""

    @abstractmethod
    def redeliver_all(self, consumer: AttachedConsumer) -> None:
        """Redeliver all unacknowledged entries of the consumer."""

    @abstractmethod
    def moved(self) -> None:
        """Forget entries below the cursor, after a trim or a skip moved it forward."""

    # -- statistics ----------------------------------------------------------------------------------------------

    @property
    def may_read_on(self) -> bool:
        """Whether `read_offset` may advance; False if the cursor has too many holes and `read_offset` has passed its last range."""
        cursor = self.cursor
        return cursor.range_count < self.settings.range_count_max or self.read_offset < cursor.last_end

    def slot_ranges(self, consumer: AttachedConsumer) -> Sequence[tuple[int, int]]:
        """Key_Shared: the consumer's slots."""
        return ()

    @property
    def unacknowledged(self) -> int:
        """Number of offsets that were delivered but not acknowledged."""
        return sum(consumer.unacknowledged for consumer in self.consumers)

    @property
    @abstractmethod
    def has_given(self) -> bool:
        """Whether consumers have unacknowledged messages."""

    @property
    def delayed_count(self) -> int:
        """Number of delayed entries."""
        return 0

    @property
    def again_count(self) -> int:
        """Number of entries waiting for redelivery."""
        return 0

    # -- for subclasses ------------------------------------------------------------------------------------------

    def _notice_readiness(self) -> None:
        for consumer in self.consumers:
            consumer.is_ready = consumer.sink.is_ready()

    def _apply(self, base: int, end: int, open_bits: int) -> int:
        """Acknowledge the entry except its open bits; returns how many offsets were not acknowledged before."""
        if not open_bits:
            return self.cursor.acknowledge(base, end)
        return sum([self.cursor.acknowledge(*span) for span in acknowledged_spans(base, end, open_bits)])


def acknowledged_spans(base: int, end: int, open_bits: int) -> Iterator[tuple[int, int]]:
    """Yield the offset ranges of `[base, end)` whose bits are not set in `open_bits` (bit 0 is `base`)."""
    at = base
    while at < end:
        if not open_bits:
            yield at, end
            return
        closed = (open_bits & -open_bits).bit_length() - 1  # zeros at the low end
        if closed:
            yield at, min(at + closed, end)
        open_bits >>= closed
        skipped = (~open_bits & (open_bits + 1)).bit_length() - 1  # ones at the low end
        open_bits >>= skipped
        at += closed + skipped
