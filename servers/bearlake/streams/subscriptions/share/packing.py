"""The stored form of the records that a share group has in flight in one partition: version 2 of a cursor's ranges.

Version 1 is that of other subscriptions (`metadata/subscriptions.py`). The runs follow one another from the mark-delete offset on:

      byte   0      1
             +------+-------------------+------------------------------------+-- … --+
             | 0x02 | length of the run | 0: done; else 1 + delivery count   |       |   unsigned LEB128 integers
             +------+-------------------+------------------------------------+-- … --+

No runs encode to no bytes. Equal neighbours are one run.
"""

from collections.abc import Iterable, Iterator

from bearlake.errors import Corrupt

VERSION = 2

DONE = -1
"""In place of the delivery count of offsets that are done."""

StoredRun = tuple[int, int, int]
"""Offsets `[start, end)`, and how often they were delivered (>= 0), or `DONE`."""


def pack(runs: Iterable[StoredRun]) -> bytes:
    """Encode runs that follow one another."""
    packed = bytearray((VERSION,))
    for start, end, count in _joined(runs):
        _append(packed, end - start)
        _append(packed, count + 1)
    return bytes(packed) if len(packed) > 1 else b""


def unpack(start: int, packed: bytes) -> Iterator[StoredRun]:
    """Decode the runs, which begin at `start`. Raises `Corrupt`."""
    if not packed:
        return
    if packed[0] != VERSION:
        raise Corrupt(f"records in flight have layout {packed[0]}, not {VERSION}")
    numbers = list(_numbers(packed[1:]))
    if len(numbers) % 2 or not all(numbers[::2]):
        raise Corrupt(f"records in flight of {len(packed)} bytes are not whole runs")
    for length, code in zip(numbers[::2], numbers[1::2], strict=True):
        yield start, start + length, code - 1
        start += length


def _joined(runs: Iterable[StoredRun]) -> Iterator[StoredRun]:
    last: StoredRun | None = None
    for run in runs:
        if last is not None and last[2] == run[2]:
            last = last[0], run[1], last[2]
            continue
        if last is not None:
            yield last
        last = run
    if last is not None:
        yield last


def _append(packed: bytearray, number: int) -> None:
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)


def _numbers(packed: Iterable[int]) -> Iterator[int]:
    number = shift = 0
    for byte in packed:
        number |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
        else:
            yield number
            number = shift = 0
    if shift:
        raise Corrupt("records in flight end inside a number")
