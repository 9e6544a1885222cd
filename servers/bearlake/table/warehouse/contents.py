"""The data files and deletes by which one snapshot differs from its parent. Blocks: reads the manifests that only one of them names."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, ManifestFile
from pyiceberg.table.snapshots import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Files that a snapshot adds, and how many rows it takes away."""

    data: tuple[DataFile, ...]
    deletes: tuple[DataFile, ...]
    removed_row_count: int
    """Rows of data files that it no longer names, and entries of the delete files that it adds."""


def difference(snapshot: Snapshot, parent: Snapshot | None, files: FileIO) -> Difference:
    """Return how `snapshot` differs from `parent`; None: from an empty table."""
    after = {manifest.manifest_path: manifest for manifest in snapshot.manifests(files)}
    before = {} if parent is None else {manifest.manifest_path: manifest for manifest in parent.manifests(files)}
    new = _live((after[path] for path in after.keys() - before.keys()), files)
    old = _live((before[path] for path in before.keys() - after.keys()), files)
    added = [file for path, file in new.items() if path not in old]
    data = tuple(file for file in added if file.content == DataFileContent.DATA)
    deletes = tuple(file for file in added if file.content != DataFileContent.DATA)
    gone = [file for path, file in old.items() if path not in new and file.content == DataFileContent.DATA]
    removed = sum(file.record_count for file in (*gone, *deletes))
    return Difference(data=data, deletes=deletes, removed_row_count=removed)


def _live(manifests: Iterable[ManifestFile], files: FileIO) -> Mapping[str, DataFile]:
    return {
        entry.data_file.file_path: entry.data_file
        for manifest in manifests
        for entry in manifest.fetch_manifest_entry(files, discard_deleted=True)
    }
