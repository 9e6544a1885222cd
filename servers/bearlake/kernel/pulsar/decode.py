"""Record batches to Pulsar entries: what `encode_entry` stored, and what clients of other protocols wrote.

Their batch becomes a Pulsar batch, whatever its count: no producer name, the offsets as sequence ids, the max timestamp as publish
time, each timestamp as event time. A key is a partition key, as base64 (and so flagged) unless it is UTF-8. Headers are properties:
a null value is an empty one; a value that is not UTF-8 comes as base64, with an empty property `__pulsar.base64.<name>` behind it; a
name that is not UTF-8 comes as `__pulsar.name.` and its base64. Properties of one name all stay (clients keep one of them).

In both kinds, a null value is so flagged, and an offset without a record is a message that says it was compacted out, so that a message's
place in the batch is its offset less the base offset. A batch with log append time says nothing of event times.
"""

from struct import Struct

from bearlake.errors import TooLarge
from bearlake.kernel.batch.checksum import crc32c
from bearlake.kernel.buffers import Buffer
from bearlake.kernel.pulsar.fields import (
    COMPRESSION,
    IS_OPAQUE,
    KEYS_ARE_BASE64,
    MESSAGE,
    SEQUENCES_FOLLOW,
    SINGLE,
    UNCOMPRESSED_SIZE,
    Field,
    Roles,
    number,
    write_property,
    write_varint_field,
)
from bearlake.kernel.pulsar.foreign import foreign_metadata, write_foreign_message
from bearlake.kernel.pulsar.known import write_known
from bearlake.kernel.pulsar.source import Entry, Headers, Row, Source, entry_of, said_by

MAGIC = b"\x0e\x01"
_COMPACTED_OUT = b"\0\0\0\4\x18\0\x20\1"
"""A message of a batch: its size 4, payload_size = 0, compacted_out = true."""

_SIZE = Struct(">I")


def decode_entry(
    batch: Buffer, records: Buffer | None, base_offset: int, payload_bytes_max: int, /
) -> tuple[bytes, int, bool]:
    """(what stands behind a MESSAGE command, count of messages, whether they are a Pulsar batch) of a record batch.

    `records` is its records section, uncompressed; None: it is in `batch`. The first is laid out so, its payload uncompressed unless the
    entry is opaque; of a control batch, and of one without records, it is empty, and there are no messages:

        0x0e01 | uint32 CRC32C of what follows | uint32 size | MessageMetadata of this size | payload

    Raises:
        ValueError: `batch` is shorter than a header.
        Corrupt: a record is malformed, or its offset does not fit: names the first such one.
        TooLarge: the payload has more than `payload_bytes_max` bytes.
    """
    source = Source(batch, records)
    if source.is_empty:
        return b"", 0, False
    payload = _Payload(payload_bytes_max)
    entry = entry_of(source)
    metadata = None if entry is None else _stored(source, entry, payload)
    if metadata is None:
        entry = None
        payload = _Payload(payload_bytes_max)
        metadata = _foreign(source, base_offset, payload)
    covered = b"".join((_SIZE.pack(len(metadata)), metadata, payload.bytes))
    frame = MAGIC + _SIZE.pack(crc32c(covered)) + covered
    if entry is None or entry.is_batch:
        return frame, source.last_delta + 1, True
    return frame, entry.message_count or 1, False


class _Payload:
    """The payload of an entry, of at most so many bytes."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = bytearray()
        self.bytes_max = bytes_max
        self.count = 0

    def append(self, *parts: Buffer) -> None:
        """Append the parts of one message."""
        self._reserve(sum(map(len, parts)))
        for part in parts:
            self.bytes += part
        self.count += 1

    def skip_to(self, delta: int) -> None:
        """Append messages that were compacted out, until there are `delta`."""
        self._reserve((delta - self.count) * len(_COMPACTED_OUT))
        self.bytes += _COMPACTED_OUT * (delta - self.count)
        self.count = delta

    def _reserve(self, size: int) -> None:
        if len(self.bytes) + size > self.bytes_max:
            raise TooLarge("payload of a Pulsar entry", self.bytes_max + 1, self.bytes_max)


def _stored(source: Source, entry: Entry, payload: _Payload) -> bytearray | None:
    """The metadata of an entry that a Pulsar client wrote; None: it was not."""
    metadata = bytearray()
    if not entry.is_batch:
        (row,) = source.rows()
        payload.append(b"" if row.value is None else row.value)
        metadata += _whole(entry)
        _write_message(metadata, MESSAGE, row, row.headers[:-1], entry.fields, entry)
    else:
        for row in source.rows():
            said, headers = said_by(row.headers if row.delta else row.headers[:-1])
            if said is None:
                return None
            single = bytearray().join(field.whole for field in said)
            _write_message(single, SINGLE, row, headers, said, entry)
            _append(payload, row, single)
        payload.skip_to(source.last_delta + 1)
        metadata += _whole(entry)
    if not entry.flags & IS_OPAQUE and number(entry.fields, UNCOMPRESSED_SIZE) is not None:
        write_varint_field(metadata, UNCOMPRESSED_SIZE, len(payload.bytes))
    return metadata


def _whole(entry: Entry) -> bytes:
    """The fields as they came, but for those that say how the payload was compressed, which it is not any more."""
    if entry.flags & IS_OPAQUE:
        return b"".join(field.whole for field in entry.fields)
    transport = (COMPRESSION, UNCOMPRESSED_SIZE)
    return b"".join(field.whole for field in entry.fields if field.value is None or field.number not in transport)


def _append(payload: _Payload, row: Row, single: bytearray) -> None:
    """Append a message of a batch: its metadata, and its value."""
    payload.skip_to(row.delta)
    payload.append(_SIZE.pack(len(single)), single, b"" if row.value is None else row.value)


def _write_message(out: bytearray, roles: Roles, row: Row, headers: Headers, said: list[Field], entry: Entry) -> None:
    """Append what the record says and `said` does not, by ascending numbers as clients do."""
    said_bytes = {field.number for field in said if field.content is not None}
    if roles.properties not in said_bytes:
        for name, content in headers:
            write_property(out, roles.properties, bytes(name), bytes(content or b""))
    is_event = row.timestamp is not None and row.timestamp > 0 and row.timestamp != entry.timestamp
    write_known(
        out,
        roles,
        row,
        key=None if roles.key in said_bytes else row.key,
        is_base64=bool(entry.flags & KEYS_ARE_BASE64),
        event_time=(row.timestamp or 0) if is_event and number(said, roles.event_time) is None else 0,
        sequence=(entry.sequence_id + row.delta) if entry.flags & SEQUENCES_FOLLOW else None,
    )


def _foreign(source: Source, base_offset: int, payload: _Payload) -> bytearray:
    """The metadata of a batch that no Pulsar client wrote."""
    for row in source.rows():
        single = bytearray()
        write_foreign_message(single, row, base_offset)
        _append(payload, row, single)
    payload.skip_to(source.last_delta + 1)
    return foreign_metadata(source, base_offset, len(payload.bytes))
