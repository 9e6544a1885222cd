"""Plans the scan of one snapshot of a stream's table, or its current table: files as the tasks of Iceberg's REST specification, in pages.

PyIceberg finds the files by the manifests. Tasks carry the whole filter of the request as their residual. Bounds of columns are left out:
the specification and Java's parser write them differently. All functions block.

Source: Apache Iceberg REST specification, `FileScanTask`, `DataFile`, `PositionDeleteFile`.
"""

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import BucketTransform, VoidTransform

from bearlake.table.applied_tasks import STREAM_ID_PROPERTY
from bearlake.table.deleted_rows import planned_files
from bearlake.table.warehouse.model import Refused, invalid
from bearlake.table.warehouse.pruning import pruning_filter
from bearlake.table.warehouse.scans import Scan

LoadedMetadata: TypeAlias = TableMetadata
"""A version of a table, or a view, for callers that pass it on."""

_COUNTS = {
    "column-sizes": "column_sizes",
    "value-counts": "value_counts",
    "null-value-counts": "null_value_counts",
    "nan-value-counts": "nan_value_counts",
}
_POSITIONS = "position-deletes"


def metadata_of_view(text: str) -> str:
    """Return of the metadata of a view (JSON) what a plan needs: its snapshot and schema, and whose table it is."""
    document = json.loads(text)
    current = document["current-snapshot-id"]
    owner = document.get("properties", {}).get(STREAM_ID_PROPERTY)
    kept = {
        "snapshots": [found for found in document["snapshots"] if found["snapshot-id"] == current],
        "schemas": [found for found in document["schemas"] if found["schema-id"] == document["current-schema-id"]],
        "refs": {"main": {"type": "branch", "snapshot-id": current}},
        "properties": {} if owner is None else {STREAM_ID_PROPERTY: owner},
        **{name: [] for name in ("snapshot-log", "metadata-log", "statistics", "partition-statistics")},
    }
    return json.dumps({**document, **kept}, separators=(",", ":"))


def read_view(text: str) -> TableMetadata:
    """Parse what `metadata_of_view` returned."""
    return TableMetadataUtil.parse_raw(text)


def plan_pages(
    metadata: TableMetadata,
    files: FileIO,
    scan: Scan,
    *,
    file_count_max: int,
    manifest_bytes_max: int,
    page_count: int,
) -> list[bytes]:
    """Return the plan of a scan whose snapshot is known: for each page its `delete-files` and `file-scan-tasks` as the inside of a JSON
    object. At least one page; `page_count` is the number of files in each.

    Raises:
        Refused: no such snapshot or column; or the table has more files than `file_count_max`, larger manifests than
            `manifest_bytes_max` in all, or other partitions than buckets.
    """
    assert scan.snapshot_id is not None, "a plan is of one snapshot"
    snapshot = metadata.snapshot_by_id(scan.snapshot_id)
    if snapshot is None:
        raise invalid(f"Cannot find snapshot with ID {scan.snapshot_id}")
    if scan.uses_snapshot_schema:
        metadata = _as_of(metadata, snapshot)
    if any(not _is_bucket(field) for spec in metadata.partition_specs for field in spec.fields):
        raise _unsupported(
            "Scans of tables that are partitioned by other transforms than bucket are not planned by this server"
        )
    _check_size(snapshot, files, file_count_max, manifest_bytes_max)
    schema = metadata.schema()
    _check_names(schema, scan)
    table = Table(("planned",), metadata, "", files, NoopCatalog("planned"))
    rows = pruning_filter(scan.filter, schema, is_case_sensitive=scan.is_case_sensitive)
    found = planned_files(
        table.scan(row_filter=rows, snapshot_id=scan.snapshot_id, case_sensitive=scan.is_case_sensitive)
    )
    tasks = sorted(found, key=lambda task: task.file.file_path)  # pages are the same on every server
    residual = None if scan.filter is None or scan.filter is True else json.dumps(scan.filter)
    if residual is None and any(spec.fields for spec in metadata.partition_specs):
        residual = "true"  # Java reads no task of a partitioned table without a residual
    stats = _ids(schema, scan)
    return [
        _page(tasks[start : start + page_count], residual, stats) for start in range(0, max(1, len(tasks)), page_count)
    ]


