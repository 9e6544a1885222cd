"""Record batches to Pulsar entries: what `encode_entry` stored, and what clients of other protocols wrote.

Their batch becomes a Pulsar batch, whatever its count: no producer name, the offsets as sequence ids, the max timestamp as publish
time, each timestamp as event time. A key is a partition key, as base64 (and so flagged) unless it is UTF-8. Headers are properties:
a null value is an empty one; a value that is not UTF-8 comes as base64, with an empty property `__pulsar.base64.<name>` behind it; a
name that is not UTF-8 comes as `__pulsar.name.` and its base64. Properties of one name all stay (clients keep one of them).

In both kinds, a null value is so flagged, and an offset without a record is a message that says it was compacted out, so that a message's
place in the batch is its offset less the base offset. A batch with log append time says nothing of event times.
"""

from base64 import b64encode
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from bearlake.errors import Corrupt, TooLarge
from bearlake.kernel.fallback.checksum import Buffer, crc32c, view_of
from bearlake.kernel.fallback.pulsar import (
    ALL_FLAGS,
    COMPRESSION,
    ENTRY_HEADER,
    IS_OPAQUE,
    KEYS_ARE_BASE64,
    MESSAGE_COUNT,
    MESSAGE_COUNT_MAX,
    MESSAGE_HEADER,
    PRODUCER_NAME,
    PUBLISH_TIME,
    SEQUENCE_ID,
    SEQUENCES_FOLLOW,
    VERSION,
    timestamp_of,
)
from bearlake.kernel.fallback.pulsar_fields import (
    MESSAGE,
    SINGLE,
    Field,
    MalformedField,
    Roles,
    fields,
    number,
    write_bytes_field,
    write_property,
    write_varint_field,
)
from bearlake.kernel.fallback.records import Malformed, read_record
from bearlake.kernel.header import HEADER_BYTES

MAGIC = b"\x0e\x01"
_UNCOMPRESSED_SIZE = 9
_COMPACTED_OUT = b"\0\0\0\4\x18\0\x20\1"
"""A message of a batch: its size 4, payload_size = 0, compacted_out = true."""
_ORDERING_KEY, _SINGLE_ORDERING_KEY, _DELIVER_AT = 18, 7, 19
_UUID, _CHUNK_COUNT, _CHUNK_ID = 26, 27, 29

_FIELDS = Struct(">hiqqqhii")
_FIELDS_AT = 21
_SIZE = Struct(">I")
_SIZES = Struct(">II")
_LOG_APPEND_TIME, _CONTROL = 0x08, 0x20
_UINT64 = 2**64

_Headers = list[tuple[memoryview, memoryview | None]]


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
    source = _Source(batch, records)
    if source.is_empty:
        return b"", 0, False
    payload = _Payload(payload_bytes_max)
    entry = _entry_of(source)
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


def entry_routing(batch: Buffer, records: Buffer | None, /) -> tuple[bytes, int, bytes, int, int]:
    """(ordering key, deliver-at time in ms, uuid, chunk id, count of chunks) of the entry that `decode_entry` makes of a batch.

    The ordering key is that of the entry, else of its first message, else that one's partition key, as bytes. What there is not, or is
    negative, is empty or 0.

    Raises:
        ValueError: `batch` is shorter than a header.
        Corrupt: the first record is malformed, or its offset does not fit.
    """
    source = _Source(batch, records)
    if source.is_empty:
        return b"", 0, b"", 0, 0
    first = next(source.rows())
    key = b"" if first.key is None else bytes(first.key)
    entry = _entry_of(source)
    if entry is None:
        return key, 0, b"", 0, 0
    said, _ = _said_by(first.headers[:-1]) if entry.is_batch else ([], [])
    for found, name in ((said or [], _SINGLE_ORDERING_KEY), (entry.fields, _ORDERING_KEY)):
        key = _content(found, name, key)
    deliver_at, chunk_id, chunk_count = (
        _natural(entry.fields, name) for name in (_DELIVER_AT, _CHUNK_ID, _CHUNK_COUNT)
    )
    return key, deliver_at, _content(entry.fields, _UUID, b""), chunk_id, chunk_count


def _content(found: list[Field], name: int, otherwise: bytes) -> bytes:
    contents = [field.content for field in found if field.number == name and field.content is not None]
    return bytes(contents[-1]) if contents else otherwise


