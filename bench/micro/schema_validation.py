"""Micro benchmark of validation by schemas: what one batch of Avro, Protobuf or JSON orders costs a server, with and without the setting.

    .venv/bin/python bench/micro/schema_validation.py

"none" is the check that every batch gets (`record.validation=full`). Schemas are known: the registry is not asked. A batch of more than
64 KiB is checked by a thread; its time is measured here without the switch of threads. Values of JSON Schema are checked by a child
process: the server's part is measured with such a process, and the child's part in this process. "columns" are declared ones.
"""

import asyncio
import json
import time
import timeit
from contextlib import closing
from functools import partial
from itertools import product

from bearlake.metadata.open import open_metadata
from bearlake.metadata.schemas import Registration
from bearlake.records.batch import Compression
from bearlake.records.codec import Record, encode
from bearlake.streams import configs
from bearlake.streams.checking import Checked, Checks, CheckSettings
from bearlake.streams.schemas import names
from bearlake.streams.schemas.compiled import Compiled
from bearlake.streams.schemas.confined.pool import Pool
from bearlake.streams.schemas.formats import json_schema, protobuf
from bearlake.streams.schemas.library import body_of, content_of, fingerprint_of
from bearlake.streams.schemas.model import SchemaType
from bearlake.streams.schemas.settings import SchemasSettings
from bearlake.streams.schemas.values.json_values import JsonValues
from bearlake.streams.validation.settings import ValidationSettings
from bearlake.streams.value_rules import schema_rules

LEVELS = ("none", "id", "value")
SIZES = (100, 1024)
BATCH_BYTES = (16 * 1024, 48 * 1024)
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "sku", "type": "string"}, {"name": "count", "type": "int"}]}}},
    ],
}  # fmt: skip


