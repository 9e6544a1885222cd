"""Merges and key compaction keep the typed columns, and the bytes that consumers get."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bearlake.streams.catalog import StreamView
from bearlake.table.query import query
from fixtures.avro_cases import number, text
from fixtures.typed_lake import TypedLake, settings, typed_lake
from fixtures.typed_orders import ORDER, order, value
from fixtures.typed_values import framed


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[TypedLake]:
    async with typed_lake(tmp_path) as found:
        yield found


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


async def test_an_id_that_means_another_schema_now_gets_the_columns_of_both(lake: TypedLake) -> None:
    stream = await lake.create(table__value__subjects=":.one:orders")
    first = await lake.register(order(("id", "int"), ("gone", "int")), ":.one:orders")
    second = await lake.register(order(("id", "long"), ("new", "string")), ":.two:orders")
    assert first == second
    await lake.produce(stream, framed(first, number(1) + number(2)))
    await lake.compact(stream)
    found = await lake.stores.metadata.streams.get("orders")
    await lake.stores.metadata.streams.alter(
        found.number, set_configs={"table.value.subjects": ":.two:orders"}, unset_configs=(), version=found.version
    )
    await lake.produce(stream, framed(second, number(2**40) + text("x")))
    before = await lake.read(stream)

    await lake.work(lambda: is_merged(lake, stream, 2), settings(merges=True))

    rows = await lake.rows(stream, "_offset", "id", "gone", "new")
    assert [(row["id"], row["gone"], row["new"]) for row in rows] == [(1, 2, None), (2**40, None, "x")]
    assert await lake.read(stream) == before


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


async def is_merged(lake: TypedLake, stream: StreamView, file_count: int) -> bool:
    state = await lake.tables.summary(stream.stream)
    is_replaced = state is not None and state.snapshots[-1].deleted_files >= file_count
    return is_replaced and await lake.is_compacted(stream)


async def alter(lake: TypedLake, mode: str, *unset: str) -> None:
    found = await lake.stores.metadata.streams.get("orders")
    await lake.stores.metadata.streams.alter(
        found.number, set_configs={"table.value.mode": mode}, unset_configs=unset, version=found.version
    )
