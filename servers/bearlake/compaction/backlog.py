"""The planner's view of what waits for compaction: per partition, the offsets that are in no task yet. Pure: no store, no clock.

    compacted       start                end
        │  in a task  │      waiting       │         `start` moves when a task is offered, `end` when records are committed
        └─────────────┴────────────────────┘

Holds only partitions with waiting records or an open task, at most `partition_count_max`. Further partitions are skipped, and
`is_partial` shows that the store has more. Partitions of quarantined tasks (`quarantined`) do not count towards the limit, so that they
cannot displace others, however many they are (I11). Times are those of the caller's clock, in seconds.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bearlake.compaction.settings import PlannerSettings
from bearlake.metadata.compaction import OffsetRange, PartitionBacklog, Task, TaskKind, TaskOffer, TaskState
from bearlake.metadata.model import PartitionKey, Slice, stream_number


@dataclass(slots=True)
class Waiting:
    """A partition's waiting records `[start, end)`: bytes, upper bound of slices, waiting since. `task_end`: end of its task, or -1."""

    start: int
    end: int
    size_bytes: int
    slice_count: int
    since_s: float
    task_end: int = -1
    task_id: int = 0


@dataclass(slots=True)
class StreamBacklog:
    """A stream's partitions, how long (s) its records may wait, its head start (s) when streams take turns, and its open tasks
    (without quarantined tasks)."""

    due_after_s: float
    head_start_s: float = 0.0
    partitions: dict[PartitionKey, Waiting] = field(default_factory=dict)
    tasks: set[int] = field(default_factory=set)

    def ready(self) -> list[tuple[PartitionKey, Waiting]]:
        """Return partitions with waiting records and no task, oldest first."""
        found = [item for item in self.partitions.items() if item[1].task_end < 0 and item[1].end > item[1].start]
        found.sort(key=lambda item: (item[1].since_s, item[0]))
        return found


