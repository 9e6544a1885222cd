"""Keeps tables small: snapshot expiry, retention, and deletion of metadata files. Never deletes data files of streams (I7).

Upkeep deletes files in the table's `metadata/` folder that neither the table's metadata nor any of its snapshots names. Files that an
expiry has just released are deleted at once: only a commit based on an older version of the table could still name them, and such a
commit fails. Other unnamed files may belong to a running commit, so the table is fenced first: a commit that loaded the
table before the fence can no longer happen (decision 96). The grace period only avoids a fence for every running commit.

Not deleted: manifests and manifest lists of other engines, unless our expiry has released them. Spark and Flink reuse manifests that
they wrote earlier, and a fence does not exclude the first commit to a new branch, which replaces nothing. The first metadata file of a
creation that was lost or given up is deleted after the catalog has fenced the creation's permit (`creation.py`). A REST catalog has no
permits and writes first metadata files itself, so these files stay.

All functions block. Source: Apache Iceberg table spec, "Snapshot Retention Policy"; Java's `RemoveSnapshots`, by its docs.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final
from uuid import UUID

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotsUpdate
from pyiceberg.types import TimestamptzType

from bearlake.objects import ObjectInfo
from bearlake.table import schema
from bearlake.table.applied_tasks import STREAM_ID_PROPERTY, TASKS_SUMMARY
from bearlake.table.catalog import ConditionalCatalog
from bearlake.table.commit import FORMAT_VERSION, OURS_PREFIX, Attempt, Committer, reload
from bearlake.table.io import METADATA_SUFFIXES, Locations, StoreBridge
from bearlake.table.model import SnapshotSummary, TableState, TableSummary
from bearlake.table.names import MetadataNames

METADATA_JSON_SUFFIX: Final = ".metadata.json"
FIRST_VERSION_PREFIX: Final = "00000-"
"""Name prefix of a table's first metadata file, in PyIceberg and in Iceberg's Java library."""
_OURS: Final = re.compile(rf"(snap-\d+-\d+-)?{OURS_PREFIX}[^/]*\.avro")
"""Names of our manifests and manifest lists; each attempt of a commit writes its own."""


def live_files(table: Table, keys: Collection[str], names: MetadataNames) -> set[str]:
    """Return the `keys` that any snapshot of the table names, on any branch and by any writer."""
    missing, found = set(keys), set[str]()
    newest_first = sorted(table.metadata.snapshots, key=lambda snapshot: -snapshot.timestamp_ms)
    for named in names.files(table, newest_first):
        found |= missing & named
        missing -= named
        if not missing:
            break
    return found


def expire(
    table: Table,
    committer: Committer,
    names: MetadataNames,
    *,
    before_ms: int,
    keep_count_min: int,
    needed: Collection[int] = (),
) -> tuple[Table, set[str]]:
    """Remove old snapshots; return the table afterwards, and the locations of metadata files released by the removal.

    Keeps the heads of branches and tags, the history of branches other than main, the newest `keep_count_min` snapshots, and those whose
    ids are `needed`. A snapshot's age begins when another one replaces it. The commit requires that every branch and tag is unchanged.
    Otherwise a catalog would remove a branch whose snapshot expires; without its main branch, the table would be empty.
    """
    released: set[str] = set()  # of all attempts: an unanswered attempt may have succeeded

    def stage(transaction: Attempt) -> None:
        seen = table_of(transaction)
        old = _expirable(seen, before_ms, keep_count_min, committer.settings.snapshot_count_max)
        snapshots = [snapshot for snapshot in old if snapshot.snapshot_id not in needed]
        for snapshot in snapshots:
            released.add(snapshot.manifest_list)
            released.update(names.manifests(table, snapshot))
        if snapshots:
            ids = [snapshot.snapshot_id for snapshot in snapshots]
            heads = tuple(
                AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id})
                for name, ref in seen.metadata.refs.items()
            )
            transaction._apply((RemoveSnapshotsUpdate.model_validate({"snapshot-ids": ids}),), heads)

    return committer.repeat(table, stage), released


def released_files(table: Table, before: Sequence[Snapshot], names: MetadataNames) -> set[str]:
    """Return the keys of data files of a current table that an expiry has released. `before`: the snapshots before it.

    They are dead: no commit names a file that the snapshot before it does not name, except files of its own.
    """
    kept = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    expired = [snapshot for snapshot in before if snapshot.snapshot_id not in kept]
    if not expired:
        return set()
    found = {key for keys in names.files(table, expired) for key in keys}
    return found - {key for keys in names.files(table, table.metadata.snapshots) for key in keys}


def table_of(transaction: Attempt) -> Table:
    """Return an attempt's table, as loaded for it."""
    return transaction._table


