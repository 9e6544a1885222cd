"""The uncompressed records section of a batch: check and decode the records, and find a record by timestamp.

A record: length (zigzag varint, bytes after it), attributes (int8), timestamp delta (varlong), offset delta (varint), key length
(varint, -1: null), key, value length, value, header count, headers (key length, key, value length or -1, value).
Source: Apache Kafka, "Message format", Record; variable-length integers as in Protocol Buffers.
"""

from bearlake.errors import Corrupt
from bearlake.kernel.batch import RecordFields
from bearlake.kernel.buffers import Buffer, view_of


class Malformed(Exception):
    """The record is malformed."""


def check_records(body: Buffer, record_count: int, /) -> int:
    """Return -1 if `body` is exactly `record_count` well-formed records with offset deltas 0, 1, 2 …; else the index of the first bad one.

    Bytes after the last record count as a bad record at index `record_count`.
    """
    view = _view(body, record_count)
    position = 0
    for index in range(record_count):
        try:
            position, _, offset_delta, _, _, _ = read_record(view, position)
        except Malformed:
            return index
        if offset_delta != index:
            return index
    return -1 if position == len(view) else record_count


def find_timestamp(body: Buffer, record_count: int, base_timestamp: int, timestamp: int, /) -> tuple[int, int] | None:
    """Return (offset delta, timestamp) of the first of `record_count` records whose timestamp is at least `timestamp` (ms), or None.

    Raises:
        Corrupt: a record up to the one found is malformed, or its timestamp does not fit an int64.
    """
    view = _view(body, record_count)
    position = 0
    for index in range(record_count):
        position, found, offset_delta, _, _, _ = _record_at(view, position, index, base_timestamp)
        if found >= timestamp:
            return offset_delta, found
    return None


def decode_records(body: Buffer, record_count: int, base_timestamp: int, /) -> list[RecordFields]:
    """Return copies of the records of `body`, which has exactly `record_count` records: see `RecordFields`.

    Offset deltas are not checked. Header keys that are not UTF-8 contain surrogate escapes.

    Raises:
        Corrupt: a record is malformed, its timestamp does not fit an int64, or bytes follow the last record.
    """
    records, position = decode_part(body, 0, 0, record_count, base_timestamp)
    if position != len(view_of(body)):
        raise Corrupt(f"record {record_count} of a batch is malformed")
    return records


def decode_part(
    body: Buffer, position: int, index: int, end: int, base_timestamp: int, /
) -> tuple[list[RecordFields], int]:
    """Return copies of the records `[index, end)` of `body`, of which the first is at `position`, and the position after the last.

    Raises:
        Corrupt: a record is malformed, or its timestamp does not fit an int64.
    """
    view = _view(body, min(index, end))
    if not 0 <= position <= len(view):
        raise ValueError(f"position {position} is not inside {len(view)} bytes")
    records: list[RecordFields] = []
    for at in range(index, end):
        position, timestamp, offset_delta, key, value, fields = _record_at(view, position, at, base_timestamp)
        headers = [(str(name, "utf-8", "surrogateescape"), _copy(content)) for name, content in fields]
        records.append((offset_delta, timestamp, _copy(key), _copy(value), tuple(headers)))
    return records, position


def _view(body: Buffer, record_count: int) -> memoryview:
    if record_count < 0:
        raise ValueError(f"record count {record_count} is negative")
    return view_of(body)


def _copy(field: memoryview | None) -> bytes | None:
    return None if field is None else bytes(field)


_Headers = list[tuple[memoryview, memoryview | None]]
_Parsed = tuple[int, int, int, memoryview | None, memoryview | None, _Headers]


def _record_at(view: memoryview, position: int, index: int, base_timestamp: int) -> _Parsed:
    """Like `read_record`, but with the timestamp instead of its delta."""
    try:
        end, delta, offset_delta, key, value, headers = read_record(view, position)
    except Malformed:
        raise Corrupt(f"record {index} of a batch is malformed") from None
    timestamp = base_timestamp + delta
    if not -(2**63) <= timestamp < 2**63:
        raise Corrupt(f"record {index} of a batch is malformed")
    return end, timestamp, offset_delta, key, value, headers


def read_record(view: memoryview, position: int) -> _Parsed:
    """Return (end, timestamp delta, offset delta, key, value, headers) of the record at `position`."""
    length, position = read_varint(view, position, len(view))
    end = position + length
    if length <= 0 or end > len(view):
        raise Malformed
    timestamp_delta, position = _varlong(view, position + 1, end)
    offset_delta, position = read_varint(view, position, end)
    key, position = _bytes(view, position, end)
    value, position = _bytes(view, position, end)
    header_count, position = read_varint(view, position, end)
    if not 0 <= header_count <= end - position:
        raise Malformed
    headers: _Headers = []
    for _ in range(header_count):
        name, position = _bytes(view, position, end)
        content, position = _bytes(view, position, end)
        if name is None:
            raise Malformed
        headers.append((name, content))
    if position != end:
        raise Malformed
    return end, timestamp_delta, offset_delta, key, value, headers


def _bytes(view: memoryview, position: int, end: int) -> tuple[memoryview | None, int]:
    length, position = read_varint(view, position, end)
    if not -1 <= length <= end - position:
        raise Malformed
    if length < 0:
        return None, position
    return view[position : position + length], position + length


def read_varint(view: memoryview, position: int, end: int) -> tuple[int, int]:
    """Return the 32-bit zigzag varint at `position` and the position after it."""
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
                raise Malformed
            return value >> 1 ^ -(value & 1), position
        shift += 7
    raise Malformed