class Backlog:
    """The backlog of all streams; see the module docstring."""

    def __init__(self, settings: PlannerSettings, left_out: Collection[int] = ()) -> None:
        """`left_out`: streams known to belong to other workers."""
        self._settings = settings
        self.streams: dict[int, StreamBacklog] = {}
        self._rules: dict[int, tuple[float, float]] = {}
        self.left_out = set(left_out)
        self.quarantined: set[PartitionKey] = set()
        """Partitions of quarantined tasks; nothing else is stored about them."""
        self.partition_count = 0
        self.is_partial = False

    # -- updates -------------------------------------------------------------------------------------------------

    def load(self, reported: PartitionBacklog, now_s: float) -> None:
        """Add a partition's backlog from the store."""
        records = reported.end - reported.compacted
        waiting = Waiting(
            reported.compacted, reported.end, reported.size_bytes, records, now_s - reported.age_ms / 1000
        )
        self._put(reported.partition, waiting)

    def committed(self, piece: Slice, now_s: float) -> bool:
        """Add a committed slice. Returns False if the slice does not follow the known records; the caller must then ask the store."""
        waiting = self.get(piece.partition)
        if waiting is None:
            if not self.is_partial:
                self._put(piece.partition, Waiting(piece.base_offset, piece.end_offset, piece.length, 1, now_s))
            return True
        if piece.end_offset <= waiting.end:
            return True
        if waiting.start == waiting.end:
            waiting.since_s = now_s
        is_dense = piece.base_offset == waiting.end
        waiting.end = piece.end_offset
        waiting.size_bytes += piece.length
        waiting.slice_count += 1
        return is_dense

    def trimmed(self, partition: PartitionKey, start: int) -> None:
        """Apply a trim of the partition to `start`."""
        waiting = self.get(partition)
        if waiting is not None and start > waiting.start:
            _advance(waiting, min(start, waiting.end))
            waiting.start, waiting.end = start, max(start, waiting.end)
            self._drop_if_done(partition, waiting)

    def busy(self, task: Task) -> None:
        """Add an open task: its partitions offer nothing until it ends."""
        if task.kind is TaskKind.COMPACT and task.state is TaskState.QUARANTINED:
            for partition, _, _ in task.ranges:
                self.quarantined.add(partition)
                self.forget(partition)
        elif task.kind is TaskKind.COMPACT:
            for partition, _, end in task.ranges:
                waiting = self.get(partition)
                if waiting is None:
                    waiting = Waiting(end, end, 0, 0, 0.0)
                    self._put(partition, waiting)
                elif end > waiting.start:
                    _advance(waiting, min(end, waiting.end))
                    waiting.start, waiting.end = end, max(end, waiting.end)
                waiting.task_end = end
                waiting.task_id = task.id
            stream = self.streams.get(task.stream_number)
            if stream is not None:
                stream.tasks.add(task.id)

    def recount(self) -> None:
        """Reset the task counts; the caller passes all open tasks again (`busy`)."""
        for stream in self.streams.values():
            stream.tasks.clear()

    def compacted(self, partition: PartitionKey, offset: int) -> None:
        """Note how far the partition is compacted; if that covers the partition's task, the task is done."""
        waiting = self.get(partition)
        if waiting is not None and 0 <= waiting.task_end <= offset:
            self.streams[stream_number(partition)].tasks.discard(waiting.task_id)
            waiting.task_end, waiting.task_id = -1, 0
            self._drop_if_done(partition, waiting)

    def forget(self, partition: PartitionKey) -> None:
        """Remove a partition: nothing known waits in it."""
        stream = self.streams.get(stream_number(partition))
        if stream is not None and stream.partitions.pop(partition, None) is not None:
            self.partition_count -= 1
            if not stream.partitions:
                del self.streams[stream_number(partition)]

    def forget_stream(self, number: int) -> None:
        """Remove a stream that was deleted or belongs to other workers."""
        self._rules.pop(number, None)
        stream = self.streams.pop(number, None)
        if stream is not None:
            self.partition_count -= len(stream.partitions)

    def leave_out(self, number: int) -> None:
        """Leave the stream to other workers and ignore its records from now on."""
        self.forget_stream(number)
        if len(self.left_out) > self._settings.partition_count_max:
            self.left_out.clear()  # over the limit: the streams are looked up again
        self.left_out.add(number)

    def set_freshness(self, number: int, freshness_ms: int, head_start_ms: int = 0) -> None:
        """Set the stream's longest time from commit to table (`table.freshness_ms`), and its head start. Kept even without a backlog, up
        to a limit of streams."""
        if len(self._rules) > self._settings.partition_count_max:
            self._rules.clear()
        rules = freshness_ms * self._settings.due_fraction / 1000, head_start_ms / 1000
        self._rules[number] = rules
        stream = self.streams.get(number)
        if stream is not None:
            stream.due_after_s, stream.head_start_s = rules

    def unknown_streams(self) -> list[int]:
        """Return streams with a backlog but unknown freshness; they are not due until it is known."""
        return [number for number in self.streams if number not in self._rules]

    def is_known(self, number: int) -> bool:
        """Return whether the stream's owner is known."""
        return number in self._rules or number in self.left_out

    # -- queries -------------------------------------------------------------------------------------------------

    def get(self, partition: PartitionKey) -> Waiting | None:
        """Return the partition's state, if it has waiting records or a task."""
        stream = self.streams.get(stream_number(partition))
        return None if stream is None else stream.partitions.get(partition)

    def open_partitions(self) -> Iterator[PartitionKey]:
        """Yield partitions with a task."""
        for stream in self.streams.values():
            for partition, waiting in stream.partitions.items():
                if waiting.task_end >= 0:
                    yield partition

    def task_count(self, number: int | None = None) -> int:
        """Return the number of open tasks, of one stream or of all."""
        if number is None:
            return sum(len(stream.tasks) for stream in self.streams.values())
        stream = self.streams.get(number)
        return 0 if stream is None else len(stream.tasks)

    def due(self, now_s: float) -> tuple[list[int], float]:
        """Return the due streams, longest waiting first (with head starts), and when (s) the next becomes due (may be infinity)."""
        found: list[tuple[float, int]] = []
        next_s = float("inf")
        for number, stream in self.streams.items():
            oldest_s, size = float("inf"), 0
            for waiting in stream.partitions.values():
                if waiting.task_end < 0 and waiting.end > waiting.start:
                    oldest_s = min(oldest_s, waiting.since_s)
                    size += waiting.size_bytes
            if oldest_s + stream.due_after_s <= now_s or (size >= self._settings.due_bytes):
                found.append((oldest_s - stream.head_start_s, number))
            else:
                next_s = min(next_s, oldest_s + stream.due_after_s)
        return [number for _, number in sorted(found)], next_s

    def _put(self, partition: PartitionKey, waiting: Waiting) -> None:
        number = stream_number(partition)
        if number in self.left_out or partition in self.quarantined:
            return
        stream = self.streams.get(number)
        if stream is None or partition not in stream.partitions:
            if self.partition_count >= self._settings.partition_count_max:
                self.is_partial = True
                return
            self.partition_count += 1
        if stream is None:
            stream = self.streams[number] = StreamBacklog(*self._rules.get(number, (float("inf"), 0.0)))
        stream.partitions[partition] = waiting

    def _drop_if_done(self, partition: PartitionKey, waiting: Waiting) -> None:
        if waiting.task_end < 0 and waiting.start >= waiting.end:
            self.forget(partition)


