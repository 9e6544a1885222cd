"""Avro values as typed columns: every form that encoders write, damage, and the way back."""

import json
from typing import Any

import pyarrow as pa
import pytest

from bearlake.errors import Corrupt, Invalid, TooLarge
from bearlake.kernel import OUTCOME_BITS, TypedOutcome
from bearlake.table.typed import codec, mapping
from bearlake.table.typed.model import SchemaType, TypedColumns
from fixtures.avro_cases import CASES, NANS, AvroCase, number, record, text


def columns_of(schema: Any) -> TypedColumns:
    return mapping.columns_of(SchemaType.AVRO, json.dumps(schema))


@pytest.mark.parametrize("case", [*CASES, *NANS], ids=lambda case: case.label)
@pytest.mark.parametrize("is_verified", [False, True])
def test_a_value_becomes_a_row_that_gives_it_back(case: AvroCase, is_verified: bool) -> None:
    columns = columns_of(case.schema)

    decoded = codec.decode(columns, pa.array([case.value], pa.binary()), is_verified=is_verified)

    (status,) = decoded.statuses.to_pylist()
    outcome, path = TypedOutcome(status & (1 << OUTCOME_BITS) - 1), columns.paths[status >> OUTCOME_BITS]
    assert (outcome, path) == (case.outcome, case.path)
    decoded.struct.validate(full=True)
    assert decoded.is_exact.to_pylist() == [case.outcome is TypedOutcome.EXACT]
    if case.row is not None:
        assert decoded.struct.to_pylist() == [case.row]
    if outcome >= TypedOutcome.TRUNCATED:
        assert decoded.struct.to_pylist() == [None]
        assert decoded.problems[0].outcome is case.outcome
    else:
        assert decoded.problems == {}
    if outcome is TypedOutcome.EXACT:
        assert codec.encode(columns, decoded.struct).to_pylist() == [case.value]


def test_all_rows_of_a_column_go_their_own_ways() -> None:
    schema = record(
        {"type": "array", "items": ["null", "string"]}, {"type": "map", "values": "long"}, ["null", "int", "string"]
    )
    good = [
        number(2)
        + number(1)
        + text("a")
        + number(0)
        + b"\0"
        + number(1)
        + text("k")
        + number(5)
        + b"\0"
        + number(2)
        + text("x"),
        b"\0\0\0",
        number(1) + number(1) + text("bc") + b"\0\0" + number(1) + number(-1),
    ]
    bad = [good[0][:-1], good[0][:9], b"", number(99)]
    values = [bad[0], good[0], None, bad[1], good[1], bad[2], good[2], bad[3]]
    columns = columns_of(schema)

    decoded = codec.decode(columns, pa.array(values, pa.binary()), is_verified=True)

    decoded.struct.validate(full=True)
    assert [row is None for row in decoded.struct.to_pylist()] == [value not in good for value in values]
    assert sorted(decoded.problems) == [0, 3, 5, 7]
    assert decoded.is_exact.to_pylist() == [value in good for value in values]
    assert codec.encode(columns, decoded.struct).to_pylist() == [value if value in good else None for value in values]


SCHEMA = record(
    "string",
    ["null", "boolean"],
    {"type": "array", "items": "long"},
    {"type": "map", "values": "boolean"},
    ["null", "int", "string"],
    "boolean",
)


