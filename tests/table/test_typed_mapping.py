"""Schemas as typed columns: types, names, paths, nesting, width, and schemas that have no typed columns."""

import json
from typing import Any

import pyarrow as pa
import pytest

from bearlake.table.typed import mapping
from bearlake.table.typed.model import SchemaError, SchemaType, TypedColumns, TypedField
from fixtures.avro_cases import fixed, logical, record


def columns_of(schema: Any, *references: Any, **limits: int) -> TypedColumns:
    return mapping.columns_of(SchemaType.AVRO, json.dumps(schema), [json.dumps(item) for item in references], **limits)


def types(columns: TypedColumns) -> list[str]:
    return [field.type for field in columns.fields]


def shape(field: TypedField) -> Any:
    """Name, path and type of a field and of those below it."""
    return (field.name, field.path, field.type, [shape(child) for child in field.children])


@pytest.mark.parametrize(
    ("avro", "iceberg", "arrow"),
    [
        ("boolean", "boolean", pa.bool_()),
        ("int", "int", pa.int32()),
        ("long", "long", pa.int64()),
        ("float", "float", pa.float32()),
        ("double", "double", pa.float64()),
        ("bytes", "binary", pa.binary()),
        ("string", "string", pa.string()),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "string", pa.string()),
        (fixed(4), "fixed[4]", pa.binary(4)),
        (fixed(0), "boolean", pa.bool_()),
        (fixed(1025), "binary", pa.binary()),
        (logical("bytes", "decimal", precision=10, scale=2), "decimal(10, 2)", pa.decimal128(10, 2)),
        (logical("bytes", "decimal", precision=38), "decimal(38, 0)", pa.decimal128(38, 0)),
        (logical("bytes", "decimal", precision=39), "binary", pa.binary()),
        (logical("bytes", "decimal", precision=2, scale=3), "binary", pa.binary()),
        (logical("bytes", "decimal", precision="2"), "binary", pa.binary()),
        (fixed(5, logicalType="decimal", precision=11, scale=1), "decimal(11, 1)", pa.decimal128(11, 1)),
        (fixed(5, logicalType="decimal", precision=12, scale=1), "fixed[5]", pa.binary(5)),
        (fixed(20, logicalType="decimal", precision=40), "fixed[20]", pa.binary(20)),
        (fixed(20, logicalType="decimal", precision=2**70), "fixed[20]", pa.binary(20)),
        (logical("string", "uuid"), "uuid", pa.binary(16)),
        (fixed(16, logicalType="uuid"), "uuid", pa.binary(16)),
        (logical("int", "date"), "date", pa.date32()),
        (logical("int", "time-millis"), "time", pa.time64("us")),
        (logical("long", "time-micros"), "time", pa.time64("us")),
        (logical("long", "timestamp-millis"), "timestamptz", pa.timestamp("us", tz="UTC")),
        (logical("long", "timestamp-micros"), "timestamptz", pa.timestamp("us", tz="UTC")),
        (logical("long", "local-timestamp-millis"), "timestamp", pa.timestamp("us")),
        (logical("long", "local-timestamp-micros"), "timestamp", pa.timestamp("us")),
        (logical("long", "timestamp-nanos"), "long", pa.int64()),
        (logical("long", "date"), "long", pa.int64()),
        (logical("string", "of-my-own"), "string", pa.string()),
        ({"type": {"type": "long", "logicalType": "timestamp-micros"}}, "timestamptz", pa.timestamp("us", tz="UTC")),
        ({"type": "array", "items": "null"}, "list", pa.list_(pa.field("element", pa.bool_()))),
        (["null"], "boolean", pa.bool_()),
    ],
    ids=str,
)
def test_types_are_those_of_the_table(avro: Any, iceberg: str, arrow: pa.DataType) -> None:
    (field,) = columns_of(record(avro)).fields
    (optional,) = columns_of(record(["null", avro] if avro != ["null"] else avro)).fields

    assert (field.name, field.path, field.type, field.arrow) == ("f0", "f0", iceberg, arrow)
    assert (optional.type, optional.arrow, optional.is_nullable) == (iceberg, arrow, True)


def test_paths_lead_to_every_field() -> None:
    item = {"type": "record", "name": "I", "fields": [{"name": "a", "type": ["int", "string", "null"]}]}
    (field,) = columns_of(record({"type": "map", "values": {"type": "array", "items": item}})).fields

    assert shape(field) == (
        "f0", "f0", "map", [
            ("key", "f0.key", "string", []),
            ("value", "f0.value", "list", [
                ("element", "f0.value.element", "struct", [
                    ("a", "f0.value.element.a", "struct", [
                        ("int", "f0.value.element.a.int", "int", []),
                        ("string", "f0.value.element.a.string", "string", []),
                    ]),
                ]),
            ]),
        ],
    )  # fmt: skip


def named(*names: str, aliases: dict[str, list[str]] | None = None) -> dict[str, Any]:
    fields = [{"name": name, "type": "int", "aliases": (aliases or {}).get(name, [])} for name in names]
    return {"type": "record", "name": "R", "fields": fields}


def test_names_are_unique_without_regard_to_case_and_none_is_reserved() -> None:
    columns = columns_of(named("a", "A", "a_2", "_offset", "_Partition", "b"))
    inner = columns_of(record(named("_offset", "x", "X") | {"name": "I"})).fields[0]

    assert [field.name for field in columns.fields] == ["a", "A_2", "a_2_2", "_offset_2", "_Partition_2", "b"]
    assert [field.path for field in columns.fields] == ["a", "A", "a_2", "_offset", "_Partition", "b"]
    assert [field.name for field in inner.children] == ["_offset", "x", "X_2"]


