"""Schemas and workers that fail: a stream's values keep their bytes, and no other stream is affected."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bearlake.compaction.settings import ColumnSettings
from bearlake.metadata.compaction import TaskState
from bearlake.streams.schemas.model import SchemaType
from fixtures.avro_cases import number
from fixtures.cleaned_stream import Life
from fixtures.typed_lake import TypedLake, settings, typed_lake
from fixtures.typed_orders import ORDER, order, value
from fixtures.typed_values import framed


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[TypedLake]:
    async with typed_lake(tmp_path) as found:
        yield found


async def test_a_wrong_setting_stops_its_own_stream_with_a_reason_and_no_other(lake: TypedLake) -> None:
    stream = await lake.create(table__value__schema_id="77")
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
    assert "no schema with this id" in str(task.error)
    assert [row["id"] for row in await lake.rows(good)] == [1]
    assert [record[2] for record in await lake.read(stream)] == [framed(schema_id, b"{}")]


async def test_values_of_more_schemas_than_a_plan_has_keep_their_bytes_and_stop_nothing(lake: TypedLake) -> None:
    stream = await lake.create()
    ids = [await lake.register(order((f"f{at}", "int"))) for at in range(5)]
    await lake.produce(stream, *(framed(id_, number(id_)) for id_ in ids), *(framed(id_, b"") for id_ in ids))
    before = await lake.read(stream)

    async def is_over() -> bool:
        found = await lake.stores.metadata.tasks.list(stream_number=stream.stream.number)
        return any(task.error for task in found) or await lake.is_compacted(stream)

    await lake.work(is_over, replace(settings(), columns=ColumnSettings(schema_count_max=2)))
    assert await lake.is_compacted(stream)

    assert await lake.read(stream) == before
    rows = await lake.rows(stream, "_error", "_value")
    assert [(row["_error"] or "").partition(":")[0] for row in rows] == [
        *("", "", "UNSUPPORTED_SCHEMA", "UNSUPPORTED_SCHEMA", "UNSUPPORTED_SCHEMA"),
        *("TRUNCATED", "TRUNCATED", "UNSUPPORTED_SCHEMA", "UNSUPPORTED_SCHEMA", "UNSUPPORTED_SCHEMA"),
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
