"""Values with schemas become typed columns, and consumers get the same bytes before and after compaction."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from bearlake.metadata.compaction import TaskState
from bearlake.streams.catalog import StreamView
from bearlake.streams.schemas.model import SchemaType
from bearlake.table.query import query
from bearlake.telemetry import metrics
from fixtures.avro_cases import number, text
from fixtures.cleaned_stream import Life
from fixtures.typed_lake import TypedLake, settings, typed_lake
from fixtures.typed_values import framed


def order(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": [{"name": name, "type": type_} for name, type_ in fields]}


ORDER = order(("id", "int"), ("note", ["null", "string"]))


def value(id_: int, note: str = "a") -> bytes:
    return number(id_) + number(1) + text(note)


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


@pytest.mark.parametrize("cause", ["format", "missing schema"])
async def test_a_wrong_setting_stops_its_own_stream_with_a_reason_and_no_other(lake: TypedLake, cause: str) -> None:
    configs = {
        "format": {},
        "missing schema": {"table__value__schema_id": "77"},
    }[cause]
    stream = await lake.create(**configs)
    good = await lake.create("good")
    schema_id = await lake.register({"type": "object"}, type_=SchemaType.JSON)
    good_id = await lake.register(ORDER, "good-value")
    await lake.produce(stream, framed(schema_id, b"{}"))
    await lake.produce(good, framed(good_id, value(1)))
    tasks = lake.stores.metadata.tasks

    async def is_quarantined() -> bool:
        found = await tasks.list(stream_number=stream.stream.number)
        return [task.state for task in found] == [TaskState.QUARANTINED] and await lake.is_compacted(good)

    await lake.work(is_quarantined)

    (task,) = await tasks.list(stream_number=stream.stream.number)
    reason = {"format": "is of type JSON", "missing schema": "no schema with this id"}
    assert reason[cause] in str(task.error)
    assert [row["id"] for row in await lake.rows(good)] == [1]
    assert [record[2] for record in await lake.read(stream)] == [framed(schema_id, b"{}")]


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


async def test_merges_keep_columns_and_bytes_of_all_eras_of_a_stream(lake: TypedLake) -> None:
    stream = await lake.create(table__value__mode="raw")
    await lake.produce(stream, b"raw", None)
    await lake.compact(stream)
    first = await lake.register(ORDER)
    await alter(lake, "keep")
    await lake.produce(stream, framed(first, value(1)), b"?")
    await lake.compact(stream)
    await alter(lake, "elide")
    await lake.produce(stream, framed(first, value(2)), None)
    await lake.compact(stream)
    second = await lake.register(order(("id", "long"), ("note", "int")))
    await lake.produce(stream, framed(second, number(2**40) + number(7)), framed(first, value(3)))
    before = await lake.read(stream)

    by_own_engine = await query(lake.tables, [stream.stream], "select id, note from orders order by _offset")
    await lake.work(lambda: is_merged(lake, stream, 3), settings(merges=True))

    assert await lake.read(stream) == before
    assert list(by_own_engine.rows) == [(None, None), (None, None), (1, "a"), (None, None), (2, "a"), (None, None)]
    rows = await lake.rows(stream)
    assert [(row["id"], row["note"], row["note__int"], row["_value"]) for row in rows] == [
        (None, None, None, b"raw"),
        (None, None, None, None),
        (1, "a", None, framed(first, value(1))),
        (None, None, None, b"?"),
        (2, "a", None, None),
        (None, None, None, None),
        (2**40, None, 7, None),
        (3, "a", None, None),
    ]


async def test_a_merge_tells_values_with_a_header_from_those_without(lake: TypedLake) -> None:
    schema_id = await lake.register(ORDER)
    stream = await lake.create(table__value__schema_id=str(schema_id))
    await lake.produce(stream, value(1))
    await lake.compact(stream)
    await alter(lake, "elide", "table.value.schema_id")
    await lake.produce(stream, framed(schema_id, value(2)))
    before = await lake.read(stream)

    await lake.work(lambda: is_merged(lake, stream, 2), settings(merges=True))

    assert await lake.read(stream) == before
    assert [(row["id"], row["_schema_id"]) for row in await lake.rows(stream)] == [(1, schema_id), (2, schema_id)]


async def is_merged(lake: TypedLake, stream: StreamView, file_count: int) -> bool:
    state = await lake.tables.summary(stream.stream)
    is_replaced = state is not None and state.snapshots[-1].deleted_files >= file_count
    return is_replaced and await lake.is_compacted(stream)


async def alter(lake: TypedLake, mode: str, *unset: str) -> None:
    found = await lake.stores.metadata.streams.get("orders")
    await lake.stores.metadata.streams.alter(
        found.number, set_configs={"table.value.mode": mode}, unset_configs=unset, version=found.version
    )


async def test_key_compaction_tells_elided_values_from_tombstones(lake: TypedLake) -> None:
    stream = await lake.create(
        cleanup__policy="compact", min__cleanable__dirty__ratio="0.01", table__on_compaction="latest"
    )
    schema_id = await lake.register(ORDER)
    for key in (b"a", b"b", b"c"):
        await lake.produce(stream, framed(schema_id, value(1)), framed(schema_id, value(2)), key=key)
    await lake.produce(stream, None, key=b"c")
    newest = [(1, b"a", framed(schema_id, value(2))), (3, b"b", framed(schema_id, value(2))), (6, b"c", None)]

    async def is_cleaned() -> bool:
        return await lake.is_compacted(stream) and await lake.read(stream) == newest

    await lake.work(is_cleaned, settings(cleans=True))

    rows = await lake.rows(stream)
    assert [(row["_offset"], row["id"], row["_value"], row["_schema_id"]) for row in rows] == [
        (1, 2, None, schema_id),
        (3, 2, None, schema_id),
        (6, None, None, None),
    ]


async def test_two_workers_give_each_field_one_id(lake: TypedLake) -> None:
    stream = await lake.create()
    ids = [await lake.register(order((f"f{at}", "int"))) for at in range(6)]
    for schema_id in ids:
        await lake.produce(stream, framed(schema_id, number(schema_id)))
        await lake.produce(stream, *(framed(other, number(other)) for other in reversed(ids)))

    async with asyncio.TaskGroup() as group:
        for name in ("one", "two"):
            group.create_task(
                lake.work(lambda: lake.is_compacted(stream), settings(claim_bytes_max=1, item_bytes_max=1), name=name)
            )

    rows = await lake.rows(stream)
    assert sum(row["_value"] is None for row in rows) == len(rows) == 42
    assert all([row[f"f{at}"] for at in range(6)].count(row["_schema_id"]) == 1 for row in rows)
    stored = await lake.stores.metadata.table_columns.get(stream.stream.number)
    assert stored.version >= 1


@pytest.mark.slow
async def test_a_worker_may_die_at_any_call_while_schemas_change(lake: TypedLake) -> None:
    stream = await lake.create()
    deaths, names = 0, []
    for dies_at in range(1, 200, 6):
        names.append(f"f{dies_at}")
        schema_id = await lake.register(order((names[-1], "int")))
        await lake.produce(stream, framed(schema_id, number(dies_at)))
        life = Life(dies_at)

        await lake.work(lambda: lake.is_compacted(stream), life=life)

        deaths += life.death.is_set()
        if not life.death.is_set():
            break
    await lake.compact(stream)

    assert deaths > 4
    rows = await lake.rows(stream)
    assert [row["_offset"] for row in rows] == list(range(len(names)))
    assert [[name for name in names if row[name] is not None] for row in rows] == [[name] for name in names]
    assert all(row["_value"] is None for row in rows)
    assert [len(record[2] or b"") > 5 for record in await lake.read(stream)] == [True] * len(names)
