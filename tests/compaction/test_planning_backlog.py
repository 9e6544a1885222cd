"""The backlog of compaction and the tasks that result from it: pure functions."""

from dataclasses import replace

from bearlake.compaction.backlog import Backlog, Waiting, cut, is_too_large, pack
from bearlake.compaction.settings import PlannerSettings
from bearlake.metadata.compaction import OffsetRange, PartitionBacklog, Task, TaskKind, TaskState
from bearlake.metadata.model import PartitionKey, Slice, partition_key

SETTINGS = PlannerSettings(
    due_fraction=0.5, due_bytes=1_000, task_bytes_max=1_000, task_partition_count_max=3, task_slice_count_max=10
)
FIRST, SECOND = partition_key(1, 0), partition_key(1, 1)


def committed(partition: PartitionKey, base: int, count: int, length: int = 10) -> Slice:
    return Slice(partition, base, count, 0, length, 0)


def task(*ranges: tuple[PartitionKey, int, int], state: TaskState = TaskState.OPEN) -> Task:
    return Task(
        id=5,
        kind=TaskKind.COMPACT,
        state=state,
        stream_number=1,
        ranges=[OffsetRange(*found) for found in ranges],
        inputs=(),
        size_bytes=0,
        record_count=0,
        age_ms=0,
    )


def a_backlog(freshness_ms: int = 2_000) -> Backlog:
    backlog = Backlog(SETTINGS)
    backlog.committed(committed(FIRST, 0, 5), 10.0)
    backlog.set_freshness(1, freshness_ms)
    return backlog


def test_a_stream_is_due_when_its_oldest_record_has_waited_for_its_part_of_the_freshness() -> None:
    backlog = a_backlog()

    assert backlog.due(10.9) == ([], 11.0)
    assert backlog.due(11.0)[0] == [1]


def test_a_stream_is_due_at_once_when_many_bytes_wait() -> None:
    backlog = a_backlog()
    backlog.committed(committed(SECOND, 0, 5, length=990), 10.0)

    assert backlog.due(10.0)[0] == [1]


def test_a_stream_of_unknown_freshness_is_not_due() -> None:
    backlog = Backlog(SETTINGS)
    backlog.committed(committed(FIRST, 0, 5), 10.0)

    assert backlog.due(1e6)[0] == []
    assert backlog.unknown_streams() == [1]


def test_streams_are_due_in_the_order_of_their_oldest_records() -> None:
    backlog = a_backlog()
    backlog.committed(committed(partition_key(2, 0), 0, 5), 9.0)
    backlog.set_freshness(2, 2_000)

    assert backlog.due(20.0)[0] == [2, 1]


def test_a_head_start_lets_a_younger_stream_be_the_first_until_the_older_has_waited_longer() -> None:
    backlog = a_backlog()
    other = partition_key(2, 0)
    backlog.committed(committed(other, 0, 5), 19.0)
    backlog.set_freshness(2, 2_000, 10_000)

    assert backlog.due(30.0)[0] == [2, 1]
    backlog.compacted(other, 5)
    backlog.forget(other)
    backlog.committed(committed(other, 5, 5), 20.5)
    assert backlog.due(30.0)[0] == [1, 2]


def test_streams_that_are_left_out_keep_no_state() -> None:
    backlog = a_backlog()

    backlog.leave_out(1)
    backlog.committed(committed(FIRST, 5, 5), 10.0)
    backlog.load(PartitionBacklog(SECOND, 0, 5, 10, 0), 10.0)
    backlog.busy(task((FIRST, 0, 10)))

    assert backlog.due(1e6) == ([], float("inf"))
    assert (backlog.partition_count, backlog.task_count(), backlog.unknown_streams()) == (0, 0, [])
    assert Backlog(SETTINGS, backlog.left_out).is_known(1)


def test_a_partition_with_a_task_waits_until_it_is_compacted() -> None:
    backlog = a_backlog()
    backlog.busy(task((FIRST, 0, 5)))
    backlog.committed(committed(FIRST, 5, 5), 12.0)

    assert backlog.due(20.0)[0] == []
    backlog.compacted(FIRST, 5)
    assert backlog.due(20.0)[0] == [1]
    assert backlog.streams[1].ready() == [(FIRST, Waiting(5, 10, 10, 1, 12.0))]


