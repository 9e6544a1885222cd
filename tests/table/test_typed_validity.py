"""Whether bytes are values of a schema: the same answer as the columns give, in time that grows with the bytes."""

import json
from typing import Any

import pyarrow as pa
import pytest

from bearlake.kernel import TypedKind, TypedOutcome
from bearlake.table.typed import avro, codec, mapping
from bearlake.table.typed.model import SchemaError, SchemaType
from bearlake.table.typed.validity import AvroValidity
from fixtures.avro_cases import CASES, NANS, AvroCase, number, record, text

DOUBLINGS = 60


def validity_of(schema: Any) -> AvroValidity:
    return AvroValidity(json.dumps(schema))


def doubled(bottom: list[Any]) -> dict[str, Any]:
    """A record of two records of two records, and so on: 2^DOUBLINGS of the fields at the bottom."""
    schema: dict[str, Any] = {
        "type": "record",
        "name": "L0",
        "fields": [{"name": f"f{at}", "type": type_} for at, type_ in enumerate(bottom)],
    }
    for level in range(1, DOUBLINGS):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"L{level - 1}"}]
        schema = {"type": "record", "name": f"L{level}", "fields": fields}
    return schema


FRAMED = [case for case in (*CASES, *NANS) if case.schema != "bytes"]
"""Confluent's serializers write `bytes` without a length: see below."""


@pytest.mark.parametrize("case", FRAMED, ids=lambda case: case.label)
@pytest.mark.usefixtures("kernel")
def test_a_value_is_good_if_its_columns_have_it(case: AvroCase) -> None:
    schema = validity_of(case.schema)

    failures = schema.failures([b"head" + case.value], 4)

    assert failures == ([0] if case.outcome >= TypedOutcome.TRUNCATED else [])


@pytest.mark.usefixtures("kernel")
def test_the_places_of_all_bad_values_are_found() -> None:
    schema = validity_of(record("string", ["null", "long"]))
    good, bad = text("x") + number(1) + number(5), text("x") + number(7)

    assert schema.failures([], 0) == []
    assert schema.failures([good] * 3, 0) == []
    assert schema.failures([good, bad, good, b"", bad], 0) == [1, 3, 4]


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("bottom", [["null"], [{"type": "fixed", "name": "F", "size": 0}], []])
def test_records_without_bytes_take_no_time_however_many_they_are(bottom: list[Any]) -> None:
    """One of 2^60 fields would take a century."""
    assert validity_of(doubled(bottom)).failures([b""], 0) == []
    columns = mapping.columns_of(SchemaType.AVRO, json.dumps(doubled(bottom)), levels_max=2)
    decoded = codec.decode(columns, pa.array([b""], pa.binary()), is_verified=True)
    assert decoded.problems == {}


@pytest.mark.usefixtures("kernel")
def test_a_record_of_many_records_ends_where_its_bytes_end() -> None:
    schema = validity_of(doubled(["int"]))

    assert schema.failures([number(1) * 1000], 0) == [0]
    assert schema.failures([b""], 0) == [0]


def test_fields_without_bytes_are_no_work_for_the_kernel() -> None:
    schema = record(*["null"] * 1000, "int", {"type": "record", "name": "E", "fields": []})

    nodes = avro.value_nodes(json.dumps(schema))

    assert [TypedKind(node.kind).name for node in nodes] == ["RECORD", "OPAQUE", "RECORD", "INT"]
    assert len(nodes[2].children) == 1


@pytest.mark.usefixtures("kernel")
def test_a_record_inside_of_itself_has_no_values() -> None:
    schema = validity_of({"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]})

    assert schema.failures([b"", b"1234"], 0) == [0, 1]


@pytest.mark.usefixtures("kernel")
def test_any_bytes_are_values_of_the_schema_bytes() -> None:
    """Confluent's serializers write such values without a length."""
    assert validity_of("bytes").failures([b"", b"\xff\xff"], 0) == []


def test_the_reason_names_the_field_where_the_value_ends() -> None:
    schema = validity_of(record("string", record("long") | {"name": "Inner"}))

    assert schema.reason(b"12345" + text("x"), 5).endswith("TRUNCATED at f1.f0")


def test_a_schema_that_refers_to_another_one_has_its_types() -> None:
    inner, outer = record("int") | {"name": "Inner"}, record("Inner", "Inner") | {"name": "Outer"}
    schema = AvroValidity(json.dumps(outer), [json.dumps(inner)])

    assert schema.failures([number(1) * 2, number(1)], 0) == [1]


@pytest.mark.parametrize(
    "schema", ["{", '"nothing"', json.dumps(record(*({"type": "array", "items": "int"} for _ in range(10_001))))]
)
def test_a_schema_that_is_malformed_or_too_large_is_refused(schema: str) -> None:
    with pytest.raises(SchemaError):
        AvroValidity(schema)


@pytest.mark.usefixtures("kernel")
def test_the_reason_of_a_value_takes_bounded_memory() -> None:
    """A null stands for a thousand columns here: 8 MB per kilobyte."""
    wide = record(*[["null", "double"]] * 900) | {"name": "Wide"}
    schema = validity_of({"type": "array", "items": ["null", wide]})
    value = number(4_000) + bytes(4_000)  # without an end

    assert schema.failures([value], 0) == [0]
    assert schema.reason(value, 0) == "not a value of the schema that it names"
    assert schema.reason(number(4) + bytes(4), 0).endswith(": TRUNCATED")
