"""Pulsar entries to record batches: how a Pulsar message is stored so that Kafka and SQL can read it and nothing is lost.

A message becomes a record: its partition key (decoded if it is base64) is the key, its payload the value (null if flagged as null), and
its properties are the headers, in order. The timestamp is the event time if that is earlier than the publish time, else the publish
time: an event time may be any number, but retention and limits use timestamps. A batch of messages becomes one record batch, and so
does a single message. Reserved headers after the properties hold what a record cannot express:

    __pulsar.entry     last header of the batch's first record:
                       uint8 version = 1 | uint8 flags | fields of MessageMetadata
    __pulsar.message   last header but the entry header, on any record of a batch that needs it: fields of SingleMessageMetadata

    flag 1  the entry is opaque: its payload (encrypted, or a chunk of a compressed message) is the value of one record
    flag 2  every message of the batch has a sequence id: that of the first plus its index in the batch
    flag 4  every partition key was base64

The headers hold two kinds of fields, as received: those that the rest of the batch does not express (unknown fields included), and those
whose value differs from the value that follows from the record. A field in a header overrides the record. An entry header always
names the producer, the sequence id and the publish time. Fields that only state their default (flags that are false, an event time of
0) are dropped.

A batch without a valid entry header, or with a record count that contradicts the header, was not written by a Pulsar client:
`decode_entry`.

Sources: Pulsar's "Binary protocol specification" (MessageMetadata, SingleMessageMetadata, batch payloads); "Message format" of Kafka.
"""

from struct import Struct

from bearlake.errors import Corrupt, Unsupported
from bearlake.kernel.batch.checksum import crc32c
from bearlake.kernel.buffers import Buffer, view_of
from bearlake.kernel.pulsar.fields import (
    COMPRESSION,
    COMPRESSION_MAX,
    ENTRY_HEADER,
    IS_OPAQUE,
    KEYS_ARE_BASE64,
    MESSAGE,
    MESSAGE_COUNT,
    MESSAGE_COUNT_MAX,
    MESSAGE_HEADER,
    PRODUCER_NAME,
    PUBLISH_TIME,
    SEQUENCE_ID,
    SEQUENCES_FOLLOW,
    SINGLE,
    VERSION,
    MalformedField,
    Message,
    Property,
    Roles,
    fields,
    number,
    read_message,
    timestamp_of,
    write_bytes_field,
    write_varint,
    write_varint_field,
)

ENTRY_BYTES_MAX = 256 * 1024 * 1024
"""Limit of metadata and payload together, so that the batch is smaller than 2 GiB whatever they contain."""
_MESSAGE_BYTES_MIN = 6
"""The metadata size (4 bytes) and the field payload_size = 0 (2 bytes)."""

_SIZE = Struct(">I")
_PREFIX = Struct(">qiibI")
_FIELDS = Struct(">hiqqqhii")
_LENGTH_END = 12
_UINT64 = 2**64

_Carried = tuple[Message, memoryview]
"""A message's metadata and its payload"""


def encode_entry(metadata: Buffer, payload: Buffer, is_opaque: bool, /) -> tuple[bytes, int, int]:
    """Return (record batch, record count, max timestamp) of an entry.

    `metadata` is a MessageMetadata; `payload` is uncompressed unless opaque. The batch is uncompressed, has no producer, and its base
    offset is 0.

    Raises:
        ValueError: metadata and payload have more than `ENTRY_BYTES_MAX` bytes.
        Corrupt: metadata or payload is malformed; in a batch, names the first malformed message.
        Unsupported: the metadata names an unknown compression codec.
    """
    metadata, payload = view_of(metadata), view_of(payload)
    if len(metadata) + len(payload) > ENTRY_BYTES_MAX:
        raise ValueError(f"an entry of {len(metadata) + len(payload)} bytes")
    entry = _Entry(metadata)
    if entry.compression > COMPRESSION_MAX and not is_opaque:
        raise Unsupported(f"compression {entry.compression} of a Pulsar entry")
    if entry.message_count is None or is_opaque:
        messages = [(read_message(entry.fields, MESSAGE), payload)]
        flags = _flags(messages, entry.sequence_id) | (IS_OPAQUE if is_opaque else 0)
        present, timestamp = _present_fields(entry, messages[0], flags, MESSAGE)
        return _batch(messages, [[_entry_header(flags, present)]], [timestamp], flags)
    messages = _messages(payload, entry.message_count)
    flags = _flags(messages, entry.sequence_id)
    headers: list[list[Property]] = []
    timestamps = []
    for message in messages:
        present, timestamp = _present_fields(entry, message, flags, SINGLE)
        headers.append([(MESSAGE_HEADER, present)] if present else [])
        timestamps.append(timestamp)
    headers[0].append(_entry_header(flags, b"".join(field.whole for field in entry.fields)))
    return _batch(messages, headers, timestamps, flags)


