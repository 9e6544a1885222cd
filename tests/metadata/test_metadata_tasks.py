"""The task queue in every store: offers by one planner, claims that live as long as their worker, fences, failures, backlogs."""

import contextlib

import pytest

from bearlake.errors import Fenced, Invalid, NotFound
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import TaskClaim, TaskKind, TaskState
from bearlake.metadata.model import PartitionKey
from fixtures import by_name
from fixtures.compaction_scene import PLANNER, Compaction
from fixtures.liveness import lapse

START = PartitionKey(-1)


@pytest.fixture
async def four(compaction: Compaction) -> Compaction:
    """A stream with four partitions of 20 records in two slices, 200 bytes each partition."""
    scene = compaction.scene
    scene.first = await scene.stream(partition_count=4)
    scene.keys = [scene.first.partition(index) for index in range(4)]
    for _ in range(2):
        await scene.commit(*(scene.batch(key, 10) for key in scene.keys))
    return compaction


# Offers.


async def test_an_offered_task_is_queued_unchanged(four: Compaction, peer: Metadata) -> None:
    ranges = [(four.scene.keys[0], 0, 20), (four.scene.keys[1], 0, 10)]
    (task,) = await four.offer(four.compact(*ranges, size_bytes=300, age_ms=7))
    await four.scene.backend.advance(5)
    (listed,) = await peer.tasks.list()

    assert (task.kind, task.state, task.stream_number) == (TaskKind.COMPACT, TaskState.OPEN, four.scene.first.number)
    assert [tuple(range_) for range_ in task.ranges] == ranges
    assert (task.size_bytes, task.record_count, task.age_ms) == (300, 30, 7)
    assert (task.epoch, task.holder, task.attempt_count, task.wait_ms, task.error) == (0, None, 0, 0, "")
    assert dict(task.results) == {}
    assert (listed.id, listed.age_ms, list(listed.ranges)) == (task.id, 12, list(task.ranges))


async def test_a_partition_belongs_to_one_task_at_a_time(four: Compaction) -> None:
    first, second = four.scene.keys[:2]
    offers = [
        four.compact((first, 0, 10)),
        four.compact((first, 0, 20), (second, 0, 20)),
        four.compact((second, 0, 20)),
    ]
    made = await four.offer(*offers)

    assert [[tuple(range_) for range_ in task.ranges] for task in made] == [[(first, 0, 10)], [(second, 0, 20)]]
    assert await four.offer(four.compact((first, 0, 20))) == []


@pytest.mark.parametrize("range_", [(5, 20), (0, 21), (10, 10), (20, 20)])
async def test_a_range_that_is_not_the_next_is_left_out(four: Compaction, range_: tuple[int, int]) -> None:
    assert await four.offer(four.compact((four.scene.keys[0], *range_))) == []


async def test_ranges_continue_where_the_last_task_ended(four: Compaction) -> None:
    key = four.scene.keys[0]
    await four.compacted((key, 0, 10))

    assert await four.offer(four.compact((key, 0, 20))) == []
    assert len(await four.offer(four.compact((key, 10, 20)))) == 1


async def test_ranges_start_at_a_trimmed_start(four: Compaction) -> None:
    key = four.scene.keys[0]
    await four.metadata.log.trim(key, 5)

    assert await four.offer(four.compact((key, 0, 20))) == []
    await four.compacted((key, 5, 20))
    assert await four.metadata.tasks.compacted([key]) == {key: 20}
    assert (await four.metadata.log.usage([key]))[key] == (200, 15)


async def test_deleted_streams_are_left_out_and_their_tasks_dropped(four: Compaction, peer: Metadata) -> None:
    await four.offer(four.compact((four.scene.keys[0], 0, 20)))
    await by_name.delete(peer, "orders")

    assert await four.offer(four.compact((four.scene.keys[1], 0, 20))) == []
    assert await four.metadata.tasks.claim(four.worker, limit=10, bytes_max=1 << 40) == []
    assert list(await peer.tasks.list()) == []


async def test_a_planner_that_was_overtaken_is_fenced(four: Compaction, peer: Metadata) -> None:
    assert await lapse(peer, four.lease.holder)
    other = await four.scene.register(peer, "server-1")
    await peer.leases.acquire(PLANNER, other)

    with pytest.raises(Fenced):
        await four.offer(four.compact((four.scene.keys[0], 0, 20)))
    assert list(await peer.tasks.list()) == []


async def test_a_file_is_merged_by_one_task_at_a_time(four: Compaction) -> None:
    number = four.scene.first.number
    files = [(await four.compacted((key, 0, 20))).object.key for key in four.scene.keys[:3]]
    made = await four.offer(four.merge(number, *files[:2]), four.merge(number, *files[1:]))

    assert [list(task.inputs) for task in made] == [files[:2]]
    assert await four.offer(four.merge(number, files[2], "data/none")) == []
    await four.metadata.tasks.cancel(await four.claim())
    assert len(await four.offer(four.merge(number, *files[1:]))) == 1


