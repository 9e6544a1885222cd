"""Values of tables: data files, applied tasks, commits, states. No third-party types, so that they can be stored as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bearlake.errors import Conflict
from bearlake.table.column_book import ColumnBook


class Unmergeable(Conflict):
    """Rows of the files to remove are missing: a file is no longer in the table, or another engine has deleted rows of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """What an Iceberg manifest records about a Parquet file, from the footer just written.

    `key` is the object's key; `size` is in bytes. The mappings are by field id: bytes per column, values and nulls per column, and the
    single-value serialization of the smallest and largest value. `max_timestamp_ms` is the newest row's timestamp.
    Source: Apache Iceberg table spec, "Manifests", `data_file`; "Appendix D: Single-value serialization".
    """

    key: str
    size: int
    row_count: int
    max_timestamp_ms: int
    split_offsets: Sequence[int]
    column_sizes: Mapping[int, int]
    value_counts: Mapping[int, int]
    null_value_counts: Mapping[int, int]
    lower_bounds: Mapping[int, bytes]
    upper_bounds: Mapping[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedTask:
    """What a table stores about an applied task. `ranges`: partition index → (start, end) by which the table's ends move (COMPACT)."""

    task_id: int
    epoch: int
    ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """One task's part of a commit: the task, the files to add, and the keys of files to remove (MERGE).

    `drops_rows`: rows of the removed files are not in the added files (key compaction), so the snapshot is an overwrite.
    """

    task: AppliedTask
    add: Sequence[DataFile]
    remove: Sequence[str] = ()
    drops_rows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """Changes of several tasks for one snapshot, or as few as their kinds allow."""

    changes: Sequence[TableChange]
    columns: ColumnBook | None = None
    """Typed columns that the table must have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table's state. `ends`: partition index → offset up to which records are in the table; `applied`: task id → its epoch."""

    identifier: tuple[str, str]
    location_key: str
    """Key prefix of the table's folder in the object store, without a trailing slash; data files are in `<location_key>/data/`."""
    metadata_location: str
    snapshot_id: int | None
    ends: Mapping[int, int]
    applied: Mapping[int, int]
    last_column_id: int = 0
    """The largest field id that the table has given."""
    column_names: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSummary:
    """A snapshot for display: time (ms), operation, files and rows added and removed."""

    snapshot_id: int
    timestamp_ms: int
    operation: str
    added_files: int
    added_rows: int
    deleted_files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSummary:
    """Statistics of a table for display."""

    state: TableState
    file_count: int
    row_count: int
    size_bytes: int
    manifest_count: int
    snapshots: Sequence[SnapshotSummary]
