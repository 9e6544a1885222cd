"""What new manifests may say about their files, whatever the files are: readers and compaction compute with it. Pure.

A partition spec that the table does not have stops every merge of manifests. A bound of another width than its type stops retention and
planning. A sequence number of the future, or a delete by values, would take away rows that producers send later.

Source: Iceberg table spec, "Manifests", "Sequence Number Inheritance", "Binary single-value serialization"; decision 244.
"""

from typing import Final

from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestFile
from pyiceberg.schema import index_by_id
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import (
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from bearlake.table.warehouse.model import forbidden

_WIDTHS: Final[dict[type[IcebergType], tuple[int, ...]]] = {
    BooleanType: (1,),
    IntegerType: (4,),
    LongType: (8, 4),
    FloatType: (4,),
    DoubleType: (8, 4),
    DateType: (4,),
    TimeType: (8,),
    TimestampType: (8, 4),
    TimestamptzType: (8,),
    UUIDType: (16,),
}
"""Bytes of a bound by type. The second one: of a file that was written before the column was promoted."""


class EntryRules:
    """Checks manifests and entries that a commit adds to the table with this metadata."""

    def __init__(self, metadata: TableMetadata) -> None:
        self._spec_ids = set(metadata.specs())
        self._widths = {
            number: widths
            for number, field in index_by_id(metadata.schema()).items()
            if (widths := _WIDTHS.get(type(field.field_type))) is not None
        }

    def check_manifest(self, manifest: ManifestFile, snapshot: Snapshot) -> None:
        """Raise `Refused` for what a list says of a new manifest: its spec, or that it is of a later commit than its snapshot."""
        if manifest.partition_spec_id not in self._spec_ids:
            raise forbidden(
                f"{manifest.manifest_path} is of the partition spec {manifest.partition_spec_id}, which the table does not have"
            )
        if not _is_past(manifest.sequence_number, snapshot) or not _is_past(manifest.min_sequence_number, snapshot):
            raise forbidden(f"{manifest.manifest_path} has a sequence number above that of its snapshot")

    def check_length(self, manifest: ManifestFile, size: int) -> None:
        """Raise `Refused` unless a manifest of `size` bytes is listed with its size: Java reads no more."""
        if manifest.manifest_length != size:
            raise forbidden(f"{manifest.manifest_path} has {size} bytes, and is listed with {manifest.manifest_length}")

    def check_entry(self, entry: ManifestEntry, snapshot: Snapshot) -> None:
        """Raise `Refused` for an entry that would harm readers of later commits, or that they cannot read."""
        file = entry.data_file
        if file.content == DataFileContent.EQUALITY_DELETES:
            raise forbidden(f"{file.file_path} deletes rows by values: delete them by position, or rewrite their files")
        if not _is_past(entry.sequence_number, snapshot):
            raise forbidden(f"the file {file.file_path} has a sequence number above that of its snapshot")
        if file.record_count < 0 or file.file_size_in_bytes < 0:
            raise forbidden(f"the file {file.file_path} cannot have less than no rows or bytes")
        self._check_bounds(file)

    def _check_bounds(self, file: DataFile) -> None:
        for bounds in (file.lower_bounds or {}, file.upper_bounds or {}):
            for number, bound in bounds.items():
                widths = self._widths.get(number)
                if widths is not None and len(bound) not in widths:
                    raise forbidden(f"the file {file.file_path} has a bound of {len(bound)} bytes for field {number}")


def _is_past(number: int | None, snapshot: Snapshot) -> bool:
    return number is None or number <= (snapshot.sequence_number or 0)
