"""Record batches to Pulsar entries: batches that `encode_entry` made, and batches that clients of other protocols wrote.

A batch of another protocol becomes a Pulsar batch, even with one record. The producer name is empty, the offsets are the sequence ids,
the max timestamp is the publish time, and each record's timestamp is its event time. A key becomes the partition key, encoded as base64
(and flagged so) unless it is UTF-8. Headers become properties: a null value becomes an empty value; a value that is not UTF-8 is encoded
as base64 and followed by an empty property `__pulsar.base64.<name>`; a name that is not UTF-8 becomes `__pulsar.name.` and its base64.
All properties with the same name are sent (clients keep one of them).

In both kinds of batch, a null value is flagged as null. An offset without a record becomes a message that is flagged as compacted out.
Therefore a message's index in the batch is always its offset minus the base offset. A batch with log append time gives no event times.
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
from bearlake.kernel.pulsar.source import Entry, Headers, Row, Source, entry_of, present_in

MAGIC = b"\x0e\x01"
_COMPACTED_OUT = b"\0\0\0\4\x18\0\x20\1"
"""A batch message: metadata size 4, payload_size = 0, compacted_out = true."""

_SIZE = Struct(">I")


def decode_entry(
    batch: Buffer, records: Buffer | None, base_offset: int, payload_bytes_max: int, /
) -> tuple[bytes, int, bool]:
    """Return (entry, message count, whether the entry is a Pulsar batch) of a record batch.

    `records` is the uncompressed records section; None if the section in `batch` is uncompressed. The entry is the bytes that follow a
    MESSAGE command. A control batch or a batch without records gives an empty entry and no messages. Otherwise the layout is as follows;
    the payload is uncompressed unless the entry is opaque:

        0x0e01 | uint32 CRC32C of what follows | uint32 size | MessageMetadata of this size | payload

    Raises:
        ValueError: `batch` is shorter than a header.
        Corrupt: a record is malformed, or its offset does not fit; names the first such record.
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
    """The payload of an entry, at most `bytes_max` bytes long."""

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
        """Append messages flagged as compacted out until there are `delta` messages."""
        self._reserve((delta - self.count) * len(_COMPACTED_OUT))
        self.bytes += _COMPACTED_OUT * (delta - self.count)
        self.count = delta

    def _reserve(self, size: int) -> None:
        if len(self.bytes) + size > self.bytes_max:
            raise TooLarge("payload of a Pulsar entry", self.bytes_max + 1, self.bytes_max)


def _stored(source: Source, entry: Entry, payload: _Payload) -> bytearray | None:
    """Return the metadata of an entry that a Pulsar client wrote; None if a Pulsar client did not write it."""
    metadata = bytearray()
    if not entry.is_batch:
        (row,) = source.rows()
        payload.append(b"" if row.value is None else row.value)
        metadata += _whole(entry)
        _write_message(metadata, MESSAGE, row, row.headers[:-1], entry.fields, entry)
    else:
        for row in source.rows():
            present, headers = present_in(row.headers if row.delta else row.headers[:-1])
            if present is None:
                return None
            single = bytearray().join(field.whole for field in present)
            _write_message(single, SINGLE, row, headers, present, entry)
            _append(payload, row, single)
        payload.skip_to(source.last_delta + 1)
        metadata += _whole(entry)
    if not entry.flags & IS_OPAQUE and number(entry.fields, UNCOMPRESSED_SIZE) is not None:
        write_varint_field(metadata, UNCOMPRESSED_SIZE, len(payload.bytes))
    return metadata


def _whole(entry: Entry) -> bytes:
    """Return the fields as received, without the compression fields unless the entry is opaque: the stored payload is uncompressed."""
    if entry.flags & IS_OPAQUE:
        return b"".join(field.whole for field in entry.fields)
    transport = (COMPRESSION, UNCOMPRESSED_SIZE)
    return b"".join(field.whole for field in entry.fields if field.value is None or field.number not in transport)


def _append(payload: _Payload, row: Row, single: bytearray) -> None:
    """Append a message of a batch: its metadata and its value."""
    payload.skip_to(row.delta)
    payload.append(_SIZE.pack(len(single)), single, b"" if row.value is None else row.value)


def _write_message(
    out: bytearray, roles: Roles, row: Row, headers: Headers, present: list[Field], entry: Entry
) -> None:
    """Append the fields that follow from the record and are not in `present`, in ascending field order as clients do."""
    present_bytes = {field.number for field in present if field.content is not None}
    if roles.properties not in present_bytes:
        for name, content in headers:
            write_property(out, roles.properties, bytes(name), bytes(content or b""))
    is_event = row.timestamp is not None and row.timestamp > 0 and row.timestamp != entry.timestamp
    write_known(
        out,
        roles,
        row,
        key=None if roles.key in present_bytes else row.key,
        is_base64=bool(entry.flags & KEYS_ARE_BASE64),
        event_time=(row.timestamp or 0) if is_event and number(present, roles.event_time) is None else 0,
        sequence=(entry.sequence_id + row.delta) if entry.flags & SEQUENCES_FOLLOW else None,
    )


def _foreign(source: Source, base_offset: int, payload: _Payload) -> bytearray:
    """Return the metadata of a batch that a client of another protocol wrote."""
    for row in source.rows():
        single = bytearray()
        write_foreign_message(single, row, base_offset)
        _append(payload, row, single)
    payload.skip_to(source.last_delta + 1)
    return foreign_metadata(source, base_offset, len(payload.bytes))
