"""Spark as another engine at the Iceberg REST catalog: it reads, deletes, updates and rewrites; what would harm compaction is refused."""

import asyncio
from pathlib import Path

import pytest

from fixtures.catalog_server import catalog_server
from fixtures.spark_sql import jars, spark
from fixtures.tables import commit_of

__all__ = ["jars"]

NAME = "bearlake.streams.orders"


@pytest.mark.integration
@pytest.mark.slow
async def test_spark_changes_the_table_of_a_stream_and_compaction_continues(tmp_path: Path, jars: str) -> None:
    done = [
        f"select count(*), min(_offset), max(_offset) from {NAME}",
        f"delete from {NAME} where _partition_id = 0 and _offset = 3",
        f"update {NAME} set _value = x'00' where _partition_id = 0 and _offset = 4",
        f"alter table {NAME} set tblproperties ('write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read')",
        f"delete from {NAME} where _partition_id = 1 and _offset = 5",
        f"update {NAME} set _value = x'01' where _partition_id = 1 and _offset = 6",
        "call bearlake.system.rewrite_data_files(table => 'streams.orders', options => map('rewrite-all', 'true'))",
        "call bearlake.system.rewrite_manifests(table => 'streams.orders')",
        f"alter table {NAME} add column note string",
        f"alter table {NAME} create tag t",
        "create namespace bearlake.lab",
        f"create table bearlake.lab.copy as select * from {NAME}",
        "insert into bearlake.lab.copy select * from bearlake.lab.copy",
        "select count(*) from bearlake.lab.copy",
        "drop table bearlake.lab.copy",
        f"select count(*), sum(cast(_value = x'00' or _value = x'01' as int)) from {NAME}",
    ]
    columns = "(_partition_id, _offset, _timestamp, _value)"
    refused = [
        f"insert into {NAME} {columns} values (0, 123456, timestamp '2026-01-01 00:00:00', x'00')",
        f"insert into {NAME} {columns} values (2, 0, timestamp '2026-01-01 00:00:00', x'00')",
        f"update {NAME} set _offset = 123456 where _partition_id = 0 and _offset = 4",
        f"alter table {NAME} drop column _value",
        f"alter table {NAME} rename column _offset to position",
        f"alter table {NAME} alter column _offset drop not null",
        f"alter table {NAME} set tblproperties ('gc.enabled' = 'true')",
        f"alter table {NAME} unset tblproperties ('bearlake.ends')",
        f"alter table {NAME} add partition field _partition_id",
        f"create or replace table {NAME} (x int) using iceberg",
        f"drop table {NAME}",
        "call bearlake.system.rollback_to_timestamp('streams.orders', timestamp '2000-01-01 00:00:00')",
        "call bearlake.system.expire_snapshots(table => 'streams.orders', older_than => current_timestamp())",
    ]
    async with catalog_server(tmp_path) as server:
        stream, work = await server.stream("orders")
        first = await work.append(1, 0, 10)
        await server.tables.commit(stream, commit_of(first, await work.append(2, 0, 10, partition=1)), closed_tasks=[])

        answers = await asyncio.to_thread(spark, jars, tmp_path, [*done, *refused], server.url)
        await server.tables.commit(stream, commit_of(await work.append(3, 10, 12)), closed_tasks=[])
        offsets = await server.client(
            lambda catalog: catalog.load_table("streams.orders").scan(selected_fields=("_offset",)).to_arrow()
        )

    made, others = answers[: len(done)], answers[len(done) :]
    wrong = [(statement, answer) for statement, answer in zip(done, made, strict=True) if isinstance(answer, str)]
    assert wrong == []
    assert made[0] == [["20", "0", "9"]]
    assert made[13] == [["36"]]
    assert made[-1] == [["18", "2"]]
    assert [statement for statement, answer in zip(refused, others, strict=True) if not isinstance(answer, str)] == []
    assert sorted(offsets.column("_offset").to_pylist()) == sorted(
        [
            *(offset for offset in range(12) if offset != 3),
            *(offset for offset in range(10) if offset != 5),
        ]
    )
    assert "which the table does not have yet" in str(others[0])
    assert "which the table does not have yet" in str(others[2])
