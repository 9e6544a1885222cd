"""Protobuf values of all kinds for `same_records.py`: usual ones, legal ones in other forms, and bad ones, by number."""

import struct
from collections.abc import Callable, Sequence

from bench import registry

SCHEMA = """syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
message Order { int64 id = 1; optional string note = 2; google.protobuf.Timestamp placed = 3; repeated Line lines = 4;
  map<string, int32> tags = 5; oneof to { string city = 6; uint64 locker = 7; } Status status = 8; repeated double sizes = 9;
  google.protobuf.Int32Value floor = 10; Order parent = 11; float weight = 12; }
message Line { string sku = 1; sint32 count = 2; }
enum Status { NEW = 0; PAID = 1; }
"""
LARGE_EVERY = 100_003


def register(url: str, subject: str) -> int:
    """Register the schema; return its id."""
    return registry.register(url, subject, "PROTOBUF", SCHEMA)


def varint(number: int) -> bytes:
    """Encode the 64 bits of a number."""
    bits, out = number % 2**64, bytearray()
    while bits > 0x7F:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    out.append(bits)
    return bytes(out)


def scalar(number: int, value: int) -> bytes:
    """A field that is a varint."""
    return varint(number << 3) + varint(value)


def text(number: int, value: bytes) -> bytes:
    """A field that is a text or a message."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def usual(number: int) -> list[bytes]:
    """Fields of an order as encoders write them."""
    fields = [scalar(1, number)] if number else []
    if number % 3 == 0:
        fields.append(text(2, b"note %d" % number * (number % 5)))
    fields.append(
        text(
            3, scalar(1, 1_700_000_000 + number) + (scalar(2, number % 1_000_000 * 1000) if number % 1_000_000 else b"")
        )
    )
    fields += [text(4, text(1, b"sku%d" % at) + (scalar(2, 2 * at - 1) if at else b"")) for at in range(number % 4)]
    fields += [text(5, text(1, b"k%d" % at) + scalar(2, at)) for at in range(number % 3)]
    if number % 2:
        fields.append(text(6, b"Bergen"))
    elif number % 5:
        fields.append(scalar(7, number))
    if number % 7 in (1, 2):
        fields.append(scalar(8, number % 7))  # 2 has no name
    if number % 4:
        fields.append(text(9, struct.pack(f"<{number % 4}d", *(number / 7 for _ in range(number % 4)))))
    if number % 6 == 0:
        fields.append(text(10, scalar(1, number % 100) if number % 100 else b""))
    if number % 9 == 0:
        fields.append(text(11, scalar(1, 1 + number)))
    if number % 8 == 0:
        fields.append(varint(12 << 3 | 5) + struct.pack("<f", -0.0 if number % 16 else float("nan")))
    return fields


FORMS: Sequence[Callable[[int, list[bytes]], bytes]] = (
    lambda _, fields: b"".join(reversed(fields)),
    lambda _, fields: b"".join(fields) + b"\xa0\x06\x01",  # an unknown field
    lambda _, fields: b"".join(fields) + b"\xa3\x06\x08\x01\xa4\x06",  # an unknown group
    lambda _, fields: b"\x08\x81\x80\x00" + b"".join(fields[1:]),
    lambda number, fields: b"".join(fields) + text(3, scalar(2, 1 + number % 999)),  # nanoseconds, in pieces
    lambda _, fields: b"".join(fields) + text(6, b"Oslo") + scalar(7, 1),
    lambda _, fields: b"".join(fields) + text(5, text(1, b"k0") + scalar(2, 9)) * 2,
    lambda _, fields: b"".join(fields) + text(2, b"\xff\xfe"),
    lambda _, fields: b"".join(fields)[:-1],
    lambda _, fields: b"".join(fields) + scalar(8, 0) + text(9, b""),
    lambda _, fields: b"".join(fields) + text(3, scalar(1, 2**62)),
    lambda _, fields: b"".join(fields) + b"\x0b",
)
"""Other forms of an order, legal ones and bad ones."""


def value_of(schema_id: int, number: int) -> bytes | None:
    """The value of a record; half of them are usual ones."""
    head = b"\0" + schema_id.to_bytes(4, "big")
    kind = number % 32
    if kind == 0:
        return None
    if kind == 1:
        return (b"", b"no id", head, head + b"\2\4", b"\0\0\x7f\0\0\0")[number // 32 % 5]
    if kind == 2:
        return head + b"\2\2" + text(1, b"sku") + scalar(2, 1)  # another message
    if kind == 3:
        return head + b"\2\0" + b"".join(usual(number))  # another form of the path
    if number % LARGE_EVERY == 0:
        return head + b"\0" + scalar(1, number) + text(2, b"large" * 12_000)
    if kind < 16:
        return head + b"\0" + FORMS[kind - 4](number, usual(number))
    return head + b"\0" + b"".join(usual(number))
