"""The set of visited states, by 64-bit fingerprints: open addressing in an array, 8 bytes per slot, at most two thirds full.

A fingerprint is Python's tuple hash. The probability that any two of n states share a fingerprint is about n² / 2⁶⁵: 3 in a million for
10⁷ states, 3 in ten thousand for 10⁸. A collision hides a state and the states that are reachable only through it; it never causes a
false counterexample, because traces are replayed. `tests/model` compares an exploration by fingerprints with one that keeps whole states.
"""

from array import array

FIRST_SLOTS = 1 << 12
_EMPTY = 0
_MASK64 = (1 << 64) - 1
_SPREAD = 0x9E3779B97F4A7C15
"""The high bits of tuple hashes vary too little for 2ⁿ slots, so hashes are multiplied by 2⁶⁴ / golden ratio (Knuth, TAOCP 6.4)."""


class Fingerprints:
    """A set of 64-bit numbers that only grows."""

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 * FIRST_SLOTS))
        self._shift = 64 - FIRST_SLOTS.bit_length() + 1
        self._limit = FIRST_SLOTS * 2 // 3
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """Return the memory of the table in bytes."""
        return 8 * len(self._slots)

    def add(self, number: int) -> bool:
        """Add a number; return whether it is new."""
        number = (number & _MASK64) or 1  # 0 marks an empty slot
        slots = self._slots
        last = len(slots) - 1
        at = (number * _SPREAD & _MASK64) >> self._shift
        while (found := slots[at]) != _EMPTY:
            if found == number:
                return False
            at = (at + 1) & last
        slots[at] = number
        self._count += 1
        if self._count > self._limit:
            self._grow()
        return True

    def _grow(self) -> None:
        old = self._slots
        count = 2 * len(old)
        self._slots = slots = array("Q", bytes(8 * count))
        self._shift -= 1
        self._limit = count * 2 // 3
        shift, last = self._shift, count - 1
        for number in old:
            if number != _EMPTY:
                at = (number * _SPREAD & _MASK64) >> shift
                while slots[at] != _EMPTY:
                    at = (at + 1) & last
                slots[at] = number
