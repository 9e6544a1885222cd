"""SQL over tables: types, several streams, other engines' changes, limits, clear errors."""

import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan
from pyiceberg.table import Table
from pyiceberg.types import LongType

from bearlake.errors import Invalid, Overloaded
from bearlake.metadata.model import Stream
from bearlake.objects import ObjectStore
from bearlake.objects.memory import MemoryObjectStore
from bearlake.table.iceberg import IcebergTables
from bearlake.table.model import AppliedTask, TableChange
from bearlake.table.query import LiveTable, query
from bearlake.table.writer import DataFileWriter
from fixtures.tables import START_MS, Work, a_stream, commit_of, local_store, pyiceberg_catalog, rows, tables_in


@pytest.fixture(params=["file", "memory"])
async def store(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[tuple[ObjectStore, str]]:
    opened, url = local_store(tmp_path) if request.param == "file" else (MemoryObjectStore(), "memory:///")
    yield opened, url
    await opened.close()


@pytest.fixture
async def tables(tmp_path: Path, store: tuple[ObjectStore, str]) -> AsyncIterator[IcebergTables]:
    opened = tables_in(tmp_path, *store)
    yield opened
    await opened.close()


@pytest.fixture
async def orders(tables: IcebergTables, store: tuple[ObjectStore, str]) -> Stream:
    """Offsets 0-9 of partition 0 and 0-4 of partition 1."""
    stream = a_stream()
    await tables.ensure(stream)
    work = Work(store[0], stream)
    for change in (await work.append(1, 0, 10), await work.append(2, 0, 5, partition=1)):
        await tables.commit(stream, commit_of(change), closed_tasks=[])
    return stream


def foreign(tmp_path: Path) -> Table:
    """The table as another engine has it. Local stores only."""
    return pyiceberg_catalog(tmp_path).load_table("streams.orders")


async def test_rows_are_returned_with_their_types(tables: IcebergTables, orders: Stream) -> None:
    found = await query(tables, [orders], "select * from orders where _partition_id = 0 and _offset = 3")

    assert found.columns == ["_partition_id", "_offset", "_timestamp", "_key", "_headers", "_value", "_batch"]
    assert found.types[2:6] == ["TIMESTAMP WITH TIME ZONE", "BLOB", 'STRUCT("key" VARCHAR, "value" BLOB)[]', "BLOB"]
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=START_MS + 3)
    batch = {"base_offset": 0, "attributes": 0, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
    assert found.rows == [(0, 3, time, b"k3", [{"key": "h", "value": None}], b"value-3", batch)]


async def test_streams_are_joined_by_their_names(
    tables: IcebergTables, orders: Stream, store: tuple[ObjectStore, str]
) -> None:
    returns = a_stream("shop.returns", 8)
    await tables.ensure(returns)
    await tables.commit(returns, commit_of(await Work(store[0], returns).append(3, 3, 6)), closed_tasks=[])

    found = await query(
        tables,
        [orders, returns],
        'select o._offset, count(*) from ORDERS o join "shop.returns" r using (_offset) '
        "join orders p using (_offset) group by 1 order by 1",
    )

    assert found.rows == [(3, 4), (4, 4), (5, 1)]


@pytest.mark.parametrize("store", ["file"], indirect=True)
async def test_filters_by_time_partition_or_offset_read_only_the_files_that_have_it(
    tmp_path: Path, tables: IcebergTables, store: tuple[ObjectStore, str]
) -> None:
    """Why tables need no Iceberg partitions: records arrive in the order of time, and each file states its bounds."""
    stream = a_stream()
    await tables.ensure(stream)
    work = Work(store[0], stream)
    for task in range(20):
        await tables.commit(
            stream,
            commit_of(await work.append(2 * task + 1, 10 * task, 10 * task + 10)),
            closed_tasks=[],
        )
    start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=START_MS + 100)
    by_time = And(GreaterThanOrEqual("_timestamp", start), LessThan("_timestamp", start + timedelta(milliseconds=20)))

    table = foreign(tmp_path)

    assert len(list(table.scan().plan_files())) == 20
    assert len(list(table.scan(row_filter=by_time).plan_files())) == 2
    assert len(list(table.scan(row_filter="_offset >= 195").plan_files())) == 1
    assert len(list(table.scan(row_filter="_partition_id = 1").plan_files())) == 0


async def test_a_table_without_rows_has_columns(tables: IcebergTables) -> None:
    stream = a_stream("empty")
    await tables.ensure(stream)

    found = await query(tables, [stream], 'select * from "empty"')

    assert len(found.columns) == 7
    assert found.rows == []


