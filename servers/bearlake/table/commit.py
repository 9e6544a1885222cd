"""Appends and replaces data files, exactly once: load → read the applied tasks → commit if the table is unchanged → else repeat.

One Iceberg commit contains the files, the applied tasks (table properties) and up to two snapshots: an append, and a replacement (MERGE:
files added and removed; an overwrite if rows go). A commit without rows still creates an (empty) snapshot, because the condition is the
current snapshot. PyIceberg retries on fresh metadata without reading the applied tasks, so a fenced worker would append twice; its retry
is not used.

After any failure, the table is loaded again and its applied tasks decide. The manifests of a failed attempt are deleted only if a later
load shows the table without them; `upkeep.py` handles the rest. All functions block.
Source: Apache Iceberg table spec, "Snapshots", "Manifests", "Optimistic Concurrency"; PyIceberg 0.12, `table/update/snapshot.py`.
"""

import logging
import random
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias
from uuid import UUID, uuid4

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AssertTableUUID
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _SnapshotProducer
from pyiceberg.typedef import EMPTY_DICT

from bearlake.errors import BearlakeError, Conflict, NotFound, Unavailable
from bearlake.table.applied_tasks import TASKS_SUMMARY, Decision, decide, read_applied_tasks
from bearlake.table.column_iceberg import stage_columns
from bearlake.table.current_model import current_summary
from bearlake.table.deleted_rows import refuse_deleted_rows
from bearlake.table.foreign import translated
from bearlake.table.io import Locations
from bearlake.table.manifest_entries import iceberg_file
from bearlake.table.model import TableCommit, Unmergeable
from bearlake.table.settings import TableSettings

log = logging.getLogger(__name__)

FORMAT_VERSION: Final = 2
"""Version of Iceberg's table format: the newest that PyIceberg writes."""
OURS_PREFIX: Final = "bearlake-"
"""Prefix of our manifests' names, and of the last part of our manifest lists' names. Upkeep deletes no other engine's files."""

Stage: TypeAlias = Callable[["Attempt"], None]
"""Stages updates into an attempt; stages nothing if nothing is left to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committer:
    """Commits to the tables of one catalog. `randomness` draws the pauses between attempts; `stopping` ends the pauses."""

    locations: Locations
    settings: TableSettings
    randomness: random.Random
    stopping: threading.Event

    def commit(
        self,
        table: Table,
        commit: TableCommit,
        closed_tasks: Collection[int],
        check: Callable[[], None] = lambda: None,
    ) -> Table:
        """Commit as `Tables.commit` does; return the table's new state."""

        def stage(transaction: Attempt) -> None:
            decision = decide(read_applied_tasks(transaction.table_metadata.properties), commit.changes, closed_tasks)
            if decision.changes:
                check()  # after the load (decision 79), so the answer holds for the version that this attempt replaces
                stage_columns(transaction, commit.columns)
                self._stage(transaction, decision)

        return self.repeat(table, stage)

    def fence(self, table: Table) -> Table:
        """Fence as `Tables.fence` does; return the table's new state."""

        def stage(transaction: Attempt) -> None:
            own = current_summary(transaction.table_metadata.properties)
            transaction.stage_append([], own or {TASKS_SUMMARY: "{}"})

        return self.repeat(table, stage)

    def repeat(self, table: Table, stage: Stage) -> Table:
        """Stage and commit, on fresh metadata for each attempt, until a commit succeeds or nothing is left to do.

        `stage` must detect from the metadata whether an earlier attempt succeeded. `table` must be fresh; the first attempt uses it.

        Raises:
            Conflict, NotFound: raised by `stage`, or the table is gone.
            Unavailable: too many attempts, or too many without an answer; the last attempt may or may not have succeeded.
        """
        failure: Exception | None = None
        unavailable_count = 0
        for attempt in range(self.settings.commit_attempt_count_max):
            try:
                if attempt > 0:
                    if self.stopping.wait(self._pause_s(attempt)):
                        break
                    table = reload(table)
                with translated(table_name(table)):
                    transaction = Attempt(table)
                    stage(transaction)
                    return transaction.commit()
            except (_Lost, Unavailable) as error:
                failure = error
                unavailable_count += isinstance(error, Unavailable)
                log.info("retrying a table commit", extra={"table": table_name(table), "why": str(error)})
                if unavailable_count >= self.settings.commit_unavailable_count_max:
                    break
        raise Unavailable(f"{table_name(table)}: not committed after {attempt + 1} attempts") from failure

    def _pause_s(self, attempt: int) -> float:
        return self.randomness.uniform(0, min(self.settings.commit_pause_max_ms, 10 * 2**attempt)) / 1000

    def _stage(self, transaction: "Attempt", decision: Decision) -> None:
        transaction.set_properties(decision.applied.properties())
        summary = decision.summary()
        entry = partial(iceberg_file, transaction.table_metadata, self.locations)
        appends = [change for change in decision.changes if not change.remove]
        replacements = [change for change in decision.changes if change.remove]
        drops_rows = any(change.drops_rows for change in replacements)
        if appends:
            transaction.stage_append([entry(file) for change in appends for file in change.add], summary)
        if replacements:
            added = [entry(file) for change in replacements for file in change.add]
            removed = [key for change in replacements for key in change.remove]
            operation = Operation.OVERWRITE if drops_rows else Operation.REPLACE
            transaction.stage_replace(added, removed, self.locations, summary, operation)


