"""Current tables of Debezium's events in streams with declared columns."""

import json
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from fixtures.current_lake import CurrentLake
from fixtures.typed_lake import TypedLake, typed_lake

ROW = "struct<id long, price decimal(6,2), `two words` list<string>>"
COLUMNS = f"before {ROW}, after {ROW}, op string, ts_ms long"


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[TypedLake]:
    async with typed_lake(tmp_path) as found:
        yield found


async def current(lake: TypedLake, columns: str) -> CurrentLake:
    view = await lake.create(
        table__columns=columns,
        table__current="on",
        table__current__envelope="debezium",
        table__current__freshness_ms="1000",
    )
    return CurrentLake(lake, view)


def event(op: str, id_: int, price: str = "1.10", **more: Any) -> bytes:
    row = {"id": id_, "price": price, "two words": ["a", None], **more}
    sides = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return json.dumps({**sides, "op": op, "ts_ms": 1}).encode()


async def test_events_have_the_declared_columns_of_the_row_after_the_change(lake: TypedLake) -> None:
    scene = await current(lake, COLUMNS)
    wrapped = json.dumps({"schema": {}, "payload": json.loads(event("c", 5))}).encode()
    misfit = event("c", 6, "123456.7")
    await scene.send(
        (b"1", event("r", 1)), (b"2", event("c", 2)), (b"3", event("c", 3)), (b"4", event("c", 4, extra=1))
    )
    await scene.send((b"5", wrapped), (b"6", misfit), (b"7", b"no event"))
    await scene.update()
    await scene.send((b"1", event("u", 1, "2")), (b"2", event("d", 2)), (b"3", None), (b"8", event("d", 8)))
    await scene.update()

    rows = {row["_key"]: row for row in await scene.rows()}
    assert {key: (row["id"], row["price"], row["two words"]) for key, row in rows.items()} == {
        b"1": (1, Decimal("2.00"), ["a", None]),
        b"4": (4, Decimal("1.10"), ["a", None]),
        b"5": (None, None, None),
        b"6": (None, None, None),
        b"7": (None, None, None),
    }
    assert {key: row["_value"] and json.loads(row["_value"])["id"] for key, row in rows.items() if key != b"7"} == {
        b"1": None,
        b"4": None,
        b"5": 5,
        b"6": 6,
    }
    assert (rows[b"7"]["_value"], rows[b"7"]["_error"]) == (b"no event", "SYNTAX: ")
    assert rows[b"6"]["_error"] == "RANGE: after.price"


@pytest.mark.parametrize(
    "columns", ["op int, after struct<id long>", "op string, after string", "id long", "after struct<id long>"]
)
async def test_columns_that_are_none_of_an_event_leave_it_as_json(lake: TypedLake, columns: str) -> None:
    scene = await current(lake, columns)
    await scene.send((b"1", event("c", 1)), (b"2", event("c", 2)))
    await scene.update()
    await scene.send((b"2", event("d", 2)))
    await scene.update()

    rows = await scene.rows("_value")
    assert [(row["_key"], json.loads(row["_value"])["id"]) for row in rows] == [(b"1", 1)]
