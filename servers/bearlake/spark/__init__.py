"""The Spark data source `bearlake`: streams as DataFrames, read straight from the stores, without a server.

    source.py     what Spark calls: `BearlakeDataSource`, its batch reader and its stream reader
    options.py    the options of a query, in the words of spark-sql-kafka
    offsets.py    offsets as checkpoints hold them; how much a micro-batch may read; pure
    filters.py    which filters become offsets and times; pure
    planning.py   streams and offsets → what each task reads
    stores.py     the stores of a process, opened once

Spark's processes open the stores with their own credentials. Whoever has these credentials can read every stream: access rules are those
of servers. `live/log_rows.py` reads the rows.
"""

from typing import Any

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: Any) -> None:  # a SparkSession; pyspark is not typed here
    """Register the data source in a session, and enable Spark's pushdown of filters to Python, which is off by default."""
    from bearlake.spark.source import BearlakeDataSource

    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(BearlakeDataSource)
