"""Values by schema: Avro's JSON encoding is exact (against fastavro), hostile bytes are refused, and no value takes unbounded time."""

import io
import json
import math
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bearlake.errors import BearlakeError
from bearlake.streams.schemas import parsing
from bearlake.streams.schemas.model import SchemaType
from bearlake.streams.schemas.values import wire
from bearlake.streams.schemas.values.by_schema import values_of
from bearlake.streams.schemas.values.model import Unfit, Values

NODE = {
    "type": "record",
    "name": "Node",
    "namespace": "tree",
    "fields": [
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, "default": "A"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "weight", "type": ["null", "int", "long", "float", "double", "boolean", "string", "bytes"]},
        {"name": "tags", "type": {"type": "map", "values": "string"}, "default": {}},
        {"name": "inner", "type": ["null", "Node", {"type": "array", "items": "Node"}], "default": None},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 0},
    ],
}
PROTO = """
syntax = "proto2";
message A { required int32 n = 1; map<string, int64> counts = 2; oneof choice { bytes raw = 3; double ratio = 4; } repeated A inner = 5; }
"""


def avro(schema: Any) -> Values:
    return values_of(parsing.compiled(SchemaType.AVRO, json.dumps(schema), {}))


def json_schema(schema: Any, **references: Any) -> Values:
    texts = {name: json.dumps(reference) for name, reference in references.items()}
    return values_of(parsing.compiled(SchemaType.JSON, json.dumps(schema), texts))


def weights() -> st.SearchStrategy[Any]:
    return st.one_of(
        st.none(),
        st.builds(lambda value: {"int": value}, st.integers(-(2**31), 2**31 - 1)),
        st.builds(lambda value: {"long": value}, st.integers(-(2**63), 2**63 - 1)),
        st.builds(lambda value: {"float": value}, st.floats(width=32, allow_nan=False, allow_infinity=False)),
        st.builds(lambda value: {"double": value}, st.floats(allow_nan=False, allow_infinity=False)),
        st.sampled_from([{"float": "NaN"}, {"double": "-Infinity"}, {"double": "Infinity"}]),
        st.builds(lambda value: {"boolean": value}, st.booleans()),
        st.builds(lambda value: {"string": value}, st.text(st.characters(exclude_categories=["Cs"]), max_size=20)),
        st.builds(lambda value: {"bytes": value.decode("iso-8859-1")}, st.binary(max_size=20)),
    )


def nodes(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {
            "kind": st.sampled_from("AB"),
            "hash": st.binary(min_size=2, max_size=2).map(lambda value: value.decode("iso-8859-1")),
            "weight": weights(),
            "tags": st.dictionaries(
                st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.just("ü"), max_size=3
            ),
            "inner": inner,
            "day": st.integers(-(2**31), 2**31 - 1),
        }
    )


