"""Schema texts: validity, canonical form, and comparison as a property."""
# ruff: noqa: E501 - texts of schemas

import json
from typing import Any

import jsonschema
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from hypothesis import given, settings
from hypothesis import strategies as st

from bearlake.streams.schemas import parsing
from bearlake.streams.schemas.formats import protobuf, protobuf_text
from bearlake.streams.schemas.model import SchemaType
from bearlake.streams.schemas.problems import InvalidSchema

AVRO, JSON, PROTOBUF = SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF


@pytest.mark.parametrize(
    ("type_", "text", "said"),
    [
        (AVRO, "5", "AVRO"),
        (AVRO, '"nothing"', "nothing"),
        (AVRO, '{"type":"record","name":"R"}', "AVRO"),
        (AVRO, '{"type":"record","name":"R","fields":[{"name":"a","type":"Unknown"}]}', "Unknown"),
        (AVRO, '{"type":"enum","name":"E","symbols":["A","A"]}', "symbol"),
        (AVRO, '{"type":"array"}', "AVRO"),
        (AVRO, '["null","null"]', "null"),
        (AVRO, '{"type":"record","name":"a-b","fields":[]}', "a-b"),
        (AVRO, '{"type":"fixed","name":"F","size":"x"}', "AVRO"),
        (AVRO, "{'type':'int'}", "JSON"),
        (AVRO, '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}', "default"),
        (AVRO, '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":2147483648}]}', "default"),
        (AVRO, '{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"],"default":"x"}]}', "default"),
        (JSON, '{"maximum":1e999}', "large"),
        (JSON, '{"$ref":"#/x","x":5}', "JSON"),
        (JSON, '{"$ref":"#/x","x":{"properties":5}}', "$.properties"),
        (JSON, '{"$ref":"#/x","x":{"items":{"$ref":"#/none"}}}', "reference"),
        (JSON, '{"type":"nothing"}', "nothing"),
        (JSON, '{"properties":[]}', "$.properties"),
        (JSON, '{"$ref":"#/definitions/none"}', "reference"),
        (JSON, '{"properties":{"a":{"$ref":"http://example.com/other.json"}}}', "other.json"),
        (JSON, '{"minimum":NaN}', "NaN"),
        (JSON, "[]", "object"),
        (PROTOBUF, 'syntax = "proto3"; message A { B b = 1; }', "line 1"),
        (PROTOBUF, 'syntax = "proto3"; message A { int32 a = 1; int32 b = 1; }', "1"),
        (PROTOBUF, 'syntax = "proto3";\nimport "none.proto";', "none.proto"),
        (PROTOBUF, 'syntax = "proto3"; import "../secret.proto";', "secret"),
        (PROTOBUF, "no proto", "line 1"),
    ],
)
def test_an_invalid_schema_is_refused_with_the_reason(type_: SchemaType, text: str, said: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        parsing.compiled(type_, text, {})

    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["/etc/x.proto", "../x.proto", "a/../x.proto", "a//x.proto", "", ".", 'a".proto'])
def test_a_reference_of_protobuf_is_a_path_inside(name: str) -> None:
    with pytest.raises(InvalidSchema):
        parsing.compiled(PROTOBUF, 'syntax = "proto3";', {name: 'syntax = "proto3";'})


def test_avro_is_written_as_apache_avros_java_writes_it() -> None:
    text = """{
        "fields": [
            {"type": {"type": "string"}, "name": "a", "order": "ascending", "note": 1},
            {"name": "b", "type": ["null", "shop.Order"], "default": null},
            {"name": "c", "type": {"type": "fixed", "name": "other.Id", "size": 8}},
            {"name": "d", "type": {"type": "long", "logicalType": "timestamp-millis"}}
        ],
        "doc": "An order", "name": "Order", "namespace": "shop", "type": "record"
    }"""

    assert parsing.compiled(AVRO, text, {}).text == (
        '{"type":"record","name":"Order","namespace":"shop","doc":"An order","fields":['
        '{"name":"a","type":"string","note":1},{"name":"b","type":["null","Order"],"default":null},'
        '{"name":"c","type":{"type":"fixed","name":"Id","namespace":"other","size":8}},'
        '{"name":"d","type":{"type":"long","logicalType":"timestamp-millis"}}]}'
    )


