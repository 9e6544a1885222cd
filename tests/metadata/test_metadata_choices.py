"""Workers that take only the tasks of some streams, by priority; and the times of last compactions. On every backend."""

import pytest

from bearlake.errors import Invalid
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import Task, TaskChoice, TaskClaim
from bearlake.metadata.patterns import as_regular_expression, check_pattern, matches
from fixtures import by_name
from fixtures.compaction_scene import Compaction

NAMES = ("orders", "orders-eu", "clicks.raw", "bills")


@pytest.fixture
async def four(compaction: Compaction) -> Compaction:
    """Four streams of one partition with a task each, offered in the order of `NAMES`; their oldest records are 400, 300, … ms old."""
    scene = compaction.scene
    for number, name in enumerate(NAMES):
        stream = await scene.stream(name)
        await scene.commit(scene.batch(stream.partition(0), 10))
        await compaction.offer(
            compaction.compact((stream.partition(0), 0, 10), size_bytes=100, age_ms=400 - 100 * number)
        )
    return compaction


async def claimed(scene: Compaction, choice: TaskChoice, *, limit: int = 10, bytes_max: int = 1_000) -> list[str]:
    """Names of the streams whose tasks are claimed, in order."""
    tasks: list[Task] = await scene.metadata.tasks.claim(scene.worker, limit=limit, bytes_max=bytes_max, choice=choice)
    names = {
        stream.number: stream.name
        for stream in await scene.metadata.streams.by_numbers({task.stream_number for task in tasks})
    }
    assert all(task.holder == scene.worker and task.epoch == 1 for task in tasks)
    return [names[task.stream_number] for task in tasks]


async def claimed_anew(scene: Compaction, choice: TaskChoice) -> list[str]:
    """Claim one task and end it; its stream's name."""
    (task,) = await scene.metadata.tasks.claim(scene.worker, limit=1, bytes_max=1_000, choice=choice)
    await scene.metadata.tasks.cancel(TaskClaim(task_id=task.id, epoch=task.epoch, worker=scene.worker))
    return [stream.name for stream in await scene.metadata.streams.by_numbers([task.stream_number])]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["orders"], ["orders"]),
        (["orders*"], ["orders", "orders-eu"]),
        (["*.raw", "bill?"], ["clicks.raw", "bills"]),
        (["[a-c]*"], ["clicks.raw", "bills"]),
        (["[!o]*s"], ["bills"]),
        (["clicks-raw", "ORDERS"], []),
        (["*"], list(NAMES)),
    ],
)
async def test_a_worker_claims_tasks_of_its_streams_only(
    four: Compaction, patterns: list[str], expected: list[str]
) -> None:
    assert await claimed(four, TaskChoice(streams=patterns)) == expected
    assert [name for name in NAMES if matches(name, patterns)] == expected
    left = set(NAMES) - set(expected)
    assert set(await claimed(four, TaskChoice())) == left


async def test_a_head_start_lets_younger_tasks_go_first(four: Compaction) -> None:
    choice = TaskChoice(head_starts=[("bills", 250), ("*-eu", 1_000), ("orders*", 0)])

    assert await claimed(four, choice) == ["orders-eu", "orders", "bills", "clicks.raw"]


async def test_the_first_pattern_that_fits_counts(four: Compaction) -> None:
    choice = TaskChoice(streams=["orders*"], head_starts=[("orders-eu", 0), ("*", 10_000), ("orders-eu", 99_000)])

    assert await claimed(four, choice) == ["orders", "orders-eu"]


async def test_a_task_that_waits_longer_than_the_head_start_is_next_whatever_the_priority_of_others(
    four: Compaction,
) -> None:
    """A priority is a head start in time, so no task starves: `bills` keeps its place against new tasks of `orders`."""
    choice = TaskChoice(head_starts=[("orders", 500)])
    orders = await four.metadata.streams.get("orders")
    taken: list[str] = []
    while "bills" not in taken and len(taken) < 20:
        taken += await claimed_anew(four, choice)
        await four.scene.backend.advance(100)
        if taken[-1] == "orders":  # the task is done, and a new task follows at once
            await four.offer(four.compact((orders.partition(0), 0, 10), size_bytes=100, age_ms=0))

    assert taken[0] == "orders"
    assert taken.count("orders") > 2
    assert taken[-1] == "bills"


async def test_a_worker_may_have_thousands_of_streams_by_name(four: Compaction) -> None:
    names = [f"stream-{number}" for number in range(3_000)]
    choice = TaskChoice(streams=[*names, "bills"], head_starts=[(name, 1) for name in names])

    assert await claimed(four, choice) == ["bills"]


async def test_limits_apply_in_the_chosen_order(four: Compaction) -> None:
    choice = TaskChoice(head_starts=[("bills", 9_000)])

    assert await claimed(four, choice, limit=1) == ["bills"]
    assert await claimed(four, choice, bytes_max=250) == ["orders", "orders-eu"]
    assert await claimed(four, choice, bytes_max=1) == ["clicks.raw"]


async def test_tasks_of_deleted_streams_are_dropped_by_choosers_too(four: Compaction, peer: Metadata) -> None:
    await by_name.delete(peer, "orders")

    assert await claimed(four, TaskChoice(streams=["orders"])) == []
    assert len(await peer.tasks.list()) == 3


async def test_finished_tasks_are_counted_by_stream_with_the_time_of_the_last(
    compaction: Compaction, peer: Metadata
) -> None:
    scene = compaction.scene
    first, second = await scene.stream("first"), await scene.stream("second")
    for _ in range(2):
        await scene.commit(scene.batch(first.partition(0), 10), scene.batch(second.partition(0), 10))
    assert list(await peer.tasks.commits()) == []

    started_ms = await peer.now_ms()
    await compaction.compacted((first.partition(0), 0, 10))
    await scene.backend.advance(1_000)
    await compaction.compacted((first.partition(0), 10, 20))
    await compaction.offer(compaction.compact((second.partition(0), 0, 10)))
    await compaction.metadata.tasks.cancel(await compaction.claim())

    (commits,) = await peer.tasks.commits()
    assert (commits.stream_number, commits.commit_count) == (first.number, 2)
    assert started_ms + 1_000 <= commits.committed_ms <= await peer.now_ms()


@pytest.mark.parametrize("pattern", ["", "a b", "a/b", "[a", "[]", "[z-a]", "a\\d", "(a|b)", "é*", "a" * 501])
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(Invalid, match=r"^streams"):
        check_pattern("streams", pattern)


def test_a_pattern_as_a_regular_expression_fits_whole_names() -> None:
    assert as_regular_expression("a.b*[!c]?") == r"^a\.b.*[^c].$"
