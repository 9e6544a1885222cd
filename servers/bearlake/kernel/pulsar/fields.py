"""Protocol Buffers fields of MessageMetadata and SingleMessageMetadata, split into those that follow from the stored record and the rest.

A field is a tag (varint: number << 3 | wire type) and a content: a varint (type 0), 8 or 4 bytes (1, 5), or length-prefixed bytes (2).
The last occurrence of a field counts, except for properties. A known number with an unexpected wire type is an unknown field; the
deprecated groups (3, 4) are malformed, since Pulsar never used them.

Source: Protocol Buffers, "Encoding"; numbers of Pulsar's "Binary protocol specification".
"""

import binascii
from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bearlake.kernel.buffers import Buffer

ENTRY_HEADER = b"__pulsar.entry"
MESSAGE_HEADER = b"__pulsar.message"
RESERVED = b"__pulsar."
VERSION = 1
IS_OPAQUE, SEQUENCES_FOLLOW, KEYS_ARE_BASE64 = 1, 2, 4
ALL_FLAGS = 7

PRODUCER_NAME, SEQUENCE_ID, PUBLISH_TIME, COMPRESSION, MESSAGE_COUNT = 1, 2, 3, 8, 11
COMPRESSION_MAX = 4
"""Snappy."""
MESSAGE_COUNT_MAX = 2**31 - 1
UNCOMPRESSED_SIZE = 9
ORDERING_KEY, SINGLE_ORDERING_KEY, DELIVER_AT = 18, 7, 19
UUID, CHUNK_COUNT, CHUNK_ID = 26, 27, 29
NO_TIMESTAMP = -1
_TIMESTAMP_END = 2**63 - 1

_VARINT, _INT64, _BYTES, _INT32 = 0, 1, 2, 5
_WIDTHS = {_INT64: 8, _INT32: 4}
_TAG_MAX = 2**32 - 1
_INT32_MAX = 2**31 - 1

Property = tuple[bytes, bytes | None]


class MalformedField(Exception):
    """The bytes are not Protocol Buffers fields."""


class Field(NamedTuple):
    """One field; `whole` includes the tag. A varint sets `value`, bytes set `content`, and a fixed-width field sets neither."""

    number: int
    whole: memoryview
    value: int | None
    content: memoryview | None


class Roles(NamedTuple):
    """Numbers of the fields that follow from a record; 0: the metadata has no such field."""

    properties: int
    key: int
    base64: int
    event_time: int
    null_value: int
    size: int
    sequence: int


MESSAGE = Roles(properties=4, key=6, base64=17, event_time=12, null_value=25, size=0, sequence=0)
"""Field numbers of MessageMetadata, for an entry that is a single message."""
SINGLE = Roles(properties=1, key=2, base64=6, event_time=5, null_value=9, size=3, sequence=8)
"""Field numbers of SingleMessageMetadata, for a message of a batch."""


class Message:
    """The values of the fields with a role, and the other fields."""

    __slots__ = (
        "event_time", "is_base64", "is_null", "key", "key_decoded", "properties", "property_fields", "residual", "sequence", "size",
    )  # fmt: skip

    def __init__(self) -> None:
        self.residual = b""
        """The fields without a role, as received."""
        self.property_fields = b""
        self.properties: list[Property] | None = []
        """None: a property is irregular, so the properties cannot become headers."""
        self.key: memoryview | None = None
        self.key_decoded: bytes | None = None
        """None: the key is not flagged as base64, or is not canonical base64."""
        self.is_base64 = False
        self.event_time = 0
        self.is_null = False
        self.size: int | None = None
        self.sequence: int | None = None


def fields(view: memoryview) -> Iterator[Field]:
    """Yield the fields of a message.

    Raises:
        MalformedField: a field is truncated, or has an invalid number or wire type.
    """
    position = 0
    while position < len(view):
        start = position
        tag, position = read_varint(view, position)
        kind = tag & 7
        value: int | None = None
        content: memoryview | None = None
        if tag > _TAG_MAX or tag < 8:
            raise MalformedField
        if kind == _VARINT:
            value, position = read_varint(view, position)
        elif kind == _BYTES:
            size, position = read_varint(view, position)
            content = view[position : position + size]
            position += size
        elif kind in _WIDTHS:
            position += _WIDTHS[kind]
        else:
            raise MalformedField
        if position > len(view):
            raise MalformedField
        yield Field(tag >> 3, view[start:position], value, content)


