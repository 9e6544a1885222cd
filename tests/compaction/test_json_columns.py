"""Values of JSON schemas become typed columns beside their bytes, and consumers get the same bytes before and after compaction."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bearlake.compaction.settings import ColumnSettings
from bearlake.live.local import local_views
from bearlake.live.settings import LiveSettings
from bearlake.streams.schemas.model import SchemaType
from bearlake.table.query import query
from bearlake.telemetry import metrics
from fixtures.json_cases import CASES, SCHEMA
from fixtures.typed_lake import TypedLake, settings, typed_lake
from fixtures.typed_orders import ORDER, value
from fixtures.typed_values import framed


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[TypedLake]:
    async with typed_lake(tmp_path) as found:
        yield found


def fields(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


JSON_ORDER = fields(id={"type": "integer"}, note={"type": ["null", "string"]})


async def registered(lake: TypedLake, schema: Any, subject: str = "orders-value", **more: Any) -> int:
    return await lake.register(schema, subject, type_=SchemaType.JSON, **more)


def names_of(row: dict[str, Any]) -> list[str]:
    return [name for name in row if not name.startswith("_")]


@pytest.mark.parametrize("mode", ["keep", "elide"])
async def test_values_have_columns_and_keep_their_bytes(lake: TypedLake, mode: str) -> None:
    stream = await lake.create(table__value__mode=mode)
    schema_id = await registered(lake, JSON_ORDER)
    good, bad = (framed(schema_id, text) for text in (b'{"note": "a", "id": 1.0}', b'{"id": 1.5}'))
    await lake.produce(stream, good, None, bad, b'{"id": 1}', framed(schema_id, b""), framed(99, b"{}"))
    before = await lake.read(stream)
    errors = metrics.VALUE_ERRORS.labels("orders", "TYPE")
    error_count = errors.value

    await lake.compact(stream)

    assert await lake.read(stream) == before
    rows = await lake.rows(stream, "_offset", "id", "note", "_value", "_schema_id", "_error")
    assert [row["_value"] for row in rows] == [record[2] for record in before]
    assert [(row["id"], row["note"], row["_schema_id"], row["_error"]) for row in rows] == [
        (1, "a", schema_id, None),
        (None, None, None, None),
        (None, None, schema_id, "TYPE: id"),
        (None, None, None, "NO_SCHEMA: the value does not begin with byte 0 and a schema's id"),
        (None, None, schema_id, "TRUNCATED: "),
        (None, None, 99, "UNKNOWN_SCHEMA: 99"),
    ]
    assert errors.value == error_count + 1


async def test_every_case_keeps_its_row_and_its_bytes_through_a_merge(lake: TypedLake) -> None:
    stream = await lake.create(table__value__mode="keep")
    schema_id = await registered(lake, SCHEMA)
    part = len(CASES) // 3 + 1
    for start in range(0, len(CASES), part):
        await lake.produce(stream, *(framed(schema_id, case.value) for case in CASES[start : start + part]))
        await lake.compact(stream)
    await lake.produce(stream, None)
    before = await lake.read(stream)
    assert [record[2] for record in before] == [*(framed(schema_id, case.value) for case in CASES), None]

    async def is_merged() -> bool:
        state = await lake.tables.summary(stream.stream)
        is_replaced = state is not None and state.snapshots[-1].deleted_files >= 3
        return is_replaced and await lake.is_compacted(stream)

    await lake.work(is_merged, settings(merges=True))

    assert await lake.read(stream) == before
    rows = (await lake.rows(stream))[:-1]
    assert [row["_value"] for row in rows] == [record[2] for record in before[:-1]]
    assert [row["_error"] for row in rows] == [
        case.expected if isinstance(case.expected, str) else None for case in CASES
    ]
    assert [row["i"] for row in rows] == [
        None if isinstance(case.expected, str) else case.expected.get("i") for case in CASES
    ]


async def test_schemas_evolve_and_no_column_is_ever_dropped_or_mixed(lake: TypedLake) -> None:
    stream = await lake.create(table__value__mode="keep")
    texts = [
        (fields(id={"type": "integer"}, tag={"type": "string"}, l={"type": "array", "items": {"type": "string"}}),
         b'{"id": 1, "tag": "a", "l": ["x"]}'),
        (fields(id={"type": "number"}, tag={"type": ["string", "integer"]}, l={"type": "array", "items": {}}),
         b'{"id": 1.5, "tag": "a", "l": ["x", 1]}'),
        (fields(tag={"type": "string", "format": "date"}, more={"type": "boolean"}), b'{"tag": "2026-11-28", "more": true}'),
        (fields(id={"type": "integer"}, tag={"type": "string"}), b'{"id": 4, "tag": "d"}'),
    ]  # fmt: skip
    for number, (schema, text) in enumerate(texts):
        schema_id = await registered(lake, {**schema, "title": str(number)})
        await lake.produce(stream, framed(schema_id, text))
        await lake.compact(stream)

    rows = await lake.rows(stream)

    names = ["id", "tag", "l", "id__double", "tag__json", "l__json", "tag__date", "more"]
    assert names_of(rows[0]) == names
    found = [{name: row[name] for name in names if row[name] is not None} for row in rows]
    assert found == [
        {"id": 1, "tag": "a", "l": ["x"]},
        {"id__double": 1.5, "tag__json": '"a"', "l__json": ['"x"', "1"]},
        {"tag__date": datetime(2026, 11, 28, tzinfo=UTC).date(), "more": True},
        {"id": 4, "tag": "d"},
    ]


async def test_a_schema_may_refer_to_schemas_of_other_subjects(lake: TypedLake) -> None:
    stream = await lake.create(table__value__mode="keep")
    await registered(
        lake, {"definitions": {"City": {"type": "string"}}, **fields(city={"$ref": "#/definitions/City"})}, "place"
    )
    schema_id = await registered(lake, fields(to={"$ref": "place.json"}), refers={"place.json": "place"})
    await lake.produce(stream, framed(schema_id, b'{"to": {"city": "Bergen"}}'))

    await lake.compact(stream)

    assert [row["to"] for row in await lake.rows(stream)] == [{"city": "Bergen"}]


async def test_a_fixed_schema_reads_values_without_a_header(lake: TypedLake) -> None:
    schema_id = await registered(lake, JSON_ORDER, "anything")
    stream = await lake.create(table__value__schema_id=str(schema_id))
    await lake.produce(stream, b'{"id": 1}', None, b'{"id": "no"}')
    before = await lake.read(stream)

    await lake.compact(stream)

    rows = await lake.rows(stream)
    assert [(row["id"], row["_value"], row["_schema_id"], row["_error"]) for row in rows] == [
        (1, b'{"id": 1}', schema_id, None),
        (None, None, None, None),
        (None, b'{"id": "no"}', schema_id, "TYPE: id"),
    ]
    assert await lake.read(stream) == before


async def test_json_and_avro_alternate_in_one_file_and_only_avro_is_left_out(lake: TypedLake) -> None:
    stream = await lake.create(table__value__subjects="orders-value, more")
    of_avro, of_json = await lake.register(ORDER), await registered(lake, JSON_ORDER, "more")
    await lake.produce(stream, framed(of_avro, value(1)), framed(of_json, b'{"id": 2}'), framed(of_avro, value(3)))
    before = await lake.read(stream)

    await lake.compact(stream)

    rows = await lake.rows(stream)
    assert names_of(rows[0]) == ["id", "note"]
    assert [(row["id"], row["_value"]) for row in rows] == [(1, None), (2, before[1][2]), (3, None)]
    assert await lake.read(stream) == before


async def test_keys_have_columns_and_keep_their_bytes(lake: TypedLake) -> None:
    stream = await lake.create(table__key__mode="elide", table__value__mode="keep")
    of_value = await registered(lake, JSON_ORDER)
    of_record = await registered(lake, fields(id={"type": "integer"}), "orders-key")
    of_text = await registered(lake, {"type": "string"}, "orders-key")
    for key in (framed(of_record, b'{"id": 7}'), framed(of_text, b'"k"'), framed(of_text, b"7")):
        await lake.produce(stream, framed(of_value, b'{"id": 1}'), key=key)
    before = await lake.read(stream)

    await lake.compact(stream)

    rows = await lake.rows(stream)
    assert [(row["id"], row["id_2"], row["key"], row["_key"], row["_error"]) for row in rows] == [
        (1, 7, None, before[0][1], None),
        (1, None, "k", before[1][1], None),
        (1, None, None, before[2][1], "KEY_TYPE: "),
    ]
    assert await lake.read(stream) == before


async def test_views_have_the_same_columns_before_compaction(lake: TypedLake) -> None:
    stream = await lake.create(table__value__mode="keep")
    schema_id = await registered(lake, SCHEMA)
    await lake.produce(
        stream, framed(schema_id, b'{"i": 1, "o": {"x": 2}, "l": [3]}'), framed(schema_id, b'{"i": "no"}')
    )
    sql = "select i, o, l, m, decode(_value) as v, _error from orders order by _offset"
    stores = lake.stores

    async with local_views(stores.metadata, stores.store, lake.tables, ColumnSettings(), LiveSettings()) as live:
        seen_live = await query(lake.tables, [stream.stream], sql, will_have_table=lambda _: True, live=live)
    await lake.compact(stream)
    seen = await query(lake.tables, [stream.stream], sql)

    rows = list(seen.rows)
    assert rows[0][:4] == (1, {"x": 2, "y": None}, [3], None)
    assert [row[5] for row in rows] == [None, "TYPE: i"]
    assert list(seen_live.rows) == rows


async def test_names_of_any_characters_can_be_queried(lake: TypedLake) -> None:
    stream = await lake.create(table__value__mode="keep")
    names = ['q"uote', "back`tick", "d.ot", "select", "Straße", "a b", "it's", "\\", "%s", "{}", "x" * 255, "📦"]
    schema_id = await registered(
        lake, fields(**{name: {"type": "integer"} for name in names}, o=fields(**{"d.ot": {}}))
    )
    value_ = {name: at for at, name in enumerate(names)} | {"o": {"d.ot": [1]}}
    await lake.produce(stream, framed(schema_id, json.dumps(value_).encode()))
    await lake.compact(stream)

    (row,) = await lake.rows(stream)
    seen = await query(lake.tables, [stream.stream], "select * from orders")

    expected = [*range(len(names)), {"d_ot": "[1]"}]
    assert [row[name] for name in names_of(row)] == expected
    assert names_of(row) == [*(name.replace(".", "_") for name in names), "o"]
    (own,) = list(seen.rows)
    assert list(own)[-len(expected) :] == expected


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (fields(**{f"f{at}": {"type": "integer"} for at in range(1_001)}), "more than 1000 columns"),
        (fields(**{f"f{at}": fields(**{f"g{number}": {"type": "integer"} for number in range(20)}) for at in range(48)}),
         "the limit is 1000"),
    ],
    ids=["schema", "table"],
)  # fmt: skip
async def test_a_schema_with_too_many_columns_has_none_and_stops_nothing(
    lake: TypedLake, schema: Any, reason: str
) -> None:
    stream = await lake.create(table__value__mode="keep")
    schema_id = await registered(lake, schema)
    await lake.produce(stream, framed(schema_id, b'{"f0": 1}'))

    await lake.compact(stream)

    (row,) = await lake.rows(stream)
    assert names_of(row) == []
    assert row["_error"].startswith("UNSUPPORTED_SCHEMA: ")
    assert reason in row["_error"]


async def test_a_value_with_many_empty_elements_has_no_columns_and_stops_nothing(lake: TypedLake) -> None:
    wide = fields(l={"type": "array", "items": fields(**{f"f{at}": {"type": "number"} for at in range(900)})})
    stream = await lake.create(table__value__mode="keep")
    schema_id = await registered(lake, wide)
    bomb = framed(schema_id, json.dumps({"l": [{}] * 100_000}).encode())
    await lake.produce(stream, framed(schema_id, b'{"l": [{"f1": 1}]}'), bomb, framed(schema_id, b'{"l": []}'))

    await lake.compact(stream)

    rows = await lake.rows(stream, "_offset", "_error", "_value")
    assert [row["_error"] for row in rows] == [None, "SIZE: ", None]
    assert rows[1]["_value"] == bomb
