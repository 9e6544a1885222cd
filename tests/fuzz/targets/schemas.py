"""Schemas and values as children of the registry parse them: every error is the registry's own, none is the compiler's."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from bearlake.streams.schemas import parsing
from bearlake.streams.schemas.compiled import Compiled
from bearlake.streams.schemas.confined import frames, value_work, work
from bearlake.streams.schemas.model import SchemaType
from fuzz.mutation import change_json
from fuzz.target import Choices, Target

TYPES = list(SchemaType)
AVRO = {
    "type": "record",
    "name": "a.R",
    "fields": [
        {"name": "f", "type": ["null", "a.R"], "default": None},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}, "default": "X"},
        {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "long"}}},
        {"name": "b", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
        {"name": "x", "type": {"type": "fixed", "name": "F", "size": 3}},
    ],
}
JSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "title": "R",
    "properties": {
        "a": {"type": "integer", "minimum": 1},
        "b": {"$ref": "#/definitions/B"},
        "c": {"oneOf": [{"type": "string", "pattern": "^a+$"}, {"enum": [1, None]}]},
    },
    "definitions": {"B": {"type": "array", "items": {"type": "number"}, "maxItems": 3}},
    "required": ["a"],
    "additionalProperties": False,
}
PROTOBUF = """syntax = "proto3";
package a;
import "google/protobuf/timestamp.proto";
message R { int32 a = 1; repeated string b = 2; map<string, R> c = 3; oneof o { bytes d = 4; E e = 5; }
  google.protobuf.Timestamp t = 6; enum E { X = 0; Y = 1; } message I { optional double i = 1; } reserved 9 to 12, 20; }
"""
TEXTS = (json.dumps(AVRO), json.dumps(JSON), PROTOBUF)
VALUES = (
    {"f": None, "e": "X", "m": {"k": [1, 2]}, "b": "\u0001", "x": "abc"},
    {"a": 1, "b": [1.5], "c": "aa"},
    {"a": 1, "b": ["x"], "c": {"k": {"a": 2}}, "d": "AA==", "t": "2026-01-01T00:00:00Z"},
)


def compiled(data: bytes) -> object:
    """Compile a schema, and compare it with the unchanged one."""
    choices = Choices(data)
    at = choices.byte() % len(TYPES)
    text = choices.rest.decode("utf-8", "replace")
    head: dict[str, Any] = {"work": "compile", "type": TYPES[at].value, "references": []}
    answer, parts = frames.unpacked(work.answer(frames.packed(head, [text.encode()])))
    assert "error" not in answer, answer["error"]
    if "compiled" not in answer:
        return at, answer["refused"][0]
    other = parsing.compiled(TYPES[at], TEXTS[at], {})
    both = [other.as_parts(), (answer["compiled"], parts)]
    head = {"work": "compare", "schemas": [schema[0] for schema in both], "counts": [len(schema[1]) for schema in both]}
    answer, _ = frames.unpacked(work.answer(frames.packed(head, [part for schema in both for part in schema[1]])))
    assert "error" not in answer, answer["error"]
    return at, len(answer.get("reasons", ()))


def _compiled_seeds() -> Iterator[bytes]:
    for at, text in enumerate(TEXTS):
        yield bytes([at]) + text.encode()
    yield b"\0" + b'"long"'
    yield b"\1" + b"true"
    yield (
        b"\2"
        b'syntax = "proto2"; message M { extensions 100 to 199; optional group G = 1 { required int32 a = 2 [default = 5]; } }'
    )


def _compiled_json(random: Random, data: bytearray) -> None:
    rest = data[1:]
    change_json(random, rest)
    data[1:] = rest


class _Written:
    """The schemas of values, compiled at first use."""

    def __init__(self) -> None:
        self._known = value_work.Known()
        self._schemas: list[Compiled] = []

    def ask(self, at: int, kind: str, value: bytes) -> tuple[dict[str, Any], list[bytes]]:
        if not self._schemas:
            self._schemas = [
                parsing.compiled(schema_type, text, {}) for schema_type, text in zip(TYPES, TEXTS, strict=True)
            ]
        schema = self._schemas[at]
        head, parts = schema.as_parts()
        request = {
            "work": kind,
            "schema": schema.digest,
            "answer_bytes_max": 100_000,
            "depth_max": 100,
            "processor_ms": 1000,
            "compiled": head,
            "compiled_parts": len(parts),
        }
        packed = frames.packed(request, [*parts, value])
        answer = value_work.answer(packed, self._known, lambda _: None, lambda _: None)
        return frames.unpacked(answer)


WRITTEN = _Written()


def written(data: bytes) -> object:
    """Write a JSON value with a schema, or read the bytes of one; what was written can be read."""
    choices = Choices(data)
    at, kind = choices.byte() % len(TYPES), choices.of(("write", "read"))
    answer, parts = WRITTEN.ask(at, kind, choices.rest)
    assert "error" not in answer, answer["error"]
    if "results" not in answer:
        return at, kind, answer["refused"][0]
    (refusal,) = answer["results"]
    if refusal is None and kind == "write":
        again, _ = WRITTEN.ask(at, "read", parts[0])
        assert again["results"] == [None], again
    return at, kind, refusal is None


def _written_seeds() -> Iterator[bytes]:
    for at, value in enumerate(VALUES):
        text = json.dumps(value).encode()
        yield bytes([at, 0]) + text
        answer, parts = WRITTEN.ask(at, "write", text)
        assert answer["results"] == [None], answer
        yield bytes([at, 1]) + parts[0]


def _written_json(random: Random, data: bytearray) -> None:
    rest = data[2:]
    change_json(random, rest)
    data[2:] = rest


TARGETS = [
    Target(
        name="schemas",
        seeds=lambda: list(_compiled_seeds()),
        run=compiled,
        errors=(),
        change=_compiled_json,
        tokens=(
            b"message",
            b"repeated",
            b"{",
            b"}",
            b";",
            b"=",
            b"import",
            b"//",
            b"reserved",
            b"max",
            b"oneof",
            b"1",
            b'"',
        ),
        bytes_max=2048,
        memory_bytes=8 * 1024 * 1024,
        processor_s=1.0,  # in a child process, which has a limit of its own
        share=0.03,
        short_inputs=100,
    ),
    Target(
        name="schema values",
        seeds=lambda: list(_written_seeds()),
        run=written,
        errors=(),
        change=_written_json,
        bytes_max=2048,
        memory_bytes=4 * 1024 * 1024,
        processor_s=1.0,
        share=0.1,
        short_inputs=250,
    ),
]