def _advance(waiting: Waiting, start: int) -> None:
    """Remove `[waiting.start, start)`. Bytes and slices shrink in proportion, which is exact when nothing is left."""
    left = waiting.end - start
    total = waiting.end - waiting.start
    if total > 0:
        waiting.size_bytes = waiting.size_bytes * left // total
        waiting.slice_count = min(waiting.slice_count, left)
    waiting.start = start


def pack(
    ready: Sequence[tuple[PartitionKey, Waiting]],
    cuts: Mapping[PartitionKey, Slice],
    settings: PlannerSettings,
    *,
    number: int,
    task_count_max: int,
    now_s: float,
) -> list[TaskOffer]:
    """Build offers for the partitions, in order, each within the limits of a task; at most `task_count_max`.

    `cuts` are for partitions too large for one task: a slice with the part to take now, `(_, start, count, _, length, _)`.
    """
    groups: list[list[tuple[OffsetRange, int, int, float]]] = []
    room_bytes = room_slices = 0
    for partition, waiting in ready:
        cut = cuts.get(partition)
        taken = OffsetRange(partition, waiting.start, waiting.end)
        size, slices = waiting.size_bytes, waiting.slice_count
        if cut is not None:
            taken, size = OffsetRange(partition, cut.base_offset, cut.end_offset), cut.length
            slices = settings.task_slice_count_max
        is_full = not groups or len(groups[-1]) >= settings.task_partition_count_max
        if is_full or size > room_bytes or slices > room_slices:
            if len(groups) >= task_count_max:
                break
            groups.append([])
            room_bytes, room_slices = settings.task_bytes_max, settings.task_slice_count_max
        groups[-1].append((taken, size, taken.end - taken.start, waiting.since_s))
        room_bytes -= size
        room_slices -= slices
    return [
        TaskOffer(
            kind=TaskKind.COMPACT,
            stream_number=number,
            ranges=sorted(taken for taken, _, _, _ in group),
            size_bytes=sum(size for _, size, _, _ in group),
            record_count=sum(count for _, _, count, _ in group),
            age_ms=max(0, round(1000 * (now_s - min(since_s for _, _, _, since_s in group)))),
        )
        for group in groups
    ]


def is_too_large(waiting: Waiting, settings: PlannerSettings) -> bool:
    """Return whether the partition's waiting records may exceed one task."""
    return waiting.size_bytes > settings.task_bytes_max or waiting.slice_count > settings.task_slice_count_max


def cut(
    partition: PartitionKey, start: int, slices: Collection[Slice], settings: PlannerSettings, end: int
) -> Slice | None:
    """Combine as many slices from `start` up to `end` as a task holds, at least one, into one slice. None: there are none."""
    size, last = 0, None
    for count, piece in enumerate(slices):
        is_over = size + piece.length > settings.task_bytes_max or count >= settings.task_slice_count_max
        if piece.base_offset >= end or (last is not None and is_over):
            break
        size += piece.length
        last = piece.end_offset
    return None if last is None else Slice(partition, start, last - start, 0, size, 0)
