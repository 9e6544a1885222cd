"""Current tables of Debezium's events, with typed columns and as JSON."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from fixtures.current_lake import CurrentLake
from fixtures.typed_lake import TypedLake, typed_lake
from fixtures.typed_values import framed

ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "_offset", "type": ["null", "int"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    ],
}
EVENT = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
REGION_KEY = {"type": "record", "name": "Key", "fields": [{"name": "region", "type": "string"}]}


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[TypedLake]:
    async with typed_lake(tmp_path) as found:
        yield found


async def current(lake: TypedLake, **configs: str) -> CurrentLake:
    given = {"table__current": "on", "table__current__envelope": "debezium", "table__current__freshness_ms": "1000"}
    return CurrentLake(lake, await lake.create(**{**given, **configs}))


def encoded(schema: Any, schema_id: int, value: dict[str, Any]) -> bytes:
    from io import BytesIO

    sink = BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), value)
    return framed(schema_id, sink.getvalue())


@pytest.mark.parametrize("mode", ["keep", "elide"])
async def test_typed_events_have_the_columns_of_the_row_after_the_change(lake: TypedLake, mode: str) -> None:
    scene = await current(lake, table__value__mode=mode, table__key__mode=mode)
    event_id = await lake.register(EVENT)
    key_id = await lake.register(KEY, "orders-key")

    def event(op: str, id_: int, name: str | None) -> tuple[bytes, bytes]:
        row = None if name is None else {"id": id_, "name": name, "_offset": 9, "tags": [name]}
        before = row if op == "d" else None
        value = {"before": before, "after": None if op == "d" else row, "op": op, "ts_ms": 1}
        return encoded(KEY, key_id, {"id": id_}), encoded(EVENT, event_id, value)

    deleted_key = encoded(KEY, key_id, {"id": 3})
    await scene.send(event("r", 1, "ann"), event("c", 2, "bob"), event("c", 3, "cat"), event("c", 4, "dan"))
    await scene.update()
    await scene.send(event("u", 1, "eve"), event("d", 2, "bob"), event("d", 3, "cat"), (deleted_key, None))
    await scene.send((encoded(KEY, key_id, {"id": 5}), b"broken"))
    await scene.update()

    rows = sorted(await scene.rows(), key=lambda row: row["_offset"])
    assert [(row["id"], row["name"], row["_offset_2"], row["tags"], row["_value"]) for row in rows] == [
        (4, "dan", 9, ["dan"], None),
        (1, "eve", 9, ["eve"], None),
        (None, None, None, None, b"broken"),
    ]
    assert rows[2]["_error"].startswith("NO_SCHEMA")
    assert not {"op", "before", "after", "id_2", "_batch"} & set(rows[0])


async def test_json_events_have_the_text_of_the_row(lake: TypedLake) -> None:
    scene = await current(lake, table__value__mode="raw")

    def event(op: str, id_: int) -> bytes:
        after = {"id": id_, "price": "1.10"}
        return json.dumps({"payload": {"op": op, "before": after, "after": None if op == "d" else after}}).encode()

    await scene.send((b"1", event("c", 1)), (b"2", event("c", 2)), (b"3", b"no event"), (b"4", event("c", 4)))
    await scene.update()
    await scene.send((b"2", event("d", 2)), (b"4", None), (b"1", event("u", 7)))
    await scene.update()

    rows = await scene.rows("_value")
    assert [(row["_key"], row["_value"]) for row in rows] == [
        (b"1", b'{"id": 7, "price": "1.10"}'),
        (b"3", b"no event"),
    ]


async def test_a_change_of_the_envelope_makes_the_table_anew(lake: TypedLake) -> None:
    scene = await current(lake, table__value__mode="raw")
    value = b'{"op":"c","after":{"id":1}}'
    await scene.send((b"1", value))
    await scene.update()
    assert await scene.newest() == {b"1": (0, 0, b'{"id":1}')}

    await scene.alter(table__current__envelope="none")
    await scene.send((b"2", b"x"))
    await scene.update_as(envelope="none")

    assert await scene.newest() == {b"1": (0, 0, value), b"2": (0, 1, b"x")}


async def test_a_typed_value_that_is_no_event_keeps_its_bytes_although_the_history_leaves_them_out(
    lake: TypedLake,
) -> None:
    scene = await current(lake, table__value__mode="elide")
    event_id, other_id = await lake.register(EVENT), await lake.register(KEY)
    row = {"id": 1, "name": "ann", "_offset": None, "tags": []}
    other = encoded(KEY, other_id, {"id": 7})
    await scene.send(
        (b"1", encoded(EVENT, event_id, {"before": None, "after": row, "op": "c", "ts_ms": 1})), (b"2", other)
    )
    await scene.update()

    rows = await scene.rows("id", "_value")
    assert [(found["_key"], found["id"], found["_value"]) for found in rows] == [(b"1", 1, None), (b"2", None, other)]


async def test_a_column_of_keys_gives_way_to_a_column_that_the_row_gets_later(lake: TypedLake) -> None:
    scene = await current(lake, table__value__mode="elide", table__key__mode="elide")
    event_id, key_id = await lake.register(EVENT), await lake.register(REGION_KEY, "orders-key")
    key = encoded(REGION_KEY, key_id, {"region": "north"})
    row = {"id": 1, "name": "ann", "_offset": None, "tags": []}
    await scene.send((key, encoded(EVENT, event_id, {"before": None, "after": row, "op": "c", "ts_ms": 1})))
    await scene.update()
    assert [found["region"] for found in await scene.rows()] == ["north"]

    wider: dict[str, Any] = json.loads(json.dumps(EVENT))
    wider["fields"][0]["type"][1]["fields"].append({"name": "region", "type": ["null", "string"], "default": None})
    wider_id = await lake.register(wider)
    south = encoded(REGION_KEY, key_id, {"region": "south"})
    later = {**row, "id": 2, "region": "south"}
    await scene.send((south, encoded(wider, wider_id, {"before": None, "after": later, "op": "c", "ts_ms": 1})))

    async def has_both() -> bool:
        return await scene.is_current() and len(await scene.rows("id")) == 2

    lake.stores.clock.advance(120_000)
    await lake.work(has_both)

    rows = await scene.rows()
    assert sorted((found["id"], found["region"]) for found in rows) == [(1, None), (2, "south")]
    assert "region_2" not in rows[0]