def _as_of(metadata: TableMetadata, snapshot: Snapshot) -> TableMetadata:
    known = {schema.schema_id for schema in metadata.schemas}
    if snapshot.schema_id is None or snapshot.schema_id not in known:
        return metadata
    return metadata.model_copy(update={"current_schema_id": snapshot.schema_id})


def _is_bucket(field: PartitionField) -> bool:
    """Return whether the values of a partition field are integers: buckets, or null for all (`void`)."""
    return isinstance(field.transform, BucketTransform | VoidTransform)


def _check_size(snapshot: Snapshot, files: FileIO, count_max: int, bytes_max: int) -> None:
    manifests = snapshot.manifests(files)
    count = sum((found.existing_files_count or 0) + (found.added_files_count or 0) for found in manifests)
    if count > count_max:
        raise _unsupported(
            f"The table has {count} files, more than the server plans (live.plans.file_count_max = {count_max}): "
            "read it in the warehouse live"
        )
    if (size := sum(found.manifest_length for found in manifests)) > bytes_max:
        raise _unsupported(
            f"The table's manifests have {size} bytes, more than the server plans (live.plans.manifest_bytes_max = {bytes_max}): "
            "read it in the warehouse live"
        )


def _check_names(schema: Schema, scan: Scan) -> None:
    for name in (*scan.select, *scan.stats_fields):
        try:
            schema.find_field(name, case_sensitive=scan.is_case_sensitive)
        except ValueError as error:
            raise invalid(f"Cannot find field {name[:200]!r}") from error


def _ids(schema: Schema, scan: Scan) -> frozenset[int]:
    return frozenset(
        schema.find_field(name, case_sensitive=scan.is_case_sensitive).field_id for name in scan.stats_fields
    )


def _page(tasks: Sequence[FileScanTask], residual: str | None, stats: frozenset[int]) -> bytes:
    deletes: dict[str, int] = {}
    bodies: list[str] = []
    found: list[str] = []
    for task in tasks:
        references = []
        for file in sorted(task.delete_files, key=lambda file: file.file_path):
            if file.file_path not in deletes:
                deletes[file.file_path] = len(bodies)
                bodies.append(json.dumps(_content_file(file, _POSITIONS)))
            references.append(deletes[file.file_path])
        parts = [f'"data-file":{json.dumps({**_content_file(task.file, "data"), **_counts(task.file, stats)})}']
        if references:
            parts.append(f'"delete-file-references":{json.dumps(references)}')
        if residual is not None:
            parts.append(f'"residual-filter":{residual}')
        found.append(f"{{{','.join(parts)}}}")
    lists = [f'"delete-files":[{",".join(bodies)}]'] if bodies else []
    return ",".join([*lists, f'"file-scan-tasks":[{",".join(found)}]']).encode()


def _content_file(file: DataFile, content: str) -> dict[str, Any]:
    if content == _POSITIONS and file.content is not DataFileContent.POSITION_DELETES:
        raise _unsupported("Deletes by values are not planned by this server")
    return {
        "spec-id": file.spec_id or 0,
        "content": content,
        "file-path": file.file_path,
        "file-format": file.file_format.value.lower(),
        "partition": [file.partition[at] for at in range(len(file.partition))],
        "file-size-in-bytes": file.file_size_in_bytes,
        "record-count": file.record_count,
        **({"split-offsets": list(file.split_offsets)} if file.split_offsets and content == "data" else {}),
    }


def _counts(file: DataFile, stats: frozenset[int]) -> dict[str, Any]:
    if not stats:
        return {}
    found: dict[str, Any] = {}
    for name, attribute in _COUNTS.items():
        known = {key: value for key, value in (getattr(file, attribute) or {}).items() if key in stats}
        if known:
            found[name] = {"keys": list(known), "values": list(known.values())}
    return found


def _unsupported(message: str) -> Refused:
    return Refused(406, "UnsupportedOperationException", message)