def rows(count: int) -> list[bytes]:
    """Rows of `SCHEMA`, all different."""
    return [
        text(f"row {at}")
        + (number(1) + bytes([at & 1]) if at % 3 else number(0))
        + (number(at % 5) if at % 5 else b"")
        + b"".join(number(at * item) for item in range(at % 5))
        + b"\0"
        + number(1) + text(str(at)) + bytes([at & 1]) + b"\0"
        + [number(0), number(1) + number(at), number(2) + text(str(at))][at % 3]
        + bytes([at >> 1 & 1])
        for at in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize(("start", "length"), [(0, 40), (1, 39), (7, 20), (8, 9), (39, 1), (40, 0)])
def test_slices_of_columns_are_encoded_as_the_whole(start: int, length: int) -> None:
    columns, values = columns_of(SCHEMA), rows(40)
    whole = pa.array(values, pa.binary())

    struct = codec.decode(columns, whole).struct
    part = codec.decode(columns, whole.slice(start, length)).struct

    assert part == struct.slice(start, length)
    for sliced in (struct.slice(start, length), part):
        assert codec.encode(columns, sliced).to_pylist() == values[start : start + length]


def test_columns_that_were_put_together_are_encoded_as_before() -> None:
    columns, values = columns_of(SCHEMA), rows(40)
    struct = codec.decode(columns, pa.array(values, pa.binary())).struct
    table = pa.Table.from_struct_array(struct)

    again = table.slice(3, 30).to_struct_array().combine_chunks()
    filtered = struct.filter(pa.array([at % 3 == 0 for at in range(40)]))

    assert codec.encode(columns, again).to_pylist() == values[3:33]
    assert codec.encode(columns, filtered).to_pylist() == values[::3]


def test_a_prefix_is_skipped_and_written() -> None:
    columns = columns_of(record("int"))
    prefix = b"\0\0\0\0\7"
    values = pa.array([prefix + number(1), None, b"\0\0", prefix, prefix + number(3)], pa.binary())

    decoded = codec.decode(columns, values, skip=5, is_verified=True)

    assert decoded.struct.to_pylist() == [{"f0": 1}, None, None, None, {"f0": 3}]
    assert {row: str(problem) for row, problem in decoded.problems.items()} == {2: "TRUNCATED", 3: "TRUNCATED at f0"}
    assert codec.encode(columns, decoded.struct, prefix=prefix).to_pylist() == [
        prefix + number(1), None, None, None, prefix + number(3),
    ]  # fmt: skip


def test_large_binary_values_are_decoded_as_binary_ones() -> None:
    columns = columns_of(record("int"))

    decoded = codec.decode(columns, pa.array([number(1), None, number(2)], pa.large_binary()).slice(1))

    assert decoded.struct.to_pylist() == [None, {"f0": 2}]


WIDE = record({"type": "array", "items": ["null", record(*["double"] * 100) | {"name": "W"}]})


def test_nulls_of_wide_records_count_against_the_limit() -> None:
    columns = columns_of(WIDE)
    bomb = number(1000) + bytes(1000) + b"\0"

    with pytest.raises(TooLarge):
        codec.decode(columns, pa.array([b"\0", bomb], pa.binary()), bytes_max=100_000)
    alone = codec.decode(columns, pa.array([bomb], pa.binary()), bytes_max=100_000)

    assert alone.problems[0].outcome is TypedOutcome.SIZE
    assert codec.decode(columns, pa.array([b"\0", bomb], pa.binary()), bytes_max=1_000_000).problems == {}


def test_rows_that_the_schema_does_not_have_are_refused() -> None:
    columns = columns_of(record("int", ["int", "string"], {"type": "enum", "name": "E", "symbols": ["A"]}))
    good = {"f0": 1, "f1": {"int": 1, "string": None}, "f2": "A"}
    wrong = [
        {"f0": None},
        {"f1": None},
        {"f1": {"int": 1, "string": "x"}},
        {"f1": {"int": None, "string": None}},
        {"f2": "B"},
    ]

    assert codec.encode(columns, pa.array([good], columns.arrow)).to_pylist() == [
        number(1) + number(0) + number(1) + b"\0"
    ]
    for change in wrong:
        with pytest.raises(Corrupt, match="row 1 of the typed columns is impossible"):
            codec.encode(columns, pa.array([good, good | change], columns.arrow))


def test_other_columns_are_cast_or_refused() -> None:
    columns = columns_of(record("int", "string"))
    wider = pa.array([{"f0": 1, "f1": "x"}], pa.struct({"f0": pa.int64(), "f1": pa.large_string()}))
    other = pa.array([{"f0": "x", "f1": "x"}], pa.struct({"f0": pa.string(), "f1": pa.string()}))

    assert codec.encode(columns, wider).to_pylist() == [number(1) + text("x")]
    with pytest.raises(Invalid):
        codec.encode(columns, other)
