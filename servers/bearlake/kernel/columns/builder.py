"""Record batches to columns: decode many batches, of many partitions, into one set of buffers in Arrow's layout.

The columns get all rows of a batch or none. The `DecodeStatus` reports when the rows cannot hold the whole batch, so that the caller
can keep the batch's bytes. The rows drop the following, which Kafka's clients cannot see: the CRC, the length and the leader epoch; the
base timestamp (a client only adds it to a record's delta); with create time, the batch's max timestamp (a client reads it with log
append time only); with log append time, the producer's own timestamps (every record has the batch's max timestamp instead); and the
lengths of varints that are not minimal.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from struct import Struct

from bearlake.kernel.batch import HEADER_BYTES
from bearlake.kernel.batch.records import Malformed, read_record, read_varint
from bearlake.kernel.buffers import Buffer, check_bounds, view_of
from bearlake.kernel.columns import Columns, DecodeStatus

_LENGTH = Struct(">i")
_MAGIC_AT = 16
_FIELDS = Struct(">hiqqqhii")
"""attributes, last offset delta, base and max timestamp, producer id, epoch, base sequence, record count"""
_FIELDS_AT = 21
_LENGTH_AT = 8
_LENGTH_END = 12

_CODEC = 0x07
_CODEC_MAX = 4
_LOG_APPEND_TIME = 0x08
_CONTROL = 0x20
_RECORD_BYTES_MIN = 7
_REPLACED_RATIO = 3
"""Bytes of U+FFFD that replace one byte of a header key that is not UTF-8."""
_ROW_BYTES = 60
"""Bytes of a row in the fixed-width columns and in the offsets of key, value and headers."""
_HEADER_BYTES = 8
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_MICROSECONDS = 1000
_EARLIEST_MS, _LATEST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The first and the last ms of the years 1 to 9999: SQL engines and their clients fail on other times (decision 197)."""

_Headers = list[tuple[bytes, bytes | None]]
_Batch = tuple[int, int, int, int, int, int]
"""partition index, base offset, attributes, producer id, epoch, base sequence"""
_Row = tuple[_Batch, int, int, bytes | None, bytes | None, _Headers]
"""batch, offset, timestamp in microseconds, key, value, headers"""
_Sizes = tuple[int, int, int, int, int]
"""header count, bytes of keys, values, header keys, header values"""
_Frame = tuple[int, int, tuple[int, ...] | None, Buffer | None]
"""position, length, `_FIELDS` (None: not a batch), records section (None: it could not be decompressed)"""


