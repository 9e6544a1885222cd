"""Values with schemas become typed columns, and consumers get the same bytes before and after compaction."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from bearlake.telemetry import metrics
from fixtures.avro_cases import number, text
from fixtures.typed_lake import TypedLake, typed_lake
from fixtures.typed_orders import ORDER, order, value
from fixtures.typed_values import framed


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[TypedLake]:
    async with typed_lake(tmp_path) as found:
        yield found


@pytest.mark.parametrize("mode", ["keep", "elide"])
async def test_consumers_get_the_same_bytes_before_and_after_compaction(lake: TypedLake, mode: str) -> None:
    stream = await lake.create(table__value__mode=mode)
    schema_id = await lake.register(ORDER)
    overlong = framed(schema_id, b"\x82\x00\0")
    await lake.produce(stream, framed(schema_id, value(1)), None, overlong, b"", framed(schema_id, b"\x02"), b"text")
    before = await lake.read(stream)
    errors = metrics.VALUE_ERRORS.labels("orders", "TRUNCATED")
    error_count = errors.value

    await lake.compact(stream)

    assert await lake.read(stream) == before
    rows = await lake.rows(stream, "_offset", "id", "note", "_value", "_schema_id", "_error")
    assert [(row["id"], row["note"], row["_schema_id"], row["_error"]) for row in rows] == [
        (1, "a", schema_id, None),
        (None, None, None, None),
        (1, None, schema_id, None),
        (None, None, None, "NO_SCHEMA: the value does not begin with byte 0 and a schema's id"),
        (None, None, schema_id, "TRUNCATED: note"),
        (None, None, None, "NO_SCHEMA: the value does not begin with byte 0 and a schema's id"),
    ]
    left = [row["_value"] for row in rows]
    assert left == [None if mode == "elide" else before[0][2], *(record[2] for record in before[1:])]
    assert errors.value == error_count + 1


async def test_a_schema_adds_columns_when_a_record_uses_it(lake: TypedLake) -> None:
    stream = await lake.create()
    first = await lake.register(ORDER)
    await lake.register(order(("id", "int"), ("never_used", "string")))
    await lake.produce(stream, framed(first, value(1)))
    await lake.compact(stream)
    second = await lake.register(order(("extra", "double"), ("id", "long"), ("note", "bytes")))
    await lake.produce(
        stream, framed(first, value(2)), framed(second, b"\0\0\0\0\0\0\xf0\x3f" + number(2**40) + text(b"\xff"))
    )
    before = await lake.read(stream)

    await lake.compact(stream)

    rows = await lake.rows(stream)
    names = [name for name in rows[0] if not name.startswith("_")]
    assert names == ["id", "note", "extra", "note__binary"]
    assert [tuple(row[name] for name in names) for row in rows] == [
        (1, "a", None, None),
        (2, "a", None, None),
        (2**40, None, 1.0, b"\xff"),
    ]
    assert all(row["_value"] is None for row in rows)
    assert await lake.read(stream) == before


async def test_values_may_name_only_schemas_of_the_streams_subjects(lake: TypedLake) -> None:
    stream = await lake.create(table__value__subjects="orders-value, refunds")
    own = await lake.register(ORDER)
    refund = await lake.register(order(("refund", "int")), "refunds")
    other = await lake.register(order(("secret", "int")), "other")
    await lake.produce(
        stream, framed(own, value(1)), framed(refund, number(2)), framed(other, number(3)), framed(99, b"")
    )

    await lake.compact(stream)

    rows = await lake.rows(stream)
    assert [(row["id"], row["refund"], row["_error"]) for row in rows] == [
        (1, None, None),
        (None, 2, None),
        (None, None, f"UNKNOWN_SCHEMA: {other}"),
        (None, None, "UNKNOWN_SCHEMA: 99"),
    ]
    assert "secret" not in rows[0]


async def test_a_fixed_schema_reads_values_without_a_header(lake: TypedLake) -> None:
    schema_id = await lake.register(ORDER, "anything")
    stream = await lake.create(table__value__schema_id=str(schema_id))
    await lake.produce(stream, value(1), None, b"\x02")
    before = await lake.read(stream)

    await lake.compact(stream)

    rows = await lake.rows(stream)
    assert [(row["id"], row["_value"], row["_schema_id"], row["_error"]) for row in rows] == [
        (1, None, schema_id, None),
        (None, None, None, None),
        (None, b"\x02", schema_id, "TRUNCATED: note"),
    ]
    assert await lake.read(stream) == before


async def test_a_schema_may_refer_to_schemas_of_other_subjects(lake: TypedLake) -> None:
    stream = await lake.create()
    await lake.register(
        {"type": "record", "name": "acme.Place", "fields": [{"name": "city", "type": "string"}]}, "place"
    )
    schema_id = await lake.register(order(("to", "acme.Place")), refers={"acme.Place": "place"})
    await lake.produce(stream, framed(schema_id, text("Bergen")))
    before = await lake.read(stream)

    await lake.compact(stream)

    assert [row["to"] for row in await lake.rows(stream)] == [{"city": "Bergen"}]
    assert await lake.read(stream) == before


async def test_a_batch_of_many_tombstones_does_not_fill_wide_columns_with_nulls(lake: TypedLake) -> None:
    stream = await lake.create()
    wide = [(f"f{at}", {"type": "fixed", "name": f"F{at}", "size": 1024}) for at in range(15)]
    schema_id = await lake.register(order(*wide))
    await lake.produce(stream, framed(schema_id, bytes(15 * 1024)))
    await lake.compact(stream)
    await lake.produce(stream, *[None] * 36_000)  # 540 MiB of nulls
    await lake.produce(stream, framed(schema_id, bytes(15 * 1024)))
    before = await lake.read(stream)

    await lake.compact(stream)

    assert await lake.read(stream) == before
    assert [(row["_offset"], row["_value"]) for row in await lake.rows(stream, "_offset", "_value")] == [
        (0, None),
        (36_001, None),
    ]


async def test_columns_of_other_engines_keep_their_names_and_ids(lake: TypedLake) -> None:
    stream = await lake.create()
    first = await lake.register(order(("id", "int")))
    await lake.produce(stream, framed(first, number(1)))
    await lake.compact(stream)

    def add_note(table: Any) -> None:
        with table.update_schema() as update:
            update.add_column("NOTE", LongType())
            update.rename_column("id", "order_id")

    await lake.change_table(stream, add_note)
    second = await lake.register(order(("id", "int"), ("note", "string")))
    await lake.produce(stream, framed(second, number(2) + text("b")))

    await lake.compact(stream)

    rows = await lake.rows(stream)
    assert [(row["order_id"], row["NOTE"], row["note_2"]) for row in rows] == [(1, None, None), (2, None, "b")]


async def test_a_column_that_a_user_dropped_stays_dropped(lake: TypedLake) -> None:
    stream = await lake.create()
    schema_id = await lake.register(ORDER)
    await lake.produce(stream, framed(schema_id, value(1)))
    await lake.compact(stream)

    def drop_note(table: Any) -> None:
        with table.update_schema() as update:
            update.delete_column("note")

    await lake.change_table(stream, drop_note)
    second = await lake.register(order(("id", "int"), ("note", "string"), ("more", "int")))
    await lake.produce(stream, framed(schema_id, value(2)), framed(second, number(3) + text("x") + number(4)))
    before = await lake.read(stream)

    await lake.compact(stream)

    rows = await lake.rows(stream)
    assert [name for name in rows[0] if not name.startswith("_")] == ["id", "more"]
    assert await lake.read(stream) == before
