"""The warehouse `planned` with PyIceberg as an engine: plans of the views of `live`, in pages, on any server, for those who may read."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bearlake.live.settings import LiveSettings, PlanSettings
from bearlake.streams.access.rights import DESCRIBE_STREAM, READ_STREAM
from bearlake.streams.catalog import StreamView
from bearlake.table.warehouse.scans import Scan
from fixtures.catalog_server import CatalogNode, serving
from fixtures.rights import EVERY, OnlyRights
from fixtures.spark_sql import jars, spark
from fixtures.typed_lake import TypedLake, typed_lake

__all__ = ["jars"]

TABLES = "/v1/planned/namespaces/streams/tables"
TABLE = f"{TABLES}/orders"
PLAN, TASKS = f"{TABLE}/plan", f"{TABLE}/tasks"


class Scene(NamedTuple):
    """A lake with the stream `orders`, and two servers of its catalog, whose plans have one file in each answer."""

    lake: TypedLake
    view: StreamView
    server: CatalogNode
    other: CatalogNode
    rights: OnlyRights

    async def rows(self, **scan: Any) -> list[tuple[int, bytes]]:
        """Offsets and values that PyIceberg reads in the warehouse `planned`."""

        def read(catalog: Any) -> list[tuple[int, bytes]]:
            assert catalog.supports_server_side_planning()
            found = catalog.load_table("streams.orders").scan(**scan).to_arrow()
            return sorted(zip(found["_offset"].to_pylist(), found["_value"].to_pylist(), strict=True))

        return await self.server.client(read, warehouse="planned")

    async def planned(self, server: CatalogNode | None = None, **scan: Any) -> list[dict[str, Any]]:
        """All tasks of a plan of `server`, fetched from the other one."""
        server = server or self.server
        answer = await server.ask("POST", PLAN, {name.replace("_", "-"): value for name, value in scan.items()})
        assert (answer.status, answer.body.get("status")) == (200, "completed"), answer
        found, body = list(answer.body["file-scan-tasks"]), answer.body
        server = self.other if server is self.server else self.server
        while tasks := body.get("plan-tasks"):
            body = (await server.ask("POST", TASKS, {"plan-task": tasks[0]})).body
            found += body["file-scan-tasks"]
        return found

    async def snapshot_id(self, server: CatalogNode | None = None) -> int:
        """The id of the view that a load has."""
        answer = await (server or self.server).ask("GET", TABLE)
        return int(answer.body["metadata"]["current-snapshot-id"])


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """See `Scene`."""
    rights = OnlyRights(EVERY)
    async with typed_lake(tmp_path) as lake, AsyncExitStack() as stack:
        view = await lake.create(table__value__mode="raw")
        stores, plans = lake.stores, PlanSettings(page_file_count=1)
        servers = [
            await stack.enter_async_context(
                serving(
                    tmp_path,
                    stores.metadata,
                    stores.store,
                    lake.tables,
                    lake.streams.catalog,
                    rights,
                    clock=stores.clock,
                    live_settings=LiveSettings(plans=plans),
                )
            )
            for _ in range(2)
        ]
        yield Scene(lake, view, servers[0], servers[1], rights)


async def compacted_and_tail(scene: Scene) -> None:
    """Offsets 0 and 1 in one data file each, 2 in the tail."""
    for value in (b"0", b"1"):
        await scene.lake.produce(scene.view, value)
        await scene.lake.compact(scene.view)
    await scene.lake.produce(scene.view, b"2")


def paths(tasks: list[dict[str, Any]]) -> set[str]:
    """The files of tasks."""
    return {task["data-file"]["file-path"] for task in tasks}


async def test_pyiceberg_reads_each_acknowledged_record_by_plans_of_the_server(scene: Scene) -> None:
    assert await scene.rows() == []
    await compacted_and_tail(scene)

    assert await scene.rows() == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert await scene.rows(row_filter="_offset >= 1") == [(1, b"1"), (2, b"2")]


@pytest.mark.integration
@pytest.mark.slow
async def test_spark_reads_each_acknowledged_record_by_plans_of_the_server(scene: Scene, jars: str) -> None:
    await compacted_and_tail(scene)
    name = "bearlake.streams.orders"
    statements = [
        f"select count(*), count(distinct _offset), min(_offset), max(_offset) from {name}",
        f"select cast(_value as string) from {name} where _offset >= 1 order by _offset",
        f"select cast(_value as string) from {name} where _value = x'32'",
        f"select count(*) from {name} where _timestamp < timestamp '2100-01-01 00:00:00'",
        f"select count(*) from {name} where _timestamp > timestamp '2100-01-01 00:00:00'",
        f"select count(*) from {name} a join {name} b on a._offset = b._offset",
        f"delete from {name} where _offset = 0",
    ]

    server = scene.server
    answers = await asyncio.to_thread(spark, jars, server.folder, statements, server.url, "planned")

    assert answers[:6] == [[["3", "3", "0", "2"]], [["1"], ["2"]], [["2"]], [["3"]], [["0"]], [["3"]]]
    assert isinstance(answers[6], str)


async def test_a_filter_leaves_out_files_without_its_rows_and_comes_back_as_residual(scene: Scene) -> None:
    await compacted_and_tail(scene)
    last = {"type": "gt-eq", "term": "_offset", "value": 2}

    whole, filtered = await scene.planned(), await scene.planned(filter=last)

    assert len(paths(whole)) == 3
    assert len(paths(filtered)) == 1
    assert filtered[0]["residual-filter"] == last
    assert "residual-filter" not in whole[0]


@pytest.mark.parametrize(
    "filter_",
    [
        {"type": "eq", "term": "_value", "value": "39"},
        {"type": "not", "child": {"type": "not-eq", "term": "_value", "value": "39"}},
        {"type": "eq", "term": {"type": "transform", "transform": "bucket[4]", "term": "_offset"}, "value": 9},
        {"type": "eq", "term": "_offset", "value": "no number"},
        {"type": "unheard-of", "term": "_offset"},
    ],
    ids=["bytes", "negated bytes", "transform", "text for a number", "other predicate"],
)
async def test_a_comparison_that_engines_may_mean_in_another_way_leaves_no_file_out(
    scene: Scene, filter_: dict[str, Any]
) -> None:
    await compacted_and_tail(scene)

    assert len(paths(await scene.planned(filter=filter_))) == 3


async def test_the_same_view_has_the_same_files_on_every_server_also_after_compaction(scene: Scene) -> None:
    await compacted_and_tail(scene)
    number = await scene.snapshot_id()
    first = await scene.planned(snapshot_id=number, use_snapshot_schema=True)
    await scene.lake.compact(scene.view)
    await scene.lake.produce(scene.view, b"3")

    again = await scene.planned(scene.other, snapshot_id=number, use_snapshot_schema=True)
    newest = await scene.planned(scene.other)

    assert again == first
    assert sum(task["data-file"]["record-count"] for task in first) == 3
    assert sum(task["data-file"]["record-count"] for task in newest) == 4


async def test_a_snapshot_of_the_table_can_be_planned(scene: Scene) -> None:
    await scene.lake.produce(scene.view, b"0")
    await scene.lake.compact(scene.view)
    number = await scene.snapshot_id()
    await scene.lake.produce(scene.view, b"1")

    assert len(await scene.planned(snapshot_id=number)) == 1


async def test_rows_that_an_engine_has_deleted_are_deleted_in_plans(scene: Scene, tmp_path: Path) -> None:
    await compacted_and_tail(scene)

    await scene.server.client(lambda catalog: catalog.load_table("streams.orders").delete("_offset = 1"))

    assert await scene.rows() == [(0, b"0"), (2, b"2")]


async def test_a_plan_can_be_fetched_again_until_it_is_cancelled(scene: Scene) -> None:
    await compacted_and_tail(scene)
    planned = await scene.server.ask("POST", PLAN, {})
    path = f"{PLAN}/{planned.body['plan-id']}"

    again = await scene.server.ask("GET", path)
    cancelled = await scene.server.ask("DELETE", path)
    gone = [await scene.server.ask(method, path) for method in ("GET", "DELETE")]
    tasks = await scene.server.ask("POST", TASKS, {"plan-task": planned.body["plan-tasks"][0]})

    assert again.body == planned.body
    assert cancelled.status == 204
    assert [(answer.status, answer.error) for answer in gone] == [(404, "NoSuchPlanIdException")] * 2
    assert (tasks.status, len(tasks.body["file-scan-tasks"])) == (200, 1)


async def test_what_is_no_plan_task_is_not_found(scene: Scene) -> None:
    await compacted_and_tail(scene)
    number = await scene.snapshot_id()
    beyond = Scan(snapshot_id=number).plan_task(3)

    for task in (None, 7, "x", "eJw=", Scan().plan_task(0), beyond):
        answer = await scene.server.ask("POST", TASKS, {"plan-task": task})
        assert (answer.status, answer.error) == (404, "NoSuchPlanTaskException"), task


async def test_a_view_of_another_stream_cannot_be_planned(scene: Scene) -> None:
    other = await scene.lake.create("secret", table__value__mode="raw")
    await scene.lake.produce(other, b"s")
    answer = await scene.server.ask("GET", f"{TABLES}/secret")
    number = answer.body["metadata"]["current-snapshot-id"]

    for server in (scene.server, scene.other):
        refused = await server.ask("POST", PLAN, {"snapshot-id": number})
        assert (refused.status, refused.error) == (400, "BadRequestException")
        task = Scan(snapshot_id=number).plan_task(0)
        assert (await server.ask("POST", TASKS, {"plan-task": task})).status == 400


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"snapshot-id": 1}, 400),
        ({"snapshot-id": "1"}, 400),
        ({"snapshot-id": 2**63}, 400),
        ({"snapshot-id": 1, "start-snapshot-id": 1, "end-snapshot-id": 2}, 400),
        ({"start-snapshot-id": 1}, 400),
        ({"start-snapshot-id": 1, "end-snapshot-id": 2}, 406),
        ({"filter": {"type": "eq", "term": "none", "value": 1}}, 400),
        ({"filter": "x"}, 400),
        ({"filter": {"type": "and", "left": True}}, 400),
        ({"filter": {"type": "in", "term": "_offset", "values": list(range(100_000))}}, 400),
        ({"select": ["none"]}, 400),
        ({"select": "x"}, 400),
        ({"stats-fields": ["none"]}, 400),
        ({"case-sensitive": 1}, 400),
        ([], 400),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
async def test_a_wrong_request_is_refused(scene: Scene, body: Any, status: int) -> None:
    await scene.lake.produce(scene.view, b"0")

    assert (await scene.server.ask("POST", PLAN, body)).status == status


async def test_a_filter_of_four_hundred_levels_leaves_no_file_out(scene: Scene) -> None:
    await compacted_and_tail(scene)
    deep: Any = {"type": "gt-eq", "term": "_offset", "value": 9}
    for _ in range(400):
        deep = {"type": "and", "left": deep, "right": {"type": "gt-eq", "term": "_offset", "value": 0}}

    assert len(paths(await scene.planned(filter=deep))) == 3


async def test_comparisons_beyond_the_first_ones_leave_no_file_out(scene: Scene) -> None:
    await compacted_and_tail(scene)
    many: Any = {"type": "eq", "term": "_offset", "value": 9}
    for _ in range(7):
        many = {"type": "or", "left": many, "right": many}

    none = {"type": "and", "left": many["left"]["left"], "right": True}
    assert paths(await scene.planned(filter=none)) == set()
    assert len(paths(await scene.planned(filter=many))) == 3


async def test_counts_of_columns_come_where_they_are_asked_for(scene: Scene) -> None:
    await scene.lake.produce(scene.view, b"0")

    (task,) = await scene.planned(stats_fields=["_OFFSET"], case_sensitive=False)

    assert list(task["data-file"]["value-counts"]["values"]) == [1]


async def test_only_this_warehouse_lets_clients_plan(scene: Scene) -> None:
    configs = {
        name: (await scene.server.ask("GET", f"/v1/config?warehouse={name}")).body for name in ("live", "planned")
    }

    assert configs["planned"]["overrides"]["scan-planning-mode"] == "server"
    assert "scan-planning-mode" not in configs["live"]["overrides"]
    ends = [name.rpartition("/")[2] for name in configs["planned"]["endpoints"]]
    assert {"plan", "tasks", "{plan-id}"} <= set(ends)
    assert not [name for name in configs["live"]["endpoints"] if "plan" in name.rpartition("/")[2]]


async def test_the_tables_of_other_engines_are_not_in_this_warehouse(scene: Scene) -> None:
    schema = {"type": "struct", "schema-id": 0, "fields": []}
    await scene.server.ask("GET", TABLE)
    made = await scene.server.ask("POST", "/v1/namespaces/streams/tables", {"name": "mine", "schema": schema})

    listed = await scene.server.ask("GET", TABLES)
    loaded = await scene.server.ask("GET", f"{TABLES}/mine")
    planned = await scene.server.ask("POST", f"{TABLES}/mine/plan", {})

    assert made.status == 200
    assert [found["name"] for found in listed.body["identifiers"]] == ["orders"]
    assert (loaded.status, planned.status) == (404, 404)


@pytest.mark.parametrize(
    ("method", "path"), [("POST", PLAN), ("POST", TASKS), ("GET", f"{PLAN}/x"), ("DELETE", f"{PLAN}/x")]
)
async def test_who_may_not_read_the_stream_cannot_plan(scene: Scene, method: str, path: str) -> None:
    await scene.lake.produce(scene.view, b"0")
    body = {"plan-task": Scan(snapshot_id=await scene.snapshot_id()).plan_task(0)} if method == "POST" else None

    scene.rights.rights = frozenset(DESCRIBE_STREAM)
    described = await scene.server.ask(method, path, body)
    scene.rights.rights = frozenset()
    unseen = await scene.server.ask(method, path, body)
    scene.rights.rights = frozenset((*DESCRIBE_STREAM, *READ_STREAM))
    allowed = await scene.server.ask(method, path, body)

    assert (described.status, unseen.status, unseen.error) == (403, 404, "NoSuchTableException")
    assert allowed.status == 200 or allowed.error == "NoSuchPlanIdException"


@pytest.mark.parametrize("limit", ["file_count_max", "manifest_bytes_max"])
async def test_a_table_with_too_many_files_is_read_in_the_other_warehouse(tmp_path: Path, limit: str) -> None:
    async with typed_lake(tmp_path) as lake:
        view = await lake.create(table__value__mode="raw")
        stores, limits = lake.stores, LiveSettings(plans=PlanSettings(**{limit: 1}))
        for value in (b"0", b"1"):
            await lake.produce(view, value)
            await lake.compact(view)
        async with serving(
            tmp_path,
            stores.metadata,
            stores.store,
            lake.tables,
            lake.streams.catalog,
            clock=stores.clock,
            live_settings=limits,
        ) as server:
            answer = await server.ask("POST", PLAN, {})

    assert (answer.status, answer.error) == (406, "UnsupportedOperationException")
    assert f"live.plans.{limit} = 1" in answer.body["error"]["message"]
