"""Engines that read tables of the Iceberg REST catalog, each a process of its own: `python live_engines.py ENGINE URL JARS`.

A line on stdin asks a question, in JSON; a line on stdout answers: rows, or a text that says what failed. SQL engines know the
warehouses as catalogs of the same names.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

COUNTS = (
    "select _partition_id, count(*), count(distinct _offset), min(_offset), max(_offset) + 1,"
    " sum(case when _offset >= {floor} then 1 else 0 end) from {table} group by 1"
)
ROWS = "select _partition_id, _offset, hex(_key), hex(_value) from {table}"
RANGE = " where _partition_id = {partition} and _offset >= {start} and _offset < {end}"
SPARK = {
    "spark.master": "local[1]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "768m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}
Ask = Callable[[dict[str, Any]], list[list[Any]]]


def statement_of(question: dict[str, Any]) -> str:
    """The question in SQL; with a warehouse, its catalog has the table's name."""
    table = ".".join(filter(None, (question["warehouse"], question["table"])))
    if question["kind"] == "counts":
        return COUNTS.format(table=table, floor=question["floor"])
    return ROWS.format(table=table) + (RANGE.format(**question) if question["kind"] == "range" else "")


def duckdb(url: str, _: str) -> Ask:
    """DuckDB's own reader of Iceberg. Needs the wheels of its extensions avro, httpfs and iceberg."""
    import glob
    import os

    import duckdb as package

    connection = package.connect(config={"allow_unsigned_extensions": "true"})
    packages = os.path.dirname(os.path.dirname(package.__file__))
    for name in ("avro", "httpfs", "iceberg"):
        (path,) = glob.glob(f"{packages}/duckdb_extension_{name}/extensions/*/{name}.duckdb_extension")
        connection.execute(f"load '{path}'")
    connection.execute(f"attach 'live' as live (type iceberg, endpoint '{url}', authorization_type 'none')")
    return lambda question: [list(row) for row in connection.execute(statement_of(question)).fetchall()]


def spark(url: str, jars: str) -> Ask:
    """Spark with the Iceberg runtime in `jars`."""
    from pyspark.sql import SparkSession

    settings = {**SPARK, "spark.jars": jars}
    for warehouse in ("bearlake", "live", "planned"):
        name = f"spark.sql.catalog.{warehouse}"
        settings |= {
            name: "org.apache.iceberg.spark.SparkCatalog",
            f"{name}.type": "rest",
            f"{name}.uri": url,
            f"{name}.warehouse": warehouse,
            f"{name}.cache-enabled": "false",
        }
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return lambda question: [list(row) for row in session.sql(statement_of(question)).collect()]


def pyiceberg(url: str, _: str) -> Ask:
    """PyIceberg."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.expressions import AlwaysTrue, And, EqualTo, GreaterThanOrEqual, LessThan

    catalogs = {
        warehouse: RestCatalog(warehouse, uri=url, warehouse=warehouse) for warehouse in ("bearlake", "live", "planned")
    }

    def ask(question: dict[str, Any]) -> list[list[Any]]:
        """Scan the table, and return the answer as the SQL engines would."""
        table = catalogs[question["warehouse"]].load_table(question["table"])
        if table.current_snapshot() is None:
            return []
        if question["kind"] == "counts":
            rows = table.scan(selected_fields=("_partition_id", "_offset")).to_arrow()
            counted = [("_offset", name) for name in ("count", "count_distinct", "min", "max")]
            is_above = pc.greater_equal(rows["_offset"], question["floor"]).cast(pa.int64())
            rows = rows.append_column("above", is_above)
            found = rows.group_by("_partition_id").aggregate([*counted, ("above", "sum")])
            return [
                [
                    row["_partition_id"], row["_offset_count"], row["_offset_count_distinct"],
                    row["_offset_min"], row["_offset_max"] + 1, row["above_sum"],
                ]
                for row in found.to_pylist()
            ]  # fmt: skip
        chosen = AlwaysTrue()
        if question["kind"] == "range":
            chosen = And(
                EqualTo("_partition_id", question["partition"]),
                GreaterThanOrEqual("_offset", question["start"]),
                LessThan("_offset", question["end"]),
            )
        rows = table.scan(row_filter=chosen, selected_fields=("_partition_id", "_offset", "_key", "_value")).to_arrow()
        return [
            [row["_partition_id"], row["_offset"], *(None if row[name] is None else row[name].hex().upper() for name in ("_key", "_value"))]
            for row in rows.to_pylist()
        ]  # fmt: skip

    return ask


def main() -> None:
    """Answer until stdin ends."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # libraries print there
    ask = {"duckdb": duckdb, "spark": spark, "pyiceberg": pyiceberg}[sys.argv[1]](sys.argv[2], sys.argv[3])
    for line in sys.stdin:
        answer: list[list[Any]] | str
        try:
            answer = ask(json.loads(line))
        except Exception as error:  # noqa: BLE001 - the asker counts it
            answer = f"{type(error).__name__}: {error}"[:2000]
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
