"""What all dispatchers have in common: a machine without I/O that says what to read and who gets what was read.

    Subscription (I/O)                        Dispatcher (pure)
        want()  ─────────────────────────────> Read(offset) | ReadAgain(bases) | None
        read from the log
        offer(entries) / offer_again(entries) > remembers them
        dispatch(now) ───────────────────────> Member.deliver(…)
        flow, acknowledge, redeliver ────────> changes what want() and dispatch() do

Guarantees: an entry is delivered while any of its offsets is not acknowledged, and never after; to one consumer at a time.
Entries without records for consumers count as acknowledged when they are read.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from bearlake.streams.subscriptions.cursor import AckCursor
from bearlake.streams.subscriptions.members import Member, StoredEntry
from bearlake.streams.subscriptions.model import EntryAck, SubscriptionType
from bearlake.streams.subscriptions.settings import SubscriptionSettings


class Read(NamedTuple):
    """Read on from `offset`, and wait for records at the partition's end."""

    offset: int


class ReadAgain(NamedTuple):
    """Read the entries with these base offsets, ascending; as many as is convenient."""

    bases: Sequence[int]


Want: TypeAlias = Read | ReadAgain | None


class Dispatcher(ABC):
    """The consumers of one subscription in one partition, while it has any."""

    def __init__(self, type_: SubscriptionType, cursor: AckCursor, settings: SubscriptionSettings) -> None:
        self.type = type_
        self.cursor = cursor
        self.settings = settings
        self.members: list[Member] = []
        self.read_offset = cursor.mark_delete
        """The next offset to be read."""

    # -- consumers -----------------------------------------------------------------------------------------------

    @abstractmethod
    def add(self, member: Member) -> None:
        """A consumer comes. Raises `Busy`, `Overlap`, `Invalid`; nothing has changed then."""

    @abstractmethod
    def remove(self, member: Member) -> None:
        """A consumer has gone: what it had is delivered again."""

    @abstractmethod
    def is_active(self, member: Member) -> bool:
        """Whether the consumer may get entries."""

    def flow(self, member: Member, permits: int) -> None:
        """The consumer may be sent `permits` more messages."""
        member.allow(permits)

    # -- reading and delivering ----------------------------------------------------------------------------------

    @abstractmethod
    def want(self) -> Want:
        """What to read next; None: nothing can be delivered now."""

    @abstractmethod
    def offer(self, entries: Sequence[StoredEntry], now_ms: int) -> None:
        """Entries read from `read_offset` on, in order; only the first may begin before it."""

    @abstractmethod
    def offer_again(self, entries: Sequence[StoredEntry]) -> None:
        """Entries that were asked for with `ReadAgain`; delivered at once as far as possible, others are left alone."""

    @abstractmethod
    def dispatch(self, now_ms: int) -> None:
        """Deliver what can be delivered, and tell consumers about their activity."""

    def next_due_ms(self) -> int | None:
        """When (ms since 1970) the next delayed entry is due; None when there is none."""
        return None

    # -- acknowledgements ----------------------------------------------------------------------------------------

    @abstractmethod
    def acknowledge(self, member: Member, ack: EntryAck, *, is_through: bool = False) -> bool:
        """Acknowledge an entry or parts of it; `is_through`: and all before it (the offset may then be any of the entry's).

        False if it is not known where the entry begins and ends: find out, and call `acknowledge_read`.

        Raises:
            Invalid: `is_through` where consumers share the entries.
        """

    @abstractmethod
    def acknowledge_read(self, member: Member, ack: EntryAck, base: int, end: int, *, is_through: bool = False) -> None:
        """The same for an entry whose extent was looked up."""

    @abstractmethod
    def redeliver(self, member: Member, bases: Sequence[int]) -> None:
        """The consumer wants these entries to be delivered again, to whomever."""

    @abstractmethod
    def redeliver_all(self, member: Member) -> None:
        """The consumer wants all that it has to be delivered again."""

    @abstractmethod
    def moved(self) -> None:
        """The cursor was moved forward from outside (a trim, a skip): forget what lies behind it."""

    # -- what is shown -------------------------------------------------------------------------------------------

    @property
    def may_read_on(self) -> bool:
        """Whether `read_offset` may move: not far beyond what is acknowledged while the cursor has too many holes."""
        cursor = self.cursor
        return cursor.range_count < self.settings.range_count_max or self.read_offset < cursor.last_end

    def slot_ranges(self, member: Member) -> Sequence[tuple[int, int]]:
        """Key_Shared: the consumer's slots."""
        return ()

    @property
    def unacknowledged(self) -> int:
        """Offsets that consumers have and did not acknowledge."""
        return sum(member.unacknowledged for member in self.members)

    @property
    @abstractmethod
    def has_given(self) -> bool:
        """Whether consumers have messages that they have not acknowledged."""

    @property
    def delayed_count(self) -> int:
        """Entries that wait for their time."""
        return 0

    @property
    def again_count(self) -> int:
        """Entries that wait to be delivered again."""
        return 0

    # -- for all kinds -------------------------------------------------------------------------------------------

    def _notice_readiness(self) -> None:
        for member in self.members:
            member.is_ready = member.sink.is_ready()

    def _apply(self, base: int, end: int, open_bits: int) -> int:
        """Acknowledge the entry but for its open bits; returns how many offsets were not acknowledged before."""
        if not open_bits:
            return self.cursor.acknowledge(base, end)
        return sum([self.cursor.acknowledge(*span) for span in acknowledged_spans(base, end, open_bits)])


def acknowledged_spans(base: int, end: int, open_bits: int) -> Iterator[tuple[int, int]]:
    """The offset ranges of `[base, end)` whose bits are not set in `open_bits` (bit 0 is `base`)."""
    at = base
    while at < end:
        if not open_bits:
            yield at, end
            return
        closed = (open_bits & -open_bits).bit_length() - 1  # zeros at the low end
        if closed:
            yield at, min(at + closed, end)
        open_bits >>= closed
        kept = (~open_bits & (open_bits + 1)).bit_length() - 1  # ones at the low end
        open_bits >>= kept
        at += closed + kept
