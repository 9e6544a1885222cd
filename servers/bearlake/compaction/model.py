"""Values exchanged between the worker and its Spark executors, and stored with a task: JSON, version 1.

A task is split into work items; an executor runs one item (`compaction/task.py`) and returns an `ItemResult`. The results of all items
form the task's `TaskResult`, which is stored in the metadata store before the table commit (`TaskQueue.prepare`).
"""

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bearlake.metadata.compaction import SwapObject, TaskKind
from bearlake.metadata.model import LocatedSlice, ObjectRef, PartitionKey, Slice
from bearlake.table.column_book import MessageKey
from bearlake.table.current_columns import CurrentColumns
from bearlake.table.model import DataFile
from bearlake.table.value_plan import ValuePlan


class AbortedRange(NamedTuple):
    """A producer's batches with base offsets in `[start, end)` of a partition were aborted: they have no rows."""

    partition: PartitionKey
    producer_id: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """What key compaction tells each item of its task (`compaction/clean.py`).

    `bounds`: partition index → offset below which records supersede and are superseded. `dirty`: the files with the newer records, which
    items only read for their keys. `kept`: slices of kept objects below the bounds. `now_ms`: the time of this cleaning, and
    `tombstone_keep_ms` how long (ms) tombstones stay after their first one.
    """

    bounds: Mapping[int, int]
    dirty: Sequence[ObjectRef]
    kept: Sequence[LocatedSlice]
    now_ms: int
    tombstone_keep_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentWork:
    """What an item of a current table's round does (`compaction/current_item.py`): some buckets, and their files so far.

    The item's inputs are data files of the stream's table. Of their rows, those count whose offset is at or after the partition's start and
    before its end (`starts`, `ends`, by index). `newest_us`: the largest timestamp (µs) of all rounds before; what is older than that by
    `remember_us` is forgotten.
    """

    starts: Mapping[int, int]
    ends: Mapping[int, int]
    bucket_count: int
    buckets: Mapping[int, Sequence[ObjectRef]]
    columns: CurrentColumns
    newest_us: int
    remember_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """One executor's work: read `slices` (by partition and offset), and write data files under `output_prefix`.

    `output_prefix` is `<location>/data/<task id as 16 hex>-<epoch>-<item>`. Data files are `<output_prefix>-<attempt>.parquet`; `attempt`
    (12 hex digits: 8 random ones and the file number) differs between attempts, so their keys cannot collide.
    COMPACT reads WAL slices. MERGE reads whole data files: `slices` are all segments that the index has in them, and `inputs` names the
    files (including files without segments). With a `cleaning`, a MERGE item leaves out superseded records. Batches that rows
    cannot represent exactly go under `kept_prefix` (`kept/`): `<kept_prefix><yyyymmddhh>/<uuid7>`. `row_group_bytes` is the
    uncompressed size; `file_bytes_max` is a target. `aborted` concerns COMPACT, and the kept batches of a `cleaning`. `values`: how the
    values and keys of COMPACT become typed columns; None: they do not. `current`: the item updates buckets of a current table instead.
    """

    kind: TaskKind
    stream_id: uuid.UUID
    output_prefix: str
    kept_prefix: str
    slices: Sequence[LocatedSlice]
    inputs: Sequence[ObjectRef] = ()
    file_bytes_max: int
    row_group_bytes: int
    aborted: Sequence[AbortedRange] = ()
    cleaning: Cleaning | None = None
    values: ValuePlan | None = None
    current: CurrentWork | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A data file and its segments for the index (see `SwapObject`)."""

    file: DataFile
    swap: SwapObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResult:
    """An executor's result. `kept`: WAL-format objects with batches that rows cannot represent exactly; `kept_counts`: counts by reason.

    Of a cleaning: `unchanged` inputs have no record to leave out and stay as they are. `rowless` are segments of which no record is left,
    with position `NO_ROW`. `dropped_count` records were left out.
    `error_counts`: values and keys without typed columns, by code. With `missing_schema_ids`, the item wrote nothing that counts: run it
    again with these schemas; with `missing_messages`, `missing_key_schema_ids` and `missing_key_messages`, the same.
    Of a current table: `buckets` has the bucket of each file, `newest_us` the largest timestamp (µs) of its rows and of earlier rounds.
    With `exceeds_memory`, the item wrote nothing: its records take more than `TaskLimits.current_bytes`.
    """

    files: Sequence[WrittenFile]
    kept_objects: Sequence[SwapObject]
    row_count: int
    read_bytes: int
    record_bytes: int
    """Uncompressed bytes of the records sections read."""
    written_bytes: int
    kept_counts: Mapping[str, int]
    unchanged: Sequence[str] = ()
    rowless: Sequence[Slice] = ()
    dropped_count: int = 0
    error_counts: Mapping[str, int] = field(default_factory=dict)
    missing_schema_ids: Sequence[int] = ()
    missing_messages: Sequence[MessageKey] = ()
    missing_key_schema_ids: Sequence[int] = ()
    missing_key_messages: Sequence[MessageKey] = ()
    buckets: Sequence[int] = ()
    newest_us: int = 0
    exceeds_memory: bool = False

    @property
    def lacks_schemas(self) -> bool:
        """Whether the item must run again with more schemas."""
        return bool(
            self.missing_schema_ids or self.missing_messages or self.missing_key_schema_ids or self.missing_key_messages
        )


def missing_schemas(
    ids: Collection[int],
    messages: Collection[MessageKey] = (),
    key_ids: Collection[int] = (),
    key_messages: Collection[MessageKey] = (),
) -> ItemResult:
    """Return the result of an item that needs the schemas with these ids, and these messages of Protobuf schemas; then those of keys."""
    return ItemResult(
        files=(),
        kept_objects=(),
        row_count=0,
        read_bytes=0,
        record_bytes=0,
        written_bytes=0,
        kept_counts={},
        missing_schema_ids=sorted(ids),
        missing_messages=sorted(messages),
        missing_key_schema_ids=sorted(key_ids),
        missing_key_messages=sorted(key_messages),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """The results of a task's items, as `prepare` stores them."""

    items: Sequence[ItemResult]
