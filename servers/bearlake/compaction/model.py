"""What travels between the worker and its Spark executors, and what is remembered of a task: JSON, version 1.

A task is split into work items; an executor runs one (`compaction/task.py`) and returns an `ItemResult`. The results of a task's
items together are its `TaskResult`, which is kept in the metadata store before the table is committed (`TaskQueue.prepare`).
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bearlake.metadata.compaction import SwapObject, TaskKind
from bearlake.metadata.model import LocatedSlice, ObjectRef
from bearlake.table.model import DataFile


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """One executor's work: read `slices` (by partition and offset), write data files under `output_prefix`.

    `output_prefix` is `<location>/data/<task id as 16 hex>-<epoch>-<item>`; data files are `<output_prefix>-<attempt>.parquet`, where
    `attempt` (12 hex: 8 random ones and the number of the file) is never the same for two attempts, so they cannot meet.
    COMPACT reads WAL slices. MERGE reads data files whole; `slices` are all segments that the index has in them, and `inputs` names the
    files (also those without a segment left). `kept_prefix` (`kept/`) is where batches go that rows cannot hold exactly:
    `<kept_prefix><yyyymmddhh>/<uuid7>`. `row_group_bytes` are uncompressed, `file_bytes_max` is a target.
    """

    kind: TaskKind
    stream_id: uuid.UUID
    output_prefix: str
    kept_prefix: str
    slices: Sequence[LocatedSlice]
    inputs: Sequence[ObjectRef] = ()
    file_bytes_max: int
    row_group_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A data file and what the index shall name of it (segments, see `SwapObject`)."""

    file: DataFile
    swap: SwapObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResult:
    """What an executor did. `kept`: WAL-format objects with batches that rows cannot hold exactly; counts by reason in `kept_counts`."""

    files: Sequence[WrittenFile]
    kept: Sequence[SwapObject]
    row_count: int
    read_bytes: int
    record_bytes: int
    """Uncompressed bytes of the records sections that were read."""
    written_bytes: int
    kept_counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """The results of a task's items, as `prepare` keeps them."""

    items: Sequence[ItemResult]
