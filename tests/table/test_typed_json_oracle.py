"""Columns of JSON values are what a plain reading with Python's own parser gives, for any schema of the grammar and any bytes."""

import json
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import HealthCheck, given, settings

from bearlake.table.typed import codec, mapping
from bearlake.table.typed.model import SchemaType, TypedField
from fixtures.json_random import Misfit, Raw, load, row, schemas, values


def all_same(fields: Sequence[TypedField], found: Iterable[Any], expected: Iterable[Any]) -> bool:
    """Whether columns have what the plain reading gives."""
    return all(same(*parts) for parts in zip(fields, found, expected, strict=True))


def same(field: TypedField, found: Any, expected: Any) -> bool:
    """Whether a column has what the plain reading gives."""
    if found is None or expected is None:
        return found is expected
    if isinstance(expected, Raw):
        return bool(load(found.encode("utf-8", "surrogatepass")) == expected.value)
    if field.type == "struct":
        return all_same(field.children, found.values(), expected)
    if field.type == "list":
        return len(found) == len(expected) and all(
            same(field.children[0], *pair) for pair in zip(found, expected, strict=True)
        )
    if field.type == "map":
        key, value = field.children
        pairs = list(zip(found, expected, strict=True))
        return all(same(key, own[0], other[0]) and same(value, own[1], other[1]) for own, other in pairs)
    if isinstance(expected, float):
        return struct.pack("<d", found) == struct.pack("<d", expected)
    return bool(found == expected) and type(found) is type(expected)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_columns_are_those_of_a_plain_reading(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    given_values = data.draw(st.lists(values(schema), min_size=1, max_size=5))
    columns = mapping.columns_of(SchemaType.JSON, json.dumps(schema))

    found = codec.decode(columns, pa.array(given_values, pa.binary()))

    found.struct.validate(full=True)
    rows = found.struct.to_pylist()
    assert len(rows) == len(given_values)
    for at, value in enumerate(given_values):
        try:
            expected = None if value is None else row(schema, value)
        except Misfit:
            assert rows[at] is None, value
            assert at in found.problems, value
            continue
        assert at not in found.problems, (value, found.problems[at])
        if expected is None:
            assert rows[at] is None
            continue
        own = list(rows[at].values())
        assert all_same(columns.fields, own, expected), (value, own, expected)
