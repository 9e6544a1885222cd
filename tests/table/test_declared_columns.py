"""Declared columns: their text, how it may change, and JSON values in them, by both kernels."""

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from bearlake.errors import Invalid
from bearlake.table.column_tree import Column, ListOf, MapOf, StructOf
from bearlake.table.declared import PRIMITIVES, check_evolution, declared_columns, declared_text, evolved
from bearlake.table.typed import codec, declared
from bearlake.table.typed.validity import ColumnsValidity
from fixtures.declared_cases import CASES, COLUMNS
from fixtures.json_cases import JsonCase

NAMES = st.text(st.characters(exclude_characters=".", exclude_categories=["C", "Z"]), min_size=1, max_size=12).filter(
    lambda name: not name.startswith("_") and name.isprintable()
)
LEAVES = st.sampled_from(PRIMITIVES) | st.integers(1, 38).flatmap(
    lambda digits: st.integers(0, digits).map(lambda scale: f"decimal({digits},{scale})")
)


def structs(types: Any) -> Any:
    named = st.lists(st.tuples(NAMES, types), min_size=1, max_size=4, unique_by=lambda pair: pair[0].lower())
    return named.map(lambda pairs: StructOf(tuple(Column(0, name, "", type_) for name, type_ in pairs)))


TYPES = st.recursive(
    LEAVES,
    lambda types: (
        structs(types)
        | types.map(lambda found: ListOf(0, found))
        | types.map(lambda found: MapOf(0, "string", 0, found))
    ),
    max_leaves=8,
)


def shape(columns: Any) -> Any:
    """Names and types, without the paths."""

    def of(type_: Any) -> Any:
        if isinstance(type_, StructOf):
            return shape(type_.fields)
        if isinstance(type_, ListOf):
            return ["list", of(type_.element)]
        return ["map", of(type_.value)] if isinstance(type_, MapOf) else type_

    return [(column.name, of(column.type)) for column in columns]


@settings(max_examples=200, deadline=None)
@given(structs(TYPES))
def test_the_text_of_columns_gives_them_back(struct: StructOf) -> None:
    text = declared_text(struct.fields)

    found = declared_columns(text)

    assert shape(found) == shape(struct.fields)
    assert declared_text(found) == text


def test_a_text_may_be_written_in_several_ways() -> None:
    text = " id  LONG,\n`a b``c` struct<x: double, `y`  list < int >>, m map<string,\tdecimal( 10 , 2 )>"

    assert declared_text(declared_columns(text)) == (
        "id long, `a b``c` struct<x double, y list<int>>, m map<string, decimal(10,2)>"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("id", "expected one of the types boolean, int"),
        ("id long,", "expected the name of a column, not the end"),
        ("id long name string", "expected ,, not 'name'"),
        ("id: long", "expected one of the types"),
        ("id bigint", "expected one of the types"),
        ("id time", "expected one of the types"),
        ("id fixed(3)", "expected one of the types"),
        ("1d long", "expected the name of a column"),
        ("`` long", "expected the name of a column"),
        ("`a.b` long", "no dot"),
        ("`a\x07` long", "printable"),
        (f"{'x' * 256} long", "at most 255"),
        ("a long, A int", "there twice"),
        ("s struct<a long, A int>", "there twice"),
        ("_offset long", "_offset is reserved"),
        ("_POS long", "_pos is reserved"),
        ("p decimal(39,0)", "1 to 38 digits"),
        ("p decimal(3,4)", "at most as many after the point"),
        ("p decimal(0,0)", "1 to 38 digits"),
        ("p decimal(3)", "expected ,, not '\\)'"),
        ("m map<int, int>", "keys of a map are strings"),
        ("l list<int", "expected >, not the end"),
        ("l list<>", "expected one of the types"),
        ("s struct<>", "expected the name of a column"),
        ("a long; drop", "not understood"),
        ("a long /* */", "not understood"),
        ("l " + "list<" * 17 + "int" + ">" * 17, "more than 16 levels"),
        (", ".join(f"c{at} int" for at in range(1001)), "more than 1000 columns"),
        ("s struct<" + ", ".join(f"c{at} int" for at in range(1000)) + ">", "more than 1000 columns"),
        ("x" * 65_537, "65537 characters"),
        (", ".join(f"c{at} decimal(38,0)" for at in range(1000)), None),
    ],
)
def test_what_is_no_declaration_is_refused_with_its_reason(text: str, reason: str | None) -> None:
    if reason is None:
        assert declared_columns(text)
        return
    with pytest.raises(Invalid, match=reason):
        declared_columns(text)


