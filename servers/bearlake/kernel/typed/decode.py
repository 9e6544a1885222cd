"""The call that decodes values, for all formats: arguments, rows, and the proof.

A decoder appends a row per value to the columns, and takes back the row of a value that turns out to be malformed.
"""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable
from typing import Final, TypeAlias

from bearlake.errors import TooLarge
from bearlake.kernel.buffers import Buffer, view_of
from bearlake.kernel.typed import BYTES_MAX, OUTCOME_BITS, TypedOutcome, TypedSlots, TypedSource
from bearlake.kernel.typed.slots import Column

_OUTCOME_MASK: Final = (1 << OUTCOME_BITS) - 1

IsSame: TypeAlias = Callable[[list[TypedSource]], Callable[[int, bytes], bool]]
"""Takes the columns, and returns whether encoding a row gives these bytes."""


class Stop(Exception):
    """The value cannot be decoded."""

    def __init__(self, index: int, outcome: TypedOutcome) -> None:
        super().__init__(index, outcome)
        self.status = index << OUTCOME_BITS | outcome


class Full(Exception):
    """The columns would exceed their limit."""


class Status:
    """The status of the value that is read."""

    _status: int = TypedOutcome.EXACT

    def _found(self, index: int, outcome: TypedOutcome) -> None:
        """Keep the first outcome; a value that does not fit counts more than its form."""
        if self._status & _OUTCOME_MASK < outcome:
            self._status = index << OUTCOME_BITS | outcome


class RowDecoder(Status, ABC):
    """Appends one row per value."""

    def __init__(self, root: Column, row_count: int, bytes_max: int) -> None:
        """Raises `TooLarge`: not even null rows fit."""
        self._root = root
        self._row_count = row_count
        self._bytes_max = bytes_max
        self._used = row_count * root.slot_bytes
        if self._used > bytes_max and row_count > 1:
            raise TooLarge("a set of typed columns", self._used, bytes_max)

    @abstractmethod
    def _append_row(self, value: bytes, skip: int) -> None:
        """Append the row of a value without its first `skip` bytes, which it has. Raises `Stop`, `Full`."""

    def append(self, value: bytes | None, skip: int) -> int:
        """Append the row of a value; return its status. Raises `TooLarge`."""
        if value is None:
            self._root.add_null()
            return TypedOutcome.NULL
        row, used = self._root.length, self._used
        self._status = TypedOutcome.EXACT
        try:
            if skip > len(value):
                raise Stop(0, TypedOutcome.TRUNCATED)
            self._use(0)
            self._append_row(value, skip)
        except Stop as stop:
            self._status = stop.status
        except Full:
            if self._row_count > 1:
                raise TooLarge("a set of typed columns", self._used, self._bytes_max) from None
            self._status = TypedOutcome.SIZE
        else:
            return self._status
        self._used = used
        self._root.cut(row)
        self._root.add_null()
        return self._status

    def _use(self, size: int) -> None:
        self._used += size
        if self._used > self._bytes_max:
            raise Full


def decode_values(
    root: Column,
    decoder: Callable[[int, int], RowDecoder],
    encoded: IsSame,
    values: tuple[Buffer | None, Buffer, Buffer, int, int],
    skip: int,
    is_verified: int,
    bytes_max: int,
) -> tuple[Buffer, list[TypedSlots]]:
    """Decode values into the columns of `root`; contract: `decode_avro`.

    `decoder` makes the decoder for a number of rows and a limit of bytes. `values`: validity, offsets, content, start, end.
    """
    *_, start, end = values
    if not 0 <= start <= end:
        raise ValueError(f"[{start}, {end}) are no rows")
    if not 0 <= bytes_max <= BYTES_MAX:
        raise ValueError(f"{bytes_max} bytes are no limit of columns")
    if skip < 0:
        raise ValueError(f"{skip} bytes cannot be skipped")
    found = _values(*values)
    rows = decoder(len(found), bytes_max)
    statuses = [rows.append(value, skip) for value in found]
    taken = list(root.take())
    if is_verified:
        is_same = encoded(
            [TypedSource(0, slots.length, slots.validity, slots.offsets, slots.content) for slots in taken]
        )
        for row, value in enumerate(found):
            if statuses[row] == TypedOutcome.EXACT and value is not None and not is_same(row, value[skip:]):
                statuses[row] = TypedOutcome.FORM
    return array("i", statuses).tobytes(), taken


def _values(validity: Buffer | None, offsets: Buffer, content: Buffer, start: int, end: int) -> list[bytes | None]:
    """Return the values [start, end) of a binary column. Raises `ValueError` if its buffers are malformed."""
    marks, octets = view_of(offsets), view_of(content)
    bits = None if validity is None else view_of(validity)
    if len(marks) < 4 * (end + 1) and end > start:
        raise ValueError(f"offsets have {len(marks)} bytes, {4 * (end + 1)} are needed")
    if bits is not None and len(bits) < (end + 7) // 8:
        raise ValueError(f"the validity has {len(bits)} bytes, {(end + 7) // 8} are needed")
    found: list[bytes | None] = []
    places = array("i", bytes(marks[4 * start : 4 * (end + 1)] if end > start else b""))
    for at in range(end - start):
        low, high = places[at], places[at + 1]
        if not 0 <= low <= high <= len(octets):
            raise ValueError(f"value {start + at} is not inside the content")
        is_there = bits is None or bits[(start + at) >> 3] >> ((start + at) & 7) & 1
        found.append(bytes(octets[low:high]) if is_there else None)
    return found
