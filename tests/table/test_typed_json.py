"""JSON values as typed columns: what becomes of each value, and which columns a schema has."""

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from bearlake.errors import Invalid
from bearlake.kernel import TypedOutcome
from bearlake.table.typed import codec, mapping
from bearlake.table.typed.json_documents import reference_texts
from bearlake.table.typed.model import SchemaError, SchemaType, TypedColumns, TypedField
from fixtures.json_cases import CASES, SCHEMA, JsonCase


def columns_of(schema: Any, references: dict[str, Any] | None = None, **limits: int) -> TypedColumns:
    named = {name: json.dumps(text) for name, text in (references or {}).items()}
    return mapping.columns_of(SchemaType.JSON, json.dumps(schema), reference_texts(named), **limits)


def decoded(columns: TypedColumns, *values: bytes | None) -> tuple[list[Any], list[str | None]]:
    """The rows, and the errors."""
    found = codec.decode(columns, pa.array(values, pa.binary()))
    found.struct.validate(full=True)
    assert not any(found.is_exact.to_pylist())
    texts = {row: f"{problem.outcome.name}: {problem.path}" for row, problem in found.problems.items()}
    return found.struct.to_pylist(), [texts.get(row) for row in range(len(values))]


COLUMNS = columns_of(SCHEMA)


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case.value[:60]))
def test_each_value_is_read_as_json_says_or_has_an_error(case: JsonCase) -> None:
    rows, errors = decoded(COLUMNS, b'{"i": 1}', case.value, b'{"i": 2}')

    assert [rows[0]["i"], rows[2]["i"]] == [1, 2]
    assert (errors[0], errors[2]) == (None, None)
    if isinstance(case.expected, str):
        assert (rows[1], errors[1]) == (None, case.expected)
        return
    assert errors[1] is None
    found = {name: value for name, value in (rows[1] or {}).items() if value is not None}
    assert found == case.expected
    assert repr(found.get("n")) == repr(case.expected.get("n"))  # -0.0


def test_values_after_a_prefix_and_nulls_keep_their_rows() -> None:
    values = pa.array([b'\0\0\0\0\7{"i": 3}', None, b"\0\0\0\0\7", b"\0\0"], pa.binary())

    found = codec.decode(COLUMNS, values, skip=5)

    outcomes = [status & 255 for status in found.statuses.to_pylist()]
    assert outcomes == [TypedOutcome.FORM, TypedOutcome.NULL, TypedOutcome.TRUNCATED, TypedOutcome.TRUNCATED]
    assert found.struct.field("i").to_pylist() == [3, None, None, None]


def test_columns_of_json_give_no_value_back() -> None:
    found = codec.decode(COLUMNS, pa.array([b"{}"], pa.binary()), is_verified=True)

    assert found.is_exact.to_pylist() == [False]
    with pytest.raises(Invalid, match="do not give values back"):
        codec.encode(COLUMNS, found.struct)


def shape(field: TypedField) -> Any:
    """The type of a field, with those in it."""
    if field.type == "struct":
        return {child.name: shape(child) for child in field.children}
    if field.type == "list":
        return [shape(field.children[0])]
    if field.type == "map":
        return {field.children[0].type: shape(field.children[1])} | {"map": True}
    return "json" if field.is_json else field.type


def shapes(schema: Any, references: dict[str, Any] | None = None, **limits: int) -> dict[str, Any]:
    return {field.name: shape(field) for field in columns_of(schema, references, **limits).fields}


