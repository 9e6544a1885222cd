"""Key_Shared: maps ordering keys to consumers.

Each key hashes to one of `SLOT_COUNT` slots. AUTO_SPLIT uses consistent hashing: a consumer's name determines its places on a ring of
slots, and each place owns the slots up to the next place. A consumer that attaches or detaches moves only its own slots. STICKY: each
consumer names its slots.

Source: Apache Pulsar, PIP-34 (Key_Shared), PIP-119 (consistent hashing by default); MurmurHash3 x86 32 by Austin Appleby (public domain).
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import count, pairwise
from typing import Protocol, TypeVar

from typing_extensions import override

from bearlake.errors import Invalid
from bearlake.streams.subscriptions.model import SLOT_COUNT, Overlap

PLACE_COUNT = 100
"""Places per consumer on the ring, as in Pulsar; the consumers' shares differ by about a tenth of their mean."""

T = TypeVar("T")

_MASK = 0xFFFFFFFF


def slot_of(key: bytes) -> int:
    """Return the slot of an ordering key, as Pulsar computes it (clients choose sticky ranges by slot)."""
    return (murmur3_32(key) & 0x7FFFFFFF) % SLOT_COUNT


def murmur3_32(key: bytes, seed: int = 0) -> int:
    """MurmurHash3 x86 32, unsigned."""
    h = seed
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * 0xCC9E2D51 & _MASK
        k = (k << 15 | k >> 17) * 0x1B873593 & _MASK
        h ^= k
        h = ((h << 13 | h >> 19) & _MASK) * 5 + 0xE6546B64 & _MASK
    if whole < len(key):
        k = int.from_bytes(key[whole:], "little") * 0xCC9E2D51 & _MASK
        h ^= ((k << 15 | k >> 17) & _MASK) * 0x1B873593 & _MASK
    h ^= len(key)
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    return h ^ h >> 16


class Slots(Protocol[T]):
    """Maps slots to consumers."""

    def add(self, who: T, name: str, ranges: Sequence[tuple[int, int]]) -> None:
        """Add a consumer. Raises `Overlap`, `Invalid`, without a change."""

    def remove(self, who: T) -> None:
        """Remove a consumer."""

    def owner(self, slot: int) -> T | None:
        """Return the consumer that owns the slot; None if there is none."""

    def ranges(self, who: T) -> list[tuple[int, int]]:
        """Return the consumer's slot ranges `[start, end)`, ascending."""


class SplitSlots(Slots[T]):
    """AUTO_SPLIT. Consumers with the same name get different places."""

    def __init__(self) -> None:
        self._places: list[tuple[int, str, int]] = []  # (slot, name, copy), ascending
        self._starts: list[int] = []
        self._owners: dict[tuple[str, int], T] = {}
        self._keys: dict[T, tuple[str, int]] = {}

    @override
    def add(self, who: T, name: str, ranges: Sequence[tuple[int, int]] = ()) -> None:
        if ranges:
            raise Overlap("the subscription splits slots automatically: a sticky consumer cannot join it")
        copy = next(copy for copy in count() if (name, copy) not in self._owners)
        self._owners[name, copy] = who
        self._keys[who] = (name, copy)
        places = [(slot_of(f"{name}\0{copy}\0{number}".encode()), name, copy) for number in range(PLACE_COUNT)]
        self._stand(self._places + places)

    @override
    def remove(self, who: T) -> None:
        key = self._keys.pop(who)
        del self._owners[key]
        self._stand([place for place in self._places if place[1:] != key])

    def _stand(self, places: list[tuple[int, str, int]]) -> None:
        self._places = sorted(places)
        self._starts = [place[0] for place in self._places]

    @override
    def owner(self, slot: int) -> T | None:
        """Return the owner of the last place at or before the slot; slots before the first place belong to the ring's last place."""
        if not self._places:
            return None
        return self._owners[self._places[bisect_right(self._starts, slot) - 1][1:]]

    @override
    def ranges(self, who: T) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        starts = [0, *self._starts]
        for start, end in zip(starts, [*self._starts, SLOT_COUNT], strict=True):
            if start < end and self.owner(start) is who:
                if found and found[-1][1] == start:
                    found[-1] = (found[-1][0], end)
                else:
                    found.append((start, end))
        return found


class StickySlots(Slots[T]):
    """STICKY: consumers name their slots; slots that no consumer names have no owner."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, T]] = []  # [start, end) and owner, ascending

    @override
    def add(self, who: T, name: str, ranges: Sequence[tuple[int, int]]) -> None:
        if not ranges:
            raise Overlap("the subscription has sticky consumers: a consumer without slots of its own cannot join it")
        ordered = sorted(ranges)
        if any(not 0 <= start < end <= SLOT_COUNT for start, end in ordered):
            raise Invalid(f"sticky ranges {ordered}: expected 0 <= start < end <= {SLOT_COUNT}")
        if any(before[1] > after[0] for before, after in pairwise(ordered)):
            raise Invalid(f"sticky ranges {ordered} overlap each other")
        for start, end in ordered:
            for first, last, _ in self._ranges:
                if first < end and start < last:
                    raise Overlap(f"slots [{start}, {end}) overlap [{first}, {last}) of another consumer")
        self._ranges += [(start, end, who) for start, end in ordered]
        self._ranges.sort(key=_start)

    @override
    def remove(self, who: T) -> None:
        self._ranges = [item for item in self._ranges if item[2] is not who]

    @override
    def owner(self, slot: int) -> T | None:
        at = bisect_right(self._ranges, slot, key=_start) - 1
        return self._ranges[at][2] if at >= 0 and slot < self._ranges[at][1] else None

    @override
    def ranges(self, who: T) -> list[tuple[int, int]]:
        return [(start, end) for start, end, owner in self._ranges if owner is who]


def _start(item: tuple[int, int, T]) -> int:
    return item[0]