class ColumnBuilder:
    """Columns that grow by whole batches. Not thread-safe: the native builder raises `RuntimeError` on concurrent use.

    No value of an offsets column exceeds `column_bytes_max` (default and maximum: the largest int32). The native builder releases the
    GIL while it decodes large inputs. It takes its memory from a pool; the memory returns to the pool when the taken columns are freed.
    """

    __slots__ = ("_column_bytes_max", "_rows", "_sizes")

    def __init__(self, column_bytes_max: int = _INT32_MAX, /) -> None:
        if not 0 <= column_bytes_max <= _INT32_MAX:
            raise ValueError(f"column_bytes_max {column_bytes_max} is not a positive int32")
        self._column_bytes_max = column_bytes_max
        self._rows: list[_Row] = []
        self._sizes: _Sizes = (0, 0, 0, 0, 0)

    @property
    def row_count(self) -> int:
        """Rows so far."""
        return len(self._rows)

    @property
    def size_bytes(self) -> int:
        """Bytes of the columns so far: 60 per row, 8 per header, and the keys, values, header keys and header values."""
        header_count, *sizes = self._sizes
        return len(self._rows) * _ROW_BYTES + header_count * _HEADER_BYTES + sum(sizes)

    def append(
        self,
        partition_index: int,
        base_offset: int,
        view: Buffer,
        start: int,
        end: int,
        bodies: Sequence[Buffer | None],
        /,
    ) -> tuple[int, DecodeStatus]:
        """Decode the batches of one partition that lie back to back in `[start, end)` of `view`, up to the first that is not OK.

        The first batch begins at offset `base_offset`; each batch's last offset delta gives the offset of the next batch. Stored base
        offsets are ignored. `bodies` holds, in order, the uncompressed records section of each batch whose attributes name a codec, or
        None if the section could not be decompressed. Neither the CRC nor the producer fields are checked.

        Returns (`end`, OK), or the position of the first batch that is not OK and its status. The caller continues after that batch
        (with OVERFLOW: at that batch) with a matching offset and bodies. OVERFLOW is decided before decoding, from three times the
        section's bytes. A batch that is too large for empty columns is UNDECODABLE.

        Raises:
            ValueError: a position, offset or partition index is out of range, or the number of bodies differs from the number of
                compressed batches (up to the first bytes that are not a batch).
        """
        if not 0 <= partition_index <= _INT32_MAX:
            raise ValueError(f"partition index {partition_index} is not a positive int32")
        if not 0 <= base_offset <= _INT64_MAX:
            raise ValueError(f"base offset {base_offset} is not a positive int64")
        buffer = view_of(view)
        check_bounds(len(buffer), start, end)
        offset = base_offset
        for position, _, fields, section in _frames(buffer, start, end, bodies):
            status = self._append_batch(partition_index, offset, fields, section)
            if status is not DecodeStatus.OK or fields is None:
                return position, status
            offset += fields[1] + 1
        return end, DecodeStatus.OK

    def _append_batch(
        self, partition_index: int, base_offset: int, fields: tuple[int, ...] | None, section: Buffer | None
    ) -> DecodeStatus:
        if fields is None:
            return DecodeStatus.UNDECODABLE
        attributes, last_delta, base_timestamp, max_timestamp, *producer, record_count = fields
        if attributes & _CONTROL:
            return DecodeStatus.CONTROL
        if section is None or attributes & _CODEC > _CODEC_MAX or base_offset + last_delta >= _INT64_MAX:
            return DecodeStatus.UNDECODABLE
        body = view_of(section)
        if not 0 < record_count <= len(body) // _RECORD_BYTES_MIN:
            return DecodeStatus.UNDECODABLE
        if self._rows and max(self._sizes) + _REPLACED_RATIO * len(body) > self._column_bytes_max:
            return DecodeStatus.OVERFLOW
        epoch, sequence = producer[1:]
        batch = (partition_index, base_offset, attributes, producer[0], epoch, sequence)
        stamp = max_timestamp if attributes & _LOG_APPEND_TIME else None
        try:
            rows, is_exact = _decode(batch, body, record_count, last_delta, base_timestamp, stamp)
        except Malformed:
            return DecodeStatus.UNDECODABLE
        sizes = _add_sizes(self._sizes, rows)
        if max(sizes) > self._column_bytes_max:
            return DecodeStatus.UNDECODABLE
        self._rows += rows
        self._sizes = sizes
        return DecodeStatus.OK if is_exact else DecodeStatus.INEXACT

    def take(self) -> Columns:
        """Return the columns, read-only, and start again with empty ones."""
        rows, self._rows, self._sizes = self._rows, [], (0, 0, 0, 0, 0)
        headers = [header for row in rows for header in row[5]]
        header_key_offsets, header_keys, _ = _texts([key for key, _ in headers])
        return Columns(
            len(rows),
            _numbers("i", (row[0][0] for row in rows)),
            _numbers("q", (row[1] for row in rows)),
            _numbers("q", (row[2] for row in rows)),
            *_texts([row[3] for row in rows]),
            _numbers("i", accumulate((len(row[5]) for row in rows), initial=0)),
            header_key_offsets,
            header_keys,
            *_texts([value for _, value in headers]),
            *_texts([row[4] for row in rows]),
            _numbers("q", (row[0][1] for row in rows)),
            _numbers("i", (row[0][2] for row in rows)),
            _numbers("q", (row[0][3] for row in rows)),
            _numbers("i", (row[0][4] for row in rows)),
            _numbers("i", (row[0][5] for row in rows)),
        )


