"""The stream configs of tables; see `configs.py`."""

from typing import Final

from bearlake.streams.config import BUCKET_COUNT_MAX, TABLE_NAME_LENGTH_MAX, Config, ConfigType

_TABLE_NAME = f"[A-Za-z0-9_-]{{1,{TABLE_NAME_LENGTH_MAX}}}"
_B, _S, _I, _L, _LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG, ConfigType.LIST

TABLE_CONFIGS: Final[tuple[Config, ...]] = (
    Config(
        "table.columns",
        _S,
        "",
        "Columns of the table, such as `id long, item string, price decimal(10,2)`: values are JSON objects with fields of these names."
        " Empty: columns come from schemas, if at all.",
    ),
    Config(
        "table.current",
        _S,
        "off",
        "on: a second table, <table>_current, has the newest record of each key. off: there is none; an existing one is dropped.",
        choices=("off", "on"),
    ),
    Config(
        "table.current.buckets",
        _I,
        "16",
        "Buckets into which the keys of <table>_current are split. A round rewrites each bucket that has new records. A change builds the"
        " table anew.",
        1,
        BUCKET_COUNT_MAX,
    ),
    Config(
        "table.current.envelope",
        _S,
        "none",
        "What values are. none: the record's own. debezium: events of a change data capture, of which <table>_current has the row after the"
        " change. A change builds the table anew.",
        choices=("none", "debezium"),
    ),
    Config(
        "table.current.freshness_ms",
        _L,
        "60000",
        "Shortest time (ms) between two rounds that bring <table>_current up to the table. A shorter time rewrites more.",
        1000,
    ),
    Config(
        "table.enable",
        _B,
        "true",
        "Whether the stream is also an Iceberg table. Its history is stored in the same Parquet files in both cases.",
    ),
    Config(
        "table.freshness_ms",
        _L,
        "10000",
        "Longest time (ms) from a record's commit until it is in the table; live views show it at once. A shorter time makes more and "
        "smaller files, which are merged later.",
        100,
    ),
    Config(
        "table.key.mode",
        _S,
        "raw",
        "As table.value.mode, for keys: how they become columns.",
        choices=("raw", "keep", "elide"),
    ),
    Config(
        "table.key.schema_id",
        _I,
        "-1",
        "Id of the schema of all keys, which then have no header; -1: each key begins with its schema's id in Confluent's wire format.",
        -1,
    ),
    Config(
        "table.name", _S, "", "Name of the table; empty: the stream's name with '.' as '_'.", pattern=f"|{_TABLE_NAME}"
    ),
    Config("table.namespace", _S, "streams", "Namespace of the table in its catalog.", pattern=_TABLE_NAME),
    Config(
        "table.on_compaction",
        _S,
        "history",
        "What key compaction does to the table. history: the table keeps all versions. latest: superseded rows leave the table, too."
        " Fixed when the stream is created.",
        choices=("history", "latest"),
    ),
    Config(
        "table.on_delete",
        _S,
        "keep",
        "What happens to the table when the stream is deleted: keep it with its files, or drop it and delete its files.",
        choices=("keep", "drop"),
    ),
    Config(
        "table.retention_ms",
        _L,
        "-1",
        "Age (ms) at which rows may be removed from the table, independent of the stream's retention.ms; -1: rows stay.",
        -1,
    ),
    Config(
        "table.value.mode",
        _S,
        "raw",
        "How values become columns. raw: bytes only. keep: typed columns by schema beside the bytes. elide: typed columns,"
        " and the bytes only of values that the columns do not give back byte for byte; those of JSON keep them.",
        choices=("raw", "keep", "elide"),
    ),
    Config(
        "table.value.schema_id",
        _I,
        "-1",
        "Id of the schema of all values, which then have no header; -1: each value begins with its schema's id in Confluent's wire format.",
        -1,
    ),
    Config(
        "table.value.subjects",
        _LIST,
        "",
        "Subjects of the registry whose schemas values may have; empty: the stream's name with '-value'.",
    ),
)
"""In order of their names."""
