"""Typed columns in the native kernel and in its Python twin: values of several schemas, and columns that a file may hold."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from bearlake.kernel import TypedOutcome, TypedSource, fallback
from bearlake.table.typed import mapping
from bearlake.table.typed.model import SchemaType
from fixtures.avro_cases import CASES, RECURSIVE, fixed, logical, record
from fixtures.avro_random import AvroRandom
from fuzz.target import Choices, Target, exact, outcome
from fuzz.targets.kernel import ERRORS, native

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
BYTES_MAX = 1 << 20


def _column(data: bytes, cuts: list[int]) -> tuple[bytes, bytes]:
    """Cut the bytes into values: offsets and content."""
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return b"".join(place.to_bytes(4, "little") for place in places), data


def _plain(answer: Any) -> Any:
    if isinstance(answer, memoryview):
        return bytes(answer)
    return [_plain(part) for part in answer] if isinstance(answer, list | tuple) else answer


def values(data: bytes) -> object:
    """Decode values, prove the rows, and encode them."""
    choices = Choices(data)
    nodes, limit = choices.of(NODES), choices.of((BYTES_MAX, BYTES_MAX, 200, 2000))
    skip, is_verified, null_bits = choices.of((0, 0, 0, 1, 5)), choices.byte() & 1, choices.of((None, b"\xff", b"\xfd"))
    cuts = [choices.byte() for _ in range(choices.byte() % 4)]
    offsets, content = _column(choices.rest, cuts)
    answers = []
    for module, hold in ((native, exact), (fallback, bytes)):
        bits = null_bits and hold(null_bits)
        arguments = (nodes, bits, hold(offsets), hold(content), 0, len(cuts) + 1, skip, is_verified, limit)
        answers.append(_plain(outcome(ERRORS, module.decode_avro, *arguments)))
    assert answers[0] == answers[1], f"native {answers[0]!r:.300}, Python {answers[1]!r:.300}"
    statuses, slots = answers[1]
    if isinstance(statuses, type):
        return statuses.__name__
    columns = [TypedSource(0, length, *buffers) for length, _, *buffers in slots]
    again = _encoded(nodes, columns)
    found = [TypedOutcome(status & 255).name for status in memoryview(statuses).cast("i")]
    return found, type(again[0]).__name__


def _encoded(nodes: Any, columns: list[TypedSource]) -> Any:
    """Encode the columns with both kernels."""
    answers = []
    for module, hold in ((native, exact), (fallback, bytes)):
        held = [
            TypedSource(start, length, *(buffer if buffer is None else hold(buffer) for buffer in buffers))  # type: ignore[arg-type]
            for start, length, *buffers in columns
        ]
        answers.append(_plain(outcome(ERRORS, module.encode_avro, nodes, held, hold(b"\0\1"))))
    assert answers[0] == answers[1], f"native {answers[0]!r:.300}, Python {answers[1]!r:.300}"
    return answers[1]


def hostile_columns(data: bytes) -> object:
    """Encode columns that a Parquet file holds: the input has their sizes, then their bytes."""
    choices = Choices(data)
    nodes = choices.of(NODES)
    (count,) = (len(fallback.decode_avro(nodes, None, bytes(4), b"", 0, 0, 0, 0, BYTES_MAX)[1]),)
    heads = [(choices.byte() % 3, choices.byte() % 40, [choices.byte() for _ in range(3)]) for _ in range(count)]
    rest, at = choices.rest, 0
    columns = []
    for start, length, sizes in heads:
        buffers: list[bytes | None] = []
        for size in sizes:
            buffers.append(None if size == 0xFF else rest[at : at + size])
            at += 0 if size == 0xFF else size
        columns.append(TypedSource(start, length, *buffers))
    answer = _encoded(nodes, columns)
    return answer[1][:30] if isinstance(answer[0], type) else "encoded"


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


def _column_seeds() -> Iterator[bytes]:
    for at, nodes in enumerate(NODES):
        made = AvroRandom(Random(at))
        parts = [made.value(SCHEMAS[at % len(SCHEMAS)]) for _ in range(3)]
        offsets = b"".join(sum(map(len, parts[:end])).to_bytes(4, "little") for end in range(4))
        _, slots = fallback.decode_avro(nodes, None, offsets, b"".join(parts), 0, 3, 0, 0, BYTES_MAX)
        buffers = [[None if part is None else bytes(part) for part in column[2:]] for column in slots]
        if all(length < 255 for column in slots for length in (column.length, *map(len, filter(None, column[2:])))):
            heads = [
                bytes([0, column.length, *(0xFF if part is None else len(part) for part in own)])
                for column, own in zip(slots, buffers, strict=True)
            ]
            yield bytes([at]) + b"".join(heads) + b"".join(part or b"" for own in buffers for part in own)


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
        seeds=lambda: list(_column_seeds()),
        run=hostile_columns,
        memory_bytes=1 << 20,
        short_inputs=3000,
    ),
]