def _expirable(table: Table, before_ms: int, keep_count_min: int, keep_count_max: int) -> list[Snapshot]:
    refs = table.metadata.refs
    protected = {ref.snapshot_id for ref in refs.values()}
    for name, ref in refs.items():
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH and name != "main":  # a user's branch keeps its history
            protected |= {snapshot.snapshot_id for snapshot in _ancestors(table, ref.snapshot_id)}
    newest_first = sorted(table.metadata.snapshots, key=lambda snapshot: -snapshot.timestamp_ms)
    replaced_ms = _replaced_ms(table)
    return [
        snapshot
        for number, snapshot in enumerate(newest_first)
        if snapshot.snapshot_id not in protected
        and number >= keep_count_min
        and (replaced_ms.get(snapshot.snapshot_id, snapshot.timestamp_ms) < before_ms or number >= keep_count_max)
    ]


def _replaced_ms(table: Table) -> dict[int, int]:
    """Return when each snapshot that was current was replaced (ms): until then, readers have begun to read it."""
    log = table.metadata.snapshot_log
    return {entry.snapshot_id: later.timestamp_ms for entry, later in pairwise(log)}


def _ancestors(table: Table, snapshot_id: int | None) -> Iterator[Snapshot]:
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    while snapshot_id is not None and (snapshot := by_id.get(snapshot_id)) is not None:
        yield snapshot
        snapshot_id = snapshot.parent_snapshot_id


def delete_unnamed(
    table: Table,
    listed: Collection[ObjectInfo],
    released: Collection[str],
    bridge: StoreBridge,
    committer: Committer,
    names: MetadataNames,
    *,
    before_ms: int,
) -> int:
    """Delete the metadata files in `listed` that the table does not name and no commit will name; return how many.

    Files other than `released` are candidates if they last changed before `before_ms`; the table is fenced before their deletion. `table`
    must have been loaded after `listed`.
    """
    released_keys = {bridge.locations.key_or_none(location) for location in released}
    suspects = [found for found in listed if found.key.endswith(METADATA_SUFFIXES)]
    unnamed = {found.key for found in suspects} - _named(table, bridge.locations, names)
    dead = unnamed & released_keys
    old = {found.key for found in suspects if found.modified_ms < before_ms and _is_fenced_off(found.key)}
    if (old & unnamed) - dead and table.metadata.format_version == FORMAT_VERSION:
        dead |= (old & unnamed) - _named(committer.fence(table), bridge.locations, names)
    first = {found.key for found in suspects if found.modified_ms < before_ms and is_first_version(found.key)}
    dead |= _never_created(table, first & unnamed, bridge.locations, names)
    if dead:
        bridge.delete(sorted(dead))
    return len(dead)


def is_first_version(key: str) -> bool:
    """Return whether the file is the first metadata file of a table, or of a creation that never succeeded."""
    name = key.rpartition("/")[2]
    return name.startswith(FIRST_VERSION_PREFIX) and name.endswith(METADATA_JSON_SUFFIX)


