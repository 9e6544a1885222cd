"""The data files and deletes by which one snapshot differs from its parent. Blocks: reads the manifests that only one of them names.

Each file is checked before a library decodes it (`avro.py`). Source: Iceberg table spec, "Manifests", "Sequence Number Inheritance".
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pyiceberg.exceptions import ResolveError
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    read_manifest_list,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from typing_extensions import override

from bearlake.table import schema
from bearlake.table.io import Locations
from bearlake.table.warehouse.avro import Budget, plain
from bearlake.table.warehouse.entries import EntryRules
from bearlake.table.warehouse.model import forbidden
from bearlake.table.warehouse.settings import WarehouseSettings

_UNDECODABLE = (
    *(ResolveError, ValueError, TypeError, LookupError, AttributeError, EOFError, RecursionError),
    *(NotImplementedError, OverflowError),
)
"""What PyIceberg raises for an Avro file that is none of Iceberg's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Files that a snapshot adds, and how many rows it takes away."""

    data: tuple[DataFile, ...]
    deletes: tuple[DataFile, ...]
    removed_row_count: int
    """Rows of data files that it no longer names, and entries of the delete files that it adds."""


class Comparison:
    """Compares snapshots of one table, whose newest version is `metadata`. `check_path` raises `Refused` for a manifest that the table may
    not name."""

    def __init__(
        self,
        metadata: TableMetadata,
        files: FileIO,
        locations: Locations,
        check_path: Callable[[str], None],
        settings: WarehouseSettings,
    ) -> None:
        self._rules = EntryRules(metadata)
        self._files = _PlainFiles(files, settings)
        self._locations = locations
        self._check_path = check_path
        self._known: dict[tuple[int, int | None], Difference] = {}

    def difference(self, snapshot: Snapshot, parent: Snapshot | None) -> Difference:
        """Return how `snapshot` differs from `parent`; None: from an empty table.

        Raises:
            Refused: a new manifest is in a wrong place, or names a file twice, or describes a file otherwise than the parent does;
                the manifests to read are too large; readers could not read what they say, or would see other rows of later commits.
        """
        ids = snapshot.snapshot_id, None if parent is None else parent.snapshot_id
        if ids not in self._known:
            self._known[ids] = self._compared(snapshot, parent)
        return self._known[ids]

    def _compared(self, snapshot: Snapshot, parent: Snapshot | None) -> Difference:
        after, before = self._manifests(snapshot), {} if parent is None else self._manifests(parent)
        for key in after.keys() & before.keys():
            if _role(after[key]) != _role(before[key]):
                raise forbidden(f"the commit lists {after[key].manifest_path} otherwise than the table does")
        added_manifests = [after[key] for key in after.keys() - before.keys()]
        removed_manifests = [before[key] for key in before.keys() - after.keys()]
        for manifest in added_manifests:
            self._check_path(manifest.manifest_path)
            self._rules.check_manifest(manifest, snapshot)
        new, old = self._live(added_manifests, snapshot), self._live(removed_manifests, None)
        for key in new.keys() & old.keys():
            if _claims(new[key]) != _claims(old[key]):
                path = new[key].data_file.file_path
                raise forbidden(f"the commit describes the file {path} otherwise than the table does")
        added = [entry.data_file for key, entry in new.items() if key not in old]
        data = tuple(file for file in added if file.content == DataFileContent.DATA)
        deletes = tuple(file for file in added if file.content != DataFileContent.DATA)
        lost = [entry.data_file for key, entry in old.items() if key not in new]
        gone = [file for file in lost if file.content == DataFileContent.DATA]
        removed = sum(file.record_count for file in (*gone, *deletes))
        return Difference(data=data, deletes=deletes, removed_row_count=removed)

    def _manifests(self, snapshot: Snapshot) -> Mapping[str, ManifestFile]:
        """Return a snapshot's manifests by object key, since engines write one place in several ways."""
        path = snapshot.manifest_list
        with _decoding(path):
            listed = list(read_manifest_list(self._files.new_input(path)))
        found = {self._key(manifest.manifest_path): manifest for manifest in listed}
        if len(found) < len(listed):
            raise forbidden(f"{path} lists a manifest twice")
        return found

    def _live(self, manifests: Iterable[ManifestFile], adding: Snapshot | None) -> Mapping[str, ManifestEntry]:
        """Return the entries of manifests by their file's object key. `adding`: the snapshot that adds the manifests; None: it had them."""
        found: dict[str, ManifestEntry] = {}
        for manifest in manifests:
            is_of_data = manifest.content == ManifestContent.DATA
            with _decoding(manifest.manifest_path):
                entries = manifest.fetch_manifest_entry(self._files, discard_deleted=True)
            if adding is not None:
                self._rules.check_length(manifest, self._files.size(manifest.manifest_path))
            for entry in entries:
                path = entry.data_file.file_path
                key = self._key(path)
                if adding is not None:
                    self._rules.check_entry(entry, adding)
                if adding is not None and key in found:
                    raise forbidden(f"the commit names the file {path} twice")
                if adding is not None and (entry.data_file.content == DataFileContent.DATA) != is_of_data:
                    raise forbidden(
                        f"{manifest.manifest_path} has {path} as data, and is listed as one of deletes, or reversed"
                    )
                found[key] = entry
        return found

    def _key(self, path: str) -> str:
        return self._locations.key_or_none(path) or path


