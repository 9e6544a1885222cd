"""Decodes and encodes the records of a record batch, and searches, checks and stamps them.

A batch here is the bytes of one whole record batch v2 that passed `kernel.inspect` or came from a WAL object; this module does not check
the CRC again. `bytes_max` bounds the uncompressed records section. Layouts: `bearlake.kernel` (header), `kernel/batch/records.py` (record).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct, error

from bearlake import kernel
from bearlake.errors import Corrupt, Invalid, TooLarge
from bearlake.kernel import RecordFields
from bearlake.records import compression
from bearlake.records.batch import (
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    COMPRESSION_MASK,
    HEADER_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER,
    NO_TIMESTAMP,
    BatchHeader,
    Compression,
)
from bearlake.records.compression import Buffer

PART_RECORD_COUNT = 4096
"""Records that `parts` decodes at a time: about 1 MiB of objects, and 1 ms."""

_PREFIX = Struct(">qiibI")
_FIELDS = Struct(">hiqqqhii")
_ATTRIBUTES = Struct(">h")
_INT64 = Struct(">q")
_CRC = Struct(">I")

_LENGTH_END = 12
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35
_INT32_MAX = 2**31 - 1
_BATCH_BYTES_MAX = _INT32_MAX
_TIMESTAMP_END = 2**63 - 1
"""Timestamps stay below this value, so that the difference of two timestamps fits an int64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record. Keys and values distinguish None from empty; `timestamp` is in ms since 1970, -1 if there is none.

    Header keys are UTF-8; other bytes are kept as surrogate escapes (PEP 383), so every key survives a round trip.
    `offset_delta` is the distance to the batch's base offset; None (for `encode` only) means one more than the previous record's.
    """

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = NO_TIMESTAMP
    offset_delta: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """The idempotent producer of a batch: its id, epoch, and the sequence number of the batch's first record."""

    id: int = NO_PRODUCER
    epoch: int = NO_PRODUCER
    base_sequence: int = NO_PRODUCER
    is_transactional: bool = False


NON_IDEMPOTENT = Producer()
"""A producer without idempotence."""


def decode(batch: Buffer, bytes_max: int) -> list[Record]:
    """Decode the records of the batch; with log append time, each record gets the batch's max timestamp.

    Raises:
        Corrupt: the batch or a record is malformed.
        TooLarge: the records have more than `bytes_max` bytes uncompressed.
    """
    return [
        Record(key=key, value=value, headers=headers, timestamp=timestamp, offset_delta=offset_delta)
        for offset_delta, timestamp, key, value, headers in fields(batch, bytes_max)
    ]


def fields(batch: Buffer, bytes_max: int) -> list[RecordFields]:
    """`decode`, but with plain tuples: a quarter of the cost."""
    header, body = _open(batch, bytes_max)
    found = kernel.decode_records(body, header.record_count, header.base_timestamp)
    return _stamped(header, found)


def _stamped(header: BatchHeader, found: list[RecordFields]) -> list[RecordFields]:
    """Give the records the batch's log append time, if it has one."""
    if not header.attributes & ATTRIBUTE_LOG_APPEND_TIME:
        return found
    stamped = header.max_timestamp
    return [(delta, stamped, key, value, headers) for delta, _, key, value, headers in found]


def encode(
    records: Sequence[Record],
    *,
    codec: Compression = Compression.NONE,
    producer: Producer = NON_IDEMPOTENT,
) -> bytes:
    """Encode `records` (at least one) as a record batch v2, with base offset 0 and create timestamps.

    Raises:
        Invalid: there are no records, offset deltas do not ascend, a number does not fit its field, or a header key cannot be
            encoded.
        TooLarge: the batch would have 2 GiB or more.
    """
    if not records:
        raise Invalid("a record batch has at least one record")
    base_timestamp = records[0].timestamp
    delta = -1
    out = bytearray()
    for record in records:
        expected = delta + 1
        delta = expected if record.offset_delta is None else record.offset_delta
        if not expected <= delta <= _INT32_MAX:
            raise Invalid(f"offset delta {delta} after {expected - 1}: expected ascending 32-bit deltas")
        if not NO_TIMESTAMP <= record.timestamp < _TIMESTAMP_END:
            raise Invalid(f"timestamp {record.timestamp}: expected ms since 1970, or -1 for none")
        _write_record(out, record, record.timestamp - base_timestamp, delta)
    body = compression.compress(codec, out)
    size = HEADER_BYTES + len(body)
    if size > _BATCH_BYTES_MAX:
        raise TooLarge("record batch", size, _BATCH_BYTES_MAX)
    max_timestamp = max(record.timestamp for record in records)
    packed = _pack_fields(codec, producer, delta, base_timestamp, max_timestamp, len(records))
    covered = b"".join((packed, body))
    return _PREFIX.pack(0, size - _LENGTH_END, NO_LEADER_EPOCH, 2, kernel.crc32c(covered)) + covered


def _pack_fields(
    codec: Compression, producer: Producer, delta: int, base_timestamp: int, max_timestamp: int, record_count: int
) -> bytes:
    """Pack the header fields after the CRC."""
    attributes = codec | (ATTRIBUTE_TRANSACTIONAL if producer.is_transactional else 0)
    times = base_timestamp, max_timestamp
    try:
        return _FIELDS.pack(
            attributes, delta, *times, producer.id, producer.epoch, producer.base_sequence, record_count
        )
    except error as cause:
        raise Invalid(f"producer {producer}: {cause}") from cause


