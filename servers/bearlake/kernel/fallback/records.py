"""The records section of a batch, uncompressed: is it well-formed, and which record is the first at a time?

A record: length (zigzag varint, bytes behind it), attributes (int8), timestamp delta (varlong), offset delta (varint), key length
(varint, -1: null), key, value length, value, header count, headers (key length, key, value length or -1, value).
Source: Apache Kafka, "Message format", Record; variable-length integers as in Protocol Buffers.
"""

from bearlake.errors import Corrupt
from bearlake.kernel.fallback.checksum import Buffer, view_of


class _Bad(Exception):
    """The record is malformed."""


def check_records(body: Buffer, record_count: int, /) -> int:
    """-1 if `body` is exactly `record_count` well-formed records with offset deltas 0, 1, 2 …; else the index of the first bad one.

    Bytes behind the last record count as a bad record of index `record_count`.
    """
    view = view_of(body)
    if record_count < 0:
        raise ValueError(f"record count {record_count} is negative")
    position = 0
    for index in range(record_count):
        try:
            position, _, offset_delta = _record(view, position)
        except _Bad:
            return index
        if offset_delta != index:
            return index
    return -1 if position == len(view) else record_count


def find_timestamp(body: Buffer, record_count: int, base_timestamp: int, timestamp: int, /) -> tuple[int, int] | None:
    """(offset delta, timestamp) of the first of `record_count` records whose timestamp is at least `timestamp` (ms), or None.

    Raises:
        Corrupt: a record up to the one found is malformed or its timestamp is not an int64.
    """
    view = view_of(body)
    if record_count < 0:
        raise ValueError(f"record count {record_count} is negative")
    position = 0
    for index in range(record_count):
        try:
            position, delta, offset_delta = _record(view, position)
        except _Bad:
            raise Corrupt(f"record {index} of a batch is malformed") from None
        found = base_timestamp + delta
        if not -(2**63) <= found < 2**63:
            raise Corrupt(f"record {index} of a batch is malformed")
        if found >= timestamp:
            return offset_delta, found
    return None


def _record(view: memoryview, position: int) -> tuple[int, int, int]:
    """(end, timestamp delta, offset delta) of the record at `position`."""
    length, position = _varint(view, position, len(view))
    end = position + length
    if length < 0 or end > len(view) or position == end:
        raise _Bad
    timestamp_delta, position = _varlong(view, position + 1, end)
    offset_delta, position = _varint(view, position, end)
    position = _bytes(view, position, end, -1)
    position = _bytes(view, position, end, -1)
    header_count, position = _varint(view, position, end)
    if not 0 <= header_count <= end - position:
        raise _Bad
    for _ in range(header_count):
        position = _bytes(view, position, end, 0)
        position = _bytes(view, position, end, -1)
    if position != end:
        raise _Bad
    return end, timestamp_delta, offset_delta


def _bytes(view: memoryview, position: int, end: int, length_min: int) -> int:
    length, position = _varint(view, position, end)
    if not length_min <= length <= end - position:
        raise _Bad
    return position + max(length, 0)


def _varint(view: memoryview, position: int, end: int) -> tuple[int, int]:
    return _zigzag(view, position, end, 32)


def _varlong(view: memoryview, position: int, end: int) -> tuple[int, int]:
    return _zigzag(view, position, end, 64)


def _zigzag(view: memoryview, position: int, end: int, bits: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < bits:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                raise _Bad
            return value >> 1 ^ -(value & 1), position
        shift += 7
    raise _Bad
