"""Row groups whose values all name one schema take a shorter way to their columns; the rows are those of the longer way."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake import kernel
from bearlake.records.codec import Record, encode
from bearlake.table.value_plan import ValuePlan
from bearlake.table.value_typing import MissingSchemas, ValueTyping
from bearlake.table.writer import record_batch
from fixtures.avro_cases import number, record, text
from fixtures.protobuf_values import message_value, protobuf_plan, protobuf_schema
from fixtures.typed_values import framed, plan_of, writer_schema

ORDER = record("long", ["null", "string"])
WIDE = record("long", "double")
MESSAGES = 'syntax = "proto3"; message Order { int64 id = 1; } message Note { string text = 1; }'
SCHEMAS = {7: writer_schema(ORDER), 8: writer_schema(WIDE)}
GOOD = number(5) + number(1) + text("a note")


def rows_of(values: list[bytes | None]) -> pa.RecordBatch:
    """Records with these values as rows."""
    builder = kernel.ColumnBuilder()
    batch = encode([Record(key=None, value=value, timestamp=1_000) for value in values])
    builder.append(0, 0, batch, 0, len(batch), [])
    return record_batch(builder.take())


def typed(plan: ValuePlan, values: list[bytes | None]) -> pa.Table:
    """The values with their columns."""
    return ValueTyping(plan).add(rows_of(values))


def check(plan: ValuePlan, values: list[bytes | None]) -> None:
    """A tombstone after the values, which takes the longer way, changes none of their rows."""
    _, *longer = typed(plan, [None, *values]).drop_columns(["_offset"]).to_pylist()

    assert typed(plan, values).drop_columns(["_offset"]).to_pylist() == longer


CASES: dict[str, list[bytes | None]] = {
    "one schema": [framed(7, GOOD), framed(7, number(1) + number(0))],
    "one schema, a value that does not decode": [framed(7, GOOD), framed(7, b"\2"), framed(7, b"")],
    "the last one names another schema": [framed(7, GOOD), framed(7, GOOD), framed(8, number(1) + bytes(8))],
    "the last one is shorter than a header": [framed(7, GOOD), b"\0\0\0\0"],
    "the first one is shorter than a header": [b"\0", framed(7, GOOD)],
    "all are shorter than a header": [b"\0\0\0\0", b"\0\0\0\0"],
    "all are empty": [b"", b""],
    "the first byte is not 0": [b"\1\0\0\0\7" + GOOD, b"\1\0\0\0\7" + GOOD],
    "an unknown schema": [framed(9, GOOD), framed(9, GOOD)],
    "an id beyond int32": [b"\0\xff\xff\xff\xff" + GOOD],
    "other bytes that are not exact": [framed(7, b"\x82\x00\0"), framed(7, GOOD + b"\0")],
}


@pytest.mark.parametrize("elides", [False, True])
@pytest.mark.parametrize("label", CASES)
def test_values_of_one_schema_have_the_rows_of_the_longer_way(label: str, elides: bool) -> None:
    check(plan_of(SCHEMAS, elides=elides), CASES[label])


@pytest.mark.parametrize("values", [[GOOD, number(1) + number(0)], [b"", GOOD], [b"\2"]])
@pytest.mark.parametrize("schema_id", [7, -2])
def test_values_without_a_header_have_the_rows_of_the_longer_way(values: list[bytes | None], schema_id: int) -> None:
    plan = plan_of({schema_id: writer_schema(ORDER, is_framed=False)}, schema_id=schema_id)

    check(plan, values)


@pytest.mark.parametrize("other", [(0,), (1,)])
def test_protobuf_values_of_one_schema_have_the_rows_of_the_longer_way(other: tuple[int, ...]) -> None:
    plan = protobuf_plan({7: protobuf_schema(MESSAGES)}, [(7, (0,)), (7, (1,))])

    check(plan, [message_value(7, (0,), b"\x08\5"), message_value(7, other, b""), framed(7, b"\xff")])


def test_a_refused_schema_of_all_values_gives_its_reason() -> None:
    check(plan_of({}, known=[7], refused={7: "UNSUPPORTED_SCHEMA: for a test"}), [framed(7, GOOD)] * 3)


def test_a_known_schema_that_the_plan_does_not_have_is_asked_for() -> None:
    with pytest.raises(MissingSchemas) as found:
        typed(plan_of({}, known=[7]), [framed(7, GOOD)] * 3)

    assert found.value.ids == {7}


@given(
    values=st.lists(
        st.one_of(
            st.just(framed(7, GOOD)),
            st.just(framed(8, number(1) + bytes(8))),
            st.binary(max_size=12).map(lambda octets: framed(7, octets)),
            st.binary(max_size=6),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_any_values_have_the_rows_of_the_longer_way(values: list[Any]) -> None:
    check(plan_of(SCHEMAS), values)
