"""What other engines may change through our catalog.

A stream's table is the stream: consumers read its files, and compaction adds what producers have sent, at the offsets of the log. Other
engines may delete and rewrite rows, add columns and branches, and set properties. They may not:

- add rows: a snapshot has rows only at offsets that the table has had, and the branch `main` moves only to a snapshot with at most as many
  new rows as rows that are gone. An invented offset would collide with the record that gets this offset later;
- change columns so that compaction could not continue (`columns.py`);
- say about a file what its footer does not say, or place manifests or files outside of the table's folder;
- move the branch `main` to a version that is not a successor of the current one: the offsets in the properties say what it has;
- move the table, partition it, change its format's version, or change the properties that Bearlake and the object store rely on;
- name code in properties, or give snapshots numbers and times after which others could not commit or read;
- give names, ids and statistics that other engines cannot read, or that compaction cannot go on with (`readability.py`, `entries.py`).

Other tables may do all of this, inside their own folder. Pure, except for reading manifests and footers. Source: decisions 221, 222.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import update
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IntegerType, LongType

from bearlake.records.json_values import TooManyValues, check_values
from bearlake.table import schema
from bearlake.table.applied_tasks import read_applied_tasks
from bearlake.table.io import Locations
from bearlake.table.light import IGNORED
from bearlake.table.warehouse.columns import check_columns
from bearlake.table.warehouse.contents import Comparison, Difference
from bearlake.table.warehouse.footers import Contents, Footers
from bearlake.table.warehouse.model import Refused, forbidden
from bearlake.table.warehouse.readability import check_readable
from bearlake.table.warehouse.settings import WarehouseSettings

OWN_PREFIX: Final = "bearlake."
"""Prefix of properties that only Bearlake sets."""
FOLDER: Final = "lake/"
"""Prefix of the folders of tables that are no stream's."""
MAIN: Final = "main"
_CODE: Final = "impl"
"""End of the names of properties that name a class, which engines then load."""
_KEPT: Final = frozenset({"gc.enabled", "format-version", "write.data.path", "schema.name-mapping.default"})
_KEPT_PREFIXES: Final = ("commit.", "write.avro.", "write.metadata.", "write.object-storage.")
_FREE_PREFIX: Final = "write.metadata.metrics."
"""Properties of a stream's table that other engines may not change, and an exception: PyIceberg reads them when compaction commits, and a
value that it does not understand would stop the stream's compaction."""
_SKEW_MS: Final = 60_000
"""How far the clock of an engine may differ. Iceberg's Java library does not load a table whose history goes back by more."""
_FIRST_SNAPSHOT_ID: Final = 1
"""Java takes -1 for no snapshot."""
_UNCLEAR: Final = frozenset({"", ".", ".."})
"""Parts of keys by which one file has several names, or lies elsewhere."""
_SIMPLE: Final = (
    update.AddSchemaUpdate,
    update.SetCurrentSchemaUpdate,
    update.AddSortOrderUpdate,
    update.SetDefaultSortOrderUpdate,
    update.RemoveStatisticsUpdate,
)
"""Updates of a stream's table that need no check of their own: the schema is checked as a whole."""


def check_properties(names: Collection[str], *, is_stream: bool = False) -> None:
    """Refuse properties that other engines may not set."""
    for name in names:
        is_ours = name.startswith(OWN_PREFIX) or name in IGNORED or name.endswith(_CODE)
        if is_ours or (is_stream and _is_kept(name)):
            raise forbidden(f"the property {name} is Bearlake's; no engine may change it")


def _is_kept(name: str) -> bool:
    return name in _KEPT or (name.startswith(_KEPT_PREFIXES) and not name.startswith(_FREE_PREFIX))


def check_folder(location: str, locations: Locations, roots: Sequence[Locations] = ()) -> None:
    """Refuse the location of a table that is no stream's, unless it lies in our folder for such tables, or in a foreign root.

    Raises `Outside`."""
    for root in roots:
        if (key := root.key_or_none(location)) is not None and not _UNCLEAR & set(key.split("/")):
            return
    key = locations.key(location)
    if not key.startswith(FOLDER) or _UNCLEAR & set(key.rstrip("/").split("/")):
        raise forbidden(f"the location of a table must lie in {locations.location(FOLDER)}")


