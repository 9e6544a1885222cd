"""Another engine on our table: Spark with Iceberg's runtime reads, inserts, deletes in both modes, and gets an error for harmful changes.

See `fixtures/spark_sql.py` for what it needs.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bearlake.errors import Conflict
from bearlake.objects import ObjectStore
from bearlake.table.iceberg import IcebergTables
from bearlake.table.model import AppliedTask, TableChange
from bearlake.table.query import query
from fixtures.spark_sql import jars, spark
from fixtures.tables import Work, a_stream, commit_of, local_store, tables_in

__all__ = ["jars"]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[tuple[ObjectStore, str]]:
    opened, url = local_store(tmp_path)
    yield opened, url
    await opened.close()


@pytest.fixture
async def tables(tmp_path: Path, store: tuple[ObjectStore, str]) -> AsyncIterator[IcebergTables]:
    opened = tables_in(tmp_path, *store)
    yield opened
    await opened.close()


@pytest.mark.integration
@pytest.mark.slow
async def test_spark_reads_and_changes_a_table_that_compaction_continues_to_write(
    tmp_path: Path, tables: IcebergTables, store: tuple[ObjectStore, str], jars: str
) -> None:
    stream = a_stream()
    await tables.ensure(stream)
    work = Work(store[0], stream)
    first = await work.append(1, 0, 10)
    await tables.commit(stream, commit_of(first, await work.append(2, 0, 10, partition=1)), closed_tasks=[])

    name = "bearlake.streams.orders"
    answers = spark(
        jars,
        tmp_path,
        [
            f"select count(*), min(_offset), max(_offset), sum(size(_headers)) from {name}",
            (
                f"select cast(_value as string), _headers[0].key, _batch.base_offset from {name}"
                " where _partition_id = 0 and _offset = 7"
            ),
            (
                f"insert into {name} (_partition_id, _offset, _timestamp, _value)"
                " values (2, 0, timestamp '2026-01-01 00:00:00', x'00')"
            ),
            f"alter table {name} set tblproperties ('write.delete.mode' = 'merge-on-read')",
            f"delete from {name} where _partition_id = 0 and _offset = 3",
            f"alter table {name} set tblproperties ('write.delete.mode' = 'copy-on-write')",
            f"delete from {name} where _partition_id = 1 and _offset < 5",
            "call bearlake.system.expire_snapshots(table => 'streams.orders', older_than => current_timestamp())",
            f"select count(*) from {name}",
        ],
    )
    merge = TableChange(
        task=AppliedTask(task_id=9, epoch=1), add=[await work.file(0, 0, 10)], remove=[first.add[0].key]
    )
    with pytest.raises(Conflict, match="deleted rows"):
        await tables.commit(stream, commit_of(merge), closed_tasks=[])
    state = await tables.commit(stream, commit_of(await work.append(3, 10, 20)), closed_tasks=[])
    counts = await query(
        tables, [stream], "select _partition_id, count(*), min(_offset) from orders group by 1 order by 1"
    )
    deleted = await query(tables, [stream], "select * from orders where _partition_id = 0 and _offset = 3")

    assert answers[0] == [["20", "0", "9", "10"]]
    assert answers[1] == [["value-7", "h", "0"]]
    assert "gc.enabled" in str(answers[7]) or "GC is disabled" in str(answers[7])
    assert answers[8] == [["15"]]
    assert state.ends == {0: 20, 1: 10}
    assert counts.rows == [(0, 19, 0), (1, 5, 5), (2, 1, 0)]
    assert deleted.rows == []
    spark_answers = spark(jars, tmp_path, [f"select count(*) from {name}"])
    assert spark_answers == [[["25"]]]
