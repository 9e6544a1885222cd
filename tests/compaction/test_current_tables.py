"""Current tables: the newest record of each key, as of stated offsets."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from bearlake.table.naming import location_key
from fixtures.avro_cases import number, text
from fixtures.current_lake import CurrentLake
from fixtures.deployment import NOW_MS
from fixtures.typed_lake import TypedLake, settings, typed_lake
from fixtures.typed_orders import ORDER, order, value
from fixtures.typed_values import framed

YEARS_MS = 10 * 365 * 86_400_000
"""The test's clock is in the past of the machine's, by which files and snapshots have their times."""


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[TypedLake]:
    async with typed_lake(tmp_path) as found:
        yield found


async def current(lake: TypedLake, partition_count: int = 1, **configs: str) -> CurrentLake:
    given = {"table__current": "on", "table__value__mode": "raw", "table__current__buckets": "4"}
    given |= {"table__current__freshness_ms": "1000", **configs}
    return CurrentLake(lake, await lake.create(partition_count=partition_count, **given))


async def test_the_table_has_the_newest_value_of_each_key_and_no_deleted_key(lake: TypedLake) -> None:
    scene = await current(lake)
    await scene.send((b"ann", b"1"), (b"bob", b"2"), (b"ann", b"3"), (b"bob", None), (None, b"no key"))
    await scene.update()

    assert await scene.newest() == {b"ann": (0, 2, b"3")}

    await scene.send((b"bob", b"4"), (b"ann", None), (b"cat", b"5"))
    await scene.update()

    assert await scene.newest() == {b"bob": (0, 5, b"4"), b"cat": (0, 7, b"5")}
    assert await scene.ends() == {0: 8}
    assert await scene.newest() == await scene.expected()


async def test_a_tombstone_counts_against_older_records_of_other_partitions(lake: TypedLake) -> None:
    scene = await current(lake, 2)
    await scene.send((b"a", b"1"), (b"b", b"1"), index=0, timestamp_ms=NOW_MS)
    await scene.send((b"a", None), index=1, timestamp_ms=NOW_MS + 10)
    await scene.update()
    await scene.send((b"a", b"late"), (b"b", b"2"), index=0, timestamp_ms=NOW_MS + 5)
    await scene.update()

    assert await scene.newest() == {b"b": (0, 3, b"2")}
    assert await scene.newest() == await scene.expected()


async def test_typed_keys_and_values_are_columns_of_the_current_table_too(lake: TypedLake) -> None:
    scene = await current(lake, table__value__mode="elide", table__key__mode="elide")
    schema_id = await lake.register(ORDER)
    key_id = await lake.register(order(("customer", "string")), "orders-key")
    ann, bob = (framed(key_id, text(name)) for name in ("ann", "bob"))
    await scene.send((ann, framed(schema_id, value(1))), (bob, framed(schema_id, value(2))))
    await scene.update()
    await scene.send((ann, framed(schema_id, value(3))), (bob, None))
    later = await lake.register(order(("id", "long"), ("note", "string"), ("extra", "string")))
    await scene.send((bob, framed(later, number(4) + text("n") + text("x"))))
    await scene.update()

    rows = await scene.rows()
    assert [(row["_key"], row["_offset"], row["id"], row["extra"], row["customer"]) for row in rows] == [
        (ann, 2, 3, None, "ann"),
        (bob, 4, 4, "x", "bob"),
    ]
    assert "_batch" not in rows[0]


async def test_files_that_another_engine_has_rewritten_are_read_as_well(lake: TypedLake, tmp_path: Path) -> None:
    scene = await current(lake, table__value__mode="keep")
    schema_id = await lake.register(ORDER)
    await scene.send((b"a", framed(schema_id, value(1))), (b"b", b"?"), (b"c", None))
    await lake.compact(scene.view, settings(has_current=False))

    def rewrite() -> None:
        with load_catalog("bearlake", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db") as catalog:
            table = catalog.load_table("streams.orders")
            table.overwrite(table.scan().to_arrow())

    await asyncio.to_thread(rewrite)
    await scene.update()

    assert await scene.newest() == {b"a": (0, 0, framed(schema_id, value(1))), b"b": (0, 1, b"?")}
    assert [row["id"] for row in await scene.rows()] == [1, None]


async def test_a_change_of_the_buckets_makes_the_table_anew(lake: TypedLake) -> None:
    scene = await current(lake)
    await scene.send((b"a", b"1"), (b"b", b"2"))
    await scene.update()
    await scene.alter(table__current__buckets="2")
    await scene.send((b"a", None))
    await scene.update_as(buckets=2)

    assert await scene.newest() == {b"b": (0, 1, b"2")}


async def test_a_table_that_is_switched_off_is_dropped_and_its_files_are_swept(lake: TypedLake) -> None:
    scene = await current(lake)
    await scene.send((b"a", b"1"))
    await scene.update()
    await scene.alter(table__current="off")

    async def is_swept() -> bool:
        folder = location_key(scene.derived)
        return not [found async for found in lake.stores.store.list(f"{folder}/")]

    lake.stores.clock.advance(YEARS_MS)
    await lake.work(is_swept, settings(sweeps=True))

    assert await lake.tables.state(scene.derived) is None
    assert await lake.tables.state(scene.stream) is not None


async def test_superseded_files_are_deleted_with_their_snapshots(lake: TypedLake) -> None:
    scene = await current(lake, table__current__buckets="1")
    for number_ in range(4):
        await scene.send((b"a", b"%d" % number_))
        await scene.update()

    async def has_one_file() -> bool:
        folder = f"{location_key(scene.derived)}/data/"
        return len([found async for found in lake.stores.store.list(folder)]) == 1

    lake.stores.clock.advance(YEARS_MS)
    await lake.work(has_one_file, settings(sweeps=True))

    assert await scene.newest() == {b"a": (0, 3, b"3")}


async def test_a_table_whose_stream_has_another_table_now_is_made_anew(lake: TypedLake) -> None:
    scene = await current(lake)
    await scene.send((b"a", b"1"), (b"b", b"2"))
    await scene.update()
    await lake.tables.drop(scene.stream)
    await scene.send((b"a", b"3"))
    before = (await scene.state()).source
    await scene.update_as(other_than=before)

    assert await scene.newest() == await scene.expected() == {b"a": (0, 2, b"3")}


async def test_a_table_that_another_engine_has_written_is_made_anew(lake: TypedLake, tmp_path: Path) -> None:
    scene = await current(lake)
    await scene.send((b"a", b"1"), (b"b", b"2"))
    await scene.update()
    before = (await scene.state()).round

    def write() -> None:
        with load_catalog("bearlake", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db") as catalog:
            table = catalog.load_table("streams.orders_current")
            table.append(table.scan().to_arrow())

    await asyncio.to_thread(write)
    await scene.send((b"b", None))

    async def is_anew() -> bool:
        return await scene.is_current() and (await scene.state()).round != before and len(await scene.rows()) == 1

    lake.stores.clock.advance(120_000)
    await lake.work(is_anew)

    assert await scene.newest() == {b"a": (0, 0, b"1")}
