"""Adds up lengths in the encoding DELTA_BINARY_PACKED, such as how many bytes texts share with the ones before them.

A length that is negative, or has more than 31 bits, is refused: Arrow would wrap it around.

Source: Apache Parquet format, "Delta Encoding", "Delta Strings".
"""

from typing import Final, NamedTuple

from bearlake.table.compact_protocol import Malformed, varint, zigzag
from bearlake.table.file_budget import FileBudget

_BITS_MAX: Final = 32
_LENGTH_MAX: Final = 2**31 - 1
_BLOCK_VALUES: Final = 128
"""The values of a block are a multiple of this number, those of a miniblock of a quarter of it."""
_WHOLE_VALUES: Final = 8
"""So many packed values take whole bytes: as many as a value has bits. A miniblock as one number would take quadratic time."""


class Sum(NamedTuple):
    """What the lengths add up to, and the position behind them."""

    total: int
    end: int


def sum_of(content: memoryview, at: int, count_max: int, budget: FileBudget) -> Sum | None:
    """Return the sum of the lengths at `at`, at most `count_max`. None: the budget has not as many steps.

    Raises `IndexError` or `Malformed`: they are damaged, or more.
    """
    block_count, at = varint(content, at)
    part_count, at = varint(content, at)
    count, at = varint(content, at)
    value, at = zigzag(content, at)
    if not part_count or not block_count or block_count % _BLOCK_VALUES or block_count % part_count:
        raise Malformed("blocks have an impossible number of values")
    part_values = block_count // part_count
    if count > count_max or part_values % (_BLOCK_VALUES // 4):
        raise Malformed("there are too many lengths")
    total = _length(value) if count else 0
    left = count - 1
    while left > 0:
        smallest, at = zigzag(content, at)
        widths, at = content[at : at + part_count], at + part_count
        for width in widths:
            if left <= 0:
                break
            end = at + part_values * width // 8
            if width > _BITS_MAX or end > len(content):
                raise Malformed("a delta is too long")
            taken = min(part_values, left)
            if not budget.steps(1 + taken if width else 1):
                return None
            value, more = _added(value, smallest, content[at:end], width, taken)
            total, left, at = total + more, left - taken, end
        if len(widths) < part_count:
            raise IndexError
    return Sum(total, at)


def _added(value: int, smallest: int, packed: memoryview, width: int, count: int) -> tuple[int, int]:
    """Return the last of `count` lengths behind `value`, and the sum of them. Their deltas are packed, less the smallest."""
    if not width:
        first, last = _length(value + smallest), _length(value + count * smallest)
        return last, count * (first + last) // 2
    total = 0
    mask = (1 << width) - 1
    for first in range(0, count, _WHOLE_VALUES):
        at = first * width // _WHOLE_VALUES
        deltas = int.from_bytes(packed[at : at + width], "little")
        for _ in range(min(_WHOLE_VALUES, count - first)):
            value = _length(value + smallest + (deltas & mask))
            deltas >>= width
            total += value
    return value, total


def _length(value: int) -> int:
    if not 0 <= value <= _LENGTH_MAX:
        raise Malformed("a length is impossible")
    return value