class _PlainFiles(FileIO):
    """The Avro files of one commit, within its limits, as `avro.plain` returns them. Each file counts as often as it is read."""

    def __init__(self, files: FileIO, settings: WarehouseSettings) -> None:
        super().__init__()
        self._files = files
        self._bytes_left = self._bytes_max = settings.manifest_bytes_max
        self._budget = Budget(settings.manifest_expanded_bytes_max, settings.manifest_value_count_max)
        self._sizes: dict[str, int] = {}

    def size(self, location: str) -> int:
        """Return the size of a file that was read."""
        return self._sizes[location]

    @override
    def new_input(self, location: str) -> InputFile:
        found = self._files.new_input(location)
        try:
            self._sizes[location] = size = len(found)
            self._bytes_left -= size
        except FileNotFoundError as error:
            raise forbidden(f"the file {location} does not exist") from error
        if self._bytes_left < 0:
            raise forbidden(
                f"the manifests of the commit have more than {self._bytes_max} bytes (catalog.warehouse.manifest_bytes_max)"
            )
        with found.open() as stream:
            content = stream.read()
        return _Plain(location, plain(content, location, self._budget))

    @override
    def new_output(self, location: str) -> OutputFile:
        raise PermissionError(f"{location} can only be read")

    @override
    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise PermissionError(f"{location} can only be read")


class _Plain(InputFile):
    def __init__(self, location: str, content: bytes) -> None:
        super().__init__(location)
        self._content = content

    def __len__(self) -> int:
        return len(self._content)

    @override
    def exists(self) -> bool:
        return True

    @override
    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self._content)


@contextmanager
def _decoding(path: str) -> Iterator[None]:
    try:
        yield
    except _UNDECODABLE as error:
        raise forbidden(f"{path} cannot be read: {error}"[:300]) from error


def _role(manifest: ManifestFile) -> tuple[object, ...]:
    """What a list says about a manifest that decides which rows readers see, and whether they can read it."""
    return manifest.content, manifest.sequence_number, manifest.partition_spec_id, manifest.manifest_length


def _claims(entry: ManifestEntry) -> tuple[object, ...]:
    """What a manifest says about a file that the checks rely on, or that decides which rows readers see."""
    file = entry.data_file
    ids = [schema.FIELD_IDS[name] for name in (schema.PARTITION_ID, schema.OFFSET)]
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    bounds = ((lower.get(number), upper.get(number)) for number in ids)
    size = file.record_count, file.file_size_in_bytes
    return file.content, file.file_format, entry.sequence_number, *size, *bounds
