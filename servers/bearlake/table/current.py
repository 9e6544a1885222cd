"""Current tables in an Iceberg catalog: what a round needs to know, and its commit.

A round reads one snapshot of the stream's table and one of the current table, and its commit requires that it is still the same table
with the same snapshot. So of two rounds from the same snapshot one commits, whatever their workers believe about their leases, and each
commit is right: what it says follows from the snapshots that it has read. A fence gives the table a new snapshot, so files of a round
that began before it can be deleted. A repeated commit finds its round's id in the table's properties.

All functions but the methods of `IcebergCurrentTables` block. Source: Apache Iceberg table spec, "Partitioning", "Optimistic Concurrency".
"""

from collections.abc import Iterator
from uuid import UUID

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import ManifestContent, ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType
from typing_extensions import override

from bearlake.errors import Conflict
from bearlake.metadata.model import Stream
from bearlake.table.applied_tasks import read_applied_tasks
from bearlake.table.column_iceberg import column_ids, stage_fields
from bearlake.table.commit import Attempt, Committer, table_name
from bearlake.table.current_model import (
    CurrentChange,
    CurrentFile,
    CurrentStore,
    CurrentView,
    SourceFile,
    read_state,
    state_properties,
)
from bearlake.table.deleted_rows import refuse_deleted_rows
from bearlake.table.iceberg import IcebergTables
from bearlake.table.io import Locations
from bearlake.table.layouts import bucket_count
from bearlake.table.manifest_entries import iceberg_file
from bearlake.table.schema import BATCH, FIELD_IDS, OFFSET, PARTITION_ID

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1


class IcebergCurrentTables(CurrentStore):
    """The current tables in an Iceberg catalog."""

    def __init__(self, tables: IcebergTables) -> None:
        """The caller keeps ownership of `tables`."""
        self._tables = tables

    @override
    async def view(self, stream: Stream, derived: Stream) -> CurrentView | None:
        def view() -> CurrentView | None:
            lookup = self._tables.lookup()
            table, source = lookup.find(derived), lookup.find(stream)  # in this order: the source is never older
            if table is None or source is None:
                return None
            return _view(table, source, self._tables.locations)

        return await self._tables.run(derived.name, view)

    @override
    async def commit(self, derived: Stream, change: CurrentChange) -> None:
        def commit() -> None:
            table = self._tables.lookup().find(derived)
            if table is None:
                raise Conflict(f"the table of {derived.name} was dropped")
            _commit(table, self._tables.committer, change)

        await self._tables.run(derived.name, commit)


def _view(table: Table, source: Table, locations: Locations) -> CurrentView:
    state = read_state(table.metadata.properties)
    snapshot = source.current_snapshot()
    read = -1 if state is None or UUID(state.source) != source.metadata.table_uuid else state.sequence
    sources = list(_sources(source, locations, read))
    manifests = snapshot.manifests(source.io) if snapshot else []
    refuse_deleted_rows(source.scan(), manifests, {file.key for file in sources}, locations)
    return CurrentView(
        table=str(table.metadata.table_uuid),
        column_ids=column_ids(table.metadata.properties),
        location_key=locations.key(table.metadata.location),
        snapshot_id=table.metadata.current_snapshot_id,
        starts=read_applied_tasks(table.metadata.properties).ends,
        ends=read_applied_tasks(source.metadata.properties).ends,
        sources=sources,
        files=list(_files(table, locations)),
        state=state,
        bucket_count=bucket_count(table),
        source=str(source.metadata.table_uuid),
        source_snapshot=-1 if snapshot is None else snapshot.snapshot_id,
        sequence=-1 if snapshot is None or snapshot.sequence_number is None else snapshot.sequence_number,
    )


def _sources(source: Table, locations: Locations, read: int) -> Iterator[SourceFile]:
    """Yield the data files with a sequence number larger than `read`."""
    for entry in _entries(source, read):
        file = entry.data_file
        lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
        index, offset = FIELD_IDS[PARTITION_ID], FIELD_IDS[OFFSET]
        key = locations.key_or_none(file.file_path)
        if key is None:
            raise Conflict(f"table {table_name(source)} has a data file outside the object store: {file.file_path}")
        yield SourceFile(
            key=key,
            size=file.file_size_in_bytes,
            partition_min=int(from_bytes(IntegerType(), lower[index])) if index in lower else 0,
            partition_max=int(from_bytes(IntegerType(), upper[index])) if index in upper else _INT_MAX,
            offset_min=int(from_bytes(LongType(), lower[offset])) if offset in lower else 0,
            offset_max=int(from_bytes(LongType(), upper[offset])) if offset in upper else _LONG_MAX,
        )


def _files(table: Table, locations: Locations) -> Iterator[CurrentFile]:
    for entry in _entries(table, -1):
        file = entry.data_file
        key, bucket = locations.key_or_none(file.file_path), file.partition[0]
        yield CurrentFile(key=key or "", size=file.file_size_in_bytes, bucket=-1 if bucket is None else bucket)


def _entries(table: Table, read: int) -> Iterator[ManifestEntry]:
    """Yield the live data files of the current snapshot with a sequence number larger than `read`."""
    snapshot = table.current_snapshot()
    for manifest in snapshot.manifests(table.io) if snapshot else []:
        if manifest.content != ManifestContent.DATA or manifest.sequence_number <= read:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            if entry.sequence_number is None or entry.sequence_number > read:
                yield entry


def _commit(table: Table, committer: Committer, change: CurrentChange) -> None:
    """Commit as `CurrentStore.commit` does."""
    own = state_properties(change.ends, change.state)

    def stage(transaction: Attempt) -> None:
        metadata = transaction.table_metadata
        known = read_state(metadata.properties)
        if known is not None and known.round == change.state.round:
            return  # an earlier attempt succeeded
        if str(metadata.table_uuid) != change.table:
            raise Conflict(f"{table_name(table)}: the table was made anew")
        if metadata.current_snapshot_id != change.snapshot_id:
            raise Conflict(f"{table_name(table)}: another round was first, or the table was fenced")
        stage_fields(transaction, change.columns, dropped_id=FIELD_IDS[BATCH])
        transaction.set_properties(own)
        added = [
            iceberg_file(transaction.table_metadata, committer.locations, file, Record(bucket))
            for file, bucket in change.added
        ]
        transaction.stage_replace(added, change.removed, committer.locations, own, Operation.OVERWRITE)

    committer.repeat(table, stage)