def test_a_task_that_is_quarantined_does_not_count_as_open() -> None:
    backlog = a_backlog()
    backlog.busy(task((FIRST, 0, 5), state=TaskState.QUARANTINED))

    backlog.committed(committed(FIRST, 5, 5), 12.0)
    assert backlog.task_count(1) == 0
    assert backlog.due(1e9)[0] == []


def test_quarantined_partitions_do_not_crowd_out_others() -> None:
    backlog = Backlog(replace(SETTINGS, partition_count_max=2))
    backlog.set_freshness(2, 2_000)
    quarantined = [partition_key(1, index) for index in range(10)]
    backlog.busy(task(*((key, 0, 5) for key in quarantined), state=TaskState.QUARANTINED))
    for key in [*quarantined, partition_key(2, 0), partition_key(2, 1)]:
        backlog.load(PartitionBacklog(key, 0, 5, 100, 0), 10.0)

    assert not backlog.is_partial
    assert backlog.due(100.0)[0] == [2]


def test_the_backlog_keeps_nothing_about_compacted_ranges() -> None:
    backlog = a_backlog()
    backlog.busy(task((FIRST, 0, 5)))
    backlog.compacted(FIRST, 5)

    assert backlog.partition_count == 0
    assert not backlog.streams


def test_a_commit_that_is_known_already_changes_nothing() -> None:
    backlog = a_backlog()

    assert backlog.committed(committed(FIRST, 0, 5), 11.0)
    assert backlog.streams[1].ready() == [(FIRST, Waiting(0, 5, 10, 1, 10.0))]


def test_a_commit_after_a_gap_is_reported() -> None:
    assert not a_backlog().committed(committed(FIRST, 9, 5), 11.0)


def test_a_trim_takes_waiting_records_away() -> None:
    backlog = a_backlog()
    backlog.trimmed(FIRST, 3)
    ((_, waiting),) = backlog.streams[1].ready()

    assert (waiting.start, waiting.end) == (3, 5)
    backlog.trimmed(FIRST, 5)
    assert backlog.partition_count == 0


def test_memory_is_bounded_and_the_limit_is_reported() -> None:
    backlog = Backlog(PlannerSettings(partition_count_max=2))
    for index in range(5):
        backlog.load(PartitionBacklog(partition_key(1, index), 0, 5, 100, 0), 0.0)

    assert backlog.partition_count == 2
    assert backlog.is_partial


def test_tasks_are_bounded_in_partitions_bytes_and_slices() -> None:
    ready = [(partition_key(1, index), Waiting(0, 4, 400, 4, float(index))) for index in range(6)]
    offers = pack(ready, {}, SETTINGS, number=1, task_count_max=9, now_s=10.0)

    assert [len(offer.ranges) for offer in offers] == [2, 2, 2]
    assert [offer.age_ms for offer in offers] == [10_000, 8_000, 6_000]
    assert all(offer.size_bytes == 800 and offer.record_count == 8 for offer in offers)


def test_the_tasks_of_a_huge_stream_are_limited() -> None:
    ready = [(partition_key(1, index), Waiting(0, 4, 900, 4, 0.0)) for index in range(50)]

    assert len(pack(ready, {}, SETTINGS, number=1, task_count_max=2, now_s=1.0)) == 2


def test_a_partition_above_the_limit_is_cut_after_a_slice() -> None:
    waiting = Waiting(0, 40, 4_000, 40, 0.0)
    slices = [committed(FIRST, base, 4, length=400) for base in range(0, 40, 4)]
    found = cut(FIRST, 0, slices, SETTINGS, 40)
    assert found is not None
    (offer,) = pack([(FIRST, waiting)], {FIRST: found}, SETTINGS, number=1, task_count_max=2, now_s=1.0)

    assert is_too_large(waiting, SETTINGS)
    assert offer.ranges == [OffsetRange(FIRST, 0, 8)]
    assert offer.size_bytes == 800


def test_a_single_slice_above_the_limit_still_becomes_a_task() -> None:
    found = cut(FIRST, 0, [committed(FIRST, 0, 4, length=9_000)], SETTINGS, 4)

    assert found is not None
    assert found.end_offset == 4