def fields(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "boolean"}, "boolean"),
        ({"type": "integer", "format": "int32", "minimum": 0}, "long"),
        ({"type": "number"}, "double"),
        ({"type": "string", "format": "email", "pattern": "^a"}, "string"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "date-time"}, "timestamptz"),
        ({"type": "string", "format": "uuid"}, "uuid"),
        ({"type": "string", "format": "time"}, "string"),
        ({"type": "number", "format": "date"}, "double"),
        ({"type": "string", "format": ["date"]}, "string"),
        ({"type": ["null", "string"], "format": "date"}, "date"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": ["integer", "string"]}, "json"),
        ({"enum": ["a", "b", None]}, "string"),
        ({"enum": [1, 2]}, "long"),
        ({"enum": [1, "a"]}, "json"),
        ({"const": True}, "boolean"),
        ({}, "json"),
        (True, "json"),
        ({"title": "x", "description": "y"}, "json"),
        ({"type": "any"}, "json"),
        ({"oneOf": [{"type": "null", "title": "Not included"}, {"type": "integer"}]}, "long"),
        ({"anyOf": [{"type": "string", "format": "uuid"}, {"type": "null"}]}, "uuid"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "json"),
        ({"type": "string", "anyOf": [{"format": "date"}, {"format": "uuid"}]}, "string"),
        ({"allOf": [{"type": "string"}, {"format": "date"}]}, "date"),
        ({"$ref": "#/$defs/Money"}, {"amount": "double", "currency": "string"}),
        ({"allOf": [{"$ref": "#/$defs/Money"}, fields(vat={"type": "number"})]},
         {"amount": "double", "currency": "string", "vat": "double"}),
        ({"properties": {"a": {"type": "integer"}}}, {"a": "long"}),
        (fields(a={"type": "integer"}) | {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": "long"}),
        ({"type": "object"}, "json"),
        ({"type": "object", "additionalProperties": False}, "json"),
        (fields(a={"type": "null"}, b=False), "json"),
        (fields(a={"type": "null"}, b={"type": "integer"}), {"b": "long"}),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"string": "long", "map": True}),
        ({"type": "object", "additionalProperties": True}, "json"),
        ({"type": "object", "additionalProperties": False, "patternProperties": {"^x": {"type": "string"}}},
         {"string": "string", "map": True}),
        ({"type": "object", "patternProperties": {"^x": {"type": "string"}}}, "json"),
        ({"type": "array", "items": {"type": "string"}}, ["string"]),
        ({"type": "array", "items": {}}, ["json"]),
        ({"type": "array", "items": [{"type": "string"}]}, "json"),
        ({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}}, "json"),
        ({"type": "array"}, "json"),
        ({"items": fields(a={"type": "integer"})}, [{"a": "long"}]),
        ({"$ref": "#money"}, "long"),
        ({"$ref": "#/$defs/Nothing"}, "json"),
        ({"$ref": "https://elsewhere.example/x.json"}, "json"),
        ({"$ref": "place.json#/definitions/City"}, {"name": "string"}),
        ({"$ref": "./place.json"}, {"city": {"name": "string"}}),
        ({"$ref": "https://acme.example/order.json#/$defs/Money/properties/amount"}, "double"),
        ({"$ref": 7}, "json"),
        ({"$dynamicRef": "#node"}, "json"),
    ],
    ids=str,
)  # fmt: skip
def test_each_schema_has_the_column_of_the_table_in_the_docs(schema: Any, expected: Any) -> None:
    whole = fields(f=schema) | {
        "$id": "https://acme.example/order.json",
        "$defs": {
            "Money": fields(amount={"type": "number"}, currency={"type": "string"}),
            "Cents": {"$anchor": "money", "type": "integer"},
        },
    }
    place = {
        "properties": {"city": {"$ref": "#/definitions/City"}},
        "definitions": {"City": fields(name={"type": "string"})},
    }

    assert shapes(whole, {"place.json": place}) == {"f": expected}


def test_a_schema_that_is_no_object_is_the_column_value() -> None:
    assert shapes({"type": "integer"}) == {"value": "long"}
    assert shapes({"type": "object", "additionalProperties": {"type": "integer"}}) == {
        "value": {"string": "long", "map": True}
    }
    assert shapes({"oneOf": [fields(a={"type": "integer"}), fields(b={"type": "integer"})]}) == {"value": "json"}
    assert shapes(True) == {"value": "json"}
    assert decoded(columns_of({"type": "integer"}), b" 7 ", b"null", b"{}") == (
        [{"value": 7}, {"value": None}, None],
        [None, None, "TYPE: "],
    )