def number(found: Iterable[Field], field_number: int) -> int | None:
    """Return the uint64 value of the last varint field with the number `field_number`."""
    last = None
    for field in found:
        if field.number == field_number and field.value is not None:
            last = field.value
    return last


def timestamp_of(time_ms: int) -> int:
    """Convert a Pulsar time (ms) to a record timestamp; `NO_TIMESTAMP` if it is too large."""
    return time_ms if time_ms < _TIMESTAMP_END else NO_TIMESTAMP


def read_message(found: Iterable[Field], roles: Roles) -> Message:
    """Sort the fields of a message by their roles.

    Raises:
        MalformedField: `found` raises it, or the payload's size is negative.
    """
    message = Message()
    residual: list[memoryview] = []
    properties: list[Field] = []
    for field in found:
        if field.content is not None and field.number == roles.properties:
            properties.append(field)
        elif field.content is not None and field.number == roles.key:
            message.key = field.content
        elif field.value is None or not _take_number(message, field.number, field.value, roles):
            residual.append(field.whole)
    if message.size is not None and message.size > _INT32_MAX:
        raise MalformedField
    if message.key is not None and message.is_base64:
        message.key_decoded = decode_base64(message.key)
    pairs = [read_property(field.content) for field in properties if field.content is not None]
    message.properties = [pair for pair in pairs if pair is not None]
    if len(message.properties) < len(pairs):
        message.properties = None
    message.property_fields = b"".join(field.whole for field in properties)
    message.residual = b"".join(residual)
    return message


def _take_number(message: Message, name: int, value: int, roles: Roles) -> bool:
    """Store the value of a varint field that has a role; return whether it has one."""
    if name == roles.base64:
        message.is_base64 = value != 0
    elif name == roles.event_time:
        message.event_time = value
    elif name == roles.null_value:
        message.is_null = value != 0
    elif name == roles.size:
        message.size = value
    elif name == roles.sequence:
        message.sequence = value
    else:
        return False
    return True


def read_property(content: memoryview) -> Property | None:
    """Return (key, value) of a KeyValue; None if it is irregular: a key or value missing, extra fields, or a reserved key."""
    try:
        found = list(fields(content))
    except MalformedField:
        return None
    if len(found) != 2 or any(field.content is None for field in found):
        return None
    by_number = {field.number: bytes(field.content or b"") for field in found}
    if by_number.keys() != {1, 2} or by_number[1].startswith(RESERVED):
        return None
    return by_number[1], by_number[2]


def decode_base64(text: memoryview) -> bytes | None:
    """Decode canonical base64 (RFC 4648, section 4); None unless encoding the result gives `text`."""
    try:
        decoded = binascii.a2b_base64(text)
    except binascii.Error:
        return None
    return decoded if b64encode(decoded) == text else None


def read_varint(view: memoryview, position: int) -> tuple[int, int]:
    """Return the uint64 varint at `position` and the position after it."""
    value = 0
    for shift in range(0, 64, 7):
        if position >= len(view):
            raise MalformedField
        byte = view[position]
        position += 1
        if shift == 63 and byte > 1:
            raise MalformedField
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedField


def write_varint(out: bytearray, value: int) -> None:
    """Append a uint64 as a varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_varint_field(out: bytearray, name: int, value: int) -> None:
    """Append a field of type varint."""
    write_varint(out, name << 3 | _VARINT)
    write_varint(out, value)


def write_bytes_field(out: bytearray, name: int, content: Buffer) -> None:
    """Append a field of type bytes or string."""
    write_varint(out, name << 3 | _BYTES)
    write_varint(out, len(content))
    out += content


def write_property(out: bytearray, name: int, key: bytes, value: bytes) -> None:
    """Append a field of type KeyValue."""
    pair = bytearray()
    write_bytes_field(pair, 1, key)
    write_bytes_field(pair, 2, value)
    write_bytes_field(out, name, pair)
