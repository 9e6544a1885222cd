"""Shows records as JSON: keys and values as text, by the schemas that they name, or in base64.

    {"type": "STRING", "text": "hello", "size": 5}                              UTF-8
    {"type": "AVRO", "text": "{\"id\": 1}", "schema_id": 3, "size": 7}          JSON, as text: a reader keeps numbers of 64 bits exact
    {"type": "BINARY", "text": "AP8=", "size": 2}                               base64
    {"type": "BINARY", …, "problem": "its schema, 3, is not in the registry"}   why it is not shown by its schema

A header's value is base64, as in requests to produce.
"""

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from bearlake.metadata.model import PartitionBounds, PartitionKey, partition_index
from bearlake.protocols.rest.embedded import Embedded
from bearlake.protocols.rest.v3.parts import TYPE_NAMES
from bearlake.records.codec import Record
from bearlake.streams.principal import Principal
from bearlake.streams.schemas.payloads import Opened

_Part = tuple[bytes | None, Opened | None]
"""A key or value, and how its schema shows it."""

_AT_ONCE_BYTES = 256 * 1024
"""More bytes of keys and values are encoded in a thread."""
_TIME_MAX_MS = 253_402_300_799_999
"""The last ms of the year 9999."""


async def records(
    embedded: Embedded, who: Principal, found: Sequence[tuple[int, int, Record]]
) -> Sequence[Mapping[str, Any]]:
    """Return the records (partition, offset, record) for an answer."""
    octets = [_bytes(part) for _, _, record in found for part in (record.key, record.value)]
    opened = await embedded.opened(who, octets)
    parts = list(zip(octets, opened, strict=True))

    def show() -> list[Mapping[str, Any]]:
        return [_record(place, parts[2 * at], parts[2 * at + 1]) for at, place in enumerate(found)]

    return show() if sum(len(part or b"") for part in octets) <= _AT_ONCE_BYTES else await asyncio.to_thread(show)


def answer(
    head: Mapping[str, Any],
    shown: Sequence[Mapping[str, Any]],
    positions: Mapping[PartitionKey, int],
    bounds: Mapping[PartitionKey, PartitionBounds],
) -> bytes:
    """Return the answer: the records, and for each partition where it continues, begins and ends."""
    places = [
        {
            "partition_id": partition_index(key),
            "offset": offset,
            "start_offset": bounds[key].start if key in bounds else offset,
            "end_offset": bounds[key].last_stable if key in bounds else offset,
        }
        for key, offset in positions.items()
    ]
    return json.dumps({**head, "data": shown, "positions": places}).encode()


def _record(place: tuple[int, int, Record], key: _Part, value: _Part) -> Mapping[str, Any]:
    partition, offset, record = place
    return {
        "partition_id": partition,
        "offset": offset,
        "timestamp": _time(record.timestamp),
        "timestamp_ms": record.timestamp,
        "key": _part(*key),
        "value": _part(*value),
        "headers": [{"name": _name(name), "value": _base64(octets)} for name, octets in record.headers or ()],
    }


def _part(octets: bytes | None, opened: Opened | None) -> Mapping[str, Any] | None:
    """Return a key or value for an answer; None: it is absent."""
    if octets is None:
        return None
    if opened is not None and opened.text is not None and opened.type is not None:
        text = opened.text.decode()
        return {"type": TYPE_NAMES[opened.type], "text": text, "schema_id": opened.schema_id, "size": len(octets)}
    problem = {} if opened is None else {"schema_id": opened.schema_id, "problem": opened.problem}
    try:
        return {"type": "STRING", "text": octets.decode(), "size": len(octets), **problem}
    except UnicodeDecodeError:
        return {"type": "BINARY", "text": _base64(octets), "size": len(octets), **problem}


def _bytes(octets: bytes | memoryview | None) -> bytes | None:
    return None if octets is None else bytes(octets)


def _base64(octets: bytes | None) -> str | None:
    return None if octets is None else base64.b64encode(octets).decode()


def _name(name: str) -> str:
    """Return a header's name without surrogates, which stand for bytes that are not UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _time(timestamp_ms: int) -> str | None:
    """Return the time in RFC 3339; None for a time that it cannot name."""
    if not 0 <= timestamp_ms <= _TIME_MAX_MS:
        return None
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
