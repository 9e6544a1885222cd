"""How the rows of a new table are laid out: those of a stream in the order of their offsets, those of a current table in buckets of keys.

Source: Apache Iceberg table spec, "Partitioning", "Sort Orders".
"""

from typing import NamedTuple

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.transforms import BucketTransform

from bearlake.metadata.model import Stream
from bearlake.table import schema
from bearlake.table.naming import BUCKETS_CONFIG, is_current

_FIELD_ID = 1000
"""Smallest id of a partition field."""
_BUCKET_NAME = "_key_bucket"


class Layout(NamedTuple):
    """How a table is partitioned and sorted."""

    partition_spec: PartitionSpec
    sort_order: SortOrder


def layout_of(stream: Stream) -> Layout:
    """Return the layout of the table of a stream, or of one derived for a current table."""
    if not is_current(stream):
        return Layout(UNPARTITIONED_PARTITION_SPEC, schema.iceberg_sort_order())
    transform: BucketTransform[bytes] = BucketTransform(int(stream.configs[BUCKETS_CONFIG]))
    field = PartitionField(
        source_id=schema.FIELD_IDS[schema.KEY], field_id=_FIELD_ID, transform=transform, name=_BUCKET_NAME
    )
    return Layout(PartitionSpec(field, spec_id=0), UNSORTED_SORT_ORDER)


def bucket_count(table: Table) -> int:
    """Return the number of buckets; 0 if the table is partitioned otherwise."""
    fields = table.metadata.spec().fields
    if len(fields) != 1 or not isinstance(fields[0].transform, BucketTransform):
        return 0
    return int(fields[0].transform.num_buckets)