def check_stream_properties(updates: Sequence[Any]) -> None:
    """Refuse updates (Any: PyIceberg's closed union) of properties of a stream's table that other engines may not change."""
    for change in updates:
        if isinstance(change, update.SetPropertiesUpdate):
            check_properties(change.updates, is_stream=True)
        elif isinstance(change, update.RemovePropertiesUpdate):
            check_properties(change.removals, is_stream=True)


def check_other(updates: Sequence[Any], locations: Locations, roots: Sequence[Locations] = ()) -> None:
    """Refuse updates (Any: PyIceberg's closed union) of a table that is no stream's. Raises `Outside`."""
    for change in updates:
        if isinstance(change, update.SetLocationUpdate):
            check_folder(change.location, locations, roots)
        elif isinstance(change, update.SetPropertiesUpdate):
            check_properties(change.updates)


def check_size(metadata: bytes, settings: WarehouseSettings) -> None:
    """Raise `Refused` if the metadata of a table would be too large."""
    if len(metadata) > settings.metadata_bytes_max:
        raise forbidden(
            f"the table's metadata would have {len(metadata)} bytes; the limit is {settings.metadata_bytes_max} "
            "(catalog.warehouse.metadata_bytes_max)"
        )
    try:
        check_values("the table's metadata", metadata, settings.metadata_value_count_max)
    except TooManyValues as error:
        raise forbidden(f"{error} (catalog.warehouse.metadata_value_count_max)") from error