def trees() -> st.SearchStrategy[Any]:
    def wider(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        node_ = st.builds(lambda node: {"tree.Node": node}, nodes(children))
        return node_ | st.builds(lambda nodes_: {"array": nodes_}, st.lists(nodes(children), max_size=3))

    return nodes(st.recursive(st.none(), wider, max_leaves=6))


@settings(max_examples=100, deadline=None)
@given(tree=trees())
def test_avro_values_survive_a_round_trip_with_their_branches(tree: Any) -> None:
    values = avro(NODE)

    assert values.read(values.write(tree)) == tree


@settings(max_examples=60, deadline=None)
@given(tree=trees())
def test_avro_bytes_are_those_of_another_implementation(tree: Any) -> None:
    octets = avro(NODE).write(tree)
    schema = fastavro.parse_schema(json.loads(json.dumps(NODE).replace('"logicalType": "date"', '"note": ""')))
    found: Any = fastavro.schemaless_reader(io.BytesIO(octets), schema, None)

    assert same(found, tree)


def same(found: Any, value: Any) -> bool:
    """Whether a plain value is that of the JSON encoding."""
    weight = None if value["weight"] is None else next(iter(value["weight"].values()))
    plain = found["weight"].decode("iso-8859-1") if isinstance(found["weight"], bytes) else found["weight"]
    if isinstance(plain, float) and not math.isfinite(plain):
        weight = float(weight)
    children = None if value["inner"] is None else next(iter(value["inner"].values()))
    if isinstance(children, dict):
        is_same_below = same(found["inner"], children)
    elif children is None:
        is_same_below = found["inner"] is None
    else:
        is_same_below = all(same(node, child) for node, child in zip(found["inner"], children, strict=True))
    is_same_weight = plain == weight or str(plain) == str(weight) == "nan"
    rest = (found["kind"], found["hash"].decode("iso-8859-1"), found["tags"], found["day"])
    return is_same_weight and is_same_below and rest == (value["kind"], value["hash"], value["tags"], value["day"])


def test_missing_fields_get_their_defaults_unions_too() -> None:
    leaf = {"type": "record", "name": "Leaf", "fields": [{"name": "n", "type": ["int", "null"], "default": 3}]}
    field = {"name": "leaf", "type": ["null", leaf], "default": {"n": None}}
    values = avro(
        {"type": "record", "name": "R", "fields": [field, {"name": "raw", "type": "bytes", "default": "\u00ff"}]}
    )

    assert values.read(values.write({})) == {"leaf": {"Leaf": {"n": None}}, "raw": "\u00ff"}
    assert values.read(values.write({"leaf": {"Leaf": {}}})) == {"leaf": {"Leaf": {"n": {"int": 3}}}, "raw": "\u00ff"}


def test_a_schema_of_bytes_alone_writes_no_length() -> None:
    assert avro("bytes").write("\u0000\u00ff") == b"\x00\xff"
    assert avro("bytes").read(b"\x00\xff") == "\u0000\u00ff"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({}, "hash"),
        ({"hash": "ab", "weight": 1}, 'weight: expected a value of the union (null or {"int": …}'),
        ({"hash": "ab", "weight": {"int": 2**31}}, "weight.int: expected int"),
        ({"hash": "ab", "weight": {"int": True}}, "weight.int: expected int"),
        ({"hash": "ab", "weight": {"float": 1e300}}, "weight.float: the number is too large"),
        ({"hash": "ab", "weight": {"double": "much"}}, "weight.double: expected double"),
        ({"hash": "ab", "weight": {"bytes": "\u0100"}}, "weight.bytes: expected text of characters up to U+00FF"),
        ({"hash": "ab", "weight": {"string": "\ud800"}}, "UTF-8"),
        ({"hash": "ab", "weight": {"decimal": 1}}, "no branch 'decimal'"),
        ({"hash": "ab", "weight": {"int": 1, "long": 2}}, "union"),
        ({"hash": "abc", "weight": None}, "hash: expected 2 bytes, not 3"),
        ({"hash": "ab", "weight": None, "kind": "C"}, "kind: expected one of A, B"),
        ({"hash": "ab", "weight": None, "tags": {"a": 1}}, "tags.a: expected text"),
        ({"hash": "ab", "weight": None, "inner": {"array": [{}]}}, "inner.array[0]: the field 'hash'"),
        ({"hash": "ab", "weight": None, "inner": {"tree.Node": {"hash": "ab", "weight": 0}}}, "inner.tree.Node.weight"),
        ({"hash": "ab", "weight": None, "size": 1}, "no field 'size'"),
        ([], "expected an object, not a list"),
    ],
)
def test_errors_of_avro_values_name_the_place(value: Any, words: str) -> None:
    with pytest.raises(Unfit) as unfit:
        avro(NODE).write(value)

    assert words in str(unfit.value)


def test_values_nested_without_end_are_refused() -> None:
    tree: Any = None
    for _ in range(5_000):
        tree = {"tree.Node": {"hash": "ab", "weight": None, "inner": tree}}

    with pytest.raises(Unfit, match="nested too deeply"):
        avro(NODE).write(tree["tree.Node"])
    with pytest.raises(Unfit, match="nested too deeply"):
        avro(NODE).read(b"\x00ab\x00\x00\x02" * 5_000)


def test_items_without_bytes_do_not_fill_memory() -> None:
    values = avro({"type": "array", "items": "null"})

    assert values.read(b"\x06\x00") == [None, None, None]
    with pytest.raises(Unfit, match="take no bytes"):
        values.read(b"\xfe\xff\xff\xff\xff\x7f")


@settings(max_examples=300, deadline=None)
@given(octets=st.binary(max_size=60))
def test_any_bytes_are_a_value_or_refused(octets: bytes) -> None:
    for values in (avro(NODE), values_of(parsing.compiled(SchemaType.PROTOBUF, PROTO, {})), json_schema(True)):
        try:
            json.dumps(values.read(octets), allow_nan=False)
        except Unfit:
            continue


