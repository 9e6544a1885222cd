"""Current tables of Debezium's events whose columns are declared (`table.columns`), without a registry."""

import json
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from fixtures.current_lake import CurrentLake
from fixtures.typed_lake import TypedLake, typed_lake

ROW = "struct<id long, name string, price decimal(6,2)>"


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[TypedLake]:
    async with typed_lake(tmp_path) as found:
        yield found


async def current(lake: TypedLake, columns: str) -> CurrentLake:
    given = {"table__current": "on", "table__current__envelope": "debezium", "table__current__freshness_ms": "1000"}
    return CurrentLake(lake, await lake.create(**given, table__columns=columns))


def event(op: str, id_: int, name: str = "") -> tuple[bytes, bytes]:
    row = {"id": id_, "name": name, "price": "1.10"}
    value: dict[str, Any] = {"before": row if op == "d" else None, "after": None if op == "d" else row}
    value |= {"source": {"lsn": 7}, "op": op, "ts_ms": 1, "transaction": None}
    return b"%d" % id_, json.dumps(value).encode()


async def test_declared_columns_of_events_become_the_columns_of_the_row(lake: TypedLake) -> None:
    scene = await current(lake, f"op string, before {ROW}, after {ROW}")
    await scene.send(event("r", 1, "ann"), event("c", 2, "bob"), event("c", 3, "cat"), event("c", 4, "dan"))
    await scene.update()
    await scene.send(event("u", 1, "eve"), event("d", 2), event("d", 3), (b"3", None), (b"5", b"broken"))
    await scene.update()

    rows = sorted(await scene.rows(), key=lambda row: row["_key"])
    assert [(row["id"], row["name"], row["price"], row["_value"]) for row in rows] == [
        (1, "eve", Decimal("1.10"), None),
        (4, "dan", Decimal("1.10"), None),
        (None, None, None, b"broken"),
    ]
    assert [row["_error"] is None for row in rows] == [True, True, False]
    assert rows[2]["_error"].startswith("SYNTAX")
    assert not {"op", "before", "after"} & set(rows[0])


async def test_the_row_is_enough_with_the_operation_and_other_fields_need_no_column(lake: TypedLake) -> None:
    scene = await current(lake, "op string, after struct<id long>")
    await scene.send(event("c", 1, "ann"), event("c", 2, "bob"), event("d", 1))
    await scene.update()

    assert [(row["id"], row["_value"]) for row in await scene.rows("id", "_value")] == [(2, None)]


async def test_events_inside_of_a_schema_keep_their_column_and_the_text_of_the_row(lake: TypedLake) -> None:
    scene = await current(lake, f"payload struct<op string, after {ROW}>")
    given = (event("c", 1, "ann"), event("c", 2, "bob"), event("d", 1))
    await scene.send(*((key, b'{"schema": {}, "payload": %b}' % value) for key, value in given))
    await scene.update()

    (row,) = await scene.rows()
    assert json.loads(row["_value"]) == {"id": 2, "name": "bob", "price": "1.10"}
    assert row["payload"]["after"] == {"id": 2, "name": "bob", "price": Decimal("1.10")}


@pytest.mark.parametrize(
    "columns", ["op int, after struct<id long>", "op string, after string", "id long", "after struct<id long>"]
)
async def test_columns_that_are_none_of_an_event_leave_it_as_json(lake: TypedLake, columns: str) -> None:
    scene = await current(lake, columns)
    await scene.send(event("c", 1), event("c", 2))
    await scene.update()
    await scene.send(event("d", 2))
    await scene.update()

    rows = await scene.rows("_value")
    assert [(row["_key"], json.loads(row["_value"])["id"]) for row in rows] == [(b"1", 1)]