def test_branches_of_a_union_with_the_same_short_name_have_columns_of_their_own() -> None:
    branches = [named("v") | {"name": "a.V"}, named("v") | {"name": "b.V"}]

    (field,) = columns_of(record(branches)).fields

    assert [child.name for child in field.children] == ["V", "V_2"]


def test_aliases_are_kept() -> None:
    (field,) = columns_of(named("a", aliases={"a": ["b", "c"]})).fields

    assert field.aliases == ("b", "c")


def test_names_are_resolved_in_their_namespace() -> None:
    inner = {"type": "enum", "name": "E", "symbols": ["A"]}
    schema = {
        "type": "record",
        "name": "R",
        "namespace": "n",
        "fields": [{"name": "a", "type": inner}, {"name": "b", "type": "E"}, {"name": "c", "type": "n.E"}],
    }

    assert types(columns_of(schema)) == ["string"] * 3


def test_references_declare_types() -> None:
    address = {"type": "record", "name": "n.Address", "fields": [{"name": "city", "type": "string"}]}
    person = {"type": "record", "name": "n.Person", "fields": [{"name": "home", "type": "Address"}]}

    columns = columns_of(record("n.Person", "n.Address"), address, person)

    assert types(columns) == ["struct", "struct"]
    assert columns.fields[0].children[0].children[0].path == "f0.home.city"


def nested(levels: int) -> Any:
    """A record in a record …: the innermost has a string."""
    schema: Any = "string"
    for level in range(levels):
        schema = {"type": "record", "name": f"L{level}", "fields": [{"name": "x", "type": schema}]}
    return schema


def depth(field: TypedField) -> int:
    return 1 + max((depth(child) for child in field.children), default=0)


def test_what_is_nested_deeper_than_the_limit_is_binary() -> None:
    assert depth(columns_of(nested(16)).fields[0]) == 16
    field = columns_of(nested(17)).fields[0]
    assert depth(field) == 16
    for _ in range(15):
        (field,) = field.children
    assert field.type == "binary"
    assert types(columns_of(nested(3), levels_max=1)) == ["binary"]


def test_a_schema_with_too_many_columns_gets_fewer_levels() -> None:
    wide = record(
        *({"type": "record", "name": f"W{at}", "fields": named("a", "b", "c")["fields"]} for at in range(5)), "int"
    )

    assert types(columns_of(wide, columns_max=16)) == ["struct"] * 5 + ["int"]
    assert types(columns_of(wide, columns_max=15)) == ["binary"] * 5 + ["int"]
    with pytest.raises(SchemaError, match="more than 5 columns"):
        columns_of(wide, columns_max=5)


def test_types_that_multiply_are_bounded() -> None:
    schema: Any = "int"
    for level in range(40):
        schema = {
            "type": "record",
            "name": f"L{level}",
            "fields": [{"name": "a", "type": schema}, {"name": "b", "type": f"L{level - 1}" if level else "int"}],
        }

    columns = columns_of(schema)

    assert len(columns.nodes) < 3000


def test_records_without_columns_that_multiply_are_bounded() -> None:
    schema: Any = {"type": "record", "name": "L", "fields": [{"name": "a", "type": "null"}]}
    for level in range(20):
        schema = {
            "type": "record",
            "name": f"L{level}",
            "fields": [
                {"name": name, "type": schema if name == "a" else f"L{level - 1}" if level else "L"} for name in "ab"
            ],
        }

    assert len(columns_of(schema).nodes) <= 4_100


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ([], "a union without branches"),
        (["null", ["int"]], "a union without branches, or inside of a union"),
        (["null", "null", "int"], "a union with two nulls"),
        ("Unknown", "no type 'Unknown' is declared"),
        (7, "7 is no type"),
        ({"type": 7}, "a type without a kind"),
        ({"type": "record", "name": "R"}, "None is no list"),
        ({"type": "record", "fields": []}, "a record without a name"),
        ({"type": "record", "name": "R", "fields": [{"name": 'a"\0', "type": "int"}]}, "expected letters, digits"),
        ({"type": "record", "name": "R", "fields": [{"name": "", "type": "int"}]}, "expected letters, digits"),
        ({"type": "record", "name": "R", "fields": [{"name": "a" * 256, "type": "int"}]}, "at most 255"),
        ({"type": "record", "name": "n.1", "fields": []}, "expected letters, digits"),
        ({"type": "enum", "name": "E", "symbols": []}, "an enum without symbols"),
        (fixed(2**24 + 1), "a fixed of size 16777217"),
        (fixed(2**70, logicalType="decimal", precision=10), "a fixed of size 1180591620"),
        ({"type": "fixed", "name": "F", "size": -1}, "a fixed of size -1"),
    ],
    ids=str,
)
def test_schemas_that_are_malformed_are_refused_with_their_path(schema: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message) as caught:
        columns_of(record("int", {"type": "array", "items": schema}))

    assert caught.value.path == "f1.element"


def test_text_that_is_no_schema_is_refused() -> None:
    for text in ("{", "", "nul", '{"type": "enum", "name": "E", "symbols": ["\\udcff"]}'):
        with pytest.raises(SchemaError):
            mapping.columns_of(SchemaType.AVRO, text)
    with pytest.raises(SchemaError):
        mapping.columns_of(SchemaType.AVRO, "[" * 100_000)
    assert types(mapping.columns_of(SchemaType.AVRO, "string")) == ["string"]
