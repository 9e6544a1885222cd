"""JSON values as typed columns in the native kernel and in its Python twin."""

import json
from collections.abc import Iterator
from typing import Any

from bearlake.kernel import TypedNode, TypedOutcome
from bearlake.table.typed import declared, mapping
from bearlake.table.typed.model import SchemaType
from fixtures.declared_cases import CASES as DECLARED_CASES
from fixtures.declared_cases import COLUMNS
from fixtures.json_cases import CASES, SCHEMA
from fuzz.target import Choices, Target
from fuzz.typed_format import BYTES_MAX, both, cut

SCHEMAS = [
    SCHEMA,
    {
        "type": "array",
        "items": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "number"}}},
    },
    {"type": "object", "properties": {f"f{at}": {"type": "integer"} for at in range(30)}},
    {"type": "string", "format": "date-time"},
    {},
]
NODES = [mapping.columns_of(SchemaType.JSON, json.dumps(schema)).nodes for schema in SCHEMAS]
NODES += [mapping.columns_of(SchemaType.JSON, json.dumps(SCHEMA), levels_max=1).nodes]
NODES += [declared.columns_of(COLUMNS).nodes]


def values(data: bytes) -> object:
    """Decode values."""
    choices = Choices(data)
    nodes, limit = choices.of(NODES), choices.of((BYTES_MAX, BYTES_MAX, 200, 2000))
    skip, null_bits = choices.of((0, 0, 0, 1, 5)), choices.of((None, b"\xff", b"\xfd"))
    offsets, content, count = cut(choices.rest, [choices.byte() for _ in range(choices.byte() % 4)])
    return _shown(both("decode_json", nodes, null_bits, offsets, content, 0, count, skip, limit))


def hostile_nodes(data: bytes) -> object:
    """Decode a value into columns that no schema has."""
    choices = Choices(data)
    count = choices.byte() % 8
    nodes = tuple(
        TypedNode(
            choices.byte() % 29,
            size=choices.byte() % 41,
            precision=choices.byte() % 41,
            children=tuple(choices.byte() % count for _ in range(choices.byte() % 4)),
            symbols=tuple(bytes([97 + choices.byte() % 4]) for _ in range(choices.byte() % 4)),
        )
        for _ in range(count)
    )
    content = choices.rest
    offsets = bytes(4) + len(content).to_bytes(4, "little")
    return _shown(both("decode_json", nodes, None, offsets, content, 0, 1, 0, BYTES_MAX))


def _shown(answer: Any) -> object:  # Any: an error and its text, or statuses and columns
    """Return what tells one answer from another."""
    statuses, slots = answer
    if isinstance(statuses, type):
        return str(slots)[:40]
    return [(status >> 8, TypedOutcome(status & 255).name) for status in memoryview(statuses).cast("i")]


def _seeds() -> Iterator[bytes]:
    for case in CASES:
        if len(case.value) < 250:
            yield bytes([0, 0, 0, 0, 0]) + case.value
    for case in DECLARED_CASES:
        yield bytes([6, 0, 0, 0, 0]) + case.value
    for at, text in (
        (1, b'[{"a":[1,2.5],"b":null}]'),
        (2, b'{"f29":1,"f3":2,"f3":3}'),
        (3, b'"2026-11-28T00:00:00Z"'),
        (4, b"[{}]"),
    ):
        yield bytes([at, 0, 0, 0, 1, 3]) + text


TARGETS = [
    Target(
        name="kernel json values",
        seeds=lambda: list(_seeds()),
        run=values,
        memory_bytes=8 << 20,
        processor_s=0.2,
        short_inputs=750,
    ),
    Target(
        name="kernel json nodes",
        seeds=lambda: [
            bytes([2, 13, 0, 0, 1, 1, 1, 0, 4, 0, 0, 0, 0]) + b'{"a": 1}',
            bytes([2, 13, 0, 0, 1, 1, 1, 0, 15, 2, 6, 0, 0]) + b'{"a": 1.25}',
            bytes([4, 13, 0, 0, 1, 1, 1, 0, 12, 0, 0, 2, 2, 3, 0, 8, 0, 0, 0, 0, 6, 0, 0, 0, 0]) + b'{"a": {"b": 1.5}}',
        ],
        run=hostile_nodes,
        memory_bytes=1 << 20,
        short_inputs=500,
    ),
]
