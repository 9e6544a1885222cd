"""Settings of a compaction worker, by part. The defaults suit one worker of two cores and 1 GB."""

from dataclasses import dataclass, field

from bearlake.compaction.workbench import TaskLimits
from bearlake.metadata.compaction import TaskChoice
from bearlake.metadata.patterns import check_pattern

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerSettings:
    """When records become a task, and how large tasks are. One worker at a time plans for all streams."""

    due_fraction: float = 0.3
    """A stream is due when its oldest record has waited for this fraction of `table.freshness_ms`; the rest of the time is for queueing,
    running and committing."""
    due_bytes: int = 64 * MIB
    """A stream with this many waiting bytes is due at once. More bytes make larger files, and need more memory per task."""
    task_bytes_max: int = 128 * MIB
    """Bytes of one task (except for a single larger slice); a larger backlog becomes several tasks."""
    task_partition_count_max: int = 512
    """Partitions of one task."""
    task_slice_count_max: int = 20_000
    """Slices of one task; bounds its description and its reads of the index."""
    stream_task_count_max: int = 4
    """Open tasks of one stream, on different partitions. Limits the share of workers that a huge stream takes."""
    open_task_count_max: int = 4_000
    """Open tasks of all streams; further streams wait, oldest first."""
    partition_count_max: int = 500_000
    """Partitions with a backlog in memory (about 300 bytes each); further partitions are read from the store when these are done."""
    page_count: int = 1_000
    """Log entries, backlogs or tasks read from the store at once."""
    pause_ms: int = 50
    """Shortest time (ms) between two rounds of planning."""
    wait_ms: int = 1_000
    """Longest wait (ms) for the log before the planner checks which streams are due."""
    reconcile_ms: int = 5_000
    """Interval (ms) between look-ups of open tasks, to find tasks that ended without an entry in the log."""
    retry_pause_ms: int = 500
    """Pause (ms) before the next request to a store that did not answer, or for a lease that another worker holds."""

    def __post_init__(self) -> None:
        if not 0 < self.due_fraction < 1:
            raise ValueError("due_fraction must be between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSettings:
    """Merging of small data files into large ones, by tiers: each row is rewritten at most once per tier."""

    file_bytes: int = 128 * MIB
    """Target size of a data file (bytes). Larger files list and scan faster; smaller files are pruned better."""
    fan_in: int = 8
    """Files of one tier that are merged into one file of the next tier. A larger number rewrites less and leaves more small files."""
    input_count_max: int = 32
    """Files that one merge reads."""
    file_count_remembered: int = 2_000
    """Small files of one stream in memory; further files are looked up when these are merged."""
    open_task_count_max: int = 2
    """Open merges of all streams; limits the share of workers that merges take from compaction."""
    is_enabled: bool = True
    """Whether small files are merged. Disable only if another program rewrites the tables."""

    def __post_init__(self) -> None:
        if not 2 <= self.fan_in <= self.input_count_max:
            raise ValueError("fan_in must be between 2 and input_count_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCompactionSettings:
    """Key compaction of streams whose `cleanup.policy` contains `compact`."""

    is_enabled: bool = True
    """Whether streams are cleaned. If not, superseded records stay."""
    check_ms: int = 15_000
    """Shortest time (ms) between two looks at a stream's dirty ratio, which reads the stream's index."""
    history_pause_ms: int = 3_600_000
    """Shortest time (ms) between two cleanings of a stream with `table.on_compaction=history`, unless `max.compaction.lag.ms` is over. The
    table keeps the files that a cleaning takes out of the log, and they can be merged only before that."""
    open_task_count_max: int = 1
    """Open cleanings of all streams; limits the share of workers that they take from compaction."""
    input_count_max: int = 4_000
    """Data files of one cleaning. A stream whose clean files are more is cleaned no further."""
    input_bytes_max: int = 16 * 1024 * MIB
    """Bytes of one cleaning's data files. A cleaning must be done within `worker.deadline_ms`; a core cleans about 100 MB of records per
    second. A stream whose clean files are larger is cleaned no further."""
    item_bytes_max: int = 512 * MIB
    """Bytes of one work item, the unit of parallel work on executors. Each item reads the keys of all dirty files, so smaller items cost
    more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentSettings:
    """Current tables: of streams with `table.current=on`, tables with the newest record of each key."""

    is_enabled: bool = True
    """Whether this worker brings current tables up to date. They stay as they are if no worker does."""
    pause_ms: int = 1_000
    """Pause (ms) between two looks at which current tables are behind."""
    round_bytes_max: int = 256 * MIB
    """Bytes of data files whose records one round takes; a table that is further behind needs several rounds, each of which rewrites its
    buckets. A round takes as many bytes as the current table has, if that is more. With more bytes, a new table is complete sooner, and a
    round needs more memory."""
    item_bytes_max: int = 64 * MIB
    """Bytes of one work item: its share of the round's records, and its buckets. Each item reads the keys of all records of the round."""
    item_count_max: int = 64
    """Work items of one round."""
    concurrent_count: int = 2
    """Rounds of this worker at once, of different tables."""
    retry_max_ms: int = 60_000
    """Longest wait (ms) before the next round of a table whose round failed; the first is `pause_ms`, and it doubles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSettings:
    """Typed columns of tables."""

    column_count_max: int = 1_000
    """Typed columns of one table, nested fields included. Schemas that would add more get no columns. More columns make every data file
    and every commit slower."""
    schema_count_max: int = 256
    """Schemas whose texts a work item has. Values of one item may have no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How much a worker does at once, and how it handles failures."""

    claim_count_max: int = 64
    """Tasks claimed at once; small streams share a round."""
    claim_bytes_max: int = 256 * MIB
    """Bytes claimed at once. Bounds the memory of a round and how long a small task waits behind large ones."""
    claim_pause_ms: int = 250
    """Pause (ms) before the next claim when there were no tasks."""
    item_bytes_max: int = 64 * MIB
    """Bytes of one work item, the unit of parallel work on executors."""
    row_group_bytes: int = 8 * MIB
    """Uncompressed bytes of a row group, which a reader of history decodes at once. Larger groups compress and scan slightly better; a
    consumer of many partitions keeps two groups per partition in memory."""
    commits_under_way_max: int = 2
    """Rounds that may still commit while the next round runs."""
    commit_slow_ms: int = 5_000
    """Time (ms) after which a round that still commits no longer counts: a table that does not answer delays no other stream."""
    slow_commits_max: int = 64
    """Streams whose commits may be that slow at once; beyond this number, their rounds count. Their tasks stay claimed and in memory."""
    store_calls_max: int = 8
    """Concurrent calls of one round to the metadata store."""
    deadline_ms: int = 600_000
    """Longest time (ms) from a claim, or the start of a current table's round, until its files are written. Must be far below
    `sweep.orphan_grace_ms`, so that no sweep deletes the files before they are committed."""
    attempts_max: int = 5
    """Failures after which a task is quarantined and waits for an operator."""
    retry_first_ms: int = 1_000
    """Wait (ms) before the second attempt; doubles with each attempt, with jitter."""
    retry_max_ms: int = 60_000
    """Longest wait (ms) between attempts."""
    unavailable_pause_ms: int = 500
    """Pause (ms) after a store did not answer; doubles up to `retry_max_ms`. Such failures do not count as attempts of a task."""
    quarantine_bytes_max: int = 32 * MIB
    """Bytes copied at once when a task is quarantined; each portion becomes an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSettings:
    """Deletion of unreferenced objects, and the upkeep of tables. One worker at a time sweeps for all streams."""

    grace_ms: int = 3_000
    """Time (ms) without a reference after which an object is deleted. Readers that still had its name look up the offsets again."""
    pause_ms: int = 10_000
    """Pause (ms) between rounds over unused WAL objects. Each round with something to delete also lists the holds of backups."""
    page_count: int = 1_000
    """Objects, streams or partitions per step."""
    file_pause_ms: int = 30_000
    """Pause (ms) between rounds over unused data files, which may wait for snapshots to expire."""
    orphan_grace_ms: int = 6 * 3_600_000
    """Age (ms) at which an object that was never committed counts as left behind by a crash. If the age is too short, work is repeated, but
    nothing is lost."""
    orphan_pause_ms: int = 600_000
    """Pause (ms) between searches for orphans; each lists one page of keys at a time."""
    quarantine_retry_ms: int = 600_000
    """Time (ms) after which a quarantined task is tried once more, so that its partitions do not pin objects of other streams for
    longer."""
    retention_pause_ms: int = 60_000
    """Pause (ms) between rounds of `retention.ms` and `retention.bytes`."""
    table_pause_ms: int = 60_000
    """Pause (ms) between rounds over all tables: creation, snapshot expiry, `table.retention_ms`, dropping."""
    retry_pause_ms: int = 1_000
    """Pause (ms) before the next request to a store that did not answer, or for a lease that another worker holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPriority:
    """How much some streams come before others."""

    streams: str = "*"
    """Pattern of the streams' names."""
    priority: int = field(default=0, metadata={"min": -1_000, "max": 1_000})
    """Larger ones go first; 0 is that of streams without one."""

    def __post_init__(self) -> None:
        check_pattern("streams", self.streams)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """Settings of a compaction worker."""

    streams: tuple[str, ...] = ()
    """Patterns (`orders-*`, `*.raw`, `[a-c]?`) of the streams that this worker plans and compacts; empty: all. Several workers may have the
    same streams, because each task belongs to one worker. A stream without a worker stays in the WAL."""
    priorities: tuple[StreamPriority, ...] = ()
    """Priorities of streams' tasks, as a list of `{streams: pattern, priority: number}`; the first matching pattern applies."""
    priority_step_ms: int = 600_000
    """How much older (ms) each step of priority makes a waiting task appear. Workers take the oldest task first, so tasks of higher
    priority go first, but every task is taken eventually."""
    planner: PlannerSettings = field(default_factory=PlannerSettings)
    """When records become tasks."""
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    """How tasks are worked on."""
    task: TaskLimits = field(default_factory=TaskLimits)
    """What one work item may take."""
    merge: MergeSettings = field(default_factory=MergeSettings)
    """How small data files become large ones."""
    key_compaction: KeyCompactionSettings = field(default_factory=KeyCompactionSettings)
    """How superseded records are removed."""
    current: CurrentSettings = field(default_factory=CurrentSettings)
    """How current tables are brought up to date."""
    columns: ColumnSettings = field(default_factory=ColumnSettings)
    """How values become typed columns."""
    sweep: SweepSettings = field(default_factory=SweepSettings)
    """How what nothing needs is deleted."""

    def __post_init__(self) -> None:
        for pattern in self.streams:
            check_pattern("streams", pattern)
        if self.sweep.orphan_grace_ms < 4 * self.worker.deadline_ms:
            raise ValueError("sweep.orphan_grace_ms must be at least four times worker.deadline_ms")

    @property
    def choice(self) -> TaskChoice:
        """Which tasks a worker takes, and in which order."""
        return TaskChoice(
            streams=self.streams,
            head_starts=[(priority.streams, priority.priority * self.priority_step_ms) for priority in self.priorities],
        )
