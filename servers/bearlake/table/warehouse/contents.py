"""The data files and deletes by which one snapshot differs from its parent. Blocks: reads the manifests that only one of them names."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, ManifestFile
from pyiceberg.table.snapshots import Snapshot

from bearlake.table import schema
from bearlake.table.io import Locations
from bearlake.table.warehouse.model import forbidden


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Files that a snapshot adds, and how many rows it takes away."""

    data: tuple[DataFile, ...]
    deletes: tuple[DataFile, ...]
    removed_row_count: int
    """Rows of data files that it no longer names, and entries of the delete files that it adds."""


class Comparison:
    """Compares snapshots of one table. `check_path` raises `Refused` for a manifest that the table may not name."""

    def __init__(
        self, files: FileIO, locations: Locations, check_path: Callable[[str], None], manifest_bytes_max: int
    ) -> None:
        self._files = files
        self._locations = locations
        self._check_path = check_path
        self._bytes_max = manifest_bytes_max

    def difference(self, snapshot: Snapshot, parent: Snapshot | None) -> Difference:
        """Return how `snapshot` differs from `parent`; None: from an empty table.

        Raises:
            Refused: a new manifest is in a wrong place, or names a file twice, or describes a file otherwise than the parent does;
                the manifests to read are too large.
        """
        after = {manifest.manifest_path: manifest for manifest in snapshot.manifests(self._files)}
        before = (
            {} if parent is None else {manifest.manifest_path: manifest for manifest in parent.manifests(self._files)}
        )
        added_manifests = [after[path] for path in after.keys() - before.keys()]
        removed_manifests = [before[path] for path in before.keys() - after.keys()]
        for manifest in added_manifests:
            self._check_path(manifest.manifest_path)
        self._check_bytes((*added_manifests, *removed_manifests))
        new, old = self._live(added_manifests, is_new=True), self._live(removed_manifests, is_new=False)
        for key in new.keys() & old.keys():
            if _claims(new[key]) != _claims(old[key]):
                raise forbidden(f"the commit describes the file {new[key].file_path} otherwise than the table does")
        added = [file for key, file in new.items() if key not in old]
        data = tuple(file for file in added if file.content == DataFileContent.DATA)
        deletes = tuple(file for file in added if file.content != DataFileContent.DATA)
        gone = [file for key, file in old.items() if key not in new and file.content == DataFileContent.DATA]
        removed = sum(file.record_count for file in (*gone, *deletes))
        return Difference(data=data, deletes=deletes, removed_row_count=removed)

    def _check_bytes(self, manifests: Iterable[ManifestFile]) -> None:
        size = sum(len(self._files.new_input(manifest.manifest_path)) for manifest in manifests)
        if size > self._bytes_max:
            raise forbidden(
                f"the manifests of the commit have {size} bytes, more than {self._bytes_max} (catalog.warehouse.manifest_bytes_max)"
            )

    def _live(self, manifests: Iterable[ManifestFile], *, is_new: bool) -> Mapping[str, DataFile]:
        """Return the files of manifests by object key, since engines write one place in several ways."""
        found: dict[str, DataFile] = {}
        for manifest in manifests:
            for entry in manifest.fetch_manifest_entry(self._files, discard_deleted=True):
                file = entry.data_file
                key = self._locations.key_or_none(file.file_path) or file.file_path
                if is_new and key in found:
                    raise forbidden(f"the commit names the file {file.file_path} twice")
                found[key] = file
        return found


def _claims(file: DataFile) -> tuple[object, ...]:
    """What a manifest says about a file that the checks rely on."""
    ids = [schema.FIELD_IDS[name] for name in (schema.PARTITION_ID, schema.OFFSET)]
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    bounds = ((lower.get(number), upper.get(number)) for number in ids)
    return file.content, file.file_format, file.record_count, file.file_size_in_bytes, *bounds