@pytest.mark.parametrize(
    ("text", "written"), [('{"type":"int"}', '"int"'), (' "int" ', '"int"'), ('["null", "int"]', '["null","int"]')]
)
def test_avro_has_one_spelling_of_simple_types(text: str, written: str) -> None:
    assert parsing.compiled(AVRO, text, {}).text == written


def test_avro_defaults_may_be_of_any_type_of_a_union() -> None:
    fields = [
        {"name": "a", "type": ["null", "int"], "default": 5},
        {"name": "b", "type": {"type": "map", "values": "long"}, "default": {"x": -(2**63)}},
        {
            "name": "c",
            "type": {"type": "record", "name": "C", "fields": [{"name": "d", "type": "bytes", "default": "\u00ff"}]},
            "default": {},
        },
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}, "default": "A"},
        {"name": "f", "type": {"type": "array", "items": "double"}, "default": [1, 2.5]},
    ]
    text = json.dumps({"type": "record", "name": "R", "fields": fields})

    assert json.loads(parsing.compiled(AVRO, text, {}).text)["fields"] == fields


def test_json_schemas_keep_the_order_of_their_keys() -> None:
    parsed = parsing.compiled(JSON, '{ "type": "object",\n "additionalProperties": false }', {})

    assert parsed.text == '{"type":"object","additionalProperties":false}'
    assert parsed.normalized == '{"additionalProperties":false,"type":"object"}'


def test_protobuf_is_written_in_one_way() -> None:
    base = 'syntax = "proto2"; package z; message R { extensions 100 to 200; } extend R { optional int32 more = 100; }'
    text = """// A comment.
        syntax = "proto3"; package x.y; import "google/protobuf/timestamp.proto"; import "confluent/meta.proto"; import "z/r.proto";
        option java_package = "shop";
        message A {
          option (confluent.message_meta) = { doc: "an \\"A\\"" tags: ["b", "a"] };
          google.protobuf.Timestamp t = 2; map<string, B> m = 3; optional int32 o = 4;
          oneof q { B b = 5; z.R r = 6; }
          message B { repeated E e = 1 [packed = false, json_name = "EE"]; } /* another */
          enum E { X = 0; reserved 5 to 7, 9; reserved "Y"; }
          reserved 100 to max, 50;
        }
        service S { rpc Watch (A) returns (stream A) { option deprecated = true; } }"""
    parsed = parsing.compiled(PROTOBUF, text, {"z/r.proto": base})

    assert parsed.text == text
    assert parsed.canonical == (
        'syntax = "proto3";\npackage x.y;\n\nimport "google/protobuf/timestamp.proto";\nimport "confluent/meta.proto";\n'
        'import "z/r.proto";\noption java_package = "shop";\nmessage A {\n'
        '  option (confluent.message_meta) = { doc: "an \\"A\\"" tags: "b" tags: "a" };\n'
        "  reserved 100 to max;\n  reserved 50;\n  google.protobuf.Timestamp t = 2;\n  map<string, x.y.A.B> m = 3;\n"
        "  optional int32 o = 4;\n  oneof q {\n    x.y.A.B b = 5;\n    z.R r = 6;\n  }\n"
        '  message B {\n    repeated x.y.A.E e = 1 [json_name = "EE", packed = false];\n  }\n'
        '  enum E {\n    reserved 5 to 7;\n    reserved 9;\n    reserved "Y";\n    X = 0;\n  }\n}\n'
        "service S {\n  rpc Watch (x.y.A) returns (stream x.y.A) {\n    option deprecated = true;\n  }\n}\n"
    )
    assert parsing.compiled(PROTOBUF, parsed.canonical, {"z/r.proto": base}).canonical == parsed.canonical
    assert parsing.compiled(PROTOBUF, parsed.exports["serialized"], {"z/r.proto": base}).text == parsed.canonical


