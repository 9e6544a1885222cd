"""Which data of a writer a reader can read, by tables of changes, for each format and level.

Source: Avro specification, "Schema Resolution"; Confluent, "Schema Evolution and Compatibility", "JSON Schema compatibility rules",
"Protobuf compatibility rules"; R. Yokota, "Understanding JSON Schema Compatibility"; Protocol Buffers, "Updating A Message Type".
"""
# ruff: noqa: E501 - tables with one case per line

import json
from typing import Any

import pytest

from bearlake.errors import Conflict
from bearlake.metadata.open import open_metadata
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.schemas import parsing
from bearlake.streams.schemas.model import Draft, Level, SchemaType
from bearlake.streams.schemas.problems import SchemaTooLarge
from bearlake.streams.schemas.service import Schemas


def problems(type_: SchemaType, old: Any, new: Any) -> list[str]:
    """The reasons why a reader with `new` cannot read data of a writer with `old`."""
    old, new = (schema if isinstance(schema, str) else json.dumps(schema) for schema in (old, new))
    return parsing.incompatibilities(parsing.compiled(type_, new, {}), parsing.compiled(type_, old, {}))


# -- Avro ----------------------------------------------------------------------------------------------------------


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


A, B = field("a", "int"), field("b", "string")
B_DEFAULT = field("b", "string", default="")