async def test_more_rows_than_the_limit_are_cut_off(
    tmp_path: Path, orders: Stream, store: tuple[ObjectStore, str]
) -> None:
    tables = tables_in(tmp_path, *store, query_row_count_max=3)

    cut = await query(tables, [orders], "select _offset from orders where _partition_id = 0 order by _offset desc")
    whole = await query(tables, [orders], "select _offset from orders where _offset > 6")

    assert (cut.rows, cut.is_truncated) == ([(9,), (8,), (7,)], True)
    assert (len(whole.rows), whole.is_truncated) == (3, False)
    await tables.close()


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("select * from nothing", 'nothing does not exist!\n(?!Did you mean)(.|\n)*Streams with a table: "orders"'),
        ("select * from settings", 'settings does not exist!\n(?!Did you mean)(.|\n)*Streams with a table: "orders"'),
        ("select decod(_value) from orders", 'decod does not exist!\nDid you mean "decode"'),
        ("selec 1", "syntax error"),
        ("select color from orders", "color"),
        ("select 1 / 'x'", "Conversion"),
        ("select * from read_csv('/etc/passwd')", "read_csv cannot be a table"),
        ("select 1 where 1 in (from main.ARROW_SCAN(1, 2, 3))", "arrow_scan cannot be a table: tables are streams"),
        ("from query('select 1')", "query cannot be a table"),
        ("from json_execute_serialized_sql(json_serialize_sql('select 1'))", "json_execute_serialized_sql cannot"),
        ("select * from '/etc/hosts.parquet'", "disabled"),
        ("copy orders to '/tmp/orders.csv'", "expected one SELECT, found COPY"),
        ("explain analyze copy orders to '/tmp/orders.csv'", "expected one SELECT, found EXPLAIN"),
        ("set memory_limit = '10 GB'", "expected one SELECT, found SET"),
        ("select timestamp 'infinity'", "cast such values"),
        ("select time_ns '10:00:00.123456789'", "cast such values"),
        (f"select {'[' * 70}1{']' * 70}", "cast such values"),
        ("select 1; select 2", "expected one SELECT, found SELECT and SELECT"),
        ("", "expected one SELECT, found nothing"),
    ],
)
async def test_wrong_statements_are_invalid_with_the_reason(
    tables: IcebergTables, orders: Stream, sql: str, message: str
) -> None:
    with pytest.raises(Invalid, match=message):
        await query(tables, [orders], sql)


async def test_a_stream_without_a_table_is_an_empty_table(tables: IcebergTables) -> None:
    created = a_stream("created")
    await tables.ensure(created)

    found = await query(tables, [a_stream()], "select * from orders")
    like = await query(tables, [created], "select * from created")

    assert found.rows == []
    assert (found.columns, found.types) == (like.columns, like.types)


async def test_a_stream_whose_records_enter_no_table_is_invalid(tables: IcebergTables) -> None:
    hidden, seen = a_stream("hidden"), a_stream("seen", number=8)

    with pytest.raises(Invalid, match=r'hidden does not exist(.|\n)*Streams with a table: "seen"'):
        await query(tables, [hidden, seen], "select * from hidden", will_have_table=lambda stream: stream is seen)


async def test_memory_is_bounded(tmp_path: Path, orders: Stream, store: tuple[ObjectStore, str]) -> None:
    tables = tables_in(tmp_path, *store, query_memory_bytes_max=8 << 20)

    with pytest.raises(Overloaded):
        await query(tables, [orders], "select list(x) from (select repeat('x', 100) || i x from range(3000000) t(i))")
    await tables.close()


@pytest.mark.parametrize("store", ["file"], indirect=True)
async def test_rows_that_another_engine_deletes_or_adds_are_seen(
    tmp_path: Path, tables: IcebergTables, orders: Stream, store: tuple[ObjectStore, str]
) -> None:
    foreign(tmp_path).delete("_offset = 3")

    found = await query(tables, [orders], "select count(*), count(distinct _offset) from orders")

    assert found.rows == [(13, 9)]


@pytest.mark.parametrize("store", ["file"], indirect=True)
async def test_columns_are_found_by_field_id(
    tmp_path: Path, tables: IcebergTables, orders: Stream, store: tuple[ObjectStore, str]
) -> None:
    with foreign(tmp_path).update_schema() as update:
        update.rename_column("_key", "id").add_column("note", LongType())

    found = await query(tables, [orders], "select id, note from orders where _offset = 6")

    assert found.rows == [(b"k6", None)]