# Claims.


async def test_the_oldest_tasks_are_claimed_first_within_limits(four: Compaction) -> None:
    tasks = four.metadata.tasks
    made = await four.offer(*(four.compact((key, 0, 20), size_bytes=100) for key in four.scene.keys))
    first = await tasks.claim(four.worker, limit=1, bytes_max=1_000)
    second = await tasks.claim(four.worker, limit=10, bytes_max=199)
    rest = await tasks.claim(four.worker, limit=10, bytes_max=200)

    assert [[task.id for task in tasks] for tasks in (first, second, rest)] == [
        [made[0].id],
        [made[1].id],
        [made[2].id, made[3].id],
    ]
    assert (first[0].epoch, first[0].holder) == (1, four.worker)
    assert await tasks.claim(four.worker, limit=10, bytes_max=1_000) == []


async def test_a_task_larger_than_the_limit_is_claimed_alone(four: Compaction) -> None:
    await four.offer(*(four.compact((key, 0, 20), size_bytes=1_000) for key in four.scene.keys[:2]))

    assert len(await four.metadata.tasks.claim(four.worker, limit=10, bytes_max=10)) == 1


async def test_tasks_of_a_dead_worker_are_taken_over(four: Compaction, peer: Metadata) -> None:
    claim = await four.claimed((four.scene.keys[0], 0, 20))
    await four.metadata.tasks.prepare(claim, b"written", [])
    heir = await four.scene.register(peer, "worker-1", timeout_ms=60_000)
    assert await peer.tasks.claim(heir, limit=10, bytes_max=1_000) == []

    assert await lapse(peer, four.worker)
    (listed,) = await peer.tasks.list()
    (task,) = await peer.tasks.claim(heir, limit=10, bytes_max=10_000)

    assert listed.holder is None
    assert (task.id, task.epoch, task.holder) == (claim.task_id, 2, heir)
    assert dict(task.results) == {1: b"written"}
    with pytest.raises(Fenced):
        await four.metadata.tasks.prepare(claim, b"again", [])
    with pytest.raises(Fenced):
        await four.metadata.tasks.fail(claim, "late", retry_after_ms=0, is_quarantined=False)
    with pytest.raises(Fenced):
        await four.metadata.tasks.cancel(claim)
    await four.metadata.tasks.release([claim])
    assert [task.holder for task in await peer.tasks.list()] == [heir]


async def test_tasks_of_a_worker_that_left_are_taken_over_at_once(four: Compaction, peer: Metadata) -> None:
    await four.claimed((four.scene.keys[0], 0, 20))
    await four.metadata.servers.leave(four.worker)
    heir = await four.scene.register(peer, "worker-1")

    assert len(await peer.tasks.claim(heir, limit=10, bytes_max=10_000)) == 1


async def test_a_reregistered_worker_takes_over_from_itself(four: Compaction, peer: Metadata) -> None:
    zombie = await four.claimed((four.scene.keys[0], 0, 20))
    again = await four.scene.register(peer, "worker-0")
    (task,) = await peer.tasks.claim(again, limit=10, bytes_max=10_000)

    assert (task.epoch, task.holder) == (2, again)
    with pytest.raises(Fenced):
        await four.metadata.tasks.claim(zombie.worker, limit=10, bytes_max=10_000)
    with pytest.raises(Fenced):
        await four.metadata.tasks.prepare(zombie, b"", [])


async def test_a_claim_holds_until_it_is_overtaken_given_back_or_its_task_is_closed(
    four: Compaction, peer: Metadata
) -> None:
    first, second = [await four.claimed((key, 0, 20)) for key in four.scene.keys[:2]]
    await peer.tasks.check([])
    await peer.tasks.check([first, second])
    assert await lapse(peer, four.worker)
    await four.metadata.tasks.check([first, second])  # no worker has taken over yet

    heir = await four.scene.register(peer, "worker-1", timeout_ms=60_000)
    (task,) = await peer.tasks.claim(heir, limit=1, bytes_max=10_000)
    again = TaskClaim(task_id=task.id, epoch=task.epoch, worker=heir)
    assert (task.id, task.epoch) == (first.task_id, 2)
    for lost in ([first], [second, first]):
        with pytest.raises(Fenced):
            await four.metadata.tasks.check(lost)
    await four.metadata.tasks.check([again, second])
    await peer.tasks.release([again])
    with pytest.raises(Fenced):
        await four.metadata.tasks.check([again])
    await four.metadata.tasks.cancel(second)
    with pytest.raises(Fenced):
        await peer.tasks.check([second])