AVRO = [
    ("the same", record(A), record(A), True),
    ("a field is added with a default", record(A), record(A, B_DEFAULT), True),
    ("a field is added without a default", record(A), record(A, B), False),
    ("a field is removed", record(A, B), record(A), True),
    ("fields change places", record(A, B), record(B, A), True),
    ("a field gets another name", record(A), record(field("c", "int")), False),
    ("a field gets another name and an alias", record(A), record(field("c", "int", aliases=["a"])), True),
    ("a record gets another name", record(A), record(A, name="S"), False),
    ("a record gets another name and an alias", record(A), record(A, name="S", aliases=["R"]), True),
    ("int becomes long", record(A), record(field("a", "long")), True),
    ("int becomes double", record(A), record(field("a", "double")), True),
    ("long becomes float", "\"long\"", "\"float\"", True),
    ("long becomes int", "\"long\"", "\"int\"", False),
    ("string becomes bytes", "\"string\"", "\"bytes\"", True),
    ("bytes become string", "\"bytes\"", "\"string\"", True),
    ("string becomes int", "\"string\"", "\"int\"", False),
    ("a type becomes a union with it", "\"string\"", ["null", "string"], True),
    ("a union becomes one of its types", ["null", "string"], "\"string\"", False),
    ("a union of one becomes its type", ["string"], "\"string\"", True),
    ("a union grows", ["null", "string"], ["null", "string", "int"], True),
    ("a union shrinks", ["null", "string", "int"], ["null", "string"], False),
    ("an enum grows", {"type": "enum", "name": "E", "symbols": ["A"]}, {"type": "enum", "name": "E", "symbols": ["A", "B"]}, True),
    ("an enum shrinks", {"type": "enum", "name": "E", "symbols": ["A", "B"]}, {"type": "enum", "name": "E", "symbols": ["A"]}, False),
    (
        "an enum with a default shrinks",
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
        True,
    ),
    ("a fixed changes its size", {"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 8}, False),
    ("items are promoted", {"type": "array", "items": "int"}, {"type": "array", "items": "long"}, True),
    ("items change", {"type": "array", "items": "int"}, {"type": "array", "items": "string"}, False),
    ("values change", {"type": "map", "values": "long"}, {"type": "map", "values": "int"}, False),
    ("a logical type is added", "\"long\"", {"type": "long", "logicalType": "timestamp-millis"}, True),
    ("documentation changes", record(A, doc="one"), record(A, doc="two"), True),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "is_readable"), [row[1:] for row in AVRO], ids=[row[0] for row in AVRO])
def test_avro_follows_schema_resolution(old: Any, new: Any, is_readable: bool) -> None:
    assert (problems(SchemaType.AVRO, old, new) == []) is is_readable


# -- JSON Schema ---------------------------------------------------------------------------------------------------

INT, TEXT, NUMBER = {"type": "integer"}, {"type": "string"}, {"type": "number"}


def thing(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


OPEN, CLOSED = {"a": INT}, {"additionalProperties": False}
TEXTS = {"additionalProperties": TEXT}
PATTERN = {"patternProperties": {"^s_": TEXT}, "additionalProperties": False}

JSON = [
    ("the same", thing(OPEN), thing(OPEN), ""),
    ("titles change", thing(OPEN, title="x"), thing(OPEN, description="y"), ""),
    ("a property is added to an open model", thing(OPEN), thing({**OPEN, "b": TEXT}), "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
    ("any property is added to an open model", thing(OPEN), thing({**OPEN, "b": {}}), ""),
    ("a property is removed from an open model", thing({**OPEN, "b": TEXT}), thing(OPEN), ""),
    ("a property is added to a closed model", thing(OPEN, **CLOSED), thing({**OPEN, "b": TEXT}, **CLOSED), ""),
    ("a property is removed from a closed model", thing({**OPEN, "b": TEXT}, **CLOSED), thing(OPEN, **CLOSED), "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
    ("a forbidden one is removed from a closed model", thing({**OPEN, "b": False}, **CLOSED), thing(OPEN, **CLOSED), ""),
    ("a required one is added to a closed model", thing(OPEN, **CLOSED), thing({**OPEN, "b": TEXT}, required=["b"], **CLOSED), "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"),
    ("a required one with default is added to a closed model", thing(OPEN, **CLOSED), thing({**OPEN, "b": {**TEXT, "default": ""}}, required=["b"], **CLOSED), ""),
    ("one that the rest covers is added", thing(OPEN, **TEXTS), thing({**OPEN, "b": TEXT}, **TEXTS), ""),
    ("one that the rest does not cover is added", thing(OPEN, **TEXTS), thing({**OPEN, "b": INT}, **TEXTS), "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
    ("one that the rest covers is removed", thing({**OPEN, "b": TEXT}, **TEXTS), thing(OPEN, **TEXTS), ""),
    ("one that the rest does not cover is removed", thing({**OPEN, "b": INT}, **TEXTS), thing(OPEN, **TEXTS), "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
    ("one of a pattern is added", thing({}, **PATTERN), thing({"s_x": TEXT}, **PATTERN), ""),
    ("one against a pattern is added", thing({}, **PATTERN), thing({"s_x": INT}, **PATTERN), "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
    ("a model is opened", thing(OPEN, **CLOSED), thing(OPEN), ""),
    ("a model is closed", thing(OPEN), thing(OPEN, **CLOSED), "ADDITIONAL_PROPERTIES_REMOVED"),
    ("the rest is narrowed", thing(OPEN), thing(OPEN, **TEXTS), "ADDITIONAL_PROPERTIES_NARROWED"),
    ("the rest is extended", thing(OPEN, **TEXTS), thing(OPEN), ""),
    ("a property becomes required", thing(OPEN), thing(OPEN, required=["a"]), "REQUIRED_ATTRIBUTE_ADDED"),
    ("a property with default becomes required", thing({"a": {**INT, "default": 0}}), thing({"a": {**INT, "default": 0}}, required=["a"]), ""),
    ("a property is required no more", thing(OPEN, required=["a"]), thing(OPEN), ""),
    ("a property changes its type", thing(OPEN), thing({"a": TEXT}), "TYPE_CHANGED"),
    ("integer becomes number", INT, NUMBER, ""),
    ("number becomes integer", NUMBER, INT, "TYPE_NARROWED"),
    ("types are added", TEXT, {"type": ["string", "null"]}, ""),
    ("types are removed", {"type": ["string", "null"]}, TEXT, "TYPE_NARROWED"),
    ("a type is asked for", {}, TEXT, "TYPE_NARROWED"),
    ("anything is allowed", TEXT, True, ""),
    ("nothing is allowed", TEXT, False, "TYPE_NARROWED"),
    ("an enum grows", {"enum": ["a"]}, {"enum": ["a", "b"]}, ""),
    ("an enum shrinks", {"enum": ["a", "b"]}, {"enum": ["a"]}, "ENUM_ARRAY_NARROWED"),
    ("an enum changes", {"enum": ["a", "b"]}, {"enum": ["a", "c"]}, "ENUM_ARRAY_CHANGED"),
    ("an enum of true is none of 1", {"enum": [1]}, {"enum": [True]}, "ENUM_ARRAY_CHANGED"),
    ("an enum of 1.0 is one of 1", {"enum": [1]}, {"enum": [1.0]}, ""),
    ("a constant changes", {"const": "a"}, {"const": "b"}, "ENUM_ARRAY_CHANGED"),
    ("a length is limited", TEXT, {**TEXT, "maxLength": 5}, "MAX_LENGTH_ADDED"),
    ("a length may grow", {**TEXT, "maxLength": 5}, {**TEXT, "maxLength": 6}, ""),
    ("a length may not shrink", {**TEXT, "maxLength": 5}, {**TEXT, "maxLength": 4}, "MAX_LENGTH_DECREASED"),
    ("a minimum may shrink", {**INT, "minimum": 5}, {**INT, "minimum": 4}, ""),
    ("a minimum may not grow", {**INT, "minimum": 5}, {**INT, "minimum": 6}, "MINIMUM_INCREASED"),
    ("a maximum is taken away", {**INT, "maximum": 5}, INT, ""),
    ("an exclusive maximum is added", INT, {**INT, "exclusiveMaximum": 5}, "EXCLUSIVE_MAXIMUM_ADDED"),
    ("multiples are divided", {**INT, "multipleOf": 10}, {**INT, "multipleOf": 5}, ""),
    ("multiples are multiplied", {**INT, "multipleOf": 5}, {**INT, "multipleOf": 10}, "MULTIPLE_OF_EXPANDED"),
    ("multiples change", {**INT, "multipleOf": 5}, {**INT, "multipleOf": 7}, "MULTIPLE_OF_CHANGED"),
    ("a pattern is added", TEXT, {**TEXT, "pattern": "x"}, "PATTERN_ADDED"),
    ("a pattern is removed", {**TEXT, "pattern": "x"}, TEXT, ""),
    ("a pattern changes", {**TEXT, "pattern": "x"}, {**TEXT, "pattern": "y"}, "PATTERN_CHANGED"),
    ("items are promoted", {"type": "array", "items": INT}, {"type": "array", "items": NUMBER}, ""),
    ("items change", {"type": "array", "items": INT}, {"type": "array", "items": TEXT}, "TYPE_CHANGED"),
    ("items must be unique", {"type": "array"}, {"type": "array", "uniqueItems": True}, "UNIQUE_ITEMS_ADDED"),
    ("items are fewer", {"type": "array", "maxItems": 3}, {"type": "array", "maxItems": 2}, "MAX_ITEMS_DECREASED"),
    ("an item is added to an open tuple", {"items": [INT]}, {"items": [INT, TEXT]}, "ITEM_ADDED_TO_OPEN_CONTENT_MODEL"),
    ("an item is added to a closed tuple", {"items": [INT], "additionalItems": False}, {"items": [INT, TEXT], "additionalItems": False}, ""),
    ("an item is removed from a closed tuple", {"items": [INT, TEXT], "additionalItems": False}, {"items": [INT], "additionalItems": False}, "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
    ("properties are counted", thing({}), thing({}, minProperties=1), "MIN_PROPERTIES_ADDED"),
    ("a dependency is added", thing({}), thing({}, dependencies={"a": ["b"]}), "DEPENDENCY_ARRAY_ADDED"),
    ("a dependency grows", thing({}, dependencies={"a": ["b"]}), thing({}, dependencies={"a": ["b", "c"]}), "DEPENDENCY_ARRAY_EXTENDED"),
    ("a dependency goes", thing({}, dependencies={"a": ["b"]}), thing({}), ""),
    ("a schema depends", thing({}), thing({}, dependencies={"a": {"required": ["b"]}}), "DEPENDENCY_SCHEMA_ADDED"),
    ("a sum grows", {"oneOf": [INT, TEXT]}, {"oneOf": [TEXT, INT, {"type": "null"}]}, ""),
    ("a sum shrinks", {"oneOf": [INT, TEXT]}, {"oneOf": [INT]}, "SUM_TYPE_NARROWED"),
    ("a sum changes", {"anyOf": [INT, TEXT]}, {"anyOf": [INT, {"type": "null"}]}, "COMBINED_TYPE_SUBSCHEMAS_CHANGED"),
    ("one of becomes any of", {"oneOf": [INT, TEXT]}, {"anyOf": [INT, TEXT]}, ""),
    ("any of becomes one of", {"anyOf": [INT, TEXT]}, {"oneOf": [INT, TEXT]}, "COMBINED_TYPE_CHANGED"),
    ("a type becomes part of a sum", TEXT, {"oneOf": [TEXT, INT]}, ""),
    ("types become a sum", {"type": ["string", "null"]}, {"oneOf": [TEXT, {"type": "null"}]}, ""),
    ("a type is not part of the sum", TEXT, {"oneOf": [INT, {"type": "null"}]}, "TYPE_NARROWED"),
    ("a sum becomes one of its types", {"oneOf": [TEXT, INT]}, TEXT, "COMBINED_TYPE_CHANGED"),
    ("a sum becomes what holds all", {"oneOf": [NUMBER, INT]}, NUMBER, ""),
    ("a product shrinks", {"allOf": [{"minimum": 1}, {"maximum": 5}]}, {"allOf": [{"minimum": 1}]}, ""),
    ("a product grows", {"allOf": [{"minimum": 1}]}, {"allOf": [{"minimum": 1}, {"maximum": 5}]}, "PRODUCT_TYPE_EXTENDED"),
    ("a product appears", INT, {"type": "integer", "allOf": [{"minimum": 1}]}, "TYPE_NARROWED"),
    ("not grows", {"not": INT}, {"not": NUMBER}, "NOT_TYPE_EXTENDED"),
    ("not shrinks", {"not": NUMBER}, {"not": INT}, ""),
    ("not appears", {}, {"not": INT}, "NOT_TYPE_EXTENDED"),
    ("definitions are followed", {"$ref": "#/definitions/x", "definitions": {"x": INT}}, {"$ref": "#/definitions/y", "definitions": {"y": TEXT}}, "TYPE_CHANGED"),
    ("definitions get other names", {"$ref": "#/definitions/x", "definitions": {"x": INT}}, {"$ref": "#/definitions/y", "definitions": {"y": INT}}, ""),
    ("recursion ends", thing({"next": {"$ref": "#"}}), thing({"next": {"$ref": "#"}}), ""),
    ("recursion ends with a change", thing({"next": {"$ref": "#"}, "a": INT}), thing({"next": {"$ref": "#"}, "a": TEXT}), "TYPE_CHANGED"),
    (
        "beside a reference in new drafts",
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": "#/$defs/x", "$defs": {"x": INT}},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": "#/$defs/x", "minimum": 5, "$defs": {"x": INT}},
        "TYPE_NARROWED",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "kind"), [row[1:] for row in JSON], ids=[row[0] for row in JSON])
def test_json_schema_follows_confluents_rules(old: Any, new: Any, kind: str) -> None:
    found = problems(SchemaType.JSON, old, new)

    assert (found == []) is (kind == ""), found
    assert kind in "".join(found)


def test_comparing_json_schemas_takes_bounded_work() -> None:
    def nested(depth: int, last: str) -> Any:
        return (
            {"type": last} if depth == 0 else {"anyOf": [thing({f"p{at}": nested(depth - 1, last)}) for at in range(6)]}
        )

    with pytest.raises(SchemaTooLarge):
        problems(SchemaType.JSON, nested(5, "string"), nested(5, "integer"))


def test_avro_records_with_too_many_fields_are_not_compared() -> None:
    wide = record(*(field(f"f{at}", "int") for at in range(4001)))

    with pytest.raises(SchemaTooLarge):
        problems(SchemaType.AVRO, wide, wide)


def test_a_hostile_pattern_takes_linear_time() -> None:
    old = thing({}, patternProperties={"^(a+)+$": TEXT}, additionalProperties=False)
    new = thing({"a" * 5000 + "!": TEXT}, **CLOSED)

    assert problems(SchemaType.JSON, old, new) == []


# -- Protobuf ------------------------------------------------------------------------------------------------------


def proto(*lines: str, syntax: str = "proto3") -> str:
    return f'syntax = "{syntax}"; package p; ' + " ".join(lines)


def message(*fields: str) -> str:
    return f"message M {{ {' '.join(fields)} }}"


def of(*fields: str, syntax: str = "proto3") -> str:
    return proto(message(*fields), syntax=syntax)


PROTOBUF = [
    ("the same", of("int32 a = 1;"), of("int32 a = 1;"), ""),
    ("a field is added", of("int32 a = 1;"), of("int32 a = 1;", "string b = 2;"), ""),
    ("a field is removed", of("int32 a = 1;", "string b = 2;"), of("int32 a = 1;"), ""),
    ("a field gets another name", of("int32 a = 1;"), of("int32 b = 1;"), ""),
    ("int32 becomes int64", of("int32 a = 1;"), of("int64 a = 1;"), ""),
    ("int32 becomes bool", of("int32 a = 1;"), of("bool a = 1;"), ""),
    ("int32 becomes sint32", of("int32 a = 1;"), of("sint32 a = 1;"), "FIELD_SCALAR_KIND_CHANGED"),
    ("sint32 becomes sint64", of("sint32 a = 1;"), of("sint64 a = 1;"), ""),
    ("fixed32 becomes sfixed32", of("fixed32 a = 1;"), of("sfixed32 a = 1;"), ""),
    ("fixed32 becomes float", of("fixed32 a = 1;"), of("float a = 1;"), "FIELD_SCALAR_KIND_CHANGED"),
    ("string becomes bytes", of("string a = 1;"), of("bytes a = 1;"), ""),
    ("string becomes int32", of("string a = 1;"), of("int32 a = 1;"), "FIELD_SCALAR_KIND_CHANGED"),
    ("float becomes double", of("float a = 1;"), of("double a = 1;"), "FIELD_SCALAR_KIND_CHANGED"),
    ("an enum becomes int32", proto("enum E { X = 0; }", message("E a = 1;")), of("int32 a = 1;"), ""),
    ("an enum changes", proto("enum E { X = 0; Y = 1; }", message("E a = 1;")), proto("enum E { X = 0; Z = 2; }", message("E a = 1;")), ""),
    ("a string becomes repeated", of("string a = 1;"), of("repeated string a = 1;"), ""),
    ("a number becomes repeated", of("int32 a = 1;"), of("repeated int32 a = 1;"), "FIELD_NUMERIC_LABEL_CHANGED"),
    ("a scalar becomes a message", of("int32 a = 1;"), proto("message N {}", message("N a = 1;")), "FIELD_KIND_CHANGED"),
    ("a message field gets another type", proto("message N {}", "message O {}", message("N a = 1;")), proto("message N {}", "message O {}", message("O a = 1;")), "FIELD_NAMED_TYPE_CHANGED"),
    ("an inner message changes", proto("message N { int32 x = 1; }", message("N a = 1;")), proto("message N { string x = 1; }", message("N a = 1;")), "FIELD_SCALAR_KIND_CHANGED"),
    ("a message is added", of("int32 a = 1;"), proto(message("int32 a = 1;"), "message N {}"), ""),
    ("a message is removed", proto(message("int32 a = 1;"), "message N {}"), of("int32 a = 1;"), "MESSAGE_REMOVED"),
    ("a nested message is removed", of("message N {}", "int32 a = 1;"), of("int32 a = 1;"), "MESSAGE_REMOVED"),
    ("the package changes", 'syntax = "proto3"; package a; message M {}', 'syntax = "proto3"; package b; message M {}', "PACKAGE_CHANGED"),
    ("a map's values change", of("map<string, int32> a = 1;"), of("map<string, string> a = 1;"), "FIELD_SCALAR_KIND_CHANGED"),
    ("a map's values are widened", of("map<string, int32> a = 1;"), of("map<string, int64> a = 1;"), ""),
    ("a map's field gets another name", of("map<string, int32> a = 1;"), of("map<string, int32> b = 1;"), ""),
    ("a oneof is added", of("int32 a = 1;"), of("int32 a = 1;", "oneof o { string b = 2; }"), ""),
    ("a oneof grows", of("oneof o { string b = 2; }"), of("oneof o { string b = 2; string c = 3; }"), ""),
    ("a oneof shrinks", of("oneof o { string b = 2; string c = 3; }"), of("oneof o { string b = 2; }"), "ONEOF_FIELD_REMOVED"),
    ("a field moves into a new oneof", of("string b = 2;"), of("oneof o { string b = 2; string c = 3; }"), ""),
    ("fields move into a new oneof", of("string b = 2;", "string c = 3;"), of("oneof o { string b = 2; string c = 3; }"), "MULTIPLE_FIELDS_MOVED_TO_ONEOF"),
    ("a field moves into a oneof that was there", of("string a = 1;", "oneof o { string b = 2; }"), of("oneof o { string a = 1; string b = 2; }"), "FIELD_MOVED_TO_EXISTING_ONEOF"),
    ("optional is written", of("int32 a = 1;"), of("optional int32 a = 1;"), ""),
    ("a required field is added", of("optional int32 a = 1;", syntax="proto2"), of("optional int32 a = 1;", "required int32 b = 2;", syntax="proto2"), "REQUIRED_FIELD_ADDED"),
    ("a required field is removed", of("required int32 a = 1;", syntax="proto2"), of(syntax="proto2"), "REQUIRED_FIELD_REMOVED"),
    ("a field becomes required", of("optional int32 a = 1;", syntax="proto2"), of("required int32 a = 1;", syntax="proto2"), "REQUIRED_FIELD_ADDED"),
    ("recursion ends", of("M a = 1;"), of("M a = 1;", "int32 b = 2;"), ""),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "kind"), [row[1:] for row in PROTOBUF], ids=[row[0] for row in PROTOBUF])
def test_protobuf_follows_updating_a_message_type(old: str, new: str, kind: str) -> None:
    found = problems(SchemaType.PROTOBUF, old, new)

    assert (found == []) is (kind == ""), found
    assert kind in "".join(found)


# -- levels --------------------------------------------------------------------------------------------------------

BASE, WIDER = record(A), record(A, B)  # a reader with BASE reads WIDER, not the other way round
BOTH = record(A, B_DEFAULT)

LEVELS = [
    (Level.NONE, {"forward": True, "backward": True, "both": True}),
    (Level.BACKWARD, {"forward": False, "backward": True, "both": True}),
    (Level.FORWARD, {"forward": True, "backward": False, "both": True}),
    (Level.FULL, {"forward": False, "backward": False, "both": True}),
]


@pytest.mark.parametrize("is_transitive", [False, True])
@pytest.mark.parametrize(("level", "allowed"), LEVELS, ids=[level.value for level, _ in LEVELS])
async def test_a_level_allows_a_change_in_its_direction(
    level: Level, allowed: dict[str, bool], is_transitive: bool
) -> None:
    if is_transitive and level is not Level.NONE:
        level = Level(f"{level.value}_TRANSITIVE")
    for old, new, direction in ((BASE, WIDER, "forward"), (WIDER, BASE, "backward"), (BASE, BOTH, "both")):
        assert await registers(level, old, new) is allowed[direction], (level, direction)


@pytest.mark.parametrize(("level", "is_allowed"), [(Level.BACKWARD, True), (Level.BACKWARD_TRANSITIVE, False)])
async def test_only_transitive_levels_look_further_back(level: Level, is_allowed: bool) -> None:
    first, second, third = record(), record(B_DEFAULT), record(B)

    assert await registers(level, first, second, third) is is_allowed


async def registers(level: Level, *schemas: Any) -> bool:
    """Whether the last of the schemas is accepted after the others."""
    metadata = await open_metadata("memory:///")
    registry = Schemas(metadata.schemas)
    try:
        *before, last = schemas
        await registry.set_config(ANONYMOUS, "s", {"compatibility": "NONE"})
        for schema in before:
            await registry.register(ANONYMOUS, "s", Draft(text=json.dumps(schema)))
        await registry.set_config(ANONYMOUS, "s", {"compatibility": level.value})
        messages = await registry.check(ANONYMOUS, "s", Draft(text=json.dumps(last)))
        try:
            await registry.register(ANONYMOUS, "s", Draft(text=json.dumps(last)))
        except Conflict:
            assert messages
            return False
        assert messages == []
        return True
    finally:
        registry.close()
        await metadata.close()