class StreamGuard:
    """Checks one commit to the table of a stream, of which `before` is the current version."""

    def __init__(
        self,
        before: TableMetadata,
        after: TableMetadata,
        files: FileIO,
        locations: Locations,
        footers: Footers,
        settings: WarehouseSettings,
        now_ms: int,
    ) -> None:
        """`after`: the version that the commit would make. `footers`: those of this commit's files."""
        self._now_ms = now_ms
        self._before = before
        self._after = after
        self._locations = locations
        self._footers = footers
        self._comparison = Comparison(after, files, locations, self._check_path, settings)
        self._folder = f"{locations.key(before.location)}/"
        self._ends = read_applied_tasks(before.properties).ends

    def check(self, updates: Sequence[Any]) -> None:
        """Raise `Refused` if the updates (Any: PyIceberg's closed union), after `check_stream_properties`, are not allowed."""
        check_readable(self._before, self._after)
        for change in updates:
            self._check_one(change)
        check_columns(self._before, self._after)
        self._check_main()

    def _check_one(self, change: Any) -> None:
        match change:
            case update.SetPropertiesUpdate() | update.RemovePropertiesUpdate():
                pass  # `check_stream_properties`, before PyIceberg applies them
            case update.UpgradeFormatVersionUpdate() if change.format_version == self._before.format_version:
                pass
            case update.SetLocationUpdate() if change.location.rstrip("/") == self._before.location.rstrip("/"):
                pass
            case update.AddPartitionSpecUpdate() if not change.spec.fields:
                pass
            case update.SetDefaultSpecUpdate() if not self._after.spec().fields:
                pass
            case update.AssignUUIDUpdate() if change.uuid == self._before.table_uuid:
                pass
            case update.SetStatisticsUpdate():
                self._check_path(change.statistics.statistics_path)
            case update.AddSnapshotUpdate():
                self._check_snapshot(change.snapshot)
            case update.SetSnapshotRefUpdate() if change.ref_name != MAIN or change.type == SnapshotRefType.BRANCH:
                pass  # `_check_main`
            case update.RemoveSnapshotRefUpdate() if change.ref_name != MAIN:
                pass
            case _ if not isinstance(change, _SIMPLE):
                raise forbidden(f"{change.action}: not possible for the table of a stream")

    def _check_main(self) -> None:
        current, moved = self._before.current_snapshot_id, self._after.current_snapshot_id
        snapshots = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in self._after.snapshots}
        seen: set[int] = set()
        while moved is not None and moved != current and moved not in seen:
            seen.add(moved)
            moved = snapshots.get(moved)
        if moved != current:
            raise forbidden("the branch main of a stream's table can only move to a successor of its current snapshot")
        target = self._after.current_snapshot()
        if target is not None and target.snapshot_id != current:
            found = self._comparison.difference(target, self._before.current_snapshot())
            self._check_files(found)
            added = sum(file.record_count for file in found.data)
            if added > found.removed_row_count:
                raise forbidden(
                    f"the commit adds {added} rows and takes away {found.removed_row_count}: rows of a stream come from its producers"
                )

    def _check_snapshot(self, snapshot: Snapshot) -> None:
        parent = None
        if snapshot.parent_snapshot_id is not None:
            parent = self._after.snapshot_by_id(snapshot.parent_snapshot_id)
            if parent is None:
                raise forbidden("the parent of a snapshot must be a snapshot of the table")
        self._check_numbers(snapshot)
        self._check_path(snapshot.manifest_list)
        self._check_files(self._comparison.difference(snapshot, parent))

    def _check_numbers(self, snapshot: Snapshot) -> None:
        """Refuse numbers after which the next commit, or another engine's reading, could fail."""
        last = 0 if isinstance(self._before, TableMetadataV1) else self._before.last_sequence_number
        count = len(self._after.snapshots) - len(self._before.snapshots)
        if not last < (snapshot.sequence_number or 0) <= last + count:
            raise forbidden(f"the sequence number of a snapshot must be the next one, {last + 1}")
        if snapshot.snapshot_id < _FIRST_SNAPSHOT_ID:
            raise forbidden("the id of a snapshot must be positive")
        if not self._before.last_updated_ms - _SKEW_MS <= snapshot.timestamp_ms <= self._now_ms + _SKEW_MS:
            raise forbidden(
                "the time of a snapshot must be between the table's last change and now; check the engine's clock"
            )

    def _check_files(self, found: Difference) -> None:
        files = (*found.data, *found.deletes)
        for file in files:
            self._check_path(file.file_path)
        for file in found.data:
            if file.record_count:
                self._check_offsets(file)
        for file, contents in self._footers.read(files):
            _check_contents(file, contents)

    def _check_path(self, path: str) -> None:
        key = self._locations.key_or_none(path)  # engines write the same place in several ways: file:/ and file:///
        if key is None or not key.startswith(self._folder) or _UNCLEAR & set(key.split("/")):
            raise forbidden(f"the file {path} does not lie in the folder of the table")

    def _check_offsets(self, file: DataFile) -> None:
        partitions = _bounds(file, schema.PARTITION_ID, IntegerType())
        offsets = _bounds(file, schema.OFFSET, LongType())
        if partitions is None or offsets is None:
            raise forbidden(
                f"the file {file.file_path} has no bounds of _partition_id and _offset: keep the table's write.metadata.metrics.*"
            )
        if partitions[1] - partitions[0] >= len(self._ends) or any(
            offsets[1] >= self._ends.get(index, 0) for index in range(partitions[0], partitions[1] + 1)
        ):
            raise forbidden(
                f"the file {file.file_path} has offsets up to {offsets[1]} of partitions {partitions[0]} to {partitions[1]}, "
                "which the table does not have yet: offsets of a stream are assigned to its producers' records"
            )
        if offsets[0] < 0:
            raise forbidden(f"the file {file.file_path} has negative offsets")


def _check_contents(file: DataFile, contents: Contents) -> None:
    """Refuse a file whose footer does not say what the commit says about it."""
    if contents.row_count != file.record_count:
        raise forbidden(
            f"the file {file.file_path} has {contents.row_count} rows, and the commit says {file.record_count}"
        )
    for name, type_, found in (
        (schema.PARTITION_ID, IntegerType(), contents.partitions),
        (schema.OFFSET, LongType(), contents.offsets),
    ):
        claimed = _bounds(file, name, type_)
        if found is not None and (claimed is None or found[0] < claimed[0] or found[1] > claimed[1]):
            raise forbidden(
                f"the file {file.file_path} has {name} from {found[0]} to {found[1]}, and the commit says otherwise"
            )


def _bounds(file: DataFile, column: str, type_: Any) -> tuple[int, int] | None:
    field_id = schema.FIELD_IDS[column]
    lower: Mapping[int, bytes] = file.lower_bounds or {}
    upper: Mapping[int, bytes] = file.upper_bounds or {}
    if field_id not in lower or field_id not in upper:
        return None
    return int(from_bytes(type_, lower[field_id])), int(from_bytes(type_, upper[field_id]))


__all__ = [
    "FOLDER",
    "Refused",
    "StreamGuard",
    "check_folder",
    "check_other",
    "check_properties",
    "check_stream_properties",
]
