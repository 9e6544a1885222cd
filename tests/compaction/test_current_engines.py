"""Who reads current tables: `bearlake sql`, PyIceberg, DuckDB, Spark, and clients of the REST catalog, which cannot write them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import EqualTo

from bearlake.compaction.ensuring import ensure_current
from bearlake.errors import Conflict
from bearlake.metadata.model import Stream
from bearlake.streams.current_rules import with_current
from bearlake.streams.principal import Authorizer, Operation, Principal, Resource
from bearlake.table import Unmergeable
from bearlake.table.current import IcebergCurrentTables
from bearlake.table.current_model import CurrentChange, CurrentState
from bearlake.table.query import LiveTable, query
from fixtures.catalog_server import serving
from fixtures.current_lake import CurrentLake
from fixtures.spark_sql import jars, spark
from fixtures.typed_lake import TypedLake, settings, typed_lake
from fixtures.typed_orders import ORDER, value
from fixtures.typed_values import framed

__all__ = ["jars"]


class OfOrders(Authorizer):
    """Allows these operations on the stream `orders`, and nothing else."""

    def __init__(self) -> None:
        self.operations: set[Operation] = set()

    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        """Whether it is an operation on orders."""
        return kind is Resource.STREAM and name == "orders" and operation in self.operations


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[TypedLake]:
    async with typed_lake(tmp_path) as found:
        yield found


@pytest.fixture
async def scene(lake: TypedLake) -> CurrentLake:
    """Keys a and b of typed orders, of which b was deleted and written again; c was deleted."""
    given = {"table__current": "on", "table__current__buckets": "4", "table__current__freshness_ms": "1000"}
    found = CurrentLake(lake, await lake.create(**given))
    schema_id = await lake.register(ORDER)
    first, second, third = (framed(schema_id, value(number)) for number in (1, 2, 3))
    await found.send((b"a", first), (b"b", first), (b"c", first))
    await found.update()
    await found.send((b"a", second), (b"b", None), (b"c", None), (b"b", third))
    await found.update()
    return found


async def test_bearlake_sql_reads_the_current_table_beside_the_history(scene: CurrentLake) -> None:
    asked: list[str] = []

    async def live(stream: Stream) -> LiveTable:
        asked.append(stream.name)
        return LiveTable(table=await scene.lake.tables.load(stream))

    streams = with_current([scene.stream])
    found = await query(
        scene.lake.tables,
        streams,
        "select decode(c._key), c.id, count(*) from orders_current c join orders o using (_key) group by all order by 1",
        live=live,
    )

    assert list(found.rows) == [("a", 2, 2), ("b", 3, 3)]
    assert asked == ["orders"]


async def test_a_stream_that_is_named_like_a_current_table_is_meant_by_its_name(scene: CurrentLake) -> None:
    other = await scene.lake.create("orders_current")

    assert [stream.id for stream in with_current([scene.stream, other.stream])] == [scene.stream.id, other.stream.id]


async def test_pyiceberg_and_duckdb_read_it_and_prune_by_key(scene: CurrentLake, tmp_path: Path) -> None:
    def read() -> tuple[list[Any], list[Any], int, dict[str, str]]:
        with load_catalog("bearlake", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db") as catalog:
            table = catalog.load_table("streams.orders_current")
            rows = table.scan(selected_fields=("_key", "id")).to_arrow().sort_by("_key").to_pylist()
            engine = table.scan().to_duckdb("orders_current")
            answers = engine.sql("select decode(_key), id, _offset from orders_current order by 1").fetchall()
            files = [task.file for task in table.scan(row_filter=EqualTo("_key", b"a")).plan_files()]
            snapshot = table.current_snapshot()
            assert snapshot is not None
            assert snapshot.summary is not None
            return rows, answers, len(files), dict(snapshot.summary.additional_properties)

    rows, answers, file_count, summary = await asyncio.to_thread(read)

    assert rows == [{"_key": b"a", "id": 2}, {"_key": b"b", "id": 3}]
    assert answers == [("a", 2, 3), ("b", 3, 6)]
    assert file_count == 1
    assert summary["bearlake.ends"] == '{"0":7}'


@pytest.mark.integration
@pytest.mark.slow
async def test_spark_reads_it(scene: CurrentLake, tmp_path: Path, jars: str) -> None:
    name = "bearlake.streams.orders_current"
    answers = await asyncio.to_thread(
        spark,
        jars,
        tmp_path,
        [
            f"select cast(_key as string), id, _offset from {name} order by 1",
            f"select count(*) from {name} where _key = x'61'",
        ],
    )

    assert answers == [[["a", "2", "3"], ["b", "3", "6"]], [["1"]]]


@pytest.mark.integration
@pytest.mark.slow
async def test_rows_that_spark_deleted_before_their_round_do_not_come_back(
    lake: TypedLake, tmp_path: Path, jars: str
) -> None:
    found = CurrentLake(lake, await lake.create(table__current="on", table__current__freshness_ms="1000"))
    schema_id = await lake.register(ORDER)
    await found.send((b"a", framed(schema_id, value(1))), (b"b", framed(schema_id, value(2))))
    await lake.compact(found.view, settings(has_current=False))
    await ensure_current(found.stream, lake.stores.metadata.streams, lake.tables)
    name = "bearlake.streams.orders"
    deleted = await asyncio.to_thread(
        spark,
        jars,
        tmp_path,
        [
            f"alter table {name} set tblproperties ('write.delete.mode' = 'merge-on-read')",
            f"delete from {name} where _key = x'61'",
        ],
    )
    with pytest.raises(Unmergeable, match="has deleted rows"):
        await IcebergCurrentTables(lake.tables).view(found.stream, found.derived)
    rewritten = await asyncio.to_thread(
        spark,
        jars,
        tmp_path,
        ["call bearlake.system.rewrite_data_files(table => 'streams.orders', options => map('rewrite-all', 'true'))"],
    )
    await found.update()

    assert not any(isinstance(answer, str) for answer in (*deleted, *rewritten))
    assert list(await found.newest()) == [b"b"]


async def test_who_may_read_the_stream_may_read_its_current_table_and_nobody_may_write_it(
    scene: CurrentLake, tmp_path: Path
) -> None:
    stores, path = scene.lake.stores, "/v1/namespaces/streams/tables/orders_current"
    rights = OfOrders()
    streams = scene.lake.streams.catalog
    async with serving(tmp_path, stores.metadata, stores.store, scene.lake.tables, streams, rights) as node:
        assert (await node.ask("GET", path)).status == 404
        rights.operations = {Operation.READ, Operation.DESCRIBE}
        loaded = await node.ask("GET", path)
        live = await node.ask("GET", path.replace("/v1/", "/v1/live/"))
        listed = await node.ask("GET", "/v1/namespaces/streams/tables")
        planned = await node.ask("GET", "/v1/planned/namespaces/streams/tables")
        rights.operations = set(Operation)
        assert loaded.status == 200, loaded
        snapshot = loaded.body["metadata"]["current-snapshot-id"]
        body = {"requirements": [], "updates": [{"action": "remove-snapshots", "snapshot-ids": [snapshot]}]}
        refused = await node.ask("POST", path, body)
        dropped = await node.ask("DELETE", path)

    assert (loaded.status, live.status) == (200, 200)
    assert live.body["metadata"]["table-uuid"] == loaded.body["metadata"]["table-uuid"]
    assert {table["name"] for table in listed.body["identifiers"]} == {"orders", "orders_current"}
    assert {table["name"] for table in planned.body["identifiers"]} == {"orders", "orders_current"}
    assert refused.status == dropped.status == 403
    assert "can only be read" in refused.body["error"]["message"]


async def test_a_commit_is_made_once_and_never_after_a_fence(scene: CurrentLake) -> None:
    store = IcebergCurrentTables(scene.lake.tables)
    view = await store.view(scene.stream, scene.derived)
    assert view is not None
    assert view.state is not None
    before = await scene.state()
    again = CurrentChange(table=view.table, snapshot_id=None, added=[], removed=[], ends=view.ends, state=before)

    await store.commit(scene.derived, again)  # a repeat of the last round: its id is in the table
    fenced = await scene.lake.tables.fence(scene.derived)
    other = scene.other_round(before)
    late = CurrentChange(table=view.table, snapshot_id=view.snapshot_id, added=[], removed=[], ends={}, state=other)
    with pytest.raises(Conflict, match="another round was first"):
        await store.commit(scene.derived, late)

    assert fenced is not None
    assert fenced.ends == view.ends
    assert await scene.state() == before


async def test_a_round_that_began_before_the_table_was_made_anew_changes_nothing(scene: CurrentLake) -> None:
    """A new table has no snapshot, and neither had the old one when the round began: its files are of other buckets, or swept already."""
    store = IcebergCurrentTables(scene.lake.tables)
    await scene.lake.tables.drop(scene.derived)
    await scene.lake.tables.ensure(scene.derived)
    began = await store.view(scene.stream, scene.derived)
    await scene.lake.tables.drop(scene.derived)
    await scene.lake.tables.ensure(scene.derived)
    now = await store.view(scene.stream, scene.derived)
    assert began is not None
    assert now is not None
    assert began.snapshot_id is now.snapshot_id is None
    state = CurrentState(
        round="late", source=began.source, source_snapshot=began.source_snapshot, sequence=began.sequence,
        is_whole=True, newest_us=0, at_ms=0, buckets=8, envelope="none",
    )  # fmt: skip
    late = CurrentChange(table=began.table, snapshot_id=None, added=[], removed=[], ends=began.ends, state=state)

    with pytest.raises(Conflict, match="made anew"):
        await store.commit(scene.derived, late)

    assert await scene.ends() == {}


async def test_pyiceberg_reads_it_by_plans_of_the_server(scene: CurrentLake, tmp_path: Path) -> None:
    def read(catalog: Any) -> tuple[list[Any], list[Any]]:
        table = catalog.load_table("streams.orders_current")
        rows = table.scan(selected_fields=("_key", "id")).to_arrow().sort_by("_key").to_pylist()
        filtered = table.scan(row_filter="id > 2", selected_fields=("id",)).to_arrow().to_pylist()
        return rows, filtered

    stores, streams = scene.lake.stores, scene.lake.streams.catalog
    async with serving(tmp_path, stores.metadata, stores.store, scene.lake.tables, streams) as node:
        rows, filtered = await node.client(read, warehouse="planned")
        body = {"snapshot-id": None, "filter": True}
        plan = await node.ask("POST", "/v1/planned/namespaces/streams/tables/orders_current/plan", body)

    assert rows == [{"_key": b"a", "id": 2}, {"_key": b"b", "id": 3}]
    assert filtered == [{"id": 3}]
    files = [task["data-file"] for task in plan.body["file-scan-tasks"]]
    assert sum(file["record-count"] for file in files) == 2
    assert all(len(file["partition"]) == 1 for file in files)
    assert all(task["residual-filter"] is True for task in plan.body["file-scan-tasks"])


@pytest.mark.integration
@pytest.mark.slow
async def test_spark_reads_it_by_plans_of_the_server(scene: CurrentLake, tmp_path: Path, jars: str) -> None:
    name = "bearlake.streams.orders_current"
    statements = [
        f"select cast(_key as string), id, _offset from {name} order by 1",
        f"select count(*) from {name} where _key = x'61'",
        f"select id from {name} where id > 2",
    ]
    stores, streams = scene.lake.stores, scene.lake.streams.catalog
    async with serving(tmp_path, stores.metadata, stores.store, scene.lake.tables, streams) as node:
        answers = await asyncio.to_thread(spark, jars, tmp_path, statements, node.url, "planned")

    assert answers == [[["a", "2", "3"], ["b", "3", "6"]], [["1"]], [["3"]]]