def _natural(found: list[Field], name: int) -> int:
    value = number(found, name) or 0
    return value if value < 2**63 else 0


class _Row(NamedTuple):
    """A record; the timestamp is None if the server set it."""

    delta: int
    timestamp: int | None
    key: memoryview | None
    value: memoryview | None
    headers: _Headers


class _Source:
    """A record batch."""

    def __init__(self, batch: Buffer, records: Buffer | None) -> None:
        view = view_of(batch)
        if len(view) < HEADER_BYTES:
            raise ValueError(f"{len(view)} bytes are less than the header of a record batch")
        numbers = _FIELDS.unpack_from(view, _FIELDS_AT)
        self.attributes, self.last_delta, self.base_timestamp, self.max_timestamp = numbers[:4]
        self.record_count = numbers[-1]
        self.records = view[HEADER_BYTES:] if records is None else view_of(records)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to deliver."""
        return bool(self.attributes & _CONTROL) or self.record_count == 0

    def rows(self) -> Iterator[_Row]:
        """The records, each at a later offset than the one before, and nothing behind the last one; at least one."""
        is_stamped = self.attributes & _LOG_APPEND_TIME
        position, last = 0, -1
        for index in range(max(self.record_count, 1)):
            try:
                position, delta_ms, delta, key, value, headers = read_record(self.records, position)
            except Malformed:
                raise _malformed(index) from None
            timestamp = self.base_timestamp + delta_ms
            if not last < delta <= self.last_delta or not -(2**63) <= timestamp < 2**63 or self.record_count < 0:
                raise _malformed(index)
            last = delta
            yield _Row(delta, None if is_stamped else timestamp, key, value, headers)
        if position != len(self.records):
            raise _malformed(self.record_count)


def _malformed(index: int) -> Corrupt:
    return Corrupt(f"record {index} of a batch is malformed")


class _Entry(NamedTuple):
    """What the entry header says."""

    flags: int
    fields: list[Field]
    sequence_id: int
    timestamp: int
    message_count: int | None

    @property
    def is_batch(self) -> bool:
        return self.message_count is not None and not self.flags & IS_OPAQUE


def _entry_of(source: _Source) -> _Entry | None:
    """The entry header of the first record; None: there is none that is right."""
    first = next(source.rows())
    if not first.headers or first.delta != 0:
        return None
    name, content = first.headers[-1]
    if name != ENTRY_HEADER or content is None or len(content) < 2 or content[0] != VERSION or content[1] > ALL_FLAGS:
        return None
    try:
        found = list(fields(content[2:]))
    except MalformedField:
        return None
    named = any(field.number == PRODUCER_NAME and field.content is not None for field in found)
    sequence_id, publish_time = number(found, SEQUENCE_ID), number(found, PUBLISH_TIME)
    if not named or sequence_id is None or publish_time is None:
        return None
    entry = _Entry(content[1], found, sequence_id, timestamp_of(publish_time), number(found, MESSAGE_COUNT))
    if entry.message_count is not None and not 0 < entry.message_count <= MESSAGE_COUNT_MAX:
        return None
    count = entry.message_count if entry.is_batch else 1
    return entry if count == source.last_delta + 1 else None


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


def _stored(source: _Source, entry: _Entry, payload: _Payload) -> bytearray | None:
    """The metadata of an entry that a Pulsar client wrote; None: it was not."""
    metadata = bytearray()
    if not entry.is_batch:
        (row,) = source.rows()
        payload.append(b"" if row.value is None else row.value)
        metadata += _whole(entry)
        _write_message(metadata, MESSAGE, row, row.headers[:-1], entry.fields, entry)
    else:
        for row in source.rows():
            said, headers = _said_by(row.headers if row.delta else row.headers[:-1])
            if said is None:
                return None
            single = bytearray().join(field.whole for field in said)
            _write_message(single, SINGLE, row, headers, said, entry)
            _append(payload, row, single)
        payload.skip_to(source.last_delta + 1)
        metadata += _whole(entry)
    if not entry.flags & IS_OPAQUE and number(entry.fields, _UNCOMPRESSED_SIZE) is not None:
        write_varint_field(metadata, _UNCOMPRESSED_SIZE, len(payload.bytes))
    return metadata


def _whole(entry: _Entry) -> bytes:
    """The fields as they came, but for those that say how the payload was compressed, which it is not any more."""
    if entry.flags & IS_OPAQUE:
        return b"".join(field.whole for field in entry.fields)
    transport = (COMPRESSION, _UNCOMPRESSED_SIZE)
    return b"".join(field.whole for field in entry.fields if field.value is None or field.number not in transport)


def _said_by(headers: _Headers) -> tuple[list[Field] | None, _Headers]:
    """The fields of the message header (None: they are malformed), and the properties before it."""
    if not headers or headers[-1][0] != MESSAGE_HEADER:
        return [], headers
    try:
        return list(fields(headers[-1][1] or memoryview(b""))), headers[:-1]
    except MalformedField:
        return None, headers


def _append(payload: _Payload, row: _Row, single: bytearray) -> None:
    """Append a message of a batch: its metadata, and its value."""
    payload.skip_to(row.delta)
    payload.append(_SIZE.pack(len(single)), single, b"" if row.value is None else row.value)


def _write_message(
    out: bytearray, roles: Roles, row: _Row, headers: _Headers, said: list[Field], entry: _Entry
) -> None:
    """Append what the record says and `said` does not, by ascending numbers as clients do."""
    said_bytes = {field.number for field in said if field.content is not None}
    if roles.properties not in said_bytes:
        for name, content in headers:
            write_property(out, roles.properties, bytes(name), bytes(content or b""))
    is_event = row.timestamp is not None and row.timestamp > 0 and row.timestamp != entry.timestamp
    _write_known(
        out,
        roles,
        row,
        key=None if roles.key in said_bytes else row.key,
        is_base64=bool(entry.flags & KEYS_ARE_BASE64),
        event_time=(row.timestamp or 0) if is_event and number(said, roles.event_time) is None else 0,
        sequence=(entry.sequence_id + row.delta) if entry.flags & SEQUENCES_FOLLOW else None,
    )


def _write_known(
    out: bytearray,
    roles: Roles,
    row: _Row,
    *,
    key: memoryview | None,
    is_base64: bool,
    event_time: int,
    sequence: int | None,
) -> None:
    if key is not None:
        write_bytes_field(out, roles.key, b64encode(key) if is_base64 else key)
    if roles.size:
        write_varint_field(out, roles.size, 0 if row.value is None else len(row.value))
    if event_time:
        write_varint_field(out, roles.event_time, event_time)
    if key is not None and is_base64:
        write_varint_field(out, roles.base64, 1)
    if sequence is not None and roles.sequence:
        write_varint_field(out, roles.sequence, sequence % _UINT64)
    if row.value is None:
        write_varint_field(out, roles.null_value, 1)


def _foreign(source: _Source, base_offset: int, payload: _Payload) -> bytearray:
    """The metadata of a batch that no Pulsar client wrote."""
    for row in source.rows():
        single = bytearray()
        for name, content in row.headers:
            _write_header(single, bytes(name), bytes(content or b""))
        _write_known(
            single,
            SINGLE,
            row,
            key=row.key,
            is_base64=row.key is not None and not _is_text(bytes(row.key)),
            event_time=max(row.timestamp or 0, 0),
            sequence=base_offset + row.delta,
        )
        _append(payload, row, single)
    payload.skip_to(source.last_delta + 1)
    metadata = bytearray()
    write_bytes_field(metadata, PRODUCER_NAME, b"")
    write_varint_field(metadata, SEQUENCE_ID, base_offset % _UINT64)
    write_varint_field(metadata, PUBLISH_TIME, max(source.max_timestamp, 0))
    write_varint_field(metadata, _UNCOMPRESSED_SIZE, len(payload.bytes))
    write_varint_field(metadata, MESSAGE_COUNT, source.last_delta + 1)
    return metadata


def _write_header(out: bytearray, name: bytes, content: bytes) -> None:
    """Append a header that any client may have written as a property, whose key and value are UTF-8."""
    shown = name if _is_text(name) else b"__pulsar.name." + b64encode(name)
    if _is_text(content):
        write_property(out, SINGLE.properties, shown, content)
    else:
        write_property(out, SINGLE.properties, shown, b64encode(content))
        write_property(out, SINGLE.properties, b"__pulsar.base64." + shown, b"")


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
