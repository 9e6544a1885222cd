"""Data files from which another engine has deleted rows with delete files (merge on read): whoever reads whole files must refuse them.

    deletes by position, also deletion vectors    they name their files
    deletes by value (equality deletes)           any file that is older than the delete may have such rows

Our REST catalog takes no deletes by value; other catalogs do. PyIceberg cannot read a table that has some.
Source: Apache Iceberg table spec, "Delete Formats" and "Scan Planning".
"""

from collections.abc import Collection, Sequence

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import DataScan, FileScanTask, ManifestGroupPlanner

from bearlake.errors import Unsupported
from bearlake.table.io import Locations
from bearlake.table.model import Unmergeable


def planned_files(scan: DataScan) -> list[FileScanTask]:
    """Return the scan's files with their deletes by position. Raises `Unsupported` if the table has deletes by value."""
    snapshot = scan.snapshot()
    manifests = snapshot.manifests(scan.io) if snapshot else []
    if _newest_by_value(manifests, scan.io) >= 0:
        raise Unsupported(
            "another engine has deleted rows by their values (equality deletes), which Bearlake cannot read:"
            f" {_WHAT_HELPS}"
        )
    return list(scan.plan_files())


def refuse_deleted_rows(
    scan: DataScan, manifests: Sequence[ManifestFile], keys: Collection[str], locations: Locations
) -> None:
    """Refuse to read whole files with deleted rows, which would come back. `keys`: the files; `scan`, `manifests`: of the same snapshot.

    Raises `Unmergeable`.
    """
    if not keys or not any(manifest.content == ManifestContent.DELETES for manifest in manifests):
        return
    newest = _newest_by_value(manifests, scan.io)
    for manifest in manifests:
        if manifest.content == ManifestContent.DATA and manifest.min_sequence_number < newest:
            for entry in manifest.fetch_manifest_entry(scan.io):
                if (entry.sequence_number or 0) < newest:
                    _refuse_among(keys, entry.data_file.file_path, locations)
    planner = ManifestGroupPlanner(table_metadata=scan.table_metadata, io=scan.io)
    for task in planner.plan_files(manifests, lambda entry: not _is_by_value(entry)):
        if task.delete_files:
            _refuse_among(keys, task.file.file_path, locations)


def _refuse_among(keys: Collection[str], path: str, locations: Locations) -> None:
    if locations.key_or_none(path) in keys:
        raise Unmergeable(f"another engine has deleted rows of {path}: {_WHAT_HELPS}")


_WHAT_HELPS = (
    "let that engine rewrite the files without these rows (Spark: rewrite_data_files with the option rewrite-all=true)"
)


def _newest_by_value(manifests: Sequence[ManifestFile], io: FileIO) -> int:
    """Return the sequence number of the newest delete by value, -1: none. It concerns files with a smaller number."""
    deletes = (manifest for manifest in manifests if manifest.content == ManifestContent.DELETES)
    entries = (entry for manifest in deletes for entry in manifest.fetch_manifest_entry(io))
    return max((entry.sequence_number or 0 for entry in entries if _is_by_value(entry)), default=-1)


def _is_by_value(entry: ManifestEntry) -> bool:
    return bool(entry.data_file.content == DataFileContent.EQUALITY_DELETES)
