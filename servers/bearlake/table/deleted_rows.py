"""Data files from which another engine has deleted rows with delete files (merge on read): whoever reads whole files must refuse them.

Source: Apache Iceberg table spec, "Delete Formats".
"""

from collections.abc import Collection, Iterable

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import DataScan

from bearlake.table.io import Locations
from bearlake.table.model import Unmergeable


def refuse_deleted_rows(
    scan: DataScan, manifests: Iterable[ManifestFile], keys: Collection[str], locations: Locations
) -> None:
    """Refuse to read whole files with deleted rows, which would come back. `keys`: the files; `scan`, `manifests`: of the same snapshot.

    Raises `Unmergeable`.
    """
    if not keys or not any(manifest.content == ManifestContent.DELETES for manifest in manifests):
        return
    for task in scan.plan_files():
        if task.delete_files and locations.key_or_none(task.file.file_path) in keys:
            raise Unmergeable(
                f"another engine has deleted rows of {task.file.file_path}:"
                " let that engine rewrite the file without them (Spark: rewrite_data_files)"
            )
