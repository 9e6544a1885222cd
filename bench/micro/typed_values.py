"""Typed columns: what a core does per second while it writes and serves data files of Avro or JSON orders, in MB of values.

    .venv/bin/python bench/micro/typed_values.py [--mib 32] [--rounds 3] [--keys] [--json]

One row group of 8 MiB at a time, as compaction writes them: `write` is from columns of records to a data file, `serve` from the file to
record batches. Sizes are those of the data file, in bytes per record. With `--keys`, records have keys, which become columns as values do.
With `--json`, values are JSON, which has no mode `elide`.
"""

import argparse
import asyncio
import json
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from bearlake import kernel
from bearlake.metadata.model import ObjectKind, ObjectRef
from bearlake.objects.memory import MemoryObjectStore
from bearlake.records.codec import Record, encode
from bearlake.table.column_book import new_book, with_schema
from bearlake.table.reader import DataFileReader, DataFileSettings
from bearlake.table.typed.model import COLUMNS_MAX, LEVELS_MAX
from bearlake.table.value_codecs import codec_of, key_fields
from bearlake.table.value_plan import FileColumns, PartPlan, ValuePlan, WriterSchema
from bearlake.table.value_typing import ValueTyping
from bearlake.table.writer import DataFileWriter, FinishedFile, record_batch

T = TypeVar("T")

