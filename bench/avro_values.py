"""Avro values of all kinds for `same_records.py`: usual ones, legal ones in other forms, and bad ones, by number."""

import json
import struct
from collections.abc import Callable, Sequence

from bench.micro.typed_values import number, text

from bench import registry

LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": ["null", "int"]}],
}
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "lines", "type": {"type": "array", "items": LINE}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "paid", "type": "boolean"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "weight", "type": "double"},
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID", "SENT"]}},
        {"name": "place", "type": ["null", "string", "long"]},
        {"name": "parent", "type": ["null", "Order"]},
        {"name": "code", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
LARGE_EVERY = 100_003
WEIGHTS = (0x8000000000000000, 0x7FF8000000000001, 0x7FF0000000000001, 0x3FF8000000000000, 0)
"""Bits: -0.0, a NaN with a payload, a signalling one, 1.5 and 0."""
Fields = list[bytes]
"""An order's fields, as bytes."""


def register(url: str, subject: str) -> int:
    """Register the schema; return its id."""
    return registry.register(url, subject, "AVRO", json.dumps(SCHEMA))


def decimal(value: int) -> bytes:
    """Encode a decimal, as short as possible."""
    return text(value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, signed=True))


def usual(at: int) -> Fields:
    """Fields of an order as encoders write them."""
    lines = [
        text(b"sku%d" % line) + (number(0) if line % 2 else number(1) + number(line - 1)) for line in range(at % 4)
    ]
    tags = [text(b"k%d" % tag) + number(tag) for tag in range(at % 3)]
    place = (number(0), number(1) + text(b"Bergen"), number(2) + number(at))[at % 3]
    code = b"%08x-0000-4000-8000-%012x" % (at % 2**32, at)
    return [
        number(at),
        number(0) if at % 3 else number(1) + text(b"note %d" % at * (at % 5)),
        number(1_700_000_000_000 + at),
        (number(len(lines)) + b"".join(lines) if lines else b"") + b"\0",
        (number(len(tags)) + b"".join(tags) if tags else b"") + b"\0",
        bytes([at % 2]),
        decimal(at * 37 % 1_000_000 - 500_000),
        struct.pack("<Q", WEIGHTS[at % 5]),
        number(at % 3),
        place,
        number(0),
        text(code),
    ]


def _with(at: int, changed: bytes) -> Callable[[int, Fields], bytes]:
    """Return a form whose field `at` is other bytes."""
    return lambda _, fields: b"".join([*fields[:at], changed, *fields[at + 1 :]])


FORMS: Sequence[Callable[[int, Fields], bytes]] = (
    _with(0, b"\x82\x80\x00"),  # a padded number
    _with(3, number(-1) + number(6) + text(b"sku") + b"\x02\x02" + number(1) + text(b"x") + b"\0" + b"\0"),  # blocks
    _with(4, number(2) + (text(b"k") + number(1)) * 2 + b"\0"),  # a key twice
    _with(1, number(1) + text(b"\xff\xfe")),  # not UTF-8
    _with(5, b"\2"),  # no boolean
    _with(9, number(3)),  # no branch
    _with(6, text(b"\0\0\1")),  # a decimal with a zero in front
    _with(8, number(9)),  # no symbol
    _with(2, number(2**62)),  # a time that no column holds
    _with(11, text(b"A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11")),
    lambda number_, fields: b"".join([*fields[:10], number(1), *usual(number_ + 1), fields[11]]),  # inside itself
    lambda _, fields: b"".join(fields)[:-1],
    lambda _, fields: b"".join(fields) + b"x",
)
"""Other forms of an order, legal ones and bad ones."""


def value_of(schema_id: int, at: int) -> bytes | None:
    """The value of a record; half of them are usual ones."""
    head = b"\0" + schema_id.to_bytes(4, "big")
    kind = at % 32
    if kind == 0:
        return None
    if kind == 1:
        return (b"", b"no id", head, head + b"\2\4", b"\0\0\x7f\0\0\0")[at // 32 % 5]
    fields = usual(at)
    if at % LARGE_EVERY == 0:
        fields[1] = number(1) + text(b"large" * 12_000)
    if kind <= len(FORMS) + 1:
        return head + FORMS[kind - 2](at, fields)
    return head + b"".join(fields)
