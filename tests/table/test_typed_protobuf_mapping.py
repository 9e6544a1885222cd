"""Protobuf messages as typed columns: types, names, paths, presence, nesting, width, and schemas that have no typed columns."""

from typing import Any

import pyarrow as pa
import pytest

from bearlake.table.typed import protobuf
from bearlake.table.typed.model import SchemaError, TypedColumns, TypedField
from fixtures.protobuf_cases import files_of

IMPORTS = "".join(f'import "google/protobuf/{name}.proto"; ' for name in ("timestamp", "wrappers", "struct", "any"))


def columns_of(body: str, *indexes: int, syntax: str = "proto3", **limits: int) -> TypedColumns:
    return protobuf.columns_of(files_of(f'syntax = "{syntax}"; {IMPORTS}{body}'), indexes or (0,), **limits)


def shape(field: TypedField) -> Any:
    """Name, path and type of a field and of those below it."""
    return (field.name, field.path, field.type, [shape(child) for child in field.children])


@pytest.mark.parametrize(
    ("type_", "iceberg", "arrow"),
    [
        ("bool", "boolean", pa.bool_()),
        ("int32", "int", pa.int32()),
        ("sint32", "int", pa.int32()),
        ("sfixed32", "int", pa.int32()),
        ("int64", "long", pa.int64()),
        ("sint64", "long", pa.int64()),
        ("sfixed64", "long", pa.int64()),
        ("uint32", "long", pa.int64()),
        ("fixed32", "long", pa.int64()),
        ("uint64", "decimal(20, 0)", pa.decimal128(20, 0)),
        ("fixed64", "decimal(20, 0)", pa.decimal128(20, 0)),
        ("float", "float", pa.float32()),
        ("double", "double", pa.float64()),
        ("string", "string", pa.string()),
        ("bytes", "binary", pa.binary()),
        ("E", "string", pa.string()),
        ("Empty", "boolean", pa.bool_()),
        ("google.protobuf.Timestamp", "timestamptz", pa.timestamp("us", tz="UTC")),
        ("google.protobuf.UInt32Value", "long", pa.int64()),
        ("google.protobuf.StringValue", "string", pa.string()),
        ("google.protobuf.Any", "binary", pa.binary()),
        ("google.protobuf.Struct", "binary", pa.binary()),
        ("M", "binary", pa.binary()),
    ],
)
def test_every_type_has_its_column(type_: str, iceberg: str, arrow: pa.DataType) -> None:
    columns = columns_of(f"message M {{ {type_} f = 1; }} message Empty {{}} enum E {{ A = 0; }}")

    assert [(field.name, field.type, field.arrow) for field in columns.fields] == [("f", iceberg, arrow)]


def test_messages_lists_and_maps_nest() -> None:
    columns = columns_of(
        "message M { repeated N n = 1; map<int32, N> m = 2; } message N { oneof o { int32 a = 1; string b = 2; } }"
    )

    below = lambda path: [("a", f"{path}.a", "int", []), ("b", f"{path}.b", "string", [])]  # noqa: E731
    assert [shape(field) for field in columns.fields] == [
        ("n", "n", "list", [("element", "n.element", "struct", below("n.element"))]),
        ("m", "m", "map", [("key", "m.key", "int", []), ("value", "m.value", "struct", below("m.value"))]),
    ]


def test_fields_have_nulls_if_they_have_presence() -> None:
    columns = columns_of(
        "message M { int32 a = 1; optional int32 b = 2; oneof o { int32 c = 3; } M d = 4; repeated int32 e = 5; }"
    )

    assert [field.is_nullable for field in columns.fields] == [False, True, True, True, False]


def test_editions_say_presence_by_features() -> None:
    body = """message M { int32 a = 1; int32 b = 2 [features.field_presence = IMPLICIT];
      repeated int32 c = 3 [features.repeated_field_encoding = EXPANDED];
      N d = 4 [features.message_encoding = DELIMITED]; } message N { int32 x = 1; }"""
    columns = protobuf.columns_of(files_of(f'edition = "2023"; {body}'))

    assert [field.is_nullable for field in columns.fields] == [True, False, False, True]
    labels = {path: wire.label for path, wire in zip(columns.paths, columns.wires, strict=True)}
    codings = {path: wire.coding.name for path, wire in zip(columns.paths, columns.wires, strict=True)}
    assert labels["c"].name == "REPEATED"
    assert codings["d"] == "GROUP"


def test_columns_stand_by_number_with_their_numbers() -> None:
    columns = columns_of("message M { int32 b = 7; int32 a = 2; }")

    assert [(field.name, field.number) for field in columns.fields] == [("a", 2), ("b", 7)]


def test_reserved_names_and_names_that_differ_by_case_get_a_number() -> None:
    columns = columns_of("message M { int32 a = 1; int32 A = 2; int32 _offset = 3; }")

    assert [field.name for field in columns.fields] == ["a", "A_2", "_offset_2"]
    assert [field.path for field in columns.fields] == ["a", "A", "_offset"]


@pytest.mark.parametrize(("indexes", "name"), [((0,), "a"), ((1,), "b"), ((1, 0), "c"), ((1, 1), "d")])
def test_message_indexes_name_the_message_and_pass_over_entries_of_maps(indexes: tuple[int, ...], name: str) -> None:
    body = """message A { int32 a = 1; }
      message B { map<int32, int32> b = 1; message C { int32 c = 1; } message D { int32 d = 1; } }"""

    assert [field.name for field in columns_of(body, *indexes).fields] == [name]


@pytest.mark.parametrize("indexes", [(1,), (0, 0), (-1,)])
def test_indexes_of_no_message_are_refused(indexes: tuple[int, ...]) -> None:
    with pytest.raises(SchemaError, match="no message"):
        columns_of("message A { int32 a = 1; }", *indexes)


@pytest.mark.parametrize("files", [(), (b"",), (b"\xff",), (b'\n\x01a"\x07\n\x01M\x12\x02\n\x01',)])
def test_malformed_descriptors_are_refused(files: tuple[bytes, ...]) -> None:
    with pytest.raises(SchemaError):
        protobuf.columns_of(files)


def test_deep_messages_are_binary() -> None:
    nested = (
        "".join(f"message L{at} {{ L{at + 1} n = 1; int32 a = 2; }} " for at in range(20))
        + "message L20 { int32 a = 1; }"
    )

    (field, _) = columns_of(nested).fields
    depth = 2
    while field.type == "struct":
        field, depth = field.children[0], depth + 1

    assert (field.type, depth) == ("binary", 17)


def test_two_messages_that_contain_each_other_end() -> None:
    columns = columns_of("message A { B b = 1; } message B { A a = 1; repeated B all = 2; }")

    ((name, _, type_, below),) = [shape(field) for field in columns.fields]
    assert (name, type_) == ("b", "struct")
    assert [child[2] for child in below] == ["binary", "list"]


def test_a_wide_message_has_fewer_levels() -> None:
    fields = " ".join(f"N f{number} = {number};" for number in range(1, 51))
    inner = " ".join(f"int32 g{number} = {number};" for number in range(1, 51))
    body = f"message M {{ {fields} }} message N {{ {inner} }}"

    assert {field.type for field in columns_of(body).fields} == {"binary"}
    assert {field.type for field in columns_of(body, columns_max=2500).fields} == {"struct"}
    with pytest.raises(SchemaError, match="more than 49 columns"):
        columns_of(body, columns_max=49)
