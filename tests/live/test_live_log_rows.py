"""Reading the log as rows: what a reader of the stores gets is what a consumer gets, wherever compaction is."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bearlake.compaction.settings import ColumnSettings
from bearlake.compaction.value_schemas import ValueSchemas
from bearlake.errors import Conflict, OutOfRange
from bearlake.live.log_rows import LogRows, Part
from bearlake.live.settings import LogRowsSettings
from bearlake.streams.catalog import StreamView
from bearlake.table.column_book import decode_book
from bearlake.table.projection import Columns, kafka_schema, table_schema
from fixtures.deployment import NOW_MS
from fixtures.live_lake import LiveLake, live_lake
from fixtures.transactional import TransactionalWriter
from fixtures.typed_values import framed

RAW = {"table__value__mode": "raw"}
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
WIDER = {**ORDER, "fields": [*ORDER["fields"], {"name": "item", "type": ["null", "string"], "default": None}]}
SMALL = LogRowsSettings(window_bytes=1, row_group_bytes=1, slices_per_lookup=2, footer_count_max=1)


def reader(lake: LiveLake) -> LogRows:
    stores = lake.lake.stores
    values = ValueSchemas(stores.metadata, lake.lake.tables, ColumnSettings(), lake.lake.compiler)
    return LogRows(stores.metadata, stores.store, SMALL, lambda: values)


async def raw(
    lake: LiveLake, view: StreamView, start: int, end: int, *names: str, rows: LogRows | None = None, **more: Any
) -> list[dict[str, Any]]:
    """Kafka's columns of the offsets, or those with these names."""
    schema = kafka_schema(has_headers=True)
    for name in set(schema.names).difference(names or schema.names):
        schema = schema.remove(schema.get_field_index(name))
    columns = Columns(schema, view.stream.name, None, is_typed=False)
    part = Part(view.stream.partition(0), start, end, more.pop("since_us", None), more.pop("until_us", None))
    read = (rows or reader(lake)).read(view.stream, part, columns, is_typed=False, **more)
    return [row async for batch in read for row in batch.to_pylist()]


async def typed(lake: LiveLake, view: StreamView, start: int, end: int, rows: LogRows) -> list[dict[str, Any]]:
    """The table's columns of the offsets, as a query has them that begins now."""
    await rows.newest_columns(view.stream)
    stored = await lake.lake.stores.metadata.table_columns.get(view.stream.number)
    book = decode_book(stored.text, stored.version)
    columns = Columns(table_schema(book), view.stream.name, book, is_typed=True)
    read = rows.read(view.stream, Part(view.stream.partition(0), start, end), columns, is_typed=True)
    return [row async for batch in read for row in batch.to_pylist()]