def test_columns_grow_and_become_wider_and_never_become_another_type() -> None:
    before = declared_columns("id int, p decimal(4,2), s struct<x int>, l list<float>, old string")
    after = declared_columns("id long, p decimal(6,2), s struct<x long, y date>, l list<double>, new uuid")

    assert declared_text(evolved(before, after)) == (
        "id long, p decimal(6,2), s struct<x long, y date>, l list<double>, old string, new uuid"
    )
    check_evolution("id int, a string", "id long, b date")
    check_evolution("", "id long")
    check_evolution("id long", "")
    for text in ("id string", "id list<int>", "id float"):
        with pytest.raises(Invalid, match="column id cannot become"):
            check_evolution("id int", text)
    with pytest.raises(Invalid, match="cannot become"):
        evolved(before, declared_columns("p decimal(6,3)"))


def decoded(values: Sequence[bytes | None]) -> tuple[list[Any], list[str]]:
    columns = declared.columns_of(COLUMNS)
    found = codec.decode(columns, pa.array(values, pa.binary()))
    problems = [
        "" if (problem := found.problems.get(at)) is None else f"{problem.outcome.name}: {problem.path}"
        for at in range(len(values))
    ]
    found.struct.validate(full=True)
    return found.struct.to_pylist(), problems


def present(row: dict[str, Any] | None) -> dict[str, Any]:
    def of(value: Any) -> Any:
        return present(value) if isinstance(value, dict) else value

    return {name: of(value) for name, value in (row or {}).items() if value is not None}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.value.decode()[:60])
def test_a_value_becomes_what_its_columns_say(case: JsonCase) -> None:
    (row,), (problem,) = decoded([case.value])

    if isinstance(case.expected, str):
        assert (row, problem) == (None, case.expected)
    else:
        assert problem == ""
        assert present(row) == case.expected


def test_cases_in_one_call_do_not_disturb_each_other() -> None:
    rows, problems = decoded([case.value for case in CASES] * 3)

    alone = [decoded([case.value]) for case in CASES] * 3
    assert rows == [row for (row,), _ in alone]
    assert problems == [problem for _, (problem,) in alone]


def test_the_door_refuses_exactly_the_values_without_columns() -> None:
    validity = ColumnsValidity(COLUMNS)
    values = [case.value for case in CASES]

    failures = validity.failures([b"head!" + value for value in values], 5)

    assert failures == [at for at, case in enumerate(CASES) if isinstance(case.expected, str)]
    reasons = [validity.reason(values[at], 0) for at in failures]
    expected = [str(CASES[at].expected).removesuffix(": ").replace(": ", " at ") for at in failures]
    assert [reason.rpartition("table: ")[2] for reason in reasons] == expected


def test_a_few_bytes_that_stand_for_many_nulls_are_checked_within_the_limit_of_memory() -> None:
    wide = ", ".join(f"c{at} decimal(38,0)" for at in range(900))
    validity = ColumnsValidity(f"l list<struct<{wide}>>")
    many = b'{"l": [' + b",".join([b"{}"] * 20_000) + b"]}"

    assert not validity.is_light
    assert ColumnsValidity(COLUMNS).is_light
    assert not ColumnsValidity("l list<struct<a int, b int, c int, d int>>").is_light
    assert validity.failures([b"{}", many, b"{}", b'{"l": [{}]}'] * 2, 0) == [1, 5]
    assert "SIZE" in validity.reason(many, 0)
