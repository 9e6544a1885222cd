"""Whether every engine can still read the metadata of a stream's table, and compaction continue with it. Pure.

PyIceberg applies updates without looking at most of their numbers and names. Java does not load a table in which two schemas have one id or
an id has more than 63 bits. The next commit of PyIceberg adds to the totals in the summary of the current snapshot, and fails if they are
no numbers. SQL cannot name a column whose name contains a line break.

Source: Iceberg table spec, "Table Metadata", "Snapshots", "Snapshot References", "Sorting"; Java's `TableMetadataParser`, `SnapshotRef`,
`SortOrder`, `Schema`, by their docs; decision 244.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.types import FixedType

from bearlake.table.warehouse.model import NAME_LENGTH_MAX, forbidden, is_plain_name

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
ID_STEP_MAX: Final = 10_000
"""How far the id of a new schema, partition spec or sort order may be above the table's largest one: compaction needs some, too."""
_OWN_SUMMARY: Final = "bearlake."
_FIXED_BYTES_MAX: Final = 1 << 20
_TOTAL: Final = "total-"
_COUNTS: Final = frozenset({"added-data-files", "added-records", "deleted-data-files"})
"""Texts in a summary that are read as numbers: those that begin with `_TOTAL`, and these."""


def check_readable(before: TableMetadata, after: TableMetadata) -> None:
    """Raise `Refused` if a commit that makes `after` of `before` would keep engines from reading the table, or compaction from going on."""
    for what, found, known in (
        ("schema", [schema.schema_id for schema in after.schemas], [schema.schema_id for schema in before.schemas]),
        ("partition spec", [s.spec_id for s in after.partition_specs], [s.spec_id for s in before.partition_specs]),
        (
            "sort order",
            [order.order_id for order in after.sort_orders],
            [order.order_id for order in before.sort_orders],
        ),
    ):
        _check_ids(what, found, known)
    for order in after.sort_orders[len(before.sort_orders) :]:
        if bool(order.order_id) != bool(order.fields):
            raise forbidden("the sort order 0, and no other, has no fields")
    columns = {(number, field.name) for schema in before.schemas for number, field in index_by_id(schema).items()}
    for schema in after.schemas[len(before.schemas) :]:
        _check_schema(schema, columns, before.format_version)
    old = {snapshot.snapshot_id for snapshot in before.snapshots}
    schema_ids = {schema.schema_id for schema in after.schemas}
    for snapshot in after.snapshots:
        if snapshot.snapshot_id not in old:
            _check_snapshot(snapshot, schema_ids)
    for statistics in after.statistics:
        if statistics not in before.statistics:
            _check_statistics(statistics, {snapshot.snapshot_id for snapshot in after.snapshots})
    for name, ref in after.refs.items():
        if ref != before.refs.get(name):
            _check_ref(name, ref)


def _check_ids(what: str, found: list[int], known: list[int]) -> None:
    if len(found) - len(set(found)) > len(known) - len(set(known)):  # a table that is so already stays usable
        raise forbidden(f"two of the table's {what}s would have one id")
    highest = min(max(known, default=0) + ID_STEP_MAX, INT_MAX)
    for number in set(found) - set(known):
        if not 0 <= number <= highest:
            raise forbidden(f"the id of a new {what} must be from 0 to {highest}")


def _check_schema(schema: Schema, known: set[tuple[int, str]], format_version: int) -> None:
    try:
        schema.check_format_version_compatibility(format_version)
    except ValueError as error:
        raise forbidden(f"other engines could not read the schema: {error}"[:300]) from error
    for number, field in index_by_id(schema).items():
        if (number, field.name) in known:
            continue
        if not is_plain_name(field.name):
            raise forbidden(
                f"the name of a column must have 1 to {NAME_LENGTH_MAX} characters, and all of them must be printable"
            )
        kind = field.field_type
        if field.initial_default is not None or field.write_default is not None:
            raise forbidden(f"the column {field.name} cannot have a default: tables of this format version have none")
        if isinstance(kind, FixedType) and len(kind) > _FIXED_BYTES_MAX:
            raise forbidden(f"the column {field.name} must have at most {_FIXED_BYTES_MAX} bytes")


def _check_snapshot(snapshot: Snapshot, schema_ids: set[int]) -> None:
    if snapshot.snapshot_id > LONG_MAX:
        raise forbidden("the id of a snapshot must have at most 63 bits")
    if snapshot.schema_id is not None and snapshot.schema_id not in schema_ids:
        raise forbidden(f"the snapshot is of the schema {snapshot.schema_id}, which the table does not have")
    if snapshot.first_row_id is not None or snapshot.added_rows is not None:
        raise forbidden("tables of this format version have no row ids")
    texts: Mapping[str, Any] = snapshot.summary.additional_properties if snapshot.summary else {}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise forbidden(f"{name[:100]} in the summary of a snapshot must be a text")
        if name.startswith(_OWN_SUMMARY):
            raise forbidden(f"{name[:100]} in the summary of a snapshot is Bearlake's")
        if (name.startswith(_TOTAL) or name in _COUNTS) and not _is_count(text):
            raise forbidden(f"{name[:100]} in the summary of a snapshot must be a number")


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(LONG_MAX)) and int(text) <= LONG_MAX


def _check_statistics(statistics: StatisticsFile, snapshot_ids: set[int]) -> None:
    if statistics.snapshot_id not in snapshot_ids:
        raise forbidden("statistics must be of a snapshot of the table")
    waiting: list[Any] = [statistics.model_dump()]  # Any: JSON
    while waiting:
        part = waiting.pop()
        if isinstance(part, int) and not 0 <= part <= LONG_MAX:
            raise forbidden("a number in statistics must be positive, and have at most 63 bits")
        waiting += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()


def _check_ref(name: str, ref: SnapshotRef) -> None:
    if not is_plain_name(name):
        raise forbidden(
            f"the name of a branch or tag must have 1 to {NAME_LENGTH_MAX} characters, and all of them must be printable"
        )
    limits: Iterable[tuple[int | None, int]] = (
        (ref.min_snapshots_to_keep, INT_MAX),
        (ref.max_snapshot_age_ms, LONG_MAX),
        (ref.max_ref_age_ms, LONG_MAX),
    )
    if any(found is not None and not 0 < found <= highest for found, highest in limits):
        raise forbidden(f"what the branch or tag {name} keeps must be a positive number of at most 63 bits")
