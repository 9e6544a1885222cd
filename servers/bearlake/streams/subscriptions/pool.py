"""The common part of Shared and Key_Shared: several consumers have entries at once, and each entry is acknowledged separately.

An entry that was read and is not acknowledged is in one of these states:

| state | its bytes | leaves it by |
|---|---|---|
| READY | in `_ready`, in log order | being given to a consumer; Key_Shared: being passed over (AGAIN) |
| GIVEN | forgotten | acknowledgement; its consumer detaches or asks for redelivery (AGAIN, count + 1) |
| AGAIN | forgotten, read again when somebody may have it | being given to a consumer |
| DELAYED | forgotten | its time (AGAIN) |

In any state, the acknowledgement of all its offsets removes an entry. Limits per consumer and per subscription bound the GIVEN entries.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum

from typing_extensions import override

from bearlake.errors import Invalid
from bearlake.streams.subscriptions.consumers import AttachedConsumer, StoredEntry
from bearlake.streams.subscriptions.cursor import AckCursor
from bearlake.streams.subscriptions.delayed import DelayedEntries
from bearlake.streams.subscriptions.dispatcher import Dispatcher, Read, ReadAgain, Want
from bearlake.streams.subscriptions.model import Delivery, EntryAck, EntryTraits, SubscriptionType
from bearlake.streams.subscriptions.settings import SubscriptionSettings

NO_TRAITS = EntryTraits()
AGAIN_COUNT_MAX = 1_000
"""Most entries in one `ReadAgain`."""


class State(Enum):
    """State of an entry; see the table above."""

    READY = 1
    GIVEN = 2
    AGAIN = 3
    DELAYED = 4


class Entry:
    """An entry that was read and is not acknowledged."""

    __slots__ = ("base", "chunk_of", "end", "is_last_chunk", "open", "owner", "redelivery_count", "slot", "state")

    def __init__(self, base: int, end: int, open_count: int, traits: EntryTraits, slot: int) -> None:
        self.base = base
        self.end = end
        self.open = open_count
        """Offsets that are not acknowledged."""
        self.chunk_of = traits.chunk_of
        self.is_last_chunk = traits.is_last_chunk
        self.slot = slot
        self.redelivery_count = 0
        self.state = State.READY
        self.owner: AttachedConsumer | None = None


class Pool(Dispatcher):
    """A dispatcher whose consumers share the partition's entries."""

    def __init__(self, type_: SubscriptionType, cursor: AckCursor, settings: SubscriptionSettings) -> None:
        super().__init__(type_, cursor, settings)
        self._entries: dict[int, Entry] = {}
        self._ready: deque[tuple[Entry, memoryview]] = deque()
        self._delayed = DelayedEntries()
        self._given_count = 0
        self._is_blocked = False
        self._is_at_entry = False
        """Whether `read_offset` is an entry boundary; a loaded or moved cursor may be inside an entry."""

    # -- differences between Shared and Key_Shared ---------------------------------------------------------------

    @abstractmethod
    def _slot_of(self, traits: EntryTraits, base: int) -> int:
        """Return the entry's slot; -1 if the type has no slots."""

    @abstractmethod
    def _choose(self, entry: Entry) -> AttachedConsumer | None:
        """Return the consumer that gets the entry now; None if no consumer can take it."""

    @abstractmethod
    def _pass_over(self, entry: Entry) -> bool:
        """No consumer can take this entry now: return whether to skip it (it becomes AGAIN) and continue with later entries."""

    @abstractmethod
    def _given(self, entry: Entry) -> None:
        """Called after an entry was given to `entry.owner`."""

    @abstractmethod
    def _taken_back(self, entry: Entry, owner: AttachedConsumer) -> None:
        """Called when `owner` no longer has the entry: it was acknowledged, or awaits redelivery."""

    @abstractmethod
    def _keep_again(self, entries: Sequence[Entry]) -> None:
        """Record entries in state AGAIN, ascending."""

    @abstractmethod
    def _forget_again(self, entry: Entry) -> None:
        """Called when an entry leaves the state AGAIN."""

    @abstractmethod
    def _pick_again(self, count_max: int) -> Sequence[int]:
        """Return base offsets of AGAIN entries that consumers could take now, ascending."""

    # -- consumers -----------------------------------------------------------------------------------------------

    @override
    def remove(self, consumer: AttachedConsumer) -> None:
        self.consumers.remove(consumer)
        self.redeliver_all(consumer)

    @override
    def is_active(self, consumer: AttachedConsumer) -> bool:
        return consumer in self.consumers

    # -- reading and delivering ----------------------------------------------------------------------------------

    @override
    def want(self) -> Want:
        if self._is_blocked or not any(consumer.can_take for consumer in self.consumers):
            return None
        again = self._pick_again(AGAIN_COUNT_MAX)
        if again:
            return ReadAgain(again)
        if self._ready or len(self._delayed) >= self.settings.delayed_entry_count_max or not self.may_read_on:
            return None
        return Read(self.read_offset)

    @override
    def needs_traits(self, entry: StoredEntry) -> bool:
        known = self._entries.get(entry.base)
        return (
            entry.batch is not None
            and (known is None or known.end != entry.end)
            and self.cursor.open_count(entry.base, entry.end) > 0
        )

    @override
    def offer(self, entries: Sequence[StoredEntry], now_ms: int) -> None:
        for base, end, batch, traits in entries:
            self.read_offset, self._is_at_entry = end, True
            if batch is None:
                self.cursor.acknowledge(base, end)
                continue
            open_count = self.cursor.open_count(base, end)
            if not open_count or base in self._entries:
                continue
            assert traits is not None
            entry = self._entries[base] = Entry(base, end, open_count, traits, self._slot_of(traits, base))
            if traits.deliver_at_ms > now_ms:
                entry.state = State.DELAYED
                self._delayed.add(base, traits.deliver_at_ms)
            else:
                self._ready.append((entry, batch))

    @override
    def offer_again(self, entries: Sequence[StoredEntry]) -> None:
        self._notice_readiness()
        self._cut(entries)
        deliveries: dict[AttachedConsumer, list[Delivery]] = {}
        for base, end, batch, _ in entries:
            if batch is None:  # compaction has dropped records that existed at the first read
                if self.cursor.acknowledge(base, end):
                    self.moved()
                continue
            entry = self._entries.get(base)
            if entry is None or entry.state is not State.AGAIN:
                continue
            consumer = None if self._is_blocked else self._choose(entry)
            if consumer is not None:
                self._forget_again(entry)
                self._deliver_entry(entry, batch, consumer, deliveries)
        _deliver(deliveries)

    def _cut(self, entries: Sequence[StoredEntry]) -> None:
        """Replace AGAIN entries of which a cleaning has removed records since they were read, by what is left of them."""
        for known in [known for known in self._entries.values() if known.state is State.AGAIN]:
            parts = [entry for entry in entries if entry.base < known.end and entry.end > known.base]
            if not parts or parts[0].base > known.base or parts[0][:2] == (known.base, known.end):
                continue
            del self._entries[known.base]
            self._forget_again(known)
            left = [
                Entry(part.base, part.end, open_count, part.traits, self._slot_of(part.traits, part.base))
                for part in parts
                if part.traits is not None and (open_count := self.cursor.open_count(part.base, part.end))
            ]
            rest, end = max(parts[-1].end, known.base), known.end
            if rest < end and (open_count := self.cursor.open_count(rest, end)):  # not read yet
                left.append(Entry(rest, end, open_count, NO_TRAITS, known.slot))
            for entry in left:
                entry.redelivery_count = known.redelivery_count
                self._entries[entry.base] = entry
            self._again(left)

    @override
    def dispatch(self, now_ms: int) -> None:
        due = [self._entries[base] for base in self._delayed.take_due(now_ms)]
        if due:
            self._again(due)
        self._notice_readiness()
        deliveries: dict[AttachedConsumer, list[Delivery]] = {}
        ready = self._ready
        while ready and not self._is_blocked:
            entry, batch = ready[0]
            if entry.state is State.READY:
                consumer = self._choose(entry)
                if consumer is not None:
                    self._deliver_entry(entry, batch, consumer, deliveries)
                elif not self._pass_over(entry):
                    break
            ready.popleft()
        _deliver(deliveries)

    def _deliver_entry(
        self,
        entry: Entry,
        batch: memoryview,
        consumer: AttachedConsumer,
        deliveries: dict[AttachedConsumer, list[Delivery]],
    ) -> None:
        entry.state = State.GIVEN
        entry.owner = consumer
        consumer.permits -= entry.open
        self._count_given(consumer, entry.open)
        self._given(entry)
        size = entry.end - entry.base
        known = self.cursor.within(entry.base, entry.end) if entry.open < size else ()
        delivery = Delivery(entry.base, size, batch, entry.redelivery_count, known)
        deliveries.setdefault(consumer, []).append(delivery)

    def _count_given(self, consumer: AttachedConsumer, count: int) -> None:
        """Add `count` (may be negative) to the consumer's unacknowledged offsets. Blocks at a limit until half of it is acknowledged."""
        settings = self.settings
        consumer.unacknowledged += count
        self._given_count += count
        limit = settings.unacknowledged_per_consumer_max
        consumer.is_blocked = consumer.unacknowledged >= limit or (
            consumer.is_blocked and consumer.unacknowledged > limit // 2
        )
        limit = settings.unacknowledged_per_subscription_max
        self._is_blocked = self._given_count >= limit or (self._is_blocked and self._given_count > limit // 2)

    @override
    def next_due_ms(self) -> int | None:
        return self._delayed.next_due_ms()

    # -- acknowledgements ----------------------------------------------------------------------------------------

    @override
    def acknowledge(self, consumer: AttachedConsumer, ack: EntryAck, *, is_through: bool = False) -> bool:
        if is_through:
            raise Invalid(f"cumulative acknowledgement in a {self.type.value} subscription")
        entry = self._entries.get(ack.base_offset)
        if entry is None:
            return ack.base_offset < self.read_offset and self._is_at_entry
        self.acknowledge_read(consumer, ack, entry.base, entry.end)
        return True

    @override
    def acknowledge_read(
        self, consumer: AttachedConsumer, ack: EntryAck, base: int, end: int, *, is_through: bool = False
    ) -> None:
        if ack.base_offset != base:
            return
        count = self._apply(base, end, ack.open_bits)
        consumer.acknowledged_count += count
        entry = self._entries.get(base)
        if entry is not None and count:
            self._shrink(entry, count)

    def _shrink(self, entry: Entry, count: int) -> None:
        """Record `count` more acknowledged offsets of the entry; removes the entry once none is open."""
        entry.open -= count
        owner = entry.owner
        if owner is not None:
            self._count_given(owner, -count)
        if entry.open:
            return
        del self._entries[entry.base]
        if owner is not None:
            entry.owner = None
            self._taken_back(entry, owner)
        elif entry.state is State.AGAIN:
            self._forget_again(entry)
        elif entry.state is State.DELAYED:
            self._delayed.discard(entry.base)
        entry.state = State.GIVEN  # so that `dispatch` skips it in `_ready`

    @override
    def moved(self) -> None:
        if self.cursor.mark_delete > self.read_offset:
            self.read_offset, self._is_at_entry = self.cursor.mark_delete, False
        for entry in list(self._entries.values()):
            count = entry.open - self.cursor.open_count(entry.base, entry.end)
            if count:
                self._shrink(entry, count)

    # -- redelivery ----------------------------------------------------------------------------------------------

    @override
    def redeliver(self, consumer: AttachedConsumer, bases: Sequence[int]) -> None:
        self._redeliver(
            entry for base in sorted(set(bases)) if (entry := self._entries.get(base)) and entry.owner is consumer
        )

    @override
    def redeliver_all(self, consumer: AttachedConsumer) -> None:
        self._redeliver(sorted((entry for entry in self._entries.values() if entry.owner is consumer), key=_base))

    def _redeliver(self, entries: Iterable[Entry]) -> None:
        again = []
        for entry in entries:
            owner = entry.owner
            assert owner is not None
            self._count_given(owner, -entry.open)
            entry.owner = None
            entry.redelivery_count += 1
            self._taken_back(entry, owner)
            again.append(entry)
        self._again(again)

    def _again(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            entry.state = State.AGAIN
        self._keep_again(entries)

    # -- statistics ----------------------------------------------------------------------------------------------

    @property
    @override
    def has_given(self) -> bool:
        return self._given_count > 0

    @property
    @override
    def delayed_count(self) -> int:
        return len(self._delayed)

    @property
    @override
    def again_count(self) -> int:
        return sum(entry.state is State.AGAIN for entry in self._entries.values())


def _deliver(deliveries: dict[AttachedConsumer, list[Delivery]]) -> None:
    for consumer, items in deliveries.items():
        consumer.deliver(items)


def _base(entry: Entry) -> int:
    return entry.base