class _Entry:
    """The fields of an entry's metadata."""

    def __init__(self, metadata: memoryview) -> None:
        try:
            self.fields = list(fields(metadata))
        except MalformedField:
            raise Corrupt("the metadata of a Pulsar entry is malformed") from None
        name = [field for field in self.fields if field.number == PRODUCER_NAME and field.content is not None]
        sequence_id, publish_time = number(self.fields, SEQUENCE_ID), number(self.fields, PUBLISH_TIME)
        if not name or sequence_id is None or publish_time is None:
            raise Corrupt(
                "the metadata of a Pulsar entry lacks the producer's name, the sequence id or the publish time"
            )
        self.sequence_id = sequence_id
        self.publish_time = publish_time
        self.timestamp = timestamp_of(publish_time)
        self.compression = number(self.fields, COMPRESSION) or 0
        self.message_count = number(self.fields, MESSAGE_COUNT)
        if self.message_count is not None and not 0 < self.message_count <= MESSAGE_COUNT_MAX:
            raise Corrupt("the metadata of a Pulsar entry has an impossible count of messages")


def _messages(payload: memoryview, count: int) -> list[_Carried]:
    if count > len(payload) // _MESSAGE_BYTES_MIN:
        raise Corrupt(f"{count} messages in a Pulsar batch of {len(payload)} bytes")
    messages: list[_Carried] = []
    position = 0
    for index in range(count):
        try:
            message, start = _message_at(payload, position)
        except MalformedField:
            raise _malformed(index) from None
        assert message.size is not None
        position = start + message.size
        messages.append((message, payload[start:position]))
    if position != len(payload):
        raise _malformed(count)
    return messages


def _message_at(payload: memoryview, position: int) -> tuple[Message, int]:
    """Return the message whose metadata size is at `position`, and the start of its payload, which is complete."""
    start = position + _SIZE.size
    if start > len(payload):
        raise MalformedField
    end = start + _SIZE.unpack_from(payload, position)[0]
    if end > len(payload):
        raise MalformedField
    message = read_message(fields(payload[start:end]), SINGLE)
    if message.size is None or message.size > len(payload) - end:
        raise MalformedField
    return message, end


def _malformed(index: int) -> Corrupt:
    return Corrupt(f"message {index} of a Pulsar batch is malformed")


def _flags(messages: list[_Carried], sequence_id: int) -> int:
    """Return the flags that hold for all messages; a message without a key does not affect `KEYS_ARE_BASE64`."""
    flags = 0
    if all(message.sequence == (sequence_id + at) % _UINT64 for at, (message, _) in enumerate(messages)):
        flags |= SEQUENCES_FOLLOW
    first = messages[0][0]
    if first.key_decoded is not None and all(
        message.key is None or message.key_decoded is not None for message, _ in messages
    ):
        flags |= KEYS_ARE_BASE64
    return flags


def _entry_header(flags: int, present: bytes) -> Property:
    return ENTRY_HEADER, bytes((VERSION, flags)) + present


def _present_fields(entry: _Entry, carried: _Carried, flags: int, roles: Roles) -> tuple[bytes, int]:
    """Return the fields that do not follow from the record, and the record's timestamp."""
    message, payload = carried
    out = bytearray(message.residual)
    if message.properties is None:
        out += message.property_fields
    if message.is_base64 and (message.key_decoded is None or not flags & KEYS_ARE_BASE64):
        if message.key is not None:
            write_bytes_field(out, roles.key, message.key)
        write_varint_field(out, roles.base64, 1)
    timestamp = entry.timestamp
    if 0 < message.event_time < timestamp:
        timestamp = message.event_time
    elif message.event_time:
        write_varint_field(out, roles.event_time, message.event_time)
    if message.sequence is not None and not flags & SEQUENCES_FOLLOW:
        write_varint_field(out, roles.sequence, message.sequence)
    if message.is_null and (payload or flags & IS_OPAQUE):
        write_varint_field(out, roles.null_value, 1)
    return bytes(out), timestamp


def _batch(
    messages: list[_Carried], reserved: list[list[Property]], timestamps: list[int], flags: int
) -> tuple[bytes, int, int]:
    records = bytearray()
    for index, (message, payload) in enumerate(messages):
        is_null = message.is_null and not payload and not flags & IS_OPAQUE
        key = message.key if message.key_decoded is None else message.key_decoded
        headers = (message.properties or []) + reserved[index]
        _write_record(records, timestamps[index] - timestamps[0], index, key, None if is_null else payload, headers)
    count, most = len(messages), max(timestamps)
    covered = _FIELDS.pack(0, count - 1, timestamps[0], most, -1, -1, -1, count) + records
    length = _PREFIX.size + len(covered) - _LENGTH_END
    return _PREFIX.pack(0, length, -1, 2, crc32c(covered)) + covered, count, most


def _write_record(
    out: bytearray, time_delta: int, delta: int, key: Buffer | None, value: Buffer | None, headers: list[Property]
) -> None:
    inner = bytearray(1)  # the attributes, unused
    _write_zigzag(inner, time_delta)
    _write_zigzag(inner, delta)
    _write_text(inner, key)
    _write_text(inner, value)
    _write_zigzag(inner, len(headers))
    for name, content in headers:
        _write_text(inner, name)
        _write_text(inner, content)
    _write_zigzag(out, len(inner))
    out += inner


def _write_text(out: bytearray, text: Buffer | None) -> None:
    _write_zigzag(out, -1 if text is None else len(text))
    out += b"" if text is None else text


def _write_zigzag(out: bytearray, value: int) -> None:
    write_varint(out, value << 1 ^ value >> 63)
