"""JSON values of all kinds for `same_records.py`: usual ones, other spellings, and bad ones, by number."""

import json
from collections.abc import Callable, Sequence

from bench import registry

SCHEMA = {
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "note": {"type": ["null", "string"]},
        "placed": {"type": "string", "format": "date-time"},
        "lines": {
            "type": "array",
            "items": {"type": "object", "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}}},
        },
        "tags": {"type": "object", "additionalProperties": {"type": "number"}},
        "paid": {"type": "boolean"},
        "any": {"type": ["string", "integer"]},
    },
}
LARGE_EVERY = 100_003


def register(url: str, subject: str) -> int:
    """Register the schema; return its id."""
    return registry.register(url, subject, "JSON", json.dumps(SCHEMA))


def usual(at: int) -> dict[str, object]:
    """An order."""
    return {
        "id": at,
        "note": None if at % 3 else f"note {at} 🐻" * (at % 5),
        "placed": f"2026-11-{at % 28 + 1:02}T{at % 24:02}:30:00.{at % 1000:03}Z",
        "lines": [{"sku": f"sku{line}", "count": line} for line in range(at % 4)],
        "tags": {f"k{tag}": tag / 7 for tag in range(at % 3)},
        "paid": at % 2 == 0,
        "any": at if at % 2 else str(at),
    }


FORMS: Sequence[Callable[[int], bytes]] = (
    lambda at: json.dumps(usual(at), indent=3).encode(),
    lambda at: b' {"more": [1, {"x": [[]]}], "id"\t:\n%d.0e0 } ' % at,
    lambda at: b'{"id": %d, "id": 2}' % at,
    lambda at: b'{"id": "%d"}' % at,
    lambda at: b'{"id": %d' % at,
    lambda at: b'{"note": "\\ud800", "id": %d}' % at,
    lambda at: b'{"note": "\xff", "id": %d}' % at,
    lambda at: b"[" * 1_100 + b"]" * 1_100,
    lambda at: b'{"id": %d99999999999999999999}' % at,
    lambda at: b'{"placed": "yesterday", "id": %d}' % at,
    lambda at: b'{"note": "\\u0000\\u00e4\\/", "id": -0}',
    lambda at: b"NaN",
    lambda at: b"7",
)
"""Other spellings of an order, and bad ones."""


def value_of(schema_id: int, at: int) -> bytes | None:
    """The value of a record; half of them are usual ones."""
    head = b"\0" + schema_id.to_bytes(4, "big")
    kind = at % 32
    if kind == 0:
        return None
    if kind == 1:
        return (b"", b"no id", head, head + b"{}", b"\0\0\x7f\0\0{}")[at // 32 % 5]
    if kind <= len(FORMS) + 1:
        return head + FORMS[kind - 2](at)
    order = usual(at)
    if at % LARGE_EVERY == 0:
        order["note"] = "large" * 12_000
    return head + json.dumps(order, ensure_ascii=at % 2 == 0, separators=(",", ":")).encode()