async def test_a_claim_ends_when_its_task_is_dropped_with_its_stream(four: Compaction, peer: Metadata) -> None:
    claim = await four.claimed((four.scene.keys[0], 0, 20))
    await four.metadata.tasks.prepare(claim, b"written", ["data/1"])
    await peer.streams.delete(four.scene.first.number)
    await four.metadata.tasks.check([claim])
    await four.metadata.servers.leave(four.worker)
    heir = await four.scene.register(peer, "worker-1")

    assert await peer.tasks.claim(heir, limit=10, bytes_max=10_000) == []
    with pytest.raises(Fenced):
        await four.metadata.tasks.check([claim])
    assert await peer.objects.forbid(["data/1"]) == {"data/1"}


async def test_a_worker_whose_heartbeats_stopped_cannot_claim(four: Compaction) -> None:
    await four.offer(four.compact((four.scene.keys[0], 0, 20)))
    assert await lapse(four.metadata, four.worker)

    with pytest.raises(Fenced):
        await four.metadata.tasks.claim(four.worker, limit=10, bytes_max=10_000)
    await four.metadata.servers.heartbeat(four.worker)
    assert len(await four.metadata.tasks.claim(four.worker, limit=10, bytes_max=10_000)) == 1


async def test_a_released_task_is_claimed_again_and_counts_no_failure(four: Compaction) -> None:
    claim = await four.claimed((four.scene.keys[0], 0, 20))
    await four.metadata.tasks.release([claim])
    (task,) = await four.metadata.tasks.claim(four.worker, limit=10, bytes_max=10_000)

    assert (task.id, task.epoch, task.attempt_count) == (claim.task_id, 2, 0)
    with pytest.raises(Fenced):
        await four.metadata.tasks.prepare(claim, b"", [])


# Results and failures.


async def test_results_are_kept_by_epoch(four: Compaction, peer: Metadata) -> None:
    first = await four.claimed((four.scene.keys[0], 0, 20))
    await four.metadata.tasks.prepare(first, b"one", [])
    await four.metadata.tasks.prepare(first, b"one again", [])
    await four.metadata.tasks.release([first])
    second = await four.claim()
    await peer.tasks.prepare(second, bytes(100_000), [])
    await four.metadata.tasks.release([second])
    (task,) = await peer.tasks.claim(four.worker, limit=1, bytes_max=1)

    assert dict(task.results) == {1: b"one again", 2: bytes(100_000)}


async def test_too_large_a_result_is_invalid(four: Compaction) -> None:
    claim = await four.claimed((four.scene.keys[0], 0, 20))

    with pytest.raises(Invalid):
        await four.metadata.tasks.prepare(claim, bytes((16 << 20) + 1), [])


async def test_a_failed_task_waits_before_it_is_claimed_again(four: Compaction, peer: Metadata) -> None:
    tasks = four.metadata.tasks
    claim = await four.claimed((four.scene.keys[0], 0, 20))
    await tasks.fail(claim, "broken pipe", retry_after_ms=5_000, is_quarantined=False)
    (listed,) = await peer.tasks.list()

    assert (listed.attempt_count, listed.wait_ms, listed.error, listed.holder) == (1, 5_000, "broken pipe", None)
    assert await tasks.claim(four.worker, limit=1, bytes_max=1) == []
    await four.scene.backend.advance(5_000)
    (task,) = await tasks.claim(four.worker, limit=1, bytes_max=1)
    assert (task.id, task.epoch, task.attempt_count, task.wait_ms) == (claim.task_id, 2, 1, 0)


async def test_a_repeated_failure_report_counts_once(four: Compaction) -> None:
    claim = await four.claimed((four.scene.keys[0], 0, 20))
    await four.metadata.tasks.fail(claim, "broken", retry_after_ms=0, is_quarantined=False)
    with contextlib.suppress(Fenced):
        await four.metadata.tasks.fail(claim, "broken", retry_after_ms=0, is_quarantined=False)

    assert [task.attempt_count for task in await four.metadata.tasks.list()] == [1]


async def test_a_task_in_quarantine_waits_for_an_operator(four: Compaction, peer: Metadata) -> None:
    key = four.scene.keys[0]
    claim = await four.claimed((key, 0, 20))
    await four.metadata.tasks.fail(claim, "undecodable", retry_after_ms=0, is_quarantined=True)
    await four.scene.backend.advance(5_000)
    (listed,) = await peer.tasks.list(stream_number=four.scene.first.number)

    assert (listed.state, listed.error) == (TaskState.QUARANTINED, "undecodable")
    await four.metadata.servers.heartbeat(four.worker)
    assert await four.metadata.tasks.claim(four.worker, limit=1, bytes_max=1) == []
    assert await four.offer(four.compact((key, 0, 20))) == []

    retried = await peer.tasks.retry(claim.task_id)
    assert (retried.state, retried.attempt_count, retried.wait_ms) == (TaskState.OPEN, 0, 0)
    assert (await four.claim()).epoch == 2
    with pytest.raises(NotFound):
        await peer.tasks.retry(claim.task_id + 1)


