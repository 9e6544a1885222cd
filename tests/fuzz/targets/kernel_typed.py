"""Typed columns in the native kernel and in its Python twin: values of several schemas, and columns that a file may hold."""

import json
from collections.abc import Iterator
from random import Random

from bearlake.table.typed import mapping
from bearlake.table.typed.model import SchemaType
from fixtures.avro_cases import CASES, RECURSIVE, fixed, logical, record
from fixtures.avro_random import AvroRandom
from fuzz.target import Choices, Target
from fuzz.typed_format import BYTES_MAX, TypedFormat, cut

ITEM = record("string", ["null", "int"], logical("bytes", "decimal", precision=12, scale=2)) | {"name": "Item"}
DURATION = fixed(12, logicalType="duration")
FIXED_DECIMAL = fixed(20, logicalType="decimal", precision=9)
SCHEMAS = [
    record("string", "long", "boolean", ["null", "double"], {"type": "array", "items": ITEM}, {"type": "map", "values": "string"}),
    record(logical("string", "uuid"), logical("int", "time-millis"), logical("long", "timestamp-millis"), DURATION),
    record({"type": "enum", "name": "E", "symbols": ["A", "BC"]}, ["null", "int", "string", ITEM], fixed(3), "float"),
    record({"type": "array", "items": {"type": "map", "values": {"type": "array", "items": "null"}}}, FIXED_DECIMAL),
    record({"type": "array", "items": ["null", record(*["double"] * 30) | {"name": "W"}]}),
    RECURSIVE,
    {"type": "map", "values": ["null", "boolean"]},
]  # fmt: skip
NODES = [mapping.columns_of(SchemaType.AVRO, json.dumps(schema)).nodes for schema in SCHEMAS]
NODES += [mapping.columns_of(SchemaType.AVRO, json.dumps(schema), levels_max=1).nodes for schema in SCHEMAS]
AVRO = TypedFormat("avro", [(nodes,) for nodes in NODES])


def values(data: bytes) -> object:
    """Decode values, prove the rows, and encode them."""
    choices = Choices(data)
    nodes, limit = choices.of(NODES), choices.of((BYTES_MAX, BYTES_MAX, 200, 2000))
    skip, is_verified, null_bits = choices.of((0, 0, 0, 1, 5)), choices.byte() & 1, choices.of((None, b"\xff", b"\xfd"))
    cuts = [choices.byte() for _ in range(choices.byte() % 4)]
    return AVRO.again((nodes,), AVRO.decoded((nodes,), null_bits, cut(choices.rest, cuts), skip, is_verified, limit))


def _value_seeds() -> Iterator[bytes]:
    for at in range(len(NODES)):
        made = AvroRandom(Random(at))
        for _ in range(6):
            parts = [made.value(SCHEMAS[at % len(SCHEMAS)]) for _ in range(2)]
            if sum(map(len, parts)) < 250:
                yield bytes([at, 0, 0, 1, 0, 1, len(parts[0])]) + b"".join(parts)
    for case in CASES:
        if case.schema in SCHEMAS:
            yield bytes([SCHEMAS.index(case.schema), 0, 0, 1, 0, 0]) + case.value


def _column_values() -> Iterator[list[bytes]]:
    for at in range(len(NODES)):
        made = AvroRandom(Random(at))
        yield [made.value(SCHEMAS[at % len(SCHEMAS)]) for _ in range(3)]


TARGETS = [
    Target(
        name="kernel typed values",
        seeds=lambda: list(_value_seeds()),
        run=values,
        memory_bytes=8 << 20,
        processor_s=0.1,
        share=2,
    ),
    Target(
        name="kernel typed columns",
        seeds=lambda: list(AVRO.column_seeds(_column_values())),
        run=AVRO.hostile_columns,
        memory_bytes=1 << 20,
        short_inputs=750,
    ),
]
