"""Copies of tables in backups, and the return of a table to its copy.

A copy is the table's metadata as of the moment of the backup, reduced to its current snapshot. The manifests and data files of this
snapshot stay where they are: the backup's hold keeps them (`compaction/holds.py`).

A table may have changed since the copy of the metadata store was made. `is_known` decides about a version of the table: the newest version
with which the copied metadata store agrees belongs to the copy. The table still lists its last versions, so this is looked up, not waited
for.

To return a table to its copy, the catalog forgets the table and registers the copy under the table's name. If the process dies in between,
a repeat registers it. The rows that the table had beyond the copy are gone with that.

All functions block, except `copy`, `missing_files` and `put_back`.

Source: Apache Iceberg table spec, "Table Metadata", "File System Tables".
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.exceptions import NamespaceAlreadyExistsError, TableAlreadyExistsError
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from sqlalchemy.exc import IntegrityError

from bearlake.errors import Conflict, Corrupt
from bearlake.metadata.model import Stream
from bearlake.table.applied_tasks import AppliedTasks, read_applied_tasks
from bearlake.table.commit import table_name
from bearlake.table.iceberg import IcebergTables
from bearlake.table.lookup import Lookup
from bearlake.table.naming import table_identifiers


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCopy:
    """A table in a backup: its name in the catalog, its metadata as JSON, and its snapshot (-1: none)."""

    namespace: str
    name: str
    metadata: str
    snapshot_id: int


async def copy(tables: IcebergTables, stream: Stream, is_known: Callable[[AppliedTasks], bool]) -> TableCopy | None:
    """Return a copy of the stream's table in its newest version that `is_known`; None if it has no table.

    Raises:
        Conflict: none of the table's last versions is known.
        Unavailable: the catalog or the object store did not answer.
    """

    def copy_now() -> TableCopy | None:
        table = tables.lookup().find(stream)
        if table is None:
            return None
        for metadata in _versions(table):
            if is_known(read_applied_tasks(metadata.properties)):
                namespace, name = table.name()[0], table.name()[-1]
                reduced = _reduced(metadata)
                return TableCopy(
                    namespace=namespace,
                    name=name,
                    metadata=reduced.model_dump_json(exclude_none=True),
                    snapshot_id=-1 if reduced.current_snapshot_id is None else reduced.current_snapshot_id,
                )
        raise Conflict(f"table {table_name(table)} has changed too often since the copy of the metadata store was made")

    return await tables.run(stream.name, copy_now)


async def missing_files(tables: IcebergTables, desired: TableCopy) -> list[str]:
    """Return the locations of metadata files that the copy's snapshot needs and that are not there.

    Data files are not looked for: they are objects of the log.

    Raises:
        Corrupt: the copy cannot be read.
        Unavailable: the catalog or the object store did not answer.
    """

    def missing_now() -> list[str]:
        metadata = _parsed(desired)
        snapshot = metadata.current_snapshot()
        if snapshot is None:
            return []
        files = tables.lookup().catalog._load_file_io(location=metadata.location)
        if not files.new_input(snapshot.manifest_list).exists():
            return [snapshot.manifest_list]
        paths = [manifest.manifest_path for manifest in snapshot.manifests(files)]
        return [path for path in paths if not files.new_input(path).exists()]

    return await tables.run(desired.name, missing_now)


async def put_back(tables: IcebergTables, stream: Stream, desired: TableCopy | None) -> bool:
    """Return the stream's table to `desired` (None: it has no table), and whether it had changed. Safe to repeat.

    Raises:
        Conflict: other tables have the names that the table may have.
        Corrupt: the copy cannot be read.
        Unavailable: outcome unknown. Call again.
    """

    def put_back_now() -> bool:
        lookup = tables.lookup()
        table = lookup.find(stream)
        if desired is None:
            lookup.drop(stream)
            return table is not None
        metadata = _parsed(desired)
        if table is not None and _is_same(table.metadata, metadata):
            return False
        _register(lookup, stream, table, metadata, desired)
        return True

    return await tables.run(stream.name, put_back_now)


def _versions(table: Table) -> Iterator[TableMetadata]:
    """Yield the table's metadata, newest version first, as far back as the table lists them."""
    yield table.metadata
    for entry in reversed(table.metadata.metadata_log):
        try:
            yield FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))
        except FileNotFoundError:
            return  # a later commit deleted it


def _reduced(metadata: TableMetadata) -> TableMetadata:
    """Return the metadata with its current snapshot only: the files of older snapshots may go."""
    current = metadata.current_snapshot_id
    return metadata.model_copy(
        update={
            "snapshots": [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id == current],
            "snapshot_log": [entry for entry in metadata.snapshot_log if entry.snapshot_id == current][-1:],
            "metadata_log": [],
            "refs": {name: ref for name, ref in metadata.refs.items() if name == "main"},
            "statistics": [],
            "partition_statistics": [],
        }
    )


def _parsed(desired: TableCopy) -> TableMetadata:
    try:
        return TableMetadataUtil.parse_raw(desired.metadata)
    except ValueError as error:
        raise Corrupt(f"the copy of table {desired.namespace}.{desired.name} cannot be read") from error


def _is_same(now: TableMetadata, desired: TableMetadata) -> bool:
    return (
        now.table_uuid == desired.table_uuid
        and now.current_snapshot_id == desired.current_snapshot_id
        and now.properties == desired.properties
        and now.current_schema_id == desired.current_schema_id
        and now.last_column_id == desired.last_column_id
    )


def _register(lookup: Lookup, stream: Stream, table: Table | None, metadata: TableMetadata, desired: TableCopy) -> None:
    """Register the metadata under the table's name of today, else under its name in the backup, else under its second name."""
    names = [(desired.namespace, desired.name), table_identifiers(stream)[1]]
    if table is not None:
        names.insert(0, (table.name()[0], table.name()[-1]))
        lookup.drop(stream)
    location = f"{metadata.location.rstrip('/')}/metadata/00001-{uuid.uuid4()}.metadata.json"
    files = lookup.catalog._load_file_io(location=location)
    ToOutputFile.table_metadata(metadata, files.new_output(location))
    for namespace, name in names:
        with suppress(NamespaceAlreadyExistsError, IntegrityError):
            lookup.catalog.create_namespace_if_not_exists(namespace)
        with suppress(TableAlreadyExistsError):
            lookup.catalog.register_table((namespace, name), location)
            return
    raise Conflict(f"stream {stream.name}: the names {names} belong to other tables; drop or rename one of them")
