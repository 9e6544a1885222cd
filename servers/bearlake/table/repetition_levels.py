"""Counts the rows that begin in a page of a column inside of lists: the values whose repetition level is 0.

Source: Apache Parquet format, "Nested Encoding", and "Run Length Encoding / Bit-Packing Hybrid".
"""

from typing import Final

from bearlake.table.compact_protocol import Malformed, varint
from bearlake.table.file_budget import FileBudget

_GROUP: Final = 8
"""Values that are packed together."""
_GROUPS_AT_ONCE: Final = 64


def row_starts(levels: memoryview, value_count: int, bit_count: int, budget: FileBudget) -> tuple[bool, int] | None:
    """Return whether the first of `value_count` levels is 0, and how many are; each has `bit_count` bits. None: the budget has no steps.

    Raises `IndexError` or `Malformed`: there are fewer levels, or a run has none, at which Arrow stops too.
    """
    at = seen = zero_count = 0
    first = -1
    while seen < value_count:
        head, at = varint(levels, at)
        if head <= 1:
            raise Malformed("a run has no levels")
        if not budget.steps(1 + (head >> 1) // _GROUPS_AT_ONCE if head & 1 else 1):
            return None
        if head & 1:
            group_count = head >> 1
            while group_count and seen < value_count:
                taken = min(group_count, _GROUPS_AT_ONCE)
                end = at + taken * bit_count
                packed = int.from_bytes(levels[at:end], "little")
                levels[end - 1]
                count = min(taken * _GROUP, value_count - seen)
                first = packed & ((1 << bit_count) - 1) if first < 0 else first
                zero_count += count - _not_zero(packed, count, bit_count)
                at, seen, group_count = end, seen + count, group_count - taken
        else:
            count = min(head >> 1, value_count - seen)
            level, at = levels[at], at + 1
            first = level if first < 0 else first
            zero_count += 0 if level else count
            seen += count
    return first == 0, zero_count


def _not_zero(packed: int, count: int, bit_count: int) -> int:
    """Return how many of `count` levels are not 0."""
    ones = ((1 << count * bit_count) - 1) // ((1 << bit_count) - 1)
    """The lowest bit of each level."""
    found = 0
    for bit in range(bit_count):
        found |= packed >> bit & ones
    return found.bit_count()
