"""The column book: which columns the schemas of a stream get, whatever comes after which."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.errors import Corrupt, Unsupported
from bearlake.table.column_book import ColumnBook, decode_book, new_book, with_schema
from bearlake.table.column_tree import Column, ColumnType, ListOf, MapOf, StructOf, column_of, ids_of, null_bytes

PRIMITIVES = ["int", "long", "float", "double", "string", "binary", "decimal(10,2)", "decimal(12,2)", "decimal(12,3)"]


def field(name: str, type_: ColumnType) -> Column:
    return Column(0, name, name, type_)


def book_of(*schemas: list[Column], names: Any = (), last_id: int = 15) -> ColumnBook:
    book = new_book(last_id)
    for schema_id, fields in enumerate(schemas):
        book = with_schema(book, schema_id, fields, last_id=last_id, names=names, column_count_max=1_000)
    return book


def columns_of(book: ColumnBook) -> dict[str, ColumnType]:
    return {column.name: column.type for column in book.columns}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("int", "long", {"a": "long"}),
        ("long", "int", {"a": "long"}),
        ("float", "double", {"a": "double"}),
        ("double", "float", {"a": "double"}),
        ("decimal(10,2)", "decimal(12,2)", {"a": "decimal(12,2)"}),
        ("decimal(12,2)", "decimal(10,2)", {"a": "decimal(12,2)"}),
        ("decimal(10,2)", "decimal(10,3)", {"a": "decimal(10,2)", "a__decimal_10_3": "decimal(10,3)"}),
        ("int", "double", {"a": "int", "a__double": "double"}),
        ("int", "string", {"a": "int", "a__string": "string"}),
        ("string", "binary", {"a": "string", "a__binary": "binary"}),
        ("fixed[4]", "fixed[5]", {"a": "fixed[4]", "a__fixed_5": "fixed[5]"}),
        ("int", ListOf(0, "int"), {"a": "int", "a__list": ListOf(20, "int")}),
        (ListOf(0, "int"), ListOf(0, "long"), {"a": ListOf(19, "long")}),
        (ListOf(0, "int"), ListOf(0, "string"), {"a": ListOf(19, "int"), "a__list": ListOf(21, "string")}),
    ],
)
def test_a_field_of_another_type_makes_its_column_wider_or_gets_its_own(
    first: ColumnType, second: ColumnType, expected: dict[str, ColumnType]
) -> None:
    found = columns_of(book_of([field("a", first)], [field("a", second)]))

    assert found.keys() == expected.keys()
    for name, type_ in expected.items():
        if isinstance(type_, str) or name == "a":
            assert found[name] == type_
        else:
            assert type(found[name]) is type(type_)


def test_fields_of_nested_structs_evolve_where_they_are() -> None:
    before = StructOf((field("x", "int"), field("y", "string")))
    after = StructOf((field("x", "string"), field("y", "string"), field("z", MapOf(0, "string", 0, "long"))))

    book = book_of([field("a", ListOf(0, before))], [field("a", ListOf(0, after))])

    (column,) = book.columns
    assert isinstance(column.type, ListOf)
    assert isinstance(column.type.element, StructOf)
    assert [inner.name for inner in column.type.element.fields] == ["x", "y", "x__string", "z"]


def test_columns_are_never_dropped_and_keep_their_ids() -> None:
    first = book_of([field("a", "int"), field("b", "int")])

    second = with_schema(first, 9, [field("c", "int"), field("a", "long")], last_id=15, column_count_max=100)

    assert [(column.name, column.id) for column in second.columns] == [("a", 18), ("b", 19), ("c", 20)]


def test_names_that_are_taken_get_a_number_whatever_their_case() -> None:
    book = book_of(
        [field("a", "int"), field("A", "int"), field("_OFFSET", "int"), field("Region", "int")], names=["region"]
    )

    assert list(columns_of(book)) == ["a", "A_2", "_OFFSET_2", "Region_2"]


def test_ids_follow_those_that_other_engines_gave_meanwhile() -> None:
    book = with_schema(book_of([field("a", "int")]), 9, [field("b", "int")], last_id=40, column_count_max=100)

    assert [column.id for column in book.columns] == [18, 41]
    assert book.next_id == 42


def test_a_schema_beyond_the_limit_of_columns_is_refused() -> None:
    with pytest.raises(Unsupported, match="would have 101 columns with this schema; the limit is 100"):
        with_schema(new_book(15), 1, [field(f"f{at}", "int") for at in range(101)], last_id=15, column_count_max=100)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"version":1}', '{"version":1,"next_id":1,"own":[1],"columns":[],"schemas":[]}']
)
def test_a_damaged_text_is_corrupt(text: str) -> None:
    with pytest.raises(Corrupt):
        decode_book(text, 1)


def test_a_text_of_a_newer_format_is_not_guessed() -> None:
    with pytest.raises(Unsupported):
        decode_book(book_of().encoded().replace('"version":1', '"version":3'), 1)


types = st.recursive(
    st.sampled_from(PRIMITIVES),
    lambda inner: st.one_of(
        inner.map(lambda type_: ListOf(0, type_)),
        inner.map(lambda type_: MapOf(0, "string", 0, type_)),
        st.dictionaries(st.sampled_from("xyz"), inner, min_size=1, max_size=3).map(
            lambda fields: StructOf(tuple(field(name, type_) for name, type_ in fields.items()))
        ),
    ),
    max_leaves=6,
)
schemas = st.dictionaries(st.sampled_from("abcA"), types, max_size=4).map(
    lambda fields: [field(name, type_) for name, type_ in fields.items()]
)


@given(st.lists(schemas, min_size=1, max_size=5))
def test_every_schema_keeps_its_columns_whatever_comes_later(given_schemas: list[list[Column]]) -> None:
    places: dict[tuple[int, str], int] = {}
    book = new_book(15)
    for at, fields in enumerate(given_schemas):
        book = with_schema(book, at, fields, last_id=15, column_count_max=100_000)
        for earlier, found in itertools.islice(enumerate(given_schemas), at + 1):
            for source in found:
                column = column_of(book.columns, source)
                assert column is not None
                assert places.setdefault((earlier, source.source), column.id) == column.id
        again = with_schema(book, at, fields, last_id=15, column_count_max=100_000)
        assert again == book
    ids = [book.schema_id, book.error_id, *ids_of(book.columns)]
    assert len(set(ids)) == len(ids)
    assert max(ids) < book.next_id
    assert len({column.name.lower() for column in book.columns}) == len(book.columns)
    assert decode_book(book.encoded(), 0) == book


def test_a_schema_whose_empty_rows_take_much_memory_is_refused() -> None:
    book = book_of([field("a", "int"), field("b", StructOf((field("c", "fixed[1024]"),)))])

    assert null_bytes(book.columns) == 4 + 1 + 1024
    with pytest.raises(Unsupported, match="an empty row would take 17413 bytes with this schema; the limit is 16384"):
        with_schema(book, 9, [field(f"f{at}", "fixed[1024]") for at in range(16)], last_id=15, column_count_max=1_000)