@pytest.mark.parametrize(
    "text",
    [
        'syntax = "proto2"; message A { required group G = 1 { optional bytes b = 1 [default = "\\001\\"x"]; } extensions 5 to 9; }',
        'syntax = "proto2"; message A { optional string s = 1 [default = "a\\nb\\"c"]; optional double d = 2 [default = inf]; }',
        'syntax = "proto2"; message A { optional E e = 1 [default = Y]; enum E { X = 1; Y = 2; } extend A { optional int32 x = 7; } extensions 7; }',
        'syntax = "proto3"; enum E { option allow_alias = true; X = 0; Y = 0 [deprecated = true]; Z = -5; }',
        'edition = "2023"; message A { int32 a = 1 [features.field_presence = IMPLICIT]; reserved b; }',
        'syntax = "proto3"; package a.b; message b { message C {} .a.b.b.C c = 1; } message a { .a.b.b x = 1; }',
        'syntax = "proto3"; import "google/protobuf/any.proto"; import "google/type/money.proto"; message M { google.type.Money m = 1; google.protobuf.Any a = 2; }',
        'message Unsaid { optional int32 a = 1; }',
        'syntax = "proto2"; message Disliked { optional int32 fooBar = 1; optional int32 foo_bar = 2; }',
        '/* a comment */ // another\nsyntax = "proto3"; message A {}',
    ],
)  # fmt: skip
def test_protobuf_texts_stand_for_themselves(text: str) -> None:
    first = protobuf.parsed(text, {})
    second = protobuf.parsed(first.canonical, {})

    first.file.name = second.file.name = "same"
    assert second.file == first.file
    assert second.canonical == first.canonical


NAMES = st.sampled_from(["a", "b", "Order", "x1", "_y"])
PRIMITIVES = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])


@st.composite
def avro_schemas(draw: st.DrawFn, depth: int = 3, counter: Any = None) -> Any:
    counter = [0] if counter is None else counter
    kind = draw(
        st.sampled_from(["primitive", "record", "enum", "fixed", "array", "map", "union"] if depth else ["primitive"])
    )
    inner = avro_schemas(depth - 1, counter) if depth else None
    if kind == "primitive":
        name = draw(PRIMITIVES)
        return draw(st.sampled_from([name, {"type": name}]))
    if kind in ("array", "map"):
        return {"items" if kind == "array" else "values": draw(inner), "type": kind}  # type: ignore[arg-type]
    if kind == "union":
        return draw(st.lists(PRIMITIVES, unique=True, min_size=1, max_size=3))
    counter[0] += 1
    head: dict[str, Any] = {"name": f"N{counter[0]}", "type": kind}
    if draw(st.booleans()):
        head["namespace"] = draw(st.sampled_from(["x", "x.y"]))
    if kind == "enum":
        return head | {"symbols": draw(st.lists(NAMES, unique=True, min_size=1))}
    if kind == "fixed":
        return head | {"size": draw(st.integers(1, 64))}
    names = draw(st.lists(NAMES, unique=True, max_size=3))
    return head | {"fields": [{"type": draw(inner), "name": name} for name in names]}  # type: ignore[arg-type]


@given(avro_schemas())
@settings(max_examples=100, deadline=None)
def test_normalized_avro_schemas_are_stable_and_compatible_with_themselves(schema: Any) -> None:
    first = parsing.compiled(AVRO, json.dumps(schema), {})
    second = parsing.compiled(AVRO, first.text, {})

    assert second.text == first.text
    assert parsing.incompatibilities(first, second) == []


@st.composite
def descriptors(draw: st.DrawFn) -> FileDescriptorProto:
    file = FileDescriptorProto(name="f.proto", syntax="proto3", package=draw(st.sampled_from([None, "p", "p.q"])))
    scope = f".{file.package}" if file.package else ""
    count = draw(st.integers(1, 3))
    for at in range(count):
        message = file.message_type.add(name=f"M{at}")
        for number in draw(st.lists(st.integers(1, 100), unique=True, max_size=4)):
            field = message.field.add(name=f"f_{number}", number=number)
            field.label = draw(
                st.sampled_from([FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.LABEL_REPEATED])
            )
            field.type = draw(st.sampled_from([1, 3, 5, 8, 9, 11, 12, 17]))
            if field.type == FieldDescriptorProto.TYPE_MESSAGE:
                field.type_name = f"{scope}.M{draw(st.integers(0, count - 1))}"
            if draw(st.booleans()):
                field.options.deprecated = True
    return file