MIB = 1024 * 1024
SCHEMA_ID = 7
KEY_ID = 8
KEY = {
    "type": "record",
    "name": "Key",
    "fields": [{"name": "id", "type": "long"}, {"name": "region", "type": "string"}],
}
ADDRESS = {
    "type": "record",
    "name": "Address",
    "fields": [{"name": name, "type": "string"} for name in ("street", "city", "country")],
}
ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [
        {"name": "sku", "type": "string"},
        {"name": "count", "type": "int"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
    ],
}
SMALL = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "long"},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID", "SENT"]}},
        {"name": "currency", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "is_gift", "type": "boolean"},
        {"name": "note", "type": ["null", "string"]},
    ],
}
BIG = {
    **SMALL,
    "name": "BigOrder",
    "fields": [
        *SMALL["fields"],  # type: ignore[misc]
        {"name": "address", "type": ADDRESS},
        {"name": "items", "type": {"type": "array", "items": ITEM}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
    ],
}


_MOMENT = {"type": "string", "format": "date-time"}
_TEXT = {"type": "string"}
JSON_SMALL = {
    "id": {"type": "integer"},
    "customer": {"type": "integer"},
    "placed": _MOMENT,
    "status": {"type": "string", "enum": ["NEW", "PAID", "SENT"]},
    "currency": _TEXT,
    "amount": {"type": "number"},
    "is_gift": {"type": "boolean"},
    "note": {"oneOf": [{"type": "null"}, _TEXT]},
}
_JSON_ITEM = {"sku": _TEXT, "count": {"type": "integer"}, "price": {"type": "number"}}
JSON_BIG = {
    **JSON_SMALL,
    "address": {"type": "object", "properties": {"street": _TEXT, "city": _TEXT, "country": _TEXT}},
    "items": {"type": "array", "items": {"type": "object", "properties": _JSON_ITEM}},
    "tags": {"type": "object", "additionalProperties": _TEXT},
}


def json_order(randomness: random.Random, id_: int, *, is_big: bool) -> bytes:
    """Write one order as compact JSON."""
    moment = datetime.fromtimestamp(1_700_000_000 + id_ / 27, UTC)
    value: dict[str, object] = {
        "id": id_,
        "customer": randomness.randrange(10**6),
        "placed": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "status": randomness.choice(("NEW", "PAID", "SENT")),
        "currency": randomness.choice(("EUR", "NOK", "USD")),
        "amount": randomness.randrange(100, 10**6) / 100,
        "is_gift": False,
        "note": None if randomness.random() < 0.7 else "leave it at the door, please",
    }
    if is_big:
        city = randomness.choice(("Bergen", "Oslo", "Hamar", "Moss"))
        value["address"] = {"street": f"Storgata {randomness.randrange(200)}", "city": city, "country": "NO"}
        value["items"] = [
            {
                "sku": f"SKU-{randomness.randrange(5_000):06}",
                "count": randomness.randrange(1, 9),
                "price": randomness.randrange(1, 30_000) / 100,
            }
            for _ in range(randomness.randrange(6, 17))
        ]
        value["tags"] = {"channel": "web", "campaign": "autumn"}
    return json.dumps(value, separators=(",", ":")).encode()


def number(value: int) -> bytes:
    """Encode an Avro int or long."""
    bits = (value << 1 ^ value >> 63) & (1 << 64) - 1
    out = bytearray()
    while bits > 0x7F:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    out.append(bits)
    return bytes(out)


def text(value: bytes) -> bytes:
    """Encode an Avro string or bytes."""
    return number(len(value)) + value


def order(randomness: random.Random, id_: int, *, is_big: bool) -> bytes:
    """Encode one order."""
    cities = (b"Bergen", b"Oslo", b"Hamar", b"Moss")
    value = number(id_) + number(randomness.randrange(10**6)) + number(1_700_000_000_000 + id_ * 37)
    value += number(randomness.randrange(3)) + text(randomness.choice((b"EUR", b"NOK", b"USD")))
    value += randomness.random().hex()[:8].encode() + b"\0"
    value += b"\0" if randomness.random() < 0.7 else number(1) + text(b"leave it at the door, please")
    if not is_big:
        return value
    value += text(b"Storgata %d" % randomness.randrange(200)) + text(randomness.choice(cities)) + text(b"NO")
    count = randomness.randrange(6, 17)
    value += number(count)
    for _ in range(count):
        value += text(b"SKU-%06d" % randomness.randrange(5_000)) + number(randomness.randrange(1, 9))
        cents = randomness.randrange(1, 30_000)
        value += text(cents.to_bytes(cents.bit_length() // 8 + 1))
    value += number(0) + number(2) + text(b"channel") + text(b"web") + text(b"campaign") + text(b"autumn") + number(0)
    return value


def key(randomness: random.Random) -> bytes:
    """Return a framed key."""
    region = randomness.choice((b"north", b"south", b"west"))
    return b"\0" + KEY_ID.to_bytes(4) + number(randomness.randrange(10**6)) + text(region)


def groups_of(size: int, *, is_big: bool, has_keys: bool, is_json: bool) -> tuple[list[bytes], int, int]:
    """Return batches of framed orders of about `size` bytes, their record count and the bytes of their values."""
    randomness = random.Random(1)
    batches, record_count, value_bytes = [], 0, 0
    while value_bytes < size:
        make = json_order if is_json else order
        values = [
            b"\0" + SCHEMA_ID.to_bytes(4) + make(randomness, record_count + at, is_big=is_big) for at in range(200)
        ]
        keys = [key(randomness) if has_keys else None for _ in values]
        records = zip(keys, values, strict=True)
        batches.append(encode([Record(key=key_, value=value, timestamp=1_700_000_000_000) for key_, value in records]))
        record_count += len(values)
        value_bytes += sum(map(len, values))
    return batches, record_count, value_bytes


def plan_of(mode: str, *, is_big: bool, has_keys: bool = False, is_json: bool = False) -> ValuePlan | None:
    """Return how orders become columns in a mode; None: they do not."""
    if mode == "raw":
        return None
    text = json.dumps(BIG if is_big else SMALL)
    if is_json:
        text = json.dumps({"type": "object", "properties": JSON_BIG if is_big else JSON_SMALL})
    writer = WriterSchema("JSON" if is_json else "AVRO", text, (), True, LEVELS_MAX, COLUMNS_MAX)
    book = with_schema(new_book(15), SCHEMA_ID, codec_of(writer).fields, last_id=15, column_count_max=1_000)
    of_key = WriterSchema("AVRO", json.dumps(KEY), (), True, LEVELS_MAX, COLUMNS_MAX)
    if has_keys:
        key_columns = key_fields(codec_of(of_key).fields)
        book = with_schema(book, KEY_ID, key_columns, last_id=15, column_count_max=1_000, is_key=True)
    columns = FileColumns(book=book, schemas={SCHEMA_ID: writer}, key_schemas={KEY_ID: of_key} if has_keys else {})
    elides = mode == "elide"
    of_keys = PartPlan(elides=elides, known=[KEY_ID], refused={}) if has_keys else None
    return ValuePlan(elides=elides, columns=columns, known=[SCHEMA_ID], refused={}, key=of_keys)


def written(batches: list[bytes], plan: ValuePlan | None) -> FinishedFile:
    """Write the batches as a data file of row groups of 8 MiB."""
    typing = None if plan is None else ValueTyping(plan)
    writer = DataFileWriter("bench.parquet", None if plan is None else plan.columns)
    builder = kernel.ColumnBuilder()
    offset = 0

    def flush() -> None:
        rows = record_batch(builder.take())
        writer.write(rows if typing is None else typing.add(rows))

    for batch in batches:
        builder.append(0, offset, batch, 0, len(batch), [])
        offset += 200
        if builder.size_bytes > 8 * MIB:
            flush()
    if builder.row_count:
        flush()
    return writer.finish()


def served(finished: FinishedFile) -> int:
    """Return the bytes of the batches that consumers get."""

    async def read() -> int:
        store = MemoryObjectStore()
        await store.put(finished.file.key, finished.parts)
        ref = ObjectRef(finished.file.key, finished.file.size, ObjectKind.PARQUET)
        reader = DataFileReader(store, DataFileSettings(thread_count=0))
        footer = await reader.footer(ref)
        size = 0
        for group in range(len(footer.groups)):
            size += len((await reader.block(ref, footer, group)).buffer)
        return size

    return asyncio.run(read())


def best(rounds: int, call: Callable[[], T]) -> tuple[float, T]:
    """Return the least CPU seconds of some calls, and the result of one."""
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        found = call()
        seconds.append(time.process_time() - start)
    return min(seconds), found


def main() -> None:
    """Print a line per case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keys", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    print("orders  mode    bytes/value  bytes/record in file  write MB/s  serve MB/s")
    for name, is_big in (("small", False), ("big", True)):
        batches, record_count, value_bytes = groups_of(
            options.mib * MIB, is_big=is_big, has_keys=options.keys, is_json=options.json
        )
        for mode in ("raw", "keep") if options.json else ("raw", "keep", "elide"):
            plan = plan_of(mode, is_big=is_big, has_keys=options.keys, is_json=options.json)
            write_s, finished = best(options.rounds, partial(written, batches, plan))
            serve_s, _ = best(options.rounds, partial(served, finished))
            print(
                f"{name:<7} {mode:<7} {value_bytes / record_count:11.0f} {finished.file.size / record_count:21.1f}"
                f" {value_bytes / write_s / 1e6:11.0f} {value_bytes / serve_s / 1e6:11.0f}"
            )


if __name__ == "__main__":
    main()