async def test_files_of_our_writer_are_planned_by_their_bounds(
    tables: IcebergTables, store: tuple[ObjectStore, str]
) -> None:
    stream = a_stream()
    state = await tables.ensure(stream)
    changes = []
    for task in range(3):
        writer = DataFileWriter(f"{state.location_key}/data/{task}.parquet")
        writer.write(rows(0, task * 10, task * 10 + 10))
        finished = writer.finish()
        await store[0].put(finished.file.key, finished.parts)
        mark = AppliedTask(task_id=task, epoch=1, ranges={0: (task * 10, task * 10 + 10)})
        changes.append(TableChange(task=mark, add=[finished.file]))
    await tables.commit(stream, commit_of(*changes), closed_tasks=[])

    def plan() -> list[tuple[str, int]]:
        table = tables.lookup().find(stream)
        assert table is not None
        tasks = table.scan(row_filter="_offset >= 12 and _offset < 15").plan_files()
        return [(task.file.file_path, task.file.record_count) for task in tasks]

    found = await query(tables, [stream], "select count(*), sum(len(_headers)), max(_timestamp) from orders")

    assert await tables.run("test", plan) == [(tables.locations.location(changes[1].add[0].key), 10)]
    assert found.rows == [(30, 15, datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=START_MS + 29))]
    removed = await tables.delete_before(stream, START_MS + 20)
    assert removed == 2


async def test_streams_whose_names_differ_only_in_case_do_not_hide_each_other(
    tables: IcebergTables, orders: Stream, store: tuple[ObjectStore, str]
) -> None:
    """SQL ignores case. Any client that may create streams could make statements about another stream fail, or read its own rows."""
    other = a_stream("Orders", 8)
    await tables.ensure(other)
    await tables.commit(other, commit_of(await Work(store[0], other).append(3, 100, 103)), closed_tasks=[])
    streams = [other, orders, a_stream("SELECT", 9), a_stream("select", 10)]

    assert (await query(tables, streams, "select count(*) from orders")).rows == [(15,)]
    assert (await query(tables, streams, "select min(_offset) from Orders")).rows == [(100,)]
    for sql in ("select 1 from ORDERS", "select 1 from orders join Orders using (_offset)"):
        with pytest.raises(Invalid, match="differ only in case"):
            await query(tables, streams, sql)


@pytest.mark.parametrize(
    "name",
    ["...", "-rf", "a..b", "select", "from", "main", "information_schema", "sqlite_master", "1", "_", "x" * 249],
    ids=lambda name: name[:20],
)
async def test_streams_whose_names_mean_something_in_sql_or_paths_have_tables(
    tmp_path: Path, tables: IcebergTables, orders: Stream, store: tuple[ObjectStore, str], name: str
) -> None:
    stream = a_stream(name, 8)
    await tables.ensure(stream)
    await tables.commit(stream, commit_of(await Work(store[0], stream).append(3, 0, 3)), closed_tasks=[])

    assert (await query(tables, [orders, stream], f'select count(*) from "{name}"')).rows == [(3,)]
    assert (await query(tables, [orders, stream], "select count(*) from orders")).rows == [(15,)]
    assert set(os.listdir(tmp_path)) <= {"catalog.db", "objects"}


@pytest.mark.parametrize("store", ["file"], indirect=True)
async def test_no_statement_overwrites_a_file_that_it_may_read(
    tmp_path: Path, tables: IcebergTables, orders: Stream
) -> None:
    path = next(path for path in tmp_path.rglob("*.parquet"))  # noqa: ASYNC240 - a test's folder
    before = path.read_bytes()
    statement = f"copy (select 1 as a, * from orders) to '{path}' (format parquet, use_tmp_file false)"
    with pytest.raises(Invalid, match="expected one SELECT"):
        await query(tables, [orders], statement)

    assert path.read_bytes() == before


async def test_a_statement_reads_only_streams_that_are_its_tables(tables: IcebergTables, orders: Stream) -> None:
    others = [a_stream(name, 20 + at) for at, name in enumerate(("value", "max", "comment", "text", "o"))]
    read: list[str] = []

    async def live(stream: Stream) -> LiveTable:
        read.append(stream.name)
        return LiveTable(table=tables.lookup().find(stream))

    named = 'select max(_offset) as value, \'"table_name":"text"\' as text from orders o /* comment */'
    found = await query(tables, [orders, *others], named, live=live)
    shown = await query(tables, [orders, *others], "select column_name from (describe orders) limit 1", live=live)
    hidden = await query(
        tables, [orders], "select n from (with t as (select 2 as n from Orders limit 1) from t)", live=live
    )

    assert (found.rows, shown.rows, hidden.rows) == ([(9, '"table_name":"text"')], [("_partition_id",)], [(2,)])
    assert read == ["orders"] * 3
