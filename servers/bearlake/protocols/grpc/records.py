"""Encodes records, as clients write them in protobuf, as one record batch.

Many records go through the kernel's column encoder. A few go through the record codec, because columns have a fixed cost. Large payloads
are decoded piece by piece, and their records and headers are counted on the way, so that a payload of tiny records costs no more memory
than its record batch and does not hold the interpreter's lock.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from google.protobuf.message import DecodeError

from bearlake import kernel
from bearlake.errors import Corrupt
from bearlake.objects import Buffer
from bearlake.protocols.grpc import framing
from bearlake.protocols.grpc.errors import BadField, malformed
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.records import codec as record_codec
from bearlake.records.codec import Producer, Record
from bearlake.streams.admission import NO_TIMESTAMP

_MICROSECONDS = 1000
_TIMESTAMP_END = (1 << 63) // _MICROSECONDS
"""Timestamps pass through microseconds, which limits them to the year 294,247."""
_COLUMNS_RECORDS_MIN = 5
"""Measured: columns cost 25 us plus 2.5 us per record; the codec costs 6 us plus 8 us per record."""
AT_ONCE_COUNT: Final = 4096
"""Records and headers that are encoded on the event loop: about 10 ms."""
HEADERS_MAX: Final = kernel.RECORDS_MAX
"""Most headers of a payload."""
_PIECE_BYTES = 64 * 1024
_RECORD = pb.Records.RECORDS_FIELD_NUMBER << 3 | 2


def is_small(records: Sequence[pb.Record]) -> bool:
    """Return whether to encode these records on the event loop."""
    return len(records) <= AT_ONCE_COUNT and sum(len(record.headers) for record in records) <= AT_ONCE_COUNT


def encode(records: Sequence[pb.Record], producer: Producer, now_ms: int) -> Buffer:
    """Encode records (at least one), of which those without a timestamp get `now_ms`. Raises `BadField`."""
    if len(records) < _COLUMNS_RECORDS_MIN:
        times = _times(records, now_ms)
        return record_codec.encode(list(map(_record, records, times)), producer=producer)
    columns = _Columns(now_ms)
    for start in range(0, len(records), AT_ONCE_COUNT):
        columns.add(records[start : start + AT_ONCE_COUNT])
    return columns.encoded(producer)


def encode_parts(parts: Sequence[memoryview], producer: Producer, now_ms: int) -> Buffer:
    """Encode the records of encoded `Records` messages, as `encode`. Meant for a thread. Raises `BadField`, `Failure`."""
    columns = _Columns(now_ms)
    try:
        for piece in _pieces(parts):
            columns.add(pb.Records.FromString(piece).records)
    except DecodeError as error:
        raise malformed() from error
    if not columns.count:
        raise BadField("payload", "expected at least one record, a record batch, or an Arrow record batch")
    return columns.encoded(producer)


def _pieces(parts: Sequence[memoryview]) -> Iterator[bytes]:
    """Cut messages between records, into messages of about 64 KiB. Raises `BadField` for more records or headers than allowed."""
    record_count = header_count = 0
    piece: list[memoryview] = []
    size = 0
    for part in parts:
        for field in framing.fields(part):
            if field.tag != _RECORD:
                continue
            record_count += 1
            if record_count > kernel.RECORDS_MAX:
                raise BadField("payload.records", f"expected at most {kernel.RECORDS_MAX} records")
            if len(field.body) >= _PIECE_BYTES:  # a smaller one has few headers
                header_count += _header_count(field.body, HEADERS_MAX - header_count)
            piece.append(field.whole)
            size += len(field.whole)
            if size >= _PIECE_BYTES or len(piece) >= AT_ONCE_COUNT:
                yield b"".join(piece)
                piece, size = [], 0
    if piece:
        yield b"".join(piece)


def _header_count(record: memoryview, most: int) -> int:
    """Count a record's fields, of which each may be a header. Raises `BadField`."""
    count = 0
    for _ in framing.fields(record):
        count += 1
        if count > most:
            raise BadField("payload.records.headers", f"expected at most {HEADERS_MAX} headers")
    return count


