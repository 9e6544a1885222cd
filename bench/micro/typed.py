"""Figures of typed columns: `python bench/micro/typed.py`. CPU time of one thread, best of several runs, data in cache.

The values are orders: a small one of about 80 bytes with 12 fields, and a large one of about 900 bytes with an address, items and a map.
"""

import io
import json
import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
from columns import best

from bearlake import kernel
from bearlake.table.typed import codec, mapping
from bearlake.table.typed.model import SchemaType

RUN_BYTES = 4 << 20
WORDS = [
    "stainless",
    "steel",
    "cotton",
    "organic",
    "wireless",
    "charger",
    "portable",
    "kitchen",
    "garden",
    "set",
    "refill",
]
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}


def fields(**types: Any) -> list[dict[str, Any]]:
    """Return fields of a record."""
    return [{"name": name, "type": type_} for name, type_ in types.items()]


def record(name: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a record."""
    return {"type": "record", "name": name, "fields": parts}


SMALL = fields(
    order_id="string",
    customer_id="long",
    store_id="int",
    status={"type": "enum", "name": "Status", "symbols": ["NEW", "PAID", "PICKED", "SHIPPED", "DELIVERED"]},
    currency="string",
    country="string",
    channel="string",
    total=PRICE,
    discount=["null", "double"],
    coupon=["null", "string"],
    created_at={"type": "long", "logicalType": "timestamp-millis"},
    gift="boolean",
)
ADDRESS = record("Address", fields(name="string", street="string", zip="string", city="string", email="string"))
ITEM = record("Item", fields(sku="string", name="string", quantity="int", price=PRICE, weight_g=["null", "int"]))
LARGE = [
    *SMALL,
    *fields(
        address=ADDRESS,
        items={"type": "array", "items": ITEM},
        attributes={"type": "map", "values": "string"},
        note=["null", "string"],
    ),
]


def order(source: random.Random, is_large: bool) -> dict[str, Any]:
    """Return one order."""

    def words(count: int) -> str:
        return " ".join(source.choices(WORDS, k=count))

    def price() -> Decimal:
        return Decimal(source.randrange(100, 200_000)).scaleb(-2)

    made: dict[str, Any] = {
        "order_id": f"{source.getrandbits(128):032x}",
        "customer_id": 10**9 + source.randrange(20_000),
        "store_id": source.randrange(400),
        "status": source.choice(["NEW", "PAID", "SHIPPED"]),
        "currency": "EUR",
        "country": "DE",
        "channel": "web",
        "total": price(),
        "discount": source.choice([None, None, 0.05]),
        "coupon": source.choice([None, None, None, "SAVE10"]),
        "created_at": 1_790_000_000_000 + source.randrange(10**9),
        "gift": source.random() < 0.1,
    }
    if is_large:
        made["address"] = {name: words(2) for name in ("name", "street", "zip", "city", "email")}
        made["items"] = [
            {
                "sku": f"SKU-{source.randrange(10**7):07}",
                "name": words(5),
                "quantity": source.randrange(1, 5),
                "price": price(),
                "weight_g": source.choice([None, 1200]),
            }
            for _ in range(source.randrange(6, 17))
        ]
        made["attributes"] = {"session": f"{source.getrandbits(64):016x}", "agent": "Firefox/141"}
        made["note"] = source.choice([None, words(12)])
    return made


def json_schema(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the fields of an Avro record as a JSON schema."""
    return {"type": "object", "properties": {part["name"]: json_type(part["type"]) for part in parts}}


def json_type(type_: Any) -> dict[str, Any]:
    """Return an Avro type as a JSON schema."""
    if isinstance(type_, list):
        return {"oneOf": [{"type": "null"}, json_type(type_[1])]}
    if isinstance(type_, str):
        names = {"long": "integer", "int": "integer", "double": "number"}
        return {"type": names.get(type_, type_)}
    if type_.get("logicalType") == "timestamp-millis":
        return {"type": "string", "format": "date-time"}
    if type_["type"] == "record":
        return json_schema(type_["fields"])
    if type_["type"] == "array":
        return {"type": "array", "items": json_type(type_["items"])}
    if type_["type"] == "map":
        return {"type": "object", "additionalProperties": json_type(type_["values"])}
    return {"type": "string"} if type_["type"] == "enum" else {"type": "number"}


def json_text(made: dict[str, Any]) -> bytes:
    """Return an order in JSON, as compact as most programs write it."""
    moment = datetime.fromtimestamp(made["created_at"] / 1000, UTC).isoformat(timespec="milliseconds")
    return json.dumps({**made, "created_at": moment}, separators=(",", ":"), default=float).encode()


def measure_json(name: str, is_large: bool) -> None:
    """Measure orders of one size in JSON."""
    source = random.Random(7)
    values, size = [], 0
    while size < RUN_BYTES:
        values.append(json_text(order(source, is_large)))
        size += len(values[-1])
    print(f"{name} in JSON: {len(values)} values of {size // len(values)} bytes")
    columns = mapping.columns_of(SchemaType.JSON, json.dumps(json_schema(LARGE if is_large else SMALL)))
    array = pa.array(values, pa.binary())
    assert not codec.decode(columns, array).problems
    show("  decode", best(lambda: codec.decode(columns, array)), size)
    show("  Python's parser, without columns", best(lambda: [json.loads(value) for value in values]), size)


def show(what: str, seconds: float, size: int) -> None:
    """Print one line: what was measured, and its throughput."""
    print(f"{what:44} {size / seconds / 1e6:8.0f} MB/s")


def measure(name: str, is_large: bool) -> None:
    """Measure orders of one size."""
    source = random.Random(7)
    schema = record("Order", LARGE if is_large else SMALL)
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    values, size = [], 0
    while size < RUN_BYTES:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, order(source, is_large))
        values.append(out.getvalue())
        size += len(values[-1])
    print(f"{name}: {len(values)} values of {size // len(values)} bytes")
    columns = mapping.columns_of(SchemaType.AVRO, json.dumps(schema))
    array = pa.array(values, pa.binary())
    decoded = codec.decode(columns, array, is_verified=True)
    assert decoded.is_exact.true_count == len(values)
    assert codec.encode(columns, decoded.struct) == array
    show("  decode", best(lambda: codec.decode(columns, array)), size)
    show("  decode, encode and compare", best(lambda: codec.decode(columns, array, is_verified=True)), size)
    show("  encode", best(lambda: codec.encode(columns, decoded.struct)), size)


if __name__ == "__main__":
    print(f"native: {kernel.IS_NATIVE}")
    measure("small orders", is_large=False)
    measure("large orders", is_large=True)
    measure_json("small orders", is_large=False)
    measure_json("large orders", is_large=True)