async def test_rows_are_the_same_before_and_after_compaction(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create(**RAW)
        for number in range(0, 12, 2):
            await lake.lake.produce(view, str(number).encode(), None)
        before = await raw(lake, view, 0, 12)
        await lake.lake.compact(view)
        await lake.lake.produce(view, b"tail")

        after = await raw(lake, view, 0, 13)

        assert after[:12] == before
        assert [(row["offset"], row["value"]) for row in after][-2:] == [(11, None), (12, b"tail")]
        assert {key: value for key, value in after[0].items() if key != "timestamp"} == {
            "key": b"k",
            "value": b"0",
            "topic": "orders",
            "partition": 0,
            "offset": 0,
            "timestampType": 0,
            "headers": [],
        }
        for start, end in ((0, 1), (3, 9), (5, 13), (12, 13)):  # inside batches, too
            assert await raw(lake, view, start, end) == after[start:end]
        assert await raw(lake, view, 3, 5, "value") == [{"value": None}, {"value": b"4"}]


async def test_aborted_records_and_markers_have_no_rows(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create(**RAW)
        writer = await TransactionalWriter.of(lake.lake.streams, "orders")
        await writer.send(b"kept")
        await writer.end()
        await writer.aborted(b"aborted")
        await lake.lake.produce(view, b"last")
        end = (await lake.lake.stores.metadata.log.bounds([view.stream.partition(0)]))[view.stream.partition(0)].end

        before = await raw(lake, view, 0, end, "offset", "value")
        await lake.lake.compact(view)

        assert [row["value"] for row in before] == [b"kept", b"last"]
        assert await raw(lake, view, 0, end, "offset", "value") == before


async def test_rows_outside_of_the_times_are_left_out(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create(**RAW)
        writer = await TransactionalWriter.of(lake.lake.streams, "orders")
        for time_ms in (1_000, 2_000, 3_000):
            await writer.send(b"v", timestamp_ms=NOW_MS + time_ms)
        await writer.end()

        async def between(since_ms: int, until_ms: int) -> list[int]:
            times = {"since_us": (NOW_MS + since_ms) * 1_000, "until_us": (NOW_MS + until_ms) * 1_000}
            found = await raw(lake, view, 0, 3, "offset", **times)
            return [row["offset"] for row in found]

        for _ in range(2):
            assert await between(2_000, 3_000) == [1]
            assert await between(2_001, 9_000) == [2]
            assert await between(4_000, 9_000) == []
            await lake.lake.compact(view)


async def test_typed_rows_are_those_of_the_table_before_and_after_compaction(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create()
        first = await lake.lake.register(ORDER)
        await lake.lake.produce(view, framed(first, b"\x02"), None, b"no schema")
        rows = reader(lake)
        before = await typed(lake, view, 0, 3, rows)
        await lake.lake.compact(view)
        second = await lake.lake.register(WIDER)
        await lake.lake.produce(view, framed(second, b"\x04\x02\x02x"))

        after = await typed(lake, view, 0, 4, rows)

        assert [(row["id"], row["_value"], row["_schema_id"]) for row in before] == [
            (1, None, first),
            (None, None, None),
            (None, b"no schema", None),
        ]
        assert before[2]["_error"].startswith("NO_SCHEMA")
        assert [{name: row[name] for name in before[0]} for row in after[:3]] == before
        assert [(row["id"], row["item"]) for row in after] == [(1, None), (None, None), (None, None), (2, "x")]
        complete = await raw(lake, view, 0, 4, "value")
        assert complete[0]["value"] == framed(first, b"\x02"), "the bytes that the columns give back"


async def test_keys_with_columns_are_those_of_the_table_or_complete(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create(table__key__mode="elide")
        of_value, of_key = await lake.lake.register(ORDER), await lake.lake.register(ORDER, "orders-key")
        key = framed(of_key, b"\x0e")
        await lake.lake.produce(view, framed(of_value, b"\x04"), key=b"no schema")
        await lake.lake.produce(view, framed(of_value, b"\x02"), None, key=key)
        rows = reader(lake)
        names = ("id", "id_2", "_key", "_value", "_key_schema_id")
        for is_compacted in (False, True):
            if is_compacted:
                await lake.lake.compact(view)

            found = await typed(lake, view, 0, 3, rows)
            complete = await raw(lake, view, 0, 3, "key", "value")
            keys = await raw(lake, view, 0, 3, "key")

            assert [tuple(row[name] for name in names) for row in found] == [
                (2, None, b"no schema", None, None),
                (1, 7, None, None, of_key),
                (None, 7, None, None, of_key),
            ]
            assert [row["key"] for row in complete] == [b"no schema", key, key]
            assert [row["value"] for row in complete][1:] == [framed(of_value, b"\x02"), None]
            assert [row["key"] for row in keys] == [b"no schema", key, key]


async def test_a_query_that_is_older_than_a_column_does_not_get_it(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create()
        first = await lake.lake.register(ORDER)
        await lake.lake.produce(view, framed(first, b"\x02"))
        rows = reader(lake)
        await rows.newest_columns(view.stream)
        stored = await lake.lake.stores.metadata.table_columns.get(view.stream.number)
        old = table_schema(decode_book(stored.text, stored.version))
        second = await lake.lake.register(WIDER)
        await lake.lake.produce(view, framed(second, b"\x04\x02\x02x"))
        await rows.newest_columns(view.stream)
        stored = await lake.lake.stores.metadata.table_columns.get(view.stream.number)

        columns = Columns(old, "orders", decode_book(stored.text, stored.version), is_typed=True)
        read = rows.read(view.stream, Part(view.stream.partition(0), 0, 2), columns, is_typed=True)
        found = [row async for batch in read for row in batch.to_pylist()]

        assert [row["id"] for row in found] == [1, 2]
        assert "item" not in found[0]


async def test_offsets_that_are_gone_fail_the_reader_unless_it_skips_them(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create(**RAW)
        for number in range(4):
            await lake.lake.produce(view, str(number).encode())
        await lake.lake.stores.metadata.log.trim(view.stream.partition(0), 2)

        with pytest.raises(OutOfRange, match="are gone"):
            await raw(lake, view, 1, 4)
        assert [row["offset"] for row in await raw(lake, view, 1, 4, "offset", skips_lost=True)] == [2, 3]
        with pytest.raises(OutOfRange, match="before 9"):
            await raw(lake, view, 2, 9, skips_lost=True)


async def test_a_column_that_is_not_there_is_an_error() -> None:
    with pytest.raises(Conflict, match=r"has no column _batch, _headers, .*_value"):
        Columns(table_schema(None), "orders", None, is_typed=False)


async def test_readers_get_each_offset_once_while_compaction_and_sweeps_run(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create(**RAW)
        rows, is_over = reader(lake), False

        async def over() -> bool:
            return is_over

        worker = asyncio.create_task(lake.lake.work(over))
        try:
            for count in range(1, 40):
                await lake.lake.produce(view, str(count).encode())
                found = await raw(lake, view, 0, count, "offset", rows=rows)
                assert [row["offset"] for row in found] == list(range(count))
        finally:
            is_over = True
            await worker