def test_names_are_unique_and_hostile_ones_have_no_column() -> None:
    names = ["a", "A", "_offset", "b.c", "", "x" * 255, "x" * 256, "tab\t", "\x1fjson", "\ud800", "ſ", "s"]
    schema = fields(**{name: {"type": "integer"} for name in names})

    found = shapes(schema)

    assert list(found) == ["a", "A_2", "_offset_2", "b.c", "x" * 255, "ſ", "s_2"]
    rows, errors = decoded(columns_of(schema), b'{"A": 1, "": 2, "b.c": 3, "_offset": 4, "tab\\t": 5}')
    assert {name: value for name, value in rows[0].items() if value is not None} == {"A_2": 1, "b.c": 3, "_offset_2": 4}
    assert errors == [None]


def test_a_schema_inside_of_itself_is_a_text_there() -> None:
    tree = fields(name={"type": "string"}, children={"type": "array", "items": {"$ref": "#"}})
    chain = {"$ref": "#/$defs/Node", "$defs": {"Node": fields(
        v={"type": "integer"}, next={"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]})}}  # fmt: skip
    loop = fields(f={"$ref": "#/$defs/A"}) | {"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}

    assert shapes(tree) == {"name": "string", "children": ["json"]}
    assert shapes(chain) == {"v": "long", "next": "json"}
    assert shapes(loop) == {"f": "json"}
    rows, _ = decoded(columns_of(chain), b'{"v": 1, "next": {"v": 2, "next": null}}')
    assert rows == [{"v": 1, "next": '{"v": 2, "next": null}'}]


def test_deep_and_wide_schemas_keep_their_upper_levels() -> None:
    deep: Any = {"type": "integer"}
    for _ in range(20):
        deep = fields(f=deep)
    wide = fields(**{f"f{at}": fields(**{f"g{at}": {"type": "integer"} for at in range(30)}) for at in range(40)})
    levels: Any = shapes(deep)
    depth = 0
    while isinstance(levels, dict):
        levels, depth = levels["f"], depth + 1

    assert (levels, depth) == ("json", 16)
    assert set(map(str, shapes(wide).values())) == {"json"}
    with pytest.raises(SchemaError, match="more than 1000 columns"):
        columns_of(fields(**{f"f{at}": {"type": "integer"} for at in range(1001)}))


@pytest.mark.parametrize(
    "text",
    ["", "{", "7", "[]", '"a"', "[" * 100_000, "{" * 10 + "}" * 10],
)
def test_a_text_that_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        mapping.columns_of(SchemaType.JSON, text)


def test_a_schema_whose_references_multiply_is_refused_soon() -> None:
    definitions = {
        f"D{at}": {"allOf": [{"$ref": f"#/$defs/D{at + 1}", "title": str(side)} for side in range(2)]}
        for at in range(40)
    }
    doubling = fields(f={"$ref": "#/$defs/D0"}) | {"$defs": {**definitions, "D40": {"type": "integer"}}}
    wide = {f"E{at}": fields(**{f"p{side}": {"$ref": f"#/$defs/E{at + 1}"} for side in range(10)}) for at in range(15)}
    bushy = {"$ref": "#/$defs/E0", "$defs": {**wide, "E15": {"type": "integer"}}}

    for schema in (doubling, bushy):
        try:
            assert len(columns_of(schema).nodes) < 5_000
        except SchemaError as error:
            assert "too many schemas" in str(error)  # noqa: PT017 - either bound will do


def test_a_few_bytes_do_not_become_gigabytes_of_nulls() -> None:
    schema = fields(l={"type": "array", "items": fields(**{f"f{at}": {"type": "number"} for at in range(900)})})
    value = b'{"l": [' + b",".join([b"{}"] * 5_000) + b"]}"

    found = codec.decode(columns_of(schema), pa.array([value], pa.binary()), bytes_max=1 << 20)

    assert [problem.outcome for problem in found.problems.values()] == [TypedOutcome.SIZE]


def test_times_at_the_ends_of_the_calendar_are_exact() -> None:
    rows, _ = decoded(columns_of(fields(t={"type": "string", "format": "date-time"})), b'{"t": "0001-01-01T00:00:00Z"}')

    assert rows == [{"t": datetime(1, 1, 1, tzinfo=UTC)}]
