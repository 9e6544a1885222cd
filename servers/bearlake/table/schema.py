"""The columns of a stream's table: names and field ids, and their Arrow and Iceberg forms.

Field ids follow Iceberg's numbering of a new table (the fields of a struct first, then their nested fields), so a catalog that assigns
new ids assigns the same ones. The ids are in every Parquet file, so no name mapping is needed and columns may be renamed.
Names that Iceberg reserves (`_partition`, `_pos`, `_file`, …) are avoided, because Spark fails on tables that have them.

Importing this module needs only pyarrow; `iceberg_schema` and `iceberg_sort_order` import pyiceberg when called.
Source: Apache Iceberg table spec, "Schemas and Data Types", "Reserved Field IDs", "Sort Orders", "Parquet"; "Configuration".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from bearlake.table.applied_tasks import STREAM_ID_PROPERTY
from bearlake.table.naming import CURRENT_PROPERTY
from bearlake.table.settings import TableSettings

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.sorting import SortOrder

PARTITION_ID: Final = "_partition_id"
OFFSET: Final = "_offset"
TIMESTAMP: Final = "_timestamp"
KEY: Final = "_key"
HEADERS: Final = "_headers"
VALUE: Final = "_value"
BATCH: Final = "_batch"
COLUMNS: Final = (PARTITION_ID, OFFSET, TIMESTAMP, KEY, HEADERS, VALUE, BATCH)
"""Column names in order. Rows of a data file are sorted by (`_partition_id`, `_offset`)."""

SCHEMA_ID: Final = "_schema_id"
"""Column of tables with typed columns: the id of the value's schema; null for a tombstone. Its field id is the book's."""
ERROR: Final = "_error"
"""Column of tables with typed columns: why a value or key has no typed columns; null if both have. Its field id is the book's."""
KEY_SCHEMA_ID: Final = "_key_schema_id"
"""Column of tables with typed columns of keys: the id of the key's schema; null for a record without a key. Its field id is the book's."""

HEADER_KEY: Final = "key"
HEADER_VALUE: Final = "value"
BATCH_FIELDS: Final = ("base_offset", "attributes", "producer_id", "producer_epoch", "base_sequence")
"""Fields of `_batch`, from the row's original record batch; its other header fields follow from the rows."""

FIELD_IDS: Final[Mapping[str, int]] = {
    PARTITION_ID: 1,
    OFFSET: 2,
    TIMESTAMP: 3,
    KEY: 4,
    HEADERS: 5,
    VALUE: 6,
    BATCH: 7,
    "_headers.element": 8,
    "_headers.element.key": 9,
    "_headers.element.value": 10,
    "_batch.base_offset": 11,
    "_batch.attributes": 12,
    "_batch.producer_id": 13,
    "_batch.producer_epoch": 14,
    "_batch.base_sequence": 15,
}
"""Field ids by Iceberg's full field name."""

BOUNDED_COLUMNS: Final = (PARTITION_ID, OFFSET, TIMESTAMP)
"""Columns with bounds in manifests and Parquet statistics. Payloads stay out of metadata."""

METADATA_KEY: Final = b"PARQUET:field_id"
"""Arrow field metadata key from which Parquet writers take a field's id."""


def _field(path: str, arrow_type: pa.DataType, *, required: bool) -> pa.Field:
    metadata = {METADATA_KEY: str(FIELD_IDS[path]).encode()}
    return pa.field(path.rpartition(".")[2], arrow_type, nullable=not required, metadata=metadata)


_HEADER_TYPE = pa.struct(
    [
        _field("_headers.element.key", pa.string(), required=True),
        _field("_headers.element.value", pa.binary(), required=False),
    ]
)
_BATCH_TYPE = pa.struct(
    [
        _field("_batch.base_offset", pa.int64(), required=True),
        _field("_batch.attributes", pa.int32(), required=True),
        _field("_batch.producer_id", pa.int64(), required=True),
        _field("_batch.producer_epoch", pa.int32(), required=True),
        _field("_batch.base_sequence", pa.int32(), required=True),
    ]
)
ARROW_SCHEMA: Final[pa.Schema] = pa.schema(
    [
        _field(PARTITION_ID, pa.int32(), required=True),
        _field(OFFSET, pa.int64(), required=True),
        _field(TIMESTAMP, pa.timestamp("us", tz="UTC"), required=True),
        _field(KEY, pa.binary(), required=False),
        _field(HEADERS, pa.list_(_field("_headers.element", _HEADER_TYPE, required=True)), required=False),
        _field(VALUE, pa.binary(), required=False),
        _field(BATCH, _BATCH_TYPE, required=False),
    ]
)
"""The columns as Arrow types with field ids. Types are those of `kernel.Columns`: 32-bit offsets, µs timestamps."""


def iceberg_schema() -> Schema:
    """Return the columns as an Iceberg schema (format version 2)."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import (
        BinaryType,
        IntegerType,
        ListType,
        LongType,
        NestedField,
        StringType,
        StructType,
        TimestamptzType,
    )

    header = StructType(
        NestedField(FIELD_IDS["_headers.element.key"], HEADER_KEY, StringType(), required=True),
        NestedField(FIELD_IDS["_headers.element.value"], HEADER_VALUE, BinaryType()),
    )
    types = {"base_offset": LongType(), "producer_id": LongType()}
    batch = StructType(
        *(
            NestedField(FIELD_IDS[f"_batch.{name}"], name, types.get(name, IntegerType()), required=True)
            for name in BATCH_FIELDS
        )
    )
    return Schema(
        NestedField(FIELD_IDS[PARTITION_ID], PARTITION_ID, IntegerType(), required=True),
        NestedField(FIELD_IDS[OFFSET], OFFSET, LongType(), required=True),
        NestedField(FIELD_IDS[TIMESTAMP], TIMESTAMP, TimestamptzType(), required=True),
        NestedField(FIELD_IDS[KEY], KEY, BinaryType()),
        NestedField(
            FIELD_IDS[HEADERS], HEADERS, ListType(FIELD_IDS["_headers.element"], header, element_required=True)
        ),
        NestedField(FIELD_IDS[VALUE], VALUE, BinaryType()),
        NestedField(FIELD_IDS[BATCH], BATCH, batch),
    )


def iceberg_sort_order() -> SortOrder:
    """Return the order (`_partition_id`, `_offset`), ascending, so that rewrites by other engines also keep offsets together."""
    from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
    from pyiceberg.transforms import IdentityTransform

    return SortOrder(
        *(
            SortField(FIELD_IDS[name], IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST)
            for name in (PARTITION_ID, OFFSET)
        )
    )


def table_properties(settings: TableSettings, stream_id: str, current_of: str | None = None) -> dict[str, str]:
    """Return the properties of a new table. `current_of`: the id of the stream whose current table it is.

    `gc.enabled=false` makes other engines refuse to expire snapshots or delete files: the segment index needs the files, and our own
    upkeep does both. Metrics of payload columns stay out of the manifests.
    """
    return {
        "format-version": "2",
        STREAM_ID_PROPERTY: stream_id,
        **({} if current_of is None else {CURRENT_PROPERTY: current_of}),
        "gc.enabled": "false",
        "write.metadata.metrics.default": "none",
        **{f"write.metadata.metrics.column.{name}": "full" for name in BOUNDED_COLUMNS},
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": str(settings.metadata_versions_max),
        "commit.manifest-merge.enabled": "true",
        "commit.manifest.min-count-to-merge": str(settings.manifests_merged_count_min),
        "commit.manifest.target-size-bytes": str(settings.manifest_bytes_max),
        "write.parquet.compression-codec": "zstd",
    }