@settings(max_examples=200, deadline=None)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["n", "counts", "raw", "inner", "hash"]), inner)
        ),
        max_leaves=8,
    )
)
def test_any_json_is_a_value_or_refused(value: Any) -> None:
    for values in (
        avro(NODE),
        values_of(parsing.compiled(SchemaType.PROTOBUF, PROTO, {})),
        json_schema({"type": "object"}),
    ):
        try:
            values.write(value)
        except Unfit:
            continue


def test_a_protobuf_message_without_its_required_fields_is_refused() -> None:
    values = values_of(parsing.compiled(SchemaType.PROTOBUF, PROTO, {}))

    assert values.read(values.write({"n": 1, "counts": {"a": "5"}})) == {"n": 1, "counts": {"a": "5"}, "inner": []}
    with pytest.raises(Unfit, match="n"):
        values.write({"counts": {}})


def test_message_indexes_count_the_messages_that_the_author_wrote() -> None:
    text = 'syntax = "proto3"; message A { map<string, int32> m = 1; message B { int32 n = 1; message C { string s = 1; } } }'
    values = values_of(parsing.compiled(SchemaType.PROTOBUF, text, {}))

    assert values.read(wire.write_indexes([0, 0]) + b"\x08\x05") == {"n": 5}
    assert values.read(wire.write_indexes([0, 0, 0]) + b"\x0a\x01x") == {"s": "x"}
    for octets in (
        b"\x02\x01",
        *(wire.write_indexes(indexes) for indexes in ([0, 1], [1], [0, 0, 1])),
    ):  # the first is [-1]
        with pytest.raises(Unfit, match="no message at"):
            values.read(octets)


def test_json_schema_patterns_take_bounded_time() -> None:
    values = json_schema({"type": "string", "pattern": "^(?=a)(a+)+$"})

    assert values.write("aaa") == b'"aaa"'
    with pytest.raises(Unfit):
        values.write("a" * 2_000 + "!")


def test_json_schema_references_are_those_that_are_registered() -> None:
    values = json_schema({"$ref": "n.json"}, **{"n.json": {"type": "integer"}})
    named = json_schema({"$id": "http://a.example/b/c.json", "$ref": "n.json"}, **{"n.json": {"type": "integer"}})

    assert values.write(1) == named.write(1) == b"1"
    for union in (values, named):
        with pytest.raises(Unfit, match="integer"):
            union.write("x")


@pytest.mark.parametrize("draft", ["draft-04", "draft-06", "draft-07", "2019-09", "2020-12"])
def test_every_draft_is_validated_by_its_rules(draft: str) -> None:
    host = "http://json-schema.org" if draft.startswith("draft-") else "https://json-schema.org/draft"
    values = json_schema({"$schema": f"{host}/{draft}/schema", "const": 1, "type": "integer"})

    assert values.write(1) == b"1"
    if draft == "draft-04":  # const came with draft 6
        assert values.write(2) == b"2"
    else:
        with pytest.raises(BearlakeError):
            values.write(2)


@pytest.mark.parametrize("indexes", [[0], [1], [0, 0], [3, 2, 1], [0, 700]])
def test_message_indexes_survive_a_round_trip(indexes: list[int]) -> None:
    assert wire.read_indexes(wire.write_indexes(indexes) + b"rest") == (indexes, b"rest")


def test_the_first_message_is_one_byte() -> None:
    assert wire.write_indexes([0]) == b"\0"
    assert wire.read_indexes(b"\x02\x00rest") == ([0], b"rest")


@pytest.mark.parametrize("octets", [b"", b"\x02", b"\x01", b"\xff\xff\xff\xff\xff\xff\x01", b"\xfe\x7f" + bytes(9000)])
def test_invalid_message_indexes_are_refused(octets: bytes) -> None:
    with pytest.raises(Unfit):
        wire.read_indexes(octets)


def test_a_head_names_the_schema() -> None:
    assert wire.split(wire.head(258) + b"x") == (258, b"x")
    for octets in (b"", b"\0\0\0\0", b"\1\0\0\0\1x"):
        with pytest.raises(Unfit):
            wire.split(octets)
