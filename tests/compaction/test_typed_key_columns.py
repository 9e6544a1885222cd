"""Keys with schemas become typed columns; consumers, key compaction, live views and old processes see what they must."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bearlake.compaction.settings import ColumnSettings
from bearlake.live.local import local_views
from bearlake.live.settings import LiveSettings
from bearlake.metadata import registering
from bearlake.table.query import query
from fixtures.avro_cases import number, text
from fixtures.typed_lake import TypedLake, settings, typed_lake
from fixtures.typed_orders import ORDER, order, value
from fixtures.typed_values import framed

KEY = order(("id", "long"), ("city", "string"))


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[TypedLake]:
    async with typed_lake(tmp_path) as found:
        yield found


def key_of(schema_id: int, id_: int) -> bytes:
    return framed(schema_id, number(id_) + text("Bonn"))


async def test_views_and_tables_have_the_same_columns_and_consumers_the_same_bytes(lake: TypedLake) -> None:
    stream = await lake.create(table__key__mode="elide")
    of_value, of_key = await lake.register(ORDER), await lake.register(KEY, "orders-key")
    await lake.produce(stream, framed(of_value, value(1)), None, key=key_of(of_key, 2**40))
    await lake.produce(stream, framed(of_value, value(2)), key=b"raw")
    before = await lake.read(stream)
    sql = "select id, id_2, city, _key, _key_schema_id, _error from orders order by _offset"
    stores = lake.stores

    async with local_views(stores.metadata, stores.store, lake.tables, ColumnSettings(), LiveSettings()) as live:
        seen_live = await query(lake.tables, [stream.stream], sql, will_have_table=lambda _: True, live=live)
    await lake.compact(stream)
    seen = await query(lake.tables, [stream.stream], sql)

    error = "KEY_NO_SCHEMA: the value does not begin with byte 0 and a schema's id"
    assert list(seen.rows) == [
        (1, 2**40, "Bonn", None, of_key, None),
        (None, 2**40, "Bonn", None, of_key, None),
        (2, None, None, b"raw", None, error),
    ]
    assert list(seen_live.rows) == list(seen.rows)
    assert await lake.read(stream) == before


async def test_key_compaction_compares_keys_that_files_leave_out_with_those_they_keep(lake: TypedLake) -> None:
    stream = await lake.create(
        cleanup__policy="compact",
        min__cleanable__dirty__ratio="0.01",
        table__on_compaction="latest",
        table__value__mode="raw",
    )
    of_key = await lake.register(KEY, "orders-key")
    first, second, third = (key_of(of_key, at) for at in (1, 2, 3))
    for key in (first, second):
        await lake.produce(stream, b"kept", key=key)
    await lake.compact(stream)
    found = await lake.stores.metadata.streams.get("orders")
    await lake.stores.metadata.streams.alter(
        found.number, set_configs={"table.key.mode": "elide"}, unset_configs=(), version=found.version
    )
    for key in (second, third, first):
        await lake.produce(stream, b"left out", b"newest", key=key)
    await lake.produce(stream, None, key=third)
    newest = [(3, second, b"newest"), (7, first, b"newest"), (8, third, None)]

    async def is_cleaned() -> bool:
        return await lake.is_compacted(stream) and await lake.read(stream) == newest

    await lake.work(is_cleaned, settings(cleans=True))

    rows = await lake.rows(stream)
    assert [(row["_offset"], row["id"], row["_key"], row["_key_schema_id"]) for row in rows] == [
        (3, 2, None, of_key),
        (7, 1, None, of_key),
        (8, 3, None, of_key),
    ]


async def test_keys_get_columns_only_after_the_last_process_that_cannot_read_them_has_ended(lake: TypedLake) -> None:
    stream = await lake.create(table__key__mode="elide")
    of_value, of_key = await lake.register(ORDER), await lake.register(KEY, "orders-key")
    servers = lake.stores.metadata.servers
    old = await registering.register(
        servers, "old", zone=None, endpoints={}, version="0.1.0+format.3", timeout_ms=600_000
    )
    await lake.produce(stream, framed(of_value, value(1)), key=key_of(of_key, 1))
    await lake.compact(stream)
    (row,) = await lake.rows(stream)
    assert (row["id"], row["_value"], row["_key"]) == (1, None, key_of(of_key, 1))
    assert "_key_schema_id" not in row

    await servers.leave(old.server)
    await lake.produce(stream, framed(of_value, value(2)), key=key_of(of_key, 2))
    await lake.compact(stream)

    assert [(row["id"], row["id_2"], row["_key"]) for row in await lake.rows(stream)] == [
        (1, None, key_of(of_key, 1)),
        (2, 2, None),
    ]