def _times(records: Sequence[pb.Record], now_ms: int) -> list[int]:
    times = [record.timestamp_ms if record.HasField("timestamp_ms") else now_ms for record in records]
    if not NO_TIMESTAMP <= min(times) <= max(times) < _TIMESTAMP_END:
        raise BadField("payload.records.timestamp_ms", f"expected ms since 1970, less than {_TIMESTAMP_END}")
    return times


def _record(record: pb.Record, timestamp_ms: int) -> Record:
    headers = tuple(
        (header.key.decode("utf-8", "surrogateescape"), header.value if header.HasField("value") else None)
        for header in record.headers
    )
    return Record(
        key=record.key if record.HasField("key") else None,
        value=record.value if record.HasField("value") else None,
        headers=headers,
        timestamp=timestamp_ms,
    )


class _Columns:
    """Collects records as the kernel's columns."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self.count = 0
        self._times = array("q")
        self._keys, self._values = _Texts(), _Texts()
        self._header_ends = array("i", [0])
        self._header_keys, self._header_values = _Texts(), _Texts()

    def add(self, records: Sequence[pb.Record]) -> None:
        """Add a few records. Raises `BadField`."""
        if not records:
            return
        self.count += len(records)
        self._times.extend([time * _MICROSECONDS for time in _times(records, self._now_ms)])
        self._keys.add([record.key if record.HasField("key") else None for record in records])
        self._values.add([record.value if record.HasField("value") else None for record in records])
        headers = [header for record in records for header in record.headers]
        _extend(self._header_ends, (len(record.headers) for record in records))
        if headers:
            self._header_keys.add([header.key for header in headers])
            self._header_values.add([header.value if header.HasField("value") else None for header in headers])

    def encoded(self, producer: Producer) -> Buffer:
        """Encode the records. Raises `BadField`."""
        count = self.count
        columns = kernel.Columns(
            row_count=count,
            partition_id=bytes(4 * count),
            offset=array("q", range(count)),
            timestamp=self._times,
            key_offsets=self._keys.ends,
            key_data=self._keys.content,
            key_validity=self._keys.validity(),
            header_list_offsets=self._header_ends,
            header_key_offsets=self._header_keys.ends,
            header_key_data=self._header_keys.content,
            header_value_offsets=self._header_values.ends,
            header_value_data=self._header_values.content,
            header_value_validity=self._header_values.validity(),
            value_offsets=self._values.ends,
            value_data=self._values.content,
            value_validity=self._values.validity(),
            base_offset=bytes(8 * count),
            attributes=bytes(4 * count),
            producer_id=array("q", [producer.id]) * count,
            producer_epoch=array("i", [producer.epoch]) * count,
            base_sequence=array("i", [producer.base_sequence]) * count,
        )
        try:
            encoded, _ = kernel.encode_columns(columns, 0, count)
        except Corrupt as error:
            raise BadField("payload.records", f"do not fit into one record batch: {error}") from error
        return encoded


class _Texts:
    """A column of bytes or None, as Arrow's buffers."""

    def __init__(self) -> None:
        self.ends = array("i", [0])
        self.content = bytearray()
        self._present = bytearray()
        """One byte per field."""

    def add(self, fields: Sequence[bytes | None]) -> None:
        """Add fields."""
        present = [field or b"" for field in fields] if None in fields else fields
        self._present += (
            bytes([field is not None for field in fields]) if present is not fields else b"\1" * len(fields)
        )
        self.content += b"".join(present)  # type: ignore[arg-type] # no field is None
        _extend(self.ends, map(len, present))  # type: ignore[arg-type] # the same

    def validity(self) -> bytes | None:
        """Return the bitmap of the fields that are not None; None if all are not."""
        present = self._present
        if 0 not in present:
            return None
        return bytes(
            sum(bit << at for at, bit in enumerate(present[start : start + 8])) for start in range(0, len(present), 8)
        )


def _extend(ends: "array[int]", lengths: Iterable[int]) -> None:
    """Add the ends of more fields."""
    ends.extend(accumulate(lengths, initial=ends.pop()))