MESSAGE = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
message Order { int64 id = 1; bytes price = 2; google.protobuf.Timestamp placed = 3; optional string note = 4; repeated Line lines = 5; }
message Line { string sku = 1; sint32 count = 2; }
"""


JSON_ORDER = {
    "type": "object",
    "required": ["id", "lines"],
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "price": {"type": "number"},
        "placed": {"type": "string"},
        "note": {"type": ["null", "string"]},
        "lines": {"type": "array", "items": {"type": "object", "properties": {
            "sku": {"type": "string", "pattern": "^sku-"}, "count": {"type": "integer"}}}},
    },
}  # fmt: skip
COLUMNS = "id long, price decimal(10,2), placed timestamptz, note string, lines list<struct<sku string, count int>>"
CHECK_COUNT = 100


class Compiler:
    """Compiles Protobuf in this process."""

    async def compiled(self, type_name, schema, references):
        """Compile a schema."""
        files = tuple(file.SerializeToString() for file in protobuf.parsed(schema, references).files)
        return Compiled(type=type_name, text=schema, canonical=schema, normalized=schema, files=files)


def number(value):
    """Encode an int or long that is not negative."""
    return varint(value << 1)


def text(value):
    """Encode a string or bytes."""
    return number(len(value)) + value


def order(at, size):
    """Return an encoded order of about `size` bytes."""
    line = text(b"sku-%06d" % at) + number(at % 100)
    head = number(at) + text(b"\x01\x02\x03") + number(1_700_000_000_000 + at)
    count = max(1, (size - 60) // len(line))
    lines = number(count) + line * count + b"\0"
    note = number(1) + text(b"n" * max(0, size - len(head) - len(lines) - 4))
    return head + note + lines


def varint(value):
    """Encode a number that is not negative."""
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + varint(value >> 7)


def field(at, value):
    """Return a field of a message: a number, or a text or message."""
    if isinstance(value, int):
        return varint(at << 3) + varint(value)
    return varint(at << 3 | 2) + varint(len(value)) + value


def message(at, size):
    """Return an encoded message of about `size` bytes, after the path of its type."""
    line = field(5, field(1, b"sku-%06d" % at) + field(2, at % 100 * 2))
    head = b"\0" + field(1, at) + field(2, b"\1\2\3") + field(3, field(1, 1_700_000_000 + at))
    lines = line * max(1, (size - 60) // len(line))
    return head + field(4, b"n" * max(0, size - len(head) - len(lines) - 4)) + lines


def document(at, size):
    """Return an order of about `size` bytes in JSON."""
    line = {"sku": f"sku-{at:06}", "count": at % 100}
    found = {"id": at, "price": 12.5, "placed": "2026-11-28T09:30:00Z", "lines": [line] * max(1, (size - 120) // 35)}
    found["note"] = "n" * max(0, size - len(json.dumps(found, separators=(",", ":"))) - 10)
    return json.dumps(found, separators=(",", ":")).encode()


async def json_prices(metadata):
    """Print what batches of JSON orders cost, by their schema and by declared columns."""
    schema_id = await register(metadata, SchemaType.JSON, json.dumps(JSON_ORDER))
    values_of_schema = JsonValues(json_schema.parsed(json.dumps(JSON_ORDER), {}))
    with closing(Pool(SchemasSettings())) as pool:
        schemas = ValidationSettings(cached_ms=3_600_000, wait_ms_max=600_000)
        checks = Checks(CheckSettings(loop_bytes_max=1 << 40, schemas=schemas), metadata.schemas, pool, pool)
        by_schema = {"schema.validation": "value", "table.value.schema_id": str(schema_id)}
        by_columns = {"schema.validation": "value", "table.columns": COLUMNS}
        rules = [configs.rules(given, schema_rules("orders", given)) for given in (by_schema, by_columns)]
        for size, batch_bytes in product(SIZES, BATCH_BYTES):
            values = [document(at, size) for at in range(batch_bytes // size)]
            batch = encode([Record(key=b"k", value=value) for value in values])
            for rule in rules:
                assert await checks.check(batch, 0, rule, Checked.NOTHING) is None
            began = time.process_time()
            for _ in range(CHECK_COUNT):
                await checks.check(batch, 0, rules[0], Checked.NOTHING)
            server = (time.process_time() - began) / CHECK_COUNT * 1e6
            child = microseconds(lambda values=values: [values_of_schema.check(value) for value in values])
            assert checks.at_once(batch, 0, rules[1], Checked.NOTHING) is True
            columns = microseconds(partial(checks.at_once, batch, 0, rules[1], Checked.NOTHING))
            raw = sum(map(len, values))
            for name, took in (("JSON, server", server), ("JSON, child", child), ("columns", columns)):
                print(
                    f"{name:<14} {len(values):>4} orders of {raw // len(values):>5} bytes {took:>8.1f} us"
                    f" {raw / took:>7.0f} MB/s {took / len(values):>6.2f} us per record"
                )
        checks.close()


async def register(metadata, type_, content):
    """Register a schema for the values of the stream `orders`; return its id."""
    key = names.parse("orders-value")
    body = body_of(type_, content, ())
    registration = Registration(
        subject=key,
        revision=(await metadata.schemas.subject(key)).revision,
        fingerprint=fingerprint_of(body, None, None),
        body=body,
        content=content_of(type_, content, (), None, None),
    )
    return (await metadata.schemas.register(registration)).schema_id


def microseconds(call):
    """Return the best CPU time of one call."""
    timer = timeit.Timer(call, timer=time.process_time)
    count, _ = timer.autorange()
    count = max(1, count // 4)
    return min(timer.repeat(repeat=5, number=count)) / count * 1e6


async def main():
    """Print a line for each batch."""
    metadata = await open_metadata("memory:///")
    formats = [
        (SchemaType.AVRO, await register(metadata, SchemaType.AVRO, json.dumps(ORDER)), order),
        (SchemaType.PROTOBUF, await register(metadata, SchemaType.PROTOBUF, MESSAGE), message),
    ]
    settings = CheckSettings(
        loop_bytes_max=1 << 40, schemas=ValidationSettings(cached_ms=3_600_000, wait_ms_max=600_000)
    )
    checks = Checks(settings, metadata.schemas, Compiler())
    rules = {}
    for level in LEVELS:
        given = {"schema.validation": level}
        rules[level] = configs.rules(given, schema_rules("orders", given))
    cases = product(formats, (Compression.NONE, Compression.LZ4), SIZES, BATCH_BYTES)
    for (type_, schema_id, made), compression, size, batch_bytes in cases:
        head = b"\0" + schema_id.to_bytes(4, "big")
        values = [head + made(at, size) for at in range(batch_bytes // size)]
        raw = sum(map(len, values))
        batch = encode([Record(key=b"k", value=value) for value in values], codec=compression)
        for level in LEVELS:
            assert await checks.check(batch, compression, rules[level], Checked.NOTHING) is None
            assert checks.at_once(batch, compression, rules[level], Checked.NOTHING) is True
            took = microseconds(partial(checks.at_once, batch, compression, rules[level], Checked.NOTHING))
            print(
                f"{type_.value:<8} {compression.name:<5} {len(values):>4} orders of {raw // len(values):>5} bytes  {level:<6}"
                f" {took:>8.1f} us {raw / took:>7.0f} MB/s {took / len(values):>6.2f} us per record"
            )
    checks.close()
    await json_prices(metadata)
    await metadata.close()


asyncio.run(main())