def stamp(batch: Buffer, now_ms: int) -> bytearray:
    """Return a copy of the batch with log append time `now_ms` for every record, and a new CRC."""
    stamped = bytearray(batch)
    (attributes,) = _ATTRIBUTES.unpack_from(stamped, _ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(stamped, _ATTRIBUTES_AT, attributes | ATTRIBUTE_LOG_APPEND_TIME)
    _INT64.pack_into(stamped, _MAX_TIMESTAMP_AT, now_ms)
    _CRC.pack_into(stamped, _CRC_AT, kernel.crc32c(stamped, _ATTRIBUTES_AT))
    return stamped


def first_bad_record(batch: Buffer, bytes_max: int) -> int:
    """Return the index of the first record that is malformed or out of sequence; -1 if all records are good. Raises as `Opened`."""
    return Opened(batch, bytes_max).first_bad_record()


class Opened:
    """A batch with its uncompressed records section."""

    def __init__(self, batch: Buffer, bytes_max: int, scratch: compression.Scratch | None = None) -> None:
        """Decompress the batch. With `scratch`, use this object before the next use of `scratch`.

        Raises:
            Corrupt: the batch's header or compressed section is damaged.
            TooLarge: the records have more than `bytes_max` bytes uncompressed.
        """
        self._header, self._body = _open(batch, bytes_max, scratch)
        self._section = memoryview(batch)[HEADER_BYTES:]

    @property
    def size_bytes(self) -> int:
        """Size of the uncompressed records section."""
        return len(self._body)

    def refuse_unusual(self) -> None:
        """Raise `Corrupt` if Kafka's Java client does not read the compressed section."""
        compression.refuse_unusual(Compression(self._header.attributes & COMPRESSION_MASK), self._section)

    def first_bad_record(self) -> int:
        """Return the index of the first record that is malformed or out of sequence; -1 if all records are good."""
        return kernel.check_records(self._body, self._header.record_count)

    def parts(self) -> Iterator[list[RecordFields]]:
        """Yield the records as `fields` returns them, at most `PART_RECORD_COUNT` at a time. Raises `Corrupt`."""
        header, position = self._header, 0
        for index in range(0, header.record_count, PART_RECORD_COUNT):
            end = min(index + PART_RECORD_COUNT, header.record_count)
            found, position = kernel.decode_part(self._body, position, index, end, header.base_timestamp)
            yield _stamped(header, found)
        if position != len(self._body):
            raise Corrupt(f"record {header.record_count} of a batch is malformed")


def parts(batch: Buffer, bytes_max: int) -> Iterator[list[RecordFields]]:
    """Yield the records as `fields` returns them, at most `PART_RECORD_COUNT` at a time: a batch may have a million.

    Raises:
        Corrupt: the batch or a record is malformed.
        TooLarge: the records have more than `bytes_max` bytes uncompressed.
    """
    return Opened(batch, bytes_max).parts()


def first_at(batch: Buffer, timestamp: int, bytes_max: int) -> tuple[int, int] | None:
    """Return (offset delta, timestamp) of the first record whose timestamp is at least `timestamp` (ms), or None.

    Raises:
        Corrupt: the batch is malformed, or a record up to and including the result.
        TooLarge: the records have more than `bytes_max` bytes uncompressed.
    """
    header = _header(batch)
    if header.attributes & ATTRIBUTE_LOG_APPEND_TIME:
        return (0, header.max_timestamp) if header.max_timestamp >= timestamp else None
    if header.max_timestamp < timestamp:
        return None
    body = _open(batch, bytes_max)[1]
    return kernel.find_timestamp(body, header.record_count, header.base_timestamp, timestamp)


def _header(batch: Buffer) -> BatchHeader:
    found = kernel.batches(batch, 0, len(batch))
    if len(found) != 1:
        raise Corrupt(f"expected one record batch, found {len(found)}")
    header = found[0][2]
    if header.record_count < 0:
        raise Corrupt(f"record batch with {header.record_count} records")
    return header


def _open(batch: Buffer, bytes_max: int, scratch: compression.Scratch | None = None) -> tuple[BatchHeader, Buffer]:
    header = _header(batch)
    try:
        codec = Compression(header.attributes & COMPRESSION_MASK)
    except ValueError as error:
        raise Corrupt(f"record batch with {error}") from error
    return header, compression.decompress(codec, memoryview(batch)[HEADER_BYTES:], bytes_max, scratch)


def _write_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    inner = bytearray(1)  # the attributes, unused
    _write_zigzag(inner, timestamp_delta)
    _write_zigzag(inner, offset_delta)
    _write_bytes(inner, record.key)
    _write_bytes(inner, record.value)
    _write_zigzag(inner, len(record.headers))
    for key, value in record.headers:
        try:
            _write_bytes(inner, key.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError as cause:
            raise Invalid(f"header key {key!r}: {cause.reason}") from cause
        _write_bytes(inner, value)
    _write_zigzag(out, len(inner))
    out += inner


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)
        return
    _write_zigzag(out, len(value))
    out += value


def _write_zigzag(out: bytearray, value: int) -> None:
    """Append an int64 as a zigzag varint."""
    value = value << 1 ^ value >> 63
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