class _Lost(Exception):
    """Another commit succeeded first; this commit certainly did not happen."""


def reload(table: Table) -> Table:
    """Load the same table again. Catalogs load by name, and the name may belong to another table by now.

    Raises:
        NotFound: the table no longer exists under this name.
    """
    with translated(table_name(table)):
        found = table.catalog.load_table(table.name())
    if found.metadata.table_uuid != table.metadata.table_uuid:
        raise NotFound(f"{table_name(table)}: another table now has this name")
    return found


def table_name(table: Table) -> str:
    """Return namespace and name, for messages."""
    return ".".join(table.name())


class Attempt(Transaction):
    """One attempt of a commit: staged once and committed once, if the table's snapshot is still the one loaded."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._made: list[_SnapshotProducer[Any]] = []  # Any: producers are generic over themselves

    def stage_append(self, files: Iterable[IcebergFile], summary: Mapping[str, str]) -> None:
        """Stage a snapshot that adds files. Merges manifests once there are enough."""
        self._check_writable()
        producer = _Append(
            operation=Operation.APPEND,
            transaction=self,
            io=self._table.io,
            commit_uuid=_CommitUuid(bytes=uuid4().bytes),
            snapshot_properties=dict(summary),
        )
        self._made.append(producer)
        for file in files:
            producer.append_data_file(file)
        producer.commit()

    def stage_replace(
        self,
        added: Sequence[IcebergFile],
        removed: Collection[str],
        locations: Locations,
        summary: Mapping[str, str],
        operation: Operation = Operation.REPLACE,
    ) -> None:
        """Stage a snapshot that adds files and removes those with the keys `removed`.

        Raises:
            Unmergeable: a file to remove is not in the table, or another engine has deleted rows of it.
        """
        self._check_writable()
        producer = Rewrite(self, operation, dict(summary))
        self._made.append(producer)
        producer.plan(set(removed), locations)
        for file in added:
            producer.append_data_file(file)
        producer.commit()

    def _check_writable(self) -> None:
        if self._table.metadata.format_version != FORMAT_VERSION:
            version = self._table.metadata.format_version
            raise Conflict(
                f"{table_name(self._table)} was changed to format version {version}, which Bearlake can only read"
            )

    def commit(self) -> Table:
        """Commit the staged updates; return the table's new state.

        Raises:
            _Lost: certainly not committed.
            Any other exception of the catalog: commit outcome unknown.
        """
        if not self._updates:
            return self._table
        table, metadata = self._table, self._table.metadata
        requirements = (*self._requirements, AssertTableUUID(uuid=metadata.table_uuid))
        try:
            response = table.catalog.commit_table(table, requirements, self._updates)
        except CommitFailedException as error:
            self._clean(table)
            raise _Lost(str(error)) from error
        unused = {entry.metadata_file for entry in metadata.metadata_log}
        unused -= {entry.metadata_file for entry in response.metadata.metadata_log}
        unused.update(*(producer.merged for producer in self._made if isinstance(producer, _Append)))
        table.metadata, table.metadata_location = response.metadata, response.metadata_location
        _forget(table, unused)
        return table

    def _clean(self, table: Table) -> None:
        """Delete the manifests of a lost attempt, unless a copy of its request, which a proxy made, has succeeded or may still succeed.

        Only its sequence numbers make a copy fail finally: they follow the last one of the version that it replaces, and a catalog
        refuses a snapshot with a parent whose number the table has reached. The current snapshot tells less: a rollback by another engine
        changes it without a new number, and another rollback changes it back.

        If a copy has succeeded, later snapshots name its manifests, and it may have expired. Numbers tell this, too: the copy and a later
        snapshot use more numbers than the attempt alone.
        """
        before = self._table.metadata
        if not self._made or before.current_snapshot_id is None:
            return  # a snapshot without a parent: upkeep deletes the files after a fence
        try:
            with translated(table_name(table)):
                current = table.catalog.load_table(table.name())
        except BearlakeError:
            return
        number_count = last_number(current.metadata) - last_number(before)
        if current.metadata.table_uuid != before.table_uuid or not 0 < number_count <= len(self._made):
            return  # a copy may still succeed, or have expired: upkeep deletes the files after a fence
        if not any(current.metadata.snapshot_by_id(producer.snapshot_id) for producer in self._made):
            for producer in self._made:
                _forget(table, {*producer._written_manifests, *producer._written_manifest_lists})


def last_number(metadata: TableMetadata) -> int:
    """Return the largest sequence number that the table has given to a snapshot. It only grows."""
    return 0 if isinstance(metadata, TableMetadataV1) else metadata.last_sequence_number


def _forget(table: Table, locations: Collection[str]) -> None:
    """Delete unreferenced metadata files; `upkeep.py` deletes later what cannot be deleted now."""
    for location in locations:
        try:
            table.io.delete(location)
        except (BearlakeError, OSError) as error:
            log.info("cannot delete a metadata file; the next upkeep will", extra={"file": location, "why": str(error)})


class _CommitUuid(UUID):
    """The `commit_uuid` of an attempt. PyIceberg puts it into the names of manifests and manifest lists, which marks them as ours."""

    def __str__(self) -> str:
        return f"{OURS_PREFIX}{super().__str__()}"


class _Append(_MergeAppendFiles):
    """PyIceberg's append with manifest merging, without its own retry. `merged` lists manifests written only to be merged."""

    merged: frozenset[str] = frozenset()

    def commit(self) -> None:
        """Stage the snapshot."""
        self._transaction._apply(*self._commit())

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        named = super()._process_manifests(manifests)
        self.merged = frozenset(self._written_manifests) - {manifest.manifest_path for manifest in named}
        return named


