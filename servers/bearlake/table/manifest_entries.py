"""The entries of manifests for our data files. Pure. Source: Apache Iceberg table spec, "Manifests", `data_file`."""

from typing import Final

from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from bearlake.table import schema
from bearlake.table.io import Locations
from bearlake.table.model import DataFile

NO_PARTITION: Final = Record()
"""The partition of data files of tables without a partition spec."""


def iceberg_file(
    metadata: TableMetadata, locations: Locations, file: DataFile, partition: Record = NO_PARTITION
) -> IcebergFile:
    """Return the manifest's entry for a data file of a table."""
    return IcebergFile.from_args(
        _table_format_version=metadata.format_version,
        content=DataFileContent.DATA,
        file_path=locations.location(file.key),
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=file.row_count,
        file_size_in_bytes=file.size,
        column_sizes=dict(file.column_sizes),
        value_counts=dict(file.value_counts),
        null_value_counts=dict(file.null_value_counts),
        nan_value_counts={},
        lower_bounds=dict(file.lower_bounds),
        upper_bounds=dict(file.upper_bounds),
        key_metadata=None,
        split_offsets=list(file.split_offsets),
        equality_ids=None,
        sort_order_id=_sort_order_id(metadata),
        spec_id=metadata.default_spec_id,
    )


def _sort_order_id(metadata: TableMetadata) -> int | None:
    """Return the id of our rows' sort order, or None if the table no longer has that order."""
    ours = schema.iceberg_sort_order().fields
    return next((order.order_id for order in metadata.sort_orders if order.fields == ours), None)
