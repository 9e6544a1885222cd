"""Compaction in the metadata store, the interfaces `tasks` and `objects`: tasks, swaps, backlogs, and unused objects.

A task covers offset ranges of one stream (COMPACT: slices become segments) or data files of it (MERGE: small files become large
ones). A worker that claims a task gets an epoch, and everything that it writes for the task carries the epoch. So a worker that was
paused and overtaken is `Fenced`. Like a lease, the claim lives as long as the worker's registration: heartbeats renew it.

The three steps of a task, each safe to repeat (`DESIGN.md`, commit protocol): `TaskQueue.prepare` registers the objects and remembers the
result, the table is committed, `CommitLog.swap` changes the index and closes the task. Registered objects belong to their task until it
closes (I10).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol

from bearlake.metadata.model import Lease, ObjectKind, ObjectRef, PartitionKey, ServerRef, Slice
from bearlake.metadata.patterns import matches


class OffsetRange(NamedTuple):
    """Offsets `[start, end)` of a partition."""

    partition: PartitionKey
    start: int
    end: int


class TaskKind(IntEnum):
    """The work of a task."""

    COMPACT = 1
    """The ranges' slices of WAL objects become segments of data files."""
    MERGE = 2
    """Data files (`Task.inputs`) become fewer, larger ones, with the same rows or, by key compaction, with those that stay."""


class TaskState(IntEnum):
    """Whether a task can be claimed."""

    OPEN = 1
    """Waiting, or held by a worker."""
    QUARANTINED = 2
    """The task failed too often: an operator looks at `Task.error` and calls `retry`. The task still owns its ranges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOffer:
    """Work that the planner found. `size_bytes` and `record_count` count the input; `age_ms` is the age of its oldest record's commit.

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
    """A queued task. `epoch` is 0 until the first claim and grows with each claim; `holder` is a live worker or None.

    `attempt_count` counts failures; `wait_ms` is the time until the task may be claimed; `results` are those of `prepare`, by epoch.
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

    @property
    def is_delayed(self) -> bool:
        """Whether an attempt has failed or a store did not answer: the task then lets others go first (I11)."""
        return self.state is TaskState.QUARANTINED or self.attempt_count > 0 or self.wait_ms > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChoice:
    """Which streams' tasks a worker takes, and in which order; patterns as in `metadata/patterns.py`.

    `streams`: take only tasks of streams that match one of these patterns; empty: all. `head_starts`: the first pattern that matches a
    stream makes the stream's tasks count as that much (ms) older. Waiting tasks grow older too, so no task starves.
    """

    streams: Sequence[str] = ()
    head_starts: Sequence[tuple[str, int]] = ()

    def takes(self, name: str) -> bool:
        """Return whether the worker takes the stream's tasks at all."""
        return matches(name, self.streams)

    def head_start_ms(self, name: str) -> int:
        """Return how much older (ms) the stream's tasks count."""
        return next((head_start_ms for pattern, head_start_ms in self.head_starts if matches(name, [pattern])), 0)

    @property
    def is_plain(self) -> bool:
        """Return whether the worker takes all tasks, by age."""
        return not self.streams and not self.head_starts


ANY_TASK = TaskChoice()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskClaim:
    """A worker's claim on a task; fences everything that the worker writes for the task."""

    task_id: int
    epoch: int
    worker: ServerRef


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapObject:
    """A new object and the slices for which the index shall name it, in order of (partition, offset).

    For a data file a `Slice` is a *segment*: `position` is the number of its first row in the file (or `NO_ROW`); `length` is the size in
    bytes of its batches when they were committed (so that sizes and retention do not change). For a WAL-format object it is an ordinary
    slice.
    """

    object: ObjectRef
    slices: Sequence[Slice]


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """New objects for offsets that are already in the index. Together the slices cover each replaced range without gaps."""

    claim: TaskClaim
    objects: Sequence[SwapObject]
    is_final: bool = True
    """False: only bytes move (a quarantined task gets an object of its own); the task stays open, nothing is compacted."""


class PartitionBacklog(NamedTuple):
    """The uncompacted part of a partition: `[compacted, end)`, its bytes, and the age (ms) of its oldest slice's commit."""

    partition: PartitionKey
    compacted: int
    end: int
    size_bytes: int
    age_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBacklog:
    """The uncompacted part of a stream. `age_ms`: age of the oldest slice's commit (0 if all is compacted)."""

    stream_number: int
    size_bytes: int
    record_count: int
    partition_count: int
    age_ms: int


class StreamCommits(NamedTuple):
    """How many tasks of a stream were finished (compactions and merges), and when (ms since 1970, the store's time) the last one was."""

    stream_number: int
    commit_count: int
    committed_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFileEntry:
    """A data file that the index names: its object, its segments, and the log position of the swap that added it."""

    object: ObjectRef
    segments: Sequence[Slice]
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedObject:
    """An object that the index has not named for `unused_ms` (duration). `stream_number` is 0 for WAL objects."""

    object: ObjectRef
    stream_number: int
    unused_ms: int