def _never_created(table: Table, first: set[str], locations: Locations, names: MetadataNames) -> set[str]:
    """Return the first metadata files that no table names or will name. Fences the stream's creations."""
    if not first or not isinstance(table.catalog, ConditionalCatalog):
        return set()
    table.catalog.creations.fence(UUID(table.metadata.properties[STREAM_ID_PROPERTY]))
    others = table.catalog.named_under(locations.key(table.metadata.location))
    return first - _named(reload(table), locations, names) - {locations.key_or_none(other) for other in others}


def _is_fenced_off(key: str) -> bool:
    """Return whether the file belongs to one attempt, which replaces one version: a fence then excludes all commits that may name it."""
    name = key.rpartition("/")[2]
    if name.endswith(METADATA_JSON_SUFFIX):
        return not is_first_version(key)
    return _OURS.fullmatch(name) is not None


def _named(table: Table, locations: Locations, names: MetadataNames) -> set[str | None]:
    """Return the keys of the metadata files that the table and its snapshots name."""
    return {locations.key_or_none(location) for location in _metadata_locations(table, names)}


def _metadata_locations(table: Table, names: MetadataNames) -> Iterator[str]:
    metadata = table.metadata
    yield table.metadata_location
    for entry in metadata.metadata_log:
        yield entry.metadata_file
    for statistics in (*metadata.statistics, *metadata.partition_statistics):
        yield statistics.statistics_path
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
        yield from names.manifests(table, snapshot)


def delete_before(table: Table, committer: Committer, timestamp_ms: int) -> int:
    """Remove data files whose newest `_timestamp` is known and older; return how many. No commit if there are none."""
    count = 0

    def stage(transaction: Attempt) -> None:
        nonlocal count
        old = [
            key for key, newest_ms in _newest(table_of(transaction), committer.locations) if newest_ms < timestamp_ms
        ]
        if old or count == 0:  # after a lost reply nothing is left to do, but the count stays
            count = len(old)
        if old:
            summary = {TASKS_SUMMARY: "{}"}
            transaction.stage_replace([], old, committer.locations, summary, Operation.DELETE)

    committer.repeat(table, stage)
    return count


def _newest(table: Table, locations: Locations) -> Iterator[tuple[str, int]]:
    """Yield (key, newest timestamp in ms) of every data file that has one and is in our store."""
    snapshot = table.current_snapshot()
    timestamp = schema.FIELD_IDS[schema.TIMESTAMP]
    for manifest in snapshot.manifests(table.io) if snapshot else []:
        if manifest.content != ManifestContent.DATA:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            bound = (entry.data_file.upper_bounds or {}).get(timestamp)
            key = locations.key_or_none(entry.data_file.file_path)
            if bound is not None and key is not None:
                yield key, int(from_bytes(TimestamptzType(), bound)) // 1000


def summary(table: Table, state: TableState) -> TableSummary:
    """Return statistics of a table, from its current snapshot's summary and manifest list."""
    current = table.current_snapshot()
    manifests = current.manifests(table.io) if current else []
    data_manifests = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]
    properties = _properties(current) if current else {}
    return TableSummary(
        state=state,
        file_count=sum((m.added_files_count or 0) + (m.existing_files_count or 0) for m in data_manifests),
        row_count=sum((m.added_rows_count or 0) + (m.existing_rows_count or 0) for m in data_manifests),
        size_bytes=int(properties.get("total-files-size", 0)),
        manifest_count=len(manifests),
        snapshots=[_snapshot_summary(snapshot) for snapshot in table.metadata.snapshots],
    )


def _snapshot_summary(snapshot: Snapshot) -> SnapshotSummary:
    properties = _properties(snapshot)
    return SnapshotSummary(
        snapshot_id=snapshot.snapshot_id,
        timestamp_ms=snapshot.timestamp_ms,
        operation=snapshot.summary.operation.value if snapshot.summary else "",
        added_files=int(properties.get("added-data-files", 0)),
        added_rows=int(properties.get("added-records", 0)),
        deleted_files=int(properties.get("deleted-data-files", 0)),
    )


def _properties(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary else {}