def _frames(view: memoryview, start: int, end: int, bodies: Sequence[Buffer | None]) -> list[_Frame]:
    """Return the batches of `[start, end)`; bytes that are not a batch end the list as its last entry."""
    frames: list[_Frame] = []
    body_count = 0
    position = start
    while position < end:
        length = (
            _LENGTH.unpack_from(view, position + _LENGTH_AT)[0] + _LENGTH_END if end - position >= HEADER_BYTES else 0
        )
        fields = _FIELDS.unpack_from(view, position + _FIELDS_AT) if HEADER_BYTES <= length <= end - position else None
        if fields is None or view[position + _MAGIC_AT] != 2 or fields[1] < 0:
            frames.append((position, 0, None, None))
            break
        section: Buffer | None = view[position + HEADER_BYTES : position + length]
        if fields[0] & _CODEC:
            section = bodies[body_count] if body_count < len(bodies) else None
            body_count += 1
        frames.append((position, length, fields, section))
        position += length
    if body_count != len(bodies):
        raise ValueError(f"{len(bodies)} bodies for {body_count} compressed batches")
    return frames


def _decode(
    batch: _Batch, body: memoryview, record_count: int, last_delta: int, base_timestamp: int, stamp: int | None
) -> tuple[list[_Row], bool]:
    """Return the rows of a batch, and whether they hold all of it. `stamp` (ms) replaces every record's timestamp."""
    rows: list[_Row] = []
    is_exact = True
    position, last = 0, -1
    for _ in range(record_count):
        attributes_at = read_varint(body, position, len(body))[1]
        position, time_delta, delta, key, value, fields = read_record(body, position)
        if not last < delta <= last_delta:
            raise Malformed
        last = delta
        exact_ms = base_timestamp + time_delta if stamp is None else stamp
        timestamp_ms = min(max(exact_ms, _EARLIEST_MS), _LATEST_MS)
        headers = [(str(name, "utf-8", "replace").encode(), _copy(content)) for name, content in fields]
        is_exact &= timestamp_ms == exact_ms and body[attributes_at] == 0
        is_exact &= all(name == replaced for (name, _), (replaced, _) in zip(fields, headers, strict=True))
        rows.append((batch, batch[1] + delta, timestamp_ms * _MICROSECONDS, _copy(key), _copy(value), headers))
    if position != len(body):
        raise Malformed
    return rows, is_exact and last == last_delta


def _copy(field: memoryview | None) -> bytes | None:
    return None if field is None else bytes(field)


def _add_sizes(sizes: _Sizes, rows: list[_Row]) -> _Sizes:
    header_count, keys, values, header_keys, header_values = sizes
    for _, _, _, key, value, headers in rows:
        header_count += len(headers)
        keys += len(key or b"")
        values += len(value or b"")
        header_keys += sum(len(name) for name, _ in headers)
        header_values += sum(len(content or b"") for _, content in headers)
    return header_count, keys, values, header_keys, header_values


def _numbers(code: str, values: Iterable[int]) -> memoryview:
    return memoryview(array(code, values).tobytes())


def _texts(fields: Sequence[bytes | None]) -> tuple[memoryview, memoryview, memoryview | None]:
    """offsets, data, validity"""
    offsets = _numbers("i", accumulate((len(field or b"") for field in fields), initial=0))
    content = memoryview(b"".join(field or b"" for field in fields))
    return offsets, content, memoryview(bytes(_bits(fields))) if None in fields else None


def _bits(fields: Sequence[bytes | None]) -> Iterator[int]:
    for start in range(0, len(fields), 8):
        yield sum(1 << bit for bit, field in enumerate(fields[start : start + 8]) if field is not None)