class TaskQueue(Protocol):
    """Compaction's work list: offered by one planner (a lease), claimed by workers, fenced by epochs. Oldest first."""

    async def offer(self, offers: Sequence[TaskOffer], lease: Lease) -> list[Task]:
        """Queue the offers; returns the tasks made.

        An offer is left out in three cases: one of its partitions (COMPACT) or inputs (MERGE) already belongs to a task; a range does not
        start at the partition's compacted offset (or, if that was trimmed, at its start offset); its stream is deleted.

        Raises:
            Fenced: the planner's lease was overtaken.
        """

    async def claim(
        self, worker: ServerRef, *, limit: int, bytes_max: int, choice: TaskChoice = ANY_TASK
    ) -> list[Task]:
        """Claim open tasks that no live worker holds and whose wait has ended: oldest first, at most `limit`, at most `bytes_max` bytes
        together (a single larger task is allowed). Each gets a new epoch. Tasks of deleted streams are dropped on the way.

        With a `choice`, claim only the tasks that it takes, in its order. Age is that of a task's oldest record, not of its offer.

        Raises:
            Fenced: the worker's registration is not the newest, or not live.
        """

    async def prepare(self, claim: TaskClaim, result: bytes | None, keys: Collection[str]) -> None:
        """Register the keys of objects that were written for the task, and remember the result of this epoch (at most 16 MiB).

        I10: until the task closes, no sweep forbids these keys, and a swap of the task names no other keys. Call this after the objects
        are durable and before the table or the index is changed. All or nothing, repeatable. None: there is no result to remember.

        Raises:
            Fenced: the claim is not the task's newest.
            Conflict: the orphan sweep has forbidden one of the keys, or it is in use. Write the objects again, under new keys.
        """

    async def check(self, claims: Collection[TaskClaim]) -> None:
        """Return if every claim was its task's newest at some moment between the call and the return. Changes nothing.

        A worker calls this after it has loaded the table version that its commit replaces: see `Tables.commit`.

        Raises:
            Fenced: a claim was overtaken or given back, or its task is closed.
        """

    async def release(self, claims: Collection[TaskClaim], *, wait_ms: int = 0) -> None:
        """Give tasks back without counting a failure, e.g. on shutdown; tasks that another worker holds by now are left alone.

        No worker claims them for `wait_ms`, so a task whose stores do not answer does not delay other tasks.
        """

    async def fail(self, claim: TaskClaim, error: str, *, retry_after_ms: int, is_quarantined: bool) -> None:
        """Note a failed attempt: the task may be claimed again after `retry_after_ms`, or only after `retry` if `is_quarantined`.

        Raises:
            Fenced: the claim is not the task's newest.
        """

    async def cancel(self, claim: TaskClaim) -> None:
        """Drop a task that cannot or need not be done (a merge whose files have changed). Raises `Fenced`."""

    async def retry(self, task_id: int) -> Task:
        """Allow a task to be claimed at once, and reset its attempt count. Raises `NotFound`."""

    async def list(self, *, stream_number: int | None = None, after: int = 0, limit: int = 1000) -> Sequence[Task]:
        """List at most `limit` tasks with id > `after`, by id, of one stream or all; without their results, which may be large."""

    async def uncompacted(self, *, after: PartitionKey, limit: int) -> Sequence[PartitionBacklog]:
        """List at most `limit` partitions with key > `after` that have uncompacted records, by key: where a planner starts.

        `compacted` is where the next offer starts: the compacted offset, or the start offset if that is larger.
        """

    async def backlog(self) -> Sequence[StreamBacklog]:
        """List streams with uncompacted records, by number, as of now. Ages are exact for the 32 largest backlogs of a stream."""

    async def commits(self) -> Sequence[StreamCommits]:
        """List streams that were ever compacted, including deleted ones, by number; 24 bytes each."""

    async def compacted(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, int]:
        """Return the compacted offsets (0: nothing yet) of the partitions that exist."""


class ObjectRegister(Protocol):
    """Which objects the index names, and which it has stopped naming. Keys only; the sweeper handles the bytes."""

    async def unused(
        self, kind: ObjectKind, *, unused_ms: int, after: str = "", limit: int = 1000
    ) -> Sequence[UnusedObject]:
        """List objects of that kind, by key, that no index row has named for at least `unused_ms`; omits those whose bytes are deleted."""

    async def deleted(self, keys: Collection[str]) -> None:
        """Record that the bytes of unused objects are gone; objects that the index still names are left alone."""

    async def forbid(self, keys: Collection[str]) -> set[str]:
        """Forbid keys of objects that a crash left behind; returns the forbidden keys. The caller may then delete their bytes.

        Never forbids a key that an open task has registered (`TaskQueue.prepare`) or that the index names. `prepare` refuses forbidden
        keys for as long as the claim that wrote the object may call it, however late that is. Rules: `metadata/task_object_rules.py`.
        """

    async def data_files(self, stream_number: int, *, after: int = 0, limit: int = 1000) -> Sequence[DataFileEntry]:
        """List data files of the stream that the index names, by (position, key) with position > `after`; files of one swap are listed
        together, even above `limit`. Segments are those of the swap, including those trimmed since.
        A file that a merge has replaced is listed until its trimmed rows are forgotten: ask `CommitLog.slices` before merging it again.
        """