@given(descriptors())
@settings(max_examples=60, deadline=None)
def test_protobuf_descriptors_survive_as_text(file: FileDescriptorProto) -> None:
    compiled = protobuf.parsed(protobuf_text.rendered(file, []), {})

    compiled.file.name = file.name
    assert compiled.file == file
    assert protobuf.incompatibilities(compiled, compiled) == []


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 6)
    | st.sampled_from([0.5, 2.5])
    | st.sampled_from(["", "a", "bb", "s_c"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "s_c"]), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def json_schemas(draw: st.DrawFn, depth: int = 2) -> Any:
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        leaves: list[Any] = [
            True,
            {},
            {"type": "integer"},
            {"type": ["string", "null"]},
            {"enum": [1, "a", None]},
            {"type": "number"},
        ]
        return draw(st.sampled_from(leaves))
    inner = json_schemas(depth - 1)
    kind = draw(st.sampled_from(["object", "array", "limits", "anyOf", "allOf", "not"]))
    if kind in ("anyOf", "allOf"):
        return {kind: draw(st.lists(inner, min_size=1, max_size=3))}
    if kind == "not":
        return {"not": draw(inner)}
    if kind == "limits":
        keys = [
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "minLength",
            "maxLength",
            "maxItems",
            "minProperties",
        ]
        limits = draw(st.dictionaries(st.sampled_from(keys), st.integers(0, 4), max_size=2))
        return {**limits, **draw(st.sampled_from([{}, {"type": "integer"}, {"type": "string"}, {"multipleOf": 2}]))}
    if kind == "array":
        if draw(st.booleans()):
            return {"type": "array", "items": draw(inner)}
        positions = draw(st.lists(inner, min_size=1, max_size=2))
        return {"type": "array", "items": positions, "additionalItems": draw(inner | st.just(False))}
    names = st.sampled_from(["a", "b", "s_c"])
    schema = {"type": "object", "properties": draw(st.dictionaries(names, inner, max_size=2))}
    schema["required"] = draw(st.lists(names, unique=True, max_size=2))
    schema["additionalProperties"] = draw(inner | st.booleans())
    if draw(st.integers(0, 3)) == 0:
        schema["patternProperties"] = {"^s_": draw(inner)}
    return schema


@given(
    json_schemas(),
    st.one_of(st.none(), json_schemas()),
    st.randoms(use_true_random=False),
    st.lists(VALUES, max_size=30),
)
@settings(max_examples=400, deadline=None)
def test_a_compatible_json_schema_takes_whatever_the_old_one_took(
    old: Any, new: Any, randomness: Any, values: list[Any]
) -> None:
    new = mutated(old, randomness) if new is None else new
    before, after = (parsing.compiled(JSON, json.dumps(schema), {}) for schema in (old, new))
    if parsing.incompatibilities(after, before):
        return
    old_valid, new_valid = jsonschema.Draft7Validator(old), jsonschema.Draft7Validator(new)

    for value in values:
        assert new_valid.is_valid(value) or not old_valid.is_valid(value), (old, new, value)


def mutated(schema: Any, randomness: Any) -> Any:
    """The schema with one thing changed somewhere."""
    if not isinstance(schema, dict) or not schema or randomness.random() < 0.2:
        return randomness.choice([True, False, {"type": "integer"}, {"type": "string"}, {}])
    key = randomness.choice(sorted(schema))
    changed = dict(schema)
    value = changed.pop(key)
    if randomness.random() < 0.3:
        return changed
    if isinstance(value, list) and value and isinstance(value[0], dict | bool):
        changed[key] = [mutated(value[0], randomness), *value[1:]]
    elif key in ("properties", "patternProperties") and value:
        name = min(value)
        changed[key] = {**value, name: mutated(value[name], randomness)}
    elif isinstance(value, int) and not isinstance(value, bool):
        changed[key] = max(0, value + randomness.choice([-1, 1]))
    elif key in ("items", "additionalItems", "additionalProperties", "not") and not isinstance(value, list):
        changed[key] = mutated(value, randomness)
    else:
        changed[key] = value
    return changed
