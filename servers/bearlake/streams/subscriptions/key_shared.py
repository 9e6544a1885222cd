"""Key_Shared: entries of one ordering key go to one consumer at a time, in order.

Rules, per slot (a slot covers all keys that hash to it):

1. A slot belongs to one consumer (`slots.py`). Its owner may change when consumers attach or detach.
2. The dispatcher gives an entry to the slot's consumer only if no other consumer has unacknowledged entries of the slot (draining).
3. The dispatcher gives an entry only if no earlier entry of the slot waits (AGAIN). This keeps order, even if the consumer has no permits.
4. The dispatcher reads past waiting entries, up to `held_entry_count_max`, so that a slow consumer does not block the others at once.

Each entry without a key has a key of its own. A negative acknowledgement may move an entry after later entries of its key; this is
unavoidable.

Source: Apache Pulsar, PIP-34, PIP-379 (Key_Shared draining hashes).
"""

from bisect import insort
from collections.abc import Sequence

from typing_extensions import override

from bearlake.streams.subscriptions.consumers import AttachedConsumer
from bearlake.streams.subscriptions.cursor import AckCursor
from bearlake.streams.subscriptions.model import EntryTraits, Overlap, SubscriptionType
from bearlake.streams.subscriptions.pool import Entry, Pool
from bearlake.streams.subscriptions.settings import SubscriptionSettings
from bearlake.streams.subscriptions.slots import Slots, SplitSlots, StickySlots, slot_of


class KeyShared(Pool):
    """A dispatcher that gives each slot's entries to one consumer at a time."""

    def __init__(self, cursor: AckCursor, settings: SubscriptionSettings) -> None:
        super().__init__(SubscriptionType.KEY_SHARED, cursor, settings)
        self._slots: Slots[AttachedConsumer] | None = None
        self._is_ordered = True
        self._given_of: dict[int, dict[AttachedConsumer, int]] = {}
        """Slot → consumer → number of the slot's entries that it has. One consumer per slot, unless out-of-order delivery is allowed."""
        self._held: dict[int, list[int]] = {}
        """Slot → base offsets of its AGAIN entries, ascending."""
        self._held_count = 0
        self._open_slots: dict[AttachedConsumer, dict[int, None]] = {}
        """Consumer → its slots with held entries that it could take."""
        self._open_at: dict[int, AttachedConsumer] = {}
        """Slot → the consumer that could take its held entries."""

    @override
    def add(self, consumer: AttachedConsumer) -> None:
        if self._slots is None:
            slots: Slots[AttachedConsumer] = StickySlots() if consumer.spec.sticky_ranges else SplitSlots()
        else:
            slots = self._slots
            if consumer.spec.is_out_of_order_allowed is self._is_ordered:
                raise Overlap("the consumers of a subscription must agree on whether out-of-order delivery is allowed")
        slots.add(consumer, consumer.spec.name, consumer.spec.sticky_ranges)
        self._slots = slots
        self._is_ordered = not consumer.spec.is_out_of_order_allowed
        self.consumers.append(consumer)
        self._place_all()

    @override
    def remove(self, consumer: AttachedConsumer) -> None:
        assert self._slots is not None
        self._slots.remove(consumer)
        super().remove(consumer)
        self._place_all()

    @override
    def slot_ranges(self, consumer: AttachedConsumer) -> Sequence[tuple[int, int]]:
        return self._slots.ranges(consumer) if self._slots is not None and consumer in self.consumers else ()

    def _slot_of(self, traits: EntryTraits, base: int) -> int:
        return slot_of(traits.ordering_key or base.to_bytes(8, "big"))

    def _candidate(self, slot: int) -> AttachedConsumer | None:
        """Return the consumer for the slot's next entry; None if the slot has no owner, or another consumer must acknowledge first."""
        assert self._slots is not None
        owner = self._slots.owner(slot)
        given = self._given_of.get(slot)
        if owner is None or (given and self._is_ordered and owner not in given):
            return None
        return owner

    def _choose(self, entry: Entry) -> AttachedConsumer | None:
        held = self._held.get(entry.slot)
        if held and entry.base > held[0]:
            return None
        consumer = self._candidate(entry.slot)
        return consumer if consumer is not None and consumer.can_take else None

    def _pass_over(self, entry: Entry) -> bool:
        if self._held_count >= self.settings.held_entry_count_max:
            return False
        self._again([entry])
        return True

    def _given(self, entry: Entry) -> None:
        assert entry.owner is not None
        given = self._given_of.setdefault(entry.slot, {})
        given[entry.owner] = given.get(entry.owner, 0) + 1

    def _taken_back(self, entry: Entry, owner: AttachedConsumer) -> None:
        given = self._given_of[entry.slot]
        given[owner] -= 1
        if not given[owner]:
            del given[owner]
            if not given:
                del self._given_of[entry.slot]
            self._place(entry.slot)

    def _keep_again(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            insort(self._held.setdefault(entry.slot, []), entry.base)
            self._held_count += 1
            self._place(entry.slot)

    def _forget_again(self, entry: Entry) -> None:
        held = self._held[entry.slot]
        held.remove(entry.base)
        self._held_count -= 1
        if not held:
            del self._held[entry.slot]
            self._place(entry.slot)

    def _pick_again(self, count_max: int) -> Sequence[int]:
        picked: list[int] = []
        for consumer in self.consumers:
            room = consumer.permits if consumer.can_take else 0
            for slot in self._open_slots.get(consumer, ()):
                for base in self._held[slot]:
                    if room <= 0 or len(picked) >= count_max:
                        break
                    picked.append(base)
                    room -= self._entries[base].open
                if room <= 0 or len(picked) >= count_max:
                    break
        return sorted(picked)

    def _place(self, slot: int) -> None:
        """Record which consumer could take the slot's held entries."""
        before = self._open_at.get(slot)
        consumer = self._candidate(slot) if slot in self._held else None
        if consumer is before:
            return
        if before is not None:
            del self._open_slots[before][slot], self._open_at[slot]
        if consumer is not None:
            self._open_slots.setdefault(consumer, {})[slot] = None
            self._open_at[slot] = consumer

    def _place_all(self) -> None:
        self._open_slots.clear()
        self._open_at.clear()
        for slot in self._held:
            self._place(slot)

    @property
    @override
    def again_count(self) -> int:
        """Number of entries waiting for redelivery, including held entries."""
        return self._held_count