class Rewrite(_SnapshotProducer["Rewrite"]):
    """A snapshot that removes named files and adds others; PyIceberg 0.12 has no operation `replace`."""

    def __init__(self, transaction: Attempt, operation: Operation, summary: dict[str, str]) -> None:
        super().__init__(
            operation=operation,
            transaction=transaction,
            io=transaction._table.io,
            commit_uuid=_CommitUuid(bytes=uuid4().bytes),
            snapshot_properties=summary,
        )
        self._removed: list[ManifestEntry] = []
        self._rest: list[tuple[ManifestFile, list[ManifestEntry]]] = []
        self._untouched: list[ManifestFile] = []

    def plan(self, keys: Collection[str], locations: Locations) -> None:
        """Find the files to remove. Raises `Unmergeable` as `Attempt.stage_replace` does."""
        missing = set(keys)
        snapshot = self._transaction.table_metadata.current_snapshot()
        manifests = snapshot.manifests(self._io) if snapshot else []
        for manifest in manifests:
            entries = manifest.fetch_manifest_entry(self._io, discard_deleted=True)
            is_data = manifest.content == ManifestContent.DATA
            found = [e for e in entries if is_data and locations.key_or_none(e.data_file.file_path) in missing]
            missing -= {locations.key(entry.data_file.file_path) for entry in found}
            self._removed += found
            self._deleted_data_files.update(entry.data_file for entry in found)
            if not found:
                self._untouched.append(manifest)
            elif rest := [entry for entry in entries if entry.data_file not in self._deleted_data_files]:
                self._rest.append((manifest, rest))
        if missing:
            raise Unmergeable(f"{len(missing)} data files to remove are not in the table, among them {min(missing)}")
        if self._operation in (Operation.REPLACE, Operation.OVERWRITE):
            refuse_deleted_rows(self._transaction._scan(), manifests, keys, locations)

    def commit(self) -> None:
        """Stage the snapshot."""
        self._transaction._apply(*self._commit())

    def _deleted_entries(self) -> list[ManifestEntry]:
        return [_with_status(entry, ManifestEntryStatus.DELETED, self._snapshot_id) for entry in self._removed]

    def _existing_manifests(self) -> list[ManifestFile]:
        manifests = list(self._untouched)
        for manifest, entries in self._rest:
            with self.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
                for entry in entries:
                    writer.add_entry(_with_status(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id))
            manifests.append(writer.to_manifest_file())
        return manifests

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        operation, self._operation = self._operation, Operation.OVERWRITE  # computes the same totals as for a replace
        try:
            summary = super()._summary(snapshot_properties)
        finally:
            self._operation = operation
        return Summary(operation, **summary.additional_properties)


def _with_status(entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )
