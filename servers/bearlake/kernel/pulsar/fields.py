"""Protocol Buffers fields of Pulsar's two message metadatas, told apart by what the stored record says itself.

A field is a tag (varint: number << 3 | wire type) and a content: a varint (type 0), 8 or 4 bytes (1, 5), or bytes behind their length
(2). Of a field that is there more than once the last one counts, unless it is a property. A field with a known number and another type
is unknown, as any other; the deprecated groups (3, 4) are malformed, since Pulsar never had one.

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
    """The bytes are no fields."""


class Field(NamedTuple):
    """One field: `whole` with its tag; either its number or its content is set, or neither of them for those of fixed width."""

    number: int
    whole: memoryview
    value: int | None
    content: memoryview | None


class Roles(NamedTuple):
    """Numbers of the fields that a record says itself; 0: there is none."""

    properties: int
    key: int
    base64: int
    event_time: int
    null_value: int
    size: int
    sequence: int


MESSAGE = Roles(properties=4, key=6, base64=17, event_time=12, null_value=25, size=0, sequence=0)
"""Of MessageMetadata, for a message that is an entry of its own."""
SINGLE = Roles(properties=1, key=2, base64=6, event_time=5, null_value=9, size=3, sequence=8)
"""Of SingleMessageMetadata, for a message of a batch."""


class Message:
    """What the fields with a role say, and the other ones."""

    __slots__ = (
        "event_time", "is_base64", "is_null", "key", "key_decoded", "properties", "property_fields", "residual", "sequence", "size",
    )  # fmt: skip

    def __init__(self) -> None:
        self.residual = b""
        """The fields without a role, as they came."""
        self.property_fields = b""
        self.properties: list[Property] | None = []
        """None: one of them is odd, so that they cannot be headers."""
        self.key: memoryview | None = None
        self.key_decoded: bytes | None = None
        """None: the key came as it is, or is no base64 that encoding would give."""
        self.is_base64 = False
        self.event_time = 0
        self.is_null = False
        self.size: int | None = None
        self.sequence: int | None = None


def fields(view: memoryview) -> Iterator[Field]:
    """The fields of a message.

    Raises:
        MalformedField: they end before they should, or there are no such.
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


def number(found: Iterable[Field], wanted: int) -> int | None:
    """The varint of the last such field, as uint64."""
    last = None
    for field in found:
        if field.number == wanted and field.value is not None:
            last = field.value
    return last


def timestamp_of(time_ms: int) -> int:
    """A Pulsar time as the timestamp of a record, or none."""
    return time_ms if time_ms < _TIMESTAMP_END else NO_TIMESTAMP


def read_message(found: Iterable[Field], roles: Roles) -> Message:
    """Sort the fields of a message by their roles.

    Raises:
        MalformedField: `found` does, or the payload's size is negative.
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
    """Whether the field has a role."""
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
    """(key, value) of a KeyValue; None if it is odd: without one of the two, with more than them, or with a reserved key."""
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
    """The bytes whose base64 is `text` (RFC 4648, section 4), or None if there are none."""
    try:
        decoded = binascii.a2b_base64(text)
    except binascii.Error:
        return None
    return decoded if b64encode(decoded) == text else None


def read_varint(view: memoryview, position: int) -> tuple[int, int]:
    """(uint64, position behind) of the varint at `position`."""
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
    """Append a uint64."""
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
    """Append a field that is a KeyValue."""
    pair = bytearray()
    write_bytes_field(pair, 1, key)
    write_bytes_field(pair, 2, value)
    write_bytes_field(out, name, pair)
