"""Streams with declared columns: JSON objects become rows of these columns, and consumers get the same bytes."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bearlake.compaction.settings import ColumnSettings
from bearlake.errors import Invalid
from bearlake.live.local import local_views
from bearlake.live.settings import LiveSettings
from bearlake.streams.principal import ANONYMOUS
from bearlake.table.query import query
from bearlake.telemetry import metrics
from fixtures.declared_cases import CASES, COLUMNS
from fixtures.typed_lake import TypedLake, settings, typed_lake


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[TypedLake]:
    async with typed_lake(tmp_path) as found:
        yield found


def columns_of(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("_")}


async def test_objects_become_rows_and_what_does_not_fit_keeps_its_row(lake: TypedLake) -> None:
    columns = "id long, price decimal(6,2), at timestamptz, `two words` list<string>"
    stream = await lake.create(table__columns=columns, table__value__mode="raw")
    full = b'{"at": "2026-11-28T09:30:00Z", "id": 7, "price": "12.5", "two words": ["a", null], "other": {}}'
    await lake.produce(stream, full, b'{"id": 1.5}', None, b"not json", b'{"id": 2}')
    before = await lake.read(stream)
    error_count = metrics.VALUE_ERRORS.labels("orders", "TYPE").value

    await lake.compact(stream)

    assert await lake.read(stream) == before
    rows = await lake.rows(stream)
    assert [row["_value"] for row in rows] == [record[2] for record in before]
    assert [(row["id"], row["price"], row["_error"]) for row in rows] == [
        (7, Decimal("12.50"), None),
        (None, None, "TYPE: id"),
        (None, None, None),
        (None, None, "SYNTAX: "),
        (2, None, None),
    ]
    assert rows[0]["at"] == datetime(2026, 11, 28, 9, 30, tzinfo=UTC)
    assert rows[0]["two words"] == ["a", None]
    assert [row["_schema_id"] for row in rows] == [None] * 5
    assert metrics.VALUE_ERRORS.labels("orders", "TYPE").value == error_count + 1


async def test_every_case_keeps_its_row_and_its_bytes_through_a_merge(lake: TypedLake) -> None:
    stream = await lake.create(table__columns=COLUMNS)
    part = len(CASES) // 3 + 1
    for start in range(0, len(CASES), part):
        await lake.produce(stream, *(case.value for case in CASES[start : start + part]))
        await lake.compact(stream)
    await lake.produce(stream, None)
    before = await lake.read(stream)

    async def is_merged() -> bool:
        state = await lake.tables.summary(stream.stream)
        is_replaced = state is not None and state.snapshots[-1].deleted_files >= 3
        return is_replaced and await lake.is_compacted(stream)

    await lake.work(is_merged, settings(merges=True))

    assert await lake.read(stream) == before
    rows = (await lake.rows(stream))[:-1]
    assert [row["_value"] for row in rows] == [case.value for case in CASES]
    assert [row["_error"] for row in rows] == [
        case.expected if isinstance(case.expected, str) else None for case in CASES
    ]
    assert [row["p"] for row in rows] == [
        None if isinstance(case.expected, str) else case.expected.get("p") for case in CASES
    ]


async def test_columns_that_are_declared_later_have_values_from_then_on(lake: TypedLake) -> None:
    stream = await lake.create(table__columns="id int")
    text = b'{"id": 1, "name": "a", "n": 5000000000}'
    await lake.produce(stream, text)
    await lake.compact(stream)

    stream = await lake.streams.alter(ANONYMOUS, stream.stream, {"table.columns": "id long, name string, n long"}, ())
    await lake.produce(stream, text, b'{"id": 5000000000}')
    await lake.compact(stream)
    stream = await lake.streams.alter(ANONYMOUS, stream.stream, {"table.columns": "n long"}, ())
    await lake.produce(stream, text)
    await lake.compact(stream)
    with pytest.raises(Invalid, match="cannot become"):
        await lake.streams.alter(ANONYMOUS, stream.stream, {"table.columns": "n string"}, ())

    rows = await lake.rows(stream)
    assert [columns_of(row) for row in rows] == [
        {"id": 1, "name": None, "n": None},
        {"id": 1, "name": "a", "n": 5_000_000_000},
        {"id": 5_000_000_000, "name": None, "n": None},
        {"id": None, "name": None, "n": 5_000_000_000},
    ]


async def test_a_reader_sees_the_columns_before_the_first_record_and_the_newest_record(lake: TypedLake) -> None:
    stream = await lake.create(table__columns="id long, name string")
    stores = lake.stores

    async def select() -> list[tuple[Any, ...]]:
        parts = stores.metadata, stores.store, lake.tables, ColumnSettings(), LiveSettings()
        async with local_views(*parts, lake.compiler) as live:
            statement = "select id, name from orders order by _offset"
            result = await query(lake.tables, [stream.stream], statement, will_have_table=lambda _: True, live=live)
            return [tuple(row) for row in result.rows]

    assert await select() == []
    await lake.produce(stream, b'{"name": "a", "id": 1}')
    assert await select() == [(1, "a")]
    await lake.compact(stream)
    await lake.produce(stream, b'{"name": "b", "id": 2}')
    assert await select() == [(1, "a"), (2, "b")]
