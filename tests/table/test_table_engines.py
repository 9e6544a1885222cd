"""Another engine on our table: Spark with Iceberg's runtime reads, inserts, deletes in both modes, and gets an error for harmful changes.

Needs `java` (17 or 21), `mvn` and PySpark; the jars (62 MB) are fetched once into `.cache/iceberg-spark`. Skipped if
one is missing.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from bearlake.errors import Conflict
from bearlake.objects import ObjectStore
from bearlake.table.iceberg import IcebergTables
from bearlake.table.model import AppliedTask, TableChange
from bearlake.table.query import query
from fixtures.tables import Work, a_stream, commit_of, local_store, tables_in

CACHE = Path(__file__).parents[2] / ".cache" / "iceberg-spark"
JARS = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0", "org.xerial:sqlite-jdbc:3.50.3.0")
FETCH_TIMEOUT_S = 240.0
RUN_TIMEOUT_S = 240.0

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
answers = []
for statement in json.loads(sys.argv[2]):
    try:
        answers.append([[str(value) for value in row] for row in spark.sql(statement).collect()])
    except Exception as error:
        answers.append("refused: " + str(error)[:500])
spark.stop()
print("ANSWERS " + json.dumps(answers))
"""


@pytest.fixture(scope="module")
def jars() -> str:
    """Paths of the jars, separated by commas."""
    pytest.importorskip("pyspark", reason="needs PySpark: install bearlake[compactor]")
    if shutil.which("java") is None:
        pytest.skip("needs Java 17 or 21 on PATH for Spark")
    for artifact in JARS:
        _, name, version = artifact.split(":")
        if (CACHE / f"{name}-{version}.jar").exists():
            continue
        if shutil.which("mvn") is None:
            pytest.skip("needs Iceberg's runtime for Spark: install Maven (mvn) once to fetch it")
        command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={CACHE}"]
        fetched = subprocess.run(command, capture_output=True, timeout=FETCH_TIMEOUT_S, check=False)
        if fetched.returncode != 0:
            pytest.skip(f"{artifact} could not be fetched: {fetched.stdout.decode()[-300:]}")
    return ",".join(str(path) for path in sorted(CACHE.glob("*.jar")))


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


def spark(jars: str, folder: Path, statements: Sequence[str]) -> list[list[list[str]] | str]:
    """Run statements in a Spark session of their own; `lake` is the catalog. A refused statement answers with its error."""
    settings = {
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.jars": jars,
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.bearlake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.bearlake.type": "jdbc",
        "spark.sql.catalog.bearlake.uri": f"jdbc:sqlite:{folder}/catalog.db",
        "spark.sql.catalog.bearlake.jdbc.schema-version": "V1",
        "spark.sql.catalog.bearlake.warehouse": f"file://{folder}/objects",
    }
    environment = {key: value for key, value in os.environ.items() if key != "SPARK_HOME"}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(settings), json.dumps(statements)],
        env=environment,
        cwd=folder,
        capture_output=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    lines = [line for line in done.stdout.decode().splitlines() if line.startswith("ANSWERS ")]
    assert lines, done.stderr.decode()[-3000:]
    answers: list[list[list[str]] | str] = json.loads(lines[0].removeprefix("ANSWERS "))
    return answers


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
