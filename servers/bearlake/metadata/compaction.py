"""Values of compaction: tasks, swaps, backlogs, and the objects that nothing needs any more.

A task covers offset ranges of one stream (COMPACT: slices become segments) or data files of it (MERGE: small files become large
ones). A worker that claims it gets an epoch; everything it writes for the task carries that epoch, so a worker that was paused and
overtaken is `Fenced`. The claim lives as long as the worker's registration, like a lease: heartbeats renew it.

The three steps of a task, each safe to repeat (`DESIGN.md`, commit protocol): `TaskQueue.prepare` remembers what was written,
the table is committed, `CommitLog.swap` changes the index and closes the task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from bearlake.metadata.model import ObjectRef, PartitionKey, ServerRef, Slice


class OffsetRange(NamedTuple):
    """Offsets `[start, end)` of a partition."""

    partition: PartitionKey
    start: int
    end: int


class TaskKind(IntEnum):
    """What a task does."""

    COMPACT = 1
    """The ranges' slices of WAL objects become segments of data files."""
    MERGE = 2
    """Data files (`Task.inputs`) become fewer, larger ones with the same rows."""


class TaskState(IntEnum):
    """Whether a task can be claimed."""

    OPEN = 1
    """Waiting, or held by a worker."""
    ASIDE = 2
    """Failed too often: an operator looks at `Task.error` and calls `retry`. It still owns its ranges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOffer:
    """Work that the planner found. `size_bytes` and `record_count` are of what is read; `age_ms` of its oldest record's commit.

    COMPACT: `ranges`, each of which starts at its partition's compacted offset. MERGE: `inputs`, keys of data files.
    """

    kind: TaskKind
    stream_number: int
    ranges: Sequence[OffsetRange] = ()
    inputs: Sequence[str] = ()
    size_bytes: int
    record_count: int
    age_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A queued task. `epoch` is 0 until it is claimed for the first time and grows with each claim; `holder` is a live worker or None.

    `attempt_count` counts failures; `wait_ms` is how long it may not be claimed yet; `results` are what `prepare` remembered, by epoch.
    """

    id: int
    kind: TaskKind
    state: TaskState
    stream_number: int
    ranges: Sequence[OffsetRange]
    inputs: Sequence[str]
    size_bytes: int
    record_count: int
    age_ms: int
    epoch: int = 0
    holder: ServerRef | None = None
    attempt_count: int = 0
    wait_ms: int = 0
    error: str = ""
    results: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskClaim:
    """What a worker holds: the fence for everything it writes for the task."""

    task_id: int
    epoch: int
    worker: ServerRef


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapObject:
    """A new object and what the index shall name of it, in order of (partition, offset).

    For a data file a `Slice` is a *segment*: `position` is the number of its first row in the file, `length` the bytes that its batches
    had when they were committed (so that sizes and retention stay what they were). For a WAL-format object it is a slice as ever.
    """

    object: ObjectRef
    slices: Sequence[Slice]


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """New homes for offsets that are in the index already. Together the slices cover each replaced range without gaps."""

    claim: TaskClaim
    objects: Sequence[SwapObject]
    is_final: bool = True
    """False: only the bytes move (a task that is set aside gets an object of its own); the task stays, nothing is compacted."""


class PartitionBacklog(NamedTuple):
    """A partition's part that is not compacted: `[compacted, end)`, its bytes, and the commit time's age (ms) of its oldest slice."""

    partition: PartitionKey
    compacted: int
    end: int
    size_bytes: int
    age_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBacklog:
    """What of a stream waits for compaction. `age_ms`: of the oldest slice's commit (0 when nothing waits)."""

    stream_number: int
    size_bytes: int
    record_count: int
    partition_count: int
    age_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFileEntry:
    """A data file that the index names: its object, the segments in it, and the log position of the swap that brought it."""

    object: ObjectRef
    segments: Sequence[Slice]
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedObject:
    """An object that the index does not name any more, since `unused_ms` (duration). `stream_number` is 0 for WAL objects."""

    object: ObjectRef
    stream_number: int
    unused_ms: int
