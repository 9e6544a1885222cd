"""Avro's types without children as columns: their kind in the kernel, and their types in Iceberg and Arrow."""

import pyarrow as pa

from bearlake.kernel import TypedKind

LEAVES = {
    "boolean": (TypedKind.BOOLEAN, "boolean", pa.bool_()),
    "int": (TypedKind.INT, "int", pa.int32()),
    "long": (TypedKind.LONG, "long", pa.int64()),
    "float": (TypedKind.FLOAT, "float", pa.float32()),
    "double": (TypedKind.DOUBLE, "double", pa.float64()),
    "bytes": (TypedKind.BYTES, "binary", pa.binary()),
    "string": (TypedKind.STRING, "string", pa.string()),
}
"""By type."""
TIMES = {
    ("int", "date"): (TypedKind.INT, "date", pa.date32()),
    ("int", "time-millis"): (TypedKind.TIME_MILLIS, "time", pa.time64("us")),
    ("long", "time-micros"): (TypedKind.TIME_MICROS, "time", pa.time64("us")),
    ("long", "timestamp-millis"): (TypedKind.TIMESTAMP_MILLIS, "timestamptz", pa.timestamp("us", tz="UTC")),
    ("long", "timestamp-micros"): (TypedKind.LONG, "timestamptz", pa.timestamp("us", tz="UTC")),
    ("long", "local-timestamp-millis"): (TypedKind.TIMESTAMP_MILLIS, "timestamp", pa.timestamp("us")),
    ("long", "local-timestamp-micros"): (TypedKind.LONG, "timestamp", pa.timestamp("us")),
    ("string", "uuid"): (TypedKind.UUID, "uuid", pa.binary(16)),
}
"""By type and logical type."""