async def test_a_task_in_quarantine_goes_with_its_stream(four: Compaction, peer: Metadata) -> None:
    claim = await four.claimed((four.scene.keys[0], 0, 20))
    await four.metadata.tasks.fail(claim, "undecodable", retry_after_ms=0, is_quarantined=True)
    await by_name.delete(peer, "orders")
    assert await four.metadata.tasks.claim(four.worker, limit=1, bytes_max=1) == []
    await four.scene.maintain()

    assert list(await peer.tasks.list()) == []


async def test_a_cancelled_task_is_gone_and_its_ranges_are_free(four: Compaction, peer: Metadata) -> None:
    key = four.scene.keys[0]
    claim = await four.claimed((key, 0, 20))
    await four.metadata.tasks.cancel(claim)

    assert list(await peer.tasks.list()) == []
    (task,) = await four.offer(four.compact((key, 0, 20)))
    assert task.id > claim.task_id


async def test_tasks_are_listed_by_id_in_pages_and_by_stream(four: Compaction, peer: Metadata) -> None:
    other = (await four.scene.stream("bills")).partition(0)
    await four.scene.commit(four.scene.batch(other, 1))
    offers = [four.compact((key, 0, 20)) for key in four.scene.keys] + [four.compact((other, 0, 1))]
    ids = [task.id for task in await four.offer(*offers)]

    assert [task.id for task in await peer.tasks.list(limit=3)] == ids[:3]
    assert [task.id for task in await peer.tasks.list(after=ids[2])] == ids[3:]
    assert [task.id for task in await peer.tasks.list(stream_number=four.scene.first.number, after=ids[0])] == ids[1:4]


# What waits.


@pytest.mark.parametrize("is_rolled_up", [False, True])
async def test_uncompacted_partitions_are_listed_with_sizes_and_ages(
    four: Compaction, peer: Metadata, is_rolled_up: bool
) -> None:
    keys = four.scene.keys
    await four.scene.backend.advance(100)
    await four.scene.commit(four.scene.batch(keys[0], 1, length=7))
    await four.compacted((keys[0], 0, 20), (keys[1], 0, 20), (keys[2], 0, 10))
    await four.metadata.log.trim(keys[3], 15)
    if is_rolled_up:
        await four.scene.maintain()
    await four.scene.backend.advance(50)

    assert [tuple(partition) for partition in await peer.tasks.uncompacted(after=START, limit=10)] == [
        (keys[0], 20, 21, 7, 50),
        (keys[2], 10, 20, 100, 150),
        (keys[3], 15, 20, 100, 150),
    ]
    assert [partition.partition for partition in await peer.tasks.uncompacted(after=START, limit=1)] == [keys[0]]
    assert [partition.partition for partition in await peer.tasks.uncompacted(after=keys[0], limit=1)] == [keys[2]]
    assert [partition.partition for partition in await peer.tasks.uncompacted(after=keys[3], limit=1)] == []


@pytest.mark.parametrize("is_rolled_up", [False, True])
async def test_the_backlog_is_reported_by_stream(four: Compaction, peer: Metadata, is_rolled_up: bool) -> None:
    keys = four.scene.keys
    other = await four.scene.stream("bills", 2)
    gone = await four.scene.stream("gone")
    await four.scene.commit(four.scene.batch(gone.partition(0), 1))
    await four.scene.backend.advance(30)
    await four.scene.commit(four.scene.batch(other.partition(1), 3, length=5))
    await four.compacted((keys[0], 0, 20), (keys[1], 0, 20), (keys[2], 0, 10))
    await by_name.delete(peer, "gone")
    if is_rolled_up:
        await four.scene.maintain()
    await four.scene.backend.advance(4)

    assert [
        (
            partition.stream_number,
            partition.size_bytes,
            partition.record_count,
            partition.partition_count,
            partition.age_ms,
        )
        for partition in await peer.tasks.backlog()
    ] == [(four.scene.first.number, 300, 30, 2, 34), (other.number, 5, 3, 1, 4)]


async def test_nothing_waits_when_all_is_compacted_or_trimmed(four: Compaction, peer: Metadata) -> None:
    keys = four.scene.keys
    await four.compacted(*((key, 0, 20) for key in keys[:3]))
    await four.metadata.log.trim(keys[3], 20)

    assert list(await peer.tasks.uncompacted(after=START, limit=10)) == []
    assert list(await peer.tasks.backlog()) == []
    assert await peer.tasks.compacted([*keys, PartitionKey(77 << 20)]) == {
        keys[0]: 20,
        keys[1]: 20,
        keys[2]: 20,
        keys[3]: 0,
    }
