"""Compaction in the metadata store, the nouns `tasks` and `objects`: tasks, swaps, backlogs, and what nothing needs any more.

A task covers offset ranges of one stream (COMPACT: slices become segments) or data files of it (MERGE: small files become large
ones). A worker that claims it gets an epoch; everything it writes for the task carries that epoch, so a worker that was paused and
overtaken is `Fenced`. The claim lives as long as the worker's registration, like a lease: heartbeats renew it.

The three steps of a task, each safe to repeat (`DESIGN.md`, commit protocol): `TaskQueue.prepare` registers and remembers what was
written, the table is committed, `CommitLog.swap` changes the index and closes the task. Registered objects belong to their task until it
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
    """What a task does."""

    COMPACT = 1
    """The ranges' slices of WAL objects become segments of data files."""
    MERGE = 2
    """Data files (`Task.inputs`) become fewer, larger ones with the same rows."""


class TaskState(IntEnum):
    """Whether a task can be claimed."""

    OPEN = 1
    """Waiting, or held by a worker."""
    QUARANTINED = 2
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
class TaskChoice:
    """Which streams' tasks a worker takes, and which of them first; patterns as in `metadata/patterns.py`.

    `streams`: only those that fit one of these; none: all. `head_starts`: the tasks of a stream that a pattern is the first to fit
    count as so much (ms) older than they are. So what waits long enough is always the next: nothing starves.
    """

    streams: Sequence[str] = ()
    head_starts: Sequence[tuple[str, int]] = ()

    def takes(self, name: str) -> bool:
        """Whether the stream's tasks are taken at all."""
        return matches(name, self.streams)

    def head_start_ms(self, name: str) -> int:
        """How much older the stream's tasks count."""
        return next((head_start_ms for pattern, head_start_ms in self.head_starts if matches(name, [pattern])), 0)

    @property
    def is_plain(self) -> bool:
        """Whether all tasks are taken, by age."""
        return not self.streams and not self.head_starts


ANY_TASK = TaskChoice()


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
    """False: only the bytes move (a task that is quarantined gets an object of its own); the task stays, nothing is compacted."""


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


class StreamCommits(NamedTuple):
    """How often tasks of a stream were finished (compactions and merges), and when (ms since 1970, the store's time) the last one was."""

    stream_number: int
    commit_count: int
    committed_ms: int


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


class TaskQueue(Protocol):
    """Compaction's work list: offered by one planner (a lease), claimed by workers, fenced by epochs. Oldest first."""

    async def offer(self, offers: Sequence[TaskOffer], lease: Lease) -> list[Task]:
        """Queue the offers; returns the tasks made.

        An offer is left out when one of its partitions (COMPACT) or inputs (MERGE) belongs to a task already, when a range does not
        start at the partition's compacted offset (or, if that was trimmed, at its start), or when its stream is deleted.

        Raises:
            Fenced: the planner's lease was overtaken.
        """

    async def claim(
        self, worker: ServerRef, *, limit: int, bytes_max: int, choice: TaskChoice = ANY_TASK
    ) -> list[Task]:
        """Claim open tasks that no live worker holds and that need not wait: oldest first, at most `limit`, together at most
        `bytes_max` bytes (one larger task excepted). Each gets a new epoch. Tasks of deleted streams are dropped on the way.

        With a `choice`, only those that it takes, in its order; by their oldest record, not by when they were offered.

        Raises:
            Fenced: the worker's registration is not the newest, or not live.
        """

    async def prepare(self, claim: TaskClaim, result: bytes | None, keys: Collection[str]) -> None:
        """Register the keys of objects that were written for the task, and remember the result of this epoch (at most 16 MiB).

        I10: until the task closes, no sweep forbids these keys; and a swap of the task names no others. Called after the objects are
        durable and before the table or the index is changed. All or nothing, repeatable. None: there is no result to remember.

        Raises:
            Fenced: the claim is not the task's newest.
            Conflict: the orphan sweep has forbidden one of the keys, or it is in use. Write the objects anew, under new keys.
        """

    async def check(self, claims: Collection[TaskClaim]) -> None:
        """Return if all claims are their tasks' newest now: at a moment between the call and the return. Changes nothing.

        A worker asks after it has loaded the table version that its commit replaces: see `Tables.commit`.

        Raises:
            Fenced: a claim was overtaken or given back, or its task is closed.
        """

    async def release(self, claims: Collection[TaskClaim], *, wait_ms: int = 0) -> None:
        """Give tasks back without blame, e.g. on shutdown; those that are held by another by now stay so.

        Nobody claims them for `wait_ms`: a task whose stores do not answer lets others pass.
        """

    async def fail(self, claim: TaskClaim, error: str, *, retry_after_ms: int, is_quarantined: bool) -> None:
        """Note a failed attempt: the task may be claimed again after `retry_after_ms`, or only after `retry` if `is_quarantined`.

        Raises:
            Fenced: the claim is not the task's newest.
        """

    async def cancel(self, claim: TaskClaim) -> None:
        """Drop a task that cannot or need not be done any more (a merge whose files have changed). Raises `Fenced`."""

    async def retry(self, task_id: int) -> Task:
        """Let a task be claimed again at once, its attempts forgotten. Raises `NotFound`."""

    async def list(self, *, stream_number: int | None = None, after: int = 0, limit: int = 1000) -> Sequence[Task]:
        """Tasks by id behind `after`, at most `limit`, of all streams or one; without their results, which may be large."""

    async def uncompacted(self, *, after: PartitionKey, limit: int) -> Sequence[PartitionBacklog]:
        """Partitions behind `after` with committed records that are not compacted, by key, at most `limit`: where a planner starts.

        Their `compacted` is where the next offer starts: the compacted offset, or the start where that is larger.
        """

    async def backlog(self) -> Sequence[StreamBacklog]:
        """Streams with records that are not compacted, by number, as of now. Ages are exact for the 32 largest backlogs of a stream."""

    async def commits(self) -> Sequence[StreamCommits]:
        """Streams that were ever compacted, deleted ones too, by number; 24 bytes each."""

    async def compacted(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, int]:
        """Compacted offsets (0: nothing yet) of the partitions that exist."""


class ObjectRegister(Protocol):
    """Which objects the index names, and which it does not name any more. Keys only; the bytes are the sweeper's."""

    async def unused(
        self, kind: ObjectKind, *, unused_ms: int, after: str = "", limit: int = 1000
    ) -> Sequence[UnusedObject]:
        """Objects of that kind that no index row has named for at least `unused_ms` and whose bytes are not deleted, by key."""

    async def deleted(self, keys: Collection[str]) -> None:
        """Note that the bytes of unused objects are gone; objects that are still named are left alone."""

    async def forbid(self, keys: Collection[str]) -> set[str]:
        """Forbid keys of objects that a crash left behind; returns those that are forbidden now. Their bytes may be deleted then.

        Never one that an open task has registered (`TaskQueue.prepare`) or that the index names. `prepare` refuses forbidden keys for as
        long as the claim that wrote the object may call it, however late that is. Rules: `metadata/task_rules.py`.
        """

    async def data_files(self, stream_number: int, *, after: int = 0, limit: int = 1000) -> Sequence[DataFileEntry]:
        """Data files of the stream that the index names, by (position, key) with position > `after`; files of one swap come together
        even above `limit`. Segments are those that the swap brought, also if they were trimmed since.
        A file that a merge has replaced is told until its trimmed rows are forgotten: ask `CommitLog.slices` before merging it again.
        """
