"""The warehouse `live` with PyIceberg and Spark as engines: the last acknowledged record, rights, and what is refused."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bearlake.streams.access.rights import DESCRIBE_STREAM, READ_STREAM
from bearlake.streams.catalog import StreamView
from fixtures.catalog_server import CatalogNode, serving
from fixtures.rights import EVERY, OnlyRights
from fixtures.spark_sql import jars, spark
from fixtures.typed_lake import TypedLake, typed_lake

__all__ = ["jars"]

TABLES = "/v1/live/namespaces/streams/tables"
TABLE = f"{TABLES}/orders"


class Scene(NamedTuple):
    """A lake with the stream `orders`, and a catalog over it."""

    lake: TypedLake
    view: StreamView
    server: CatalogNode
    rights: OnlyRights

    async def offsets(self) -> list[int]:
        """What PyIceberg reads in the warehouse `live`."""

        def scan(catalog: Any) -> list[int]:
            table = catalog.load_table("streams.orders")
            if table.current_snapshot() is None:
                return []
            return sorted(table.scan(selected_fields=("_offset",)).to_arrow().column("_offset").to_pylist())

        return await self.server.client(scan, warehouse="live")


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """See `Scene`."""
    rights = OnlyRights(EVERY)
    async with typed_lake(tmp_path) as lake:
        view = await lake.create(table__value__mode="raw")
        stores = lake.stores
        async with serving(
            tmp_path, stores.metadata, stores.store, lake.tables, lake.streams.catalog, rights, clock=stores.clock
        ) as server:
            yield Scene(lake, view, server, rights)


async def test_pyiceberg_sees_each_record_once_acknowledged(scene: Scene) -> None:
    assert await scene.offsets() == []
    await scene.lake.produce(scene.view, b"0")
    assert await scene.offsets() == [0]
    await scene.lake.compact(scene.view)
    await scene.lake.produce(scene.view, b"1", b"2")
    assert await scene.offsets() == [0, 1, 2]


@pytest.mark.integration
@pytest.mark.slow
async def test_spark_sees_each_record_once_acknowledged_and_cannot_write(scene: Scene, jars: str) -> None:
    await scene.lake.produce(scene.view, b"0", b"1")
    await scene.lake.compact(scene.view)
    await scene.lake.produce(scene.view, b"2")
    name = "bearlake.streams.orders"
    statements = [
        f"select count(*), count(distinct _offset), max(_offset) from {name}",
        f"select cast(_value as string) from {name} where _offset >= 1 order by _offset",
        f"select count(*) from {name} a join {name} b on a._offset = b._offset",
        f"delete from {name} where _offset = 0",
        f"insert into {name} select * from {name}",
        f"select count(*) from {name}",
    ]

    server = scene.server
    answers = await asyncio.to_thread(spark, jars, server.folder, statements, server.url, "live")

    assert answers[:3] == [[["3", "3", "2"]], [["1"], ["2"]], [["3"]]]
    assert all(isinstance(answer, str) for answer in answers[3:5])
    assert answers[5] == [["3"]]


async def test_the_default_warehouse_shows_compacted_records_only(scene: Scene) -> None:
    await scene.lake.produce(scene.view, b"0")
    await scene.lake.compact(scene.view)
    await scene.lake.produce(scene.view, b"1")
    await scene.offsets()

    real = await scene.server.client(lambda catalog: catalog.load_table("streams.orders").scan().to_arrow())

    assert real.column("_offset").to_pylist() == [0]


async def test_a_client_finds_streams_without_tables(scene: Scene) -> None:
    listed = await scene.server.client(
        lambda catalog: (catalog.list_namespaces(), catalog.list_tables("streams")), warehouse="live"
    )

    assert listed == ([("streams",)], [("streams", "orders")])


async def test_a_client_that_has_this_version_gets_304_until_a_record_arrives(scene: Scene) -> None:
    first = await scene.server.ask("GET", TABLE)
    again = await scene.server.ask("GET", TABLE, headers={"If-None-Match": first.headers["ETag"]})
    await scene.lake.produce(scene.view, b"0")
    later = await scene.server.ask("GET", TABLE, headers={"If-None-Match": first.headers["ETag"]})

    assert (first.status, again.status, later.status) == (200, 304, 200)


async def test_nothing_can_be_written(scene: Scene) -> None:
    await scene.server.ask("GET", TABLE)

    answer = await scene.server.ask("POST", TABLE, {"requirements": [], "updates": []})

    assert (answer.status, answer.error) == (403, "ForbiddenException")
    assert "default warehouse" in answer.body["error"]["message"]


@pytest.mark.parametrize(("method", "path"), [("GET", TABLE), ("HEAD", TABLE), ("POST", TABLE)])
async def test_without_rights_a_stream_has_no_table(scene: Scene, method: str, path: str) -> None:
    scene.rights.rights = frozenset()

    answer = await scene.server.ask(method, path, {} if method == "POST" else None)
    unknown = await scene.server.ask(method, f"{TABLES}/unknown", {} if method == "POST" else None)
    listed = await scene.server.ask("GET", TABLES)
    of_no_namespace = await scene.server.ask("GET", TABLES.replace("streams", "unknown"))

    assert answer.status == unknown.status == 404
    assert (listed.status, listed.error) == (of_no_namespace.status, of_no_namespace.error)  # no table is in it yet


async def test_a_namespace_of_streams_without_tables_is_seen_by_those_who_may_see_one_of_them(scene: Scene) -> None:
    await scene.lake.create("secret", table__namespace="plans")
    paths = ["/v1/live/namespaces/plans", "/v1/live/namespaces/plans/tables"]

    allowed = [(await scene.server.ask("GET", path)).status for path in paths]
    listed = await scene.server.ask("GET", "/v1/live/namespaces")
    scene.rights.rights = frozenset()
    refused = [(await scene.server.ask("GET", path)).status for path in paths]
    unlisted = await scene.server.ask("GET", "/v1/live/namespaces")

    assert allowed == [200, 200]
    assert listed.body == {"namespaces": [["plans"], ["streams"]]}
    assert refused == [404, 404]
    assert unlisted.body == {"namespaces": []}


async def test_a_client_that_may_only_describe_does_not_load(scene: Scene) -> None:
    scene.rights.rights = frozenset(DESCRIBE_STREAM)

    assert (await scene.server.ask("HEAD", TABLE)).status == 204
    assert (await scene.server.ask("GET", TABLE)).status == 403


async def test_the_right_to_read_is_enough_to_load(scene: Scene) -> None:
    scene.rights.rights = frozenset((*DESCRIBE_STREAM, *READ_STREAM))

    assert (await scene.server.ask("GET", TABLE)).status == 200


async def test_an_unknown_namespace_is_not_found(scene: Scene) -> None:
    for path in ("/v1/live/namespaces/none", "/v1/live/namespaces/none/tables"):
        answer = await scene.server.ask("GET", path)
        assert (answer.status, answer.error) == (404, "NoSuchNamespaceException")


async def test_a_table_of_no_stream_is_the_same_in_both_warehouses(scene: Scene) -> None:
    import pyarrow as pa

    rows = pa.table({"id": pa.array([1, 2], pa.int64())})

    def write(catalog: Any) -> None:
        catalog.create_namespace("lab")
        catalog.create_table("lab.mine", rows.schema).append(rows)

    await scene.server.client(write)
    read = await scene.server.client(lambda catalog: catalog.load_table("lab.mine").scan().to_arrow(), warehouse="live")

    assert read.column("id").to_pylist() == [1, 2]
