"""Look-ups in every store: by offset, by timestamp, usage, trims; the same before and after maintenance."""

from typing import Any

import pytest

from bearlake.errors import NotFound, OutOfRange
from bearlake.metadata import Metadata
from bearlake.metadata.model import partition_key

NOWHERE = partition_key(999, 0)


@pytest.fixture(params=["in the log", "rolled up", "half rolled up", "truncated"])
async def ten(scene: Any, request: pytest.FixtureRequest) -> Any:
    """Ten slices of ten records, timestamps 10, 20, …, but the sixth (offset 50) has 200; `partition` is theirs."""
    stream = await scene.stream(partition_count=2)
    scene.partition = stream.partition(0)
    for number in range(10):
        timestamp = 200 if number == 5 else 10 * (number + 1)
        await scene.commit(
            scene.batch(stream.partition(1), 1, length=7),
            scene.batch(scene.partition, 10, timestamp=timestamp, length=100 + number),
            token=f"wal/{number}",
        )
        if request.param == "half rolled up" and number == 4:
            await scene.maintain()
    if request.param == "rolled up":
        await scene.maintain()
    if request.param == "truncated":
        await scene.maintain(entry_count_min=0)
    return scene


def bases(located: Any) -> list[int]:
    return [located_slice.slice.base_offset for located_slice in located.slices]


async def test_slices_are_located_from_the_one_that_holds_the_offset(ten: Any, peer: Metadata) -> None:
    first = await peer.log.locate(ten.partition, 0, limit=100)
    inside = await peer.log.locate(ten.partition, 39, limit=3)

    assert bases(first) == list(range(0, 100, 10))
    assert bases(inside) == [30, 40, 50]
    located_slice = inside.slices[0]
    assert (located_slice.object_key, located_slice.object_size) == ("wal/3", 110)
    assert (
        located_slice.slice.partition,
        located_slice.slice.record_count,
        located_slice.slice.position,
        located_slice.slice.length,
    ) == (
        ten.partition,
        10,
        7,
        103,
    )
    assert located_slice.slice.max_timestamp == 40
    assert first.bounds == inside.bounds == (0, 100, 100)
    assert first.position == await peer.log.head()


@pytest.mark.parametrize(
    ("offset", "limit", "expected"), [(0, 1, [0]), (9, 1, [0]), (10, 1, [10]), (99, 5, [90]), (100, 5, [])]
)
async def test_offsets_at_the_edges_of_slices(ten: Any, offset: int, limit: int, expected: list[int]) -> None:
    assert bases(await ten.metadata.log.locate(ten.partition, offset, limit=limit)) == expected


@pytest.mark.parametrize(
    ("timestamp", "expected"), [(0, [0]), (10, [0]), (11, [10]), (60, [50]), (61, [50]), (200, [50]), (201, [])]
)
async def test_the_first_slice_with_the_timestamp_is_located(ten: Any, timestamp: int, expected: list[int]) -> None:
    located = await ten.metadata.log.locate_timestamp(ten.partition, timestamp)

    assert bases(located) == expected
    assert located.bounds == (0, 100, 100)


async def test_the_largest_timestamp_is_located(ten: Any, peer: Metadata) -> None:
    assert bases(await peer.log.locate_max_timestamp(ten.partition)) == [50]


async def test_of_equal_largest_timestamps_the_first_is_located(ten: Any) -> None:
    await ten.commit(ten.batch(ten.partition, 1, timestamp=200))

    assert bases(await ten.metadata.log.locate_max_timestamp(ten.partition)) == [50]


@pytest.mark.parametrize("is_maintained_after", [False, True])
async def test_a_trim_hides_slices_wholly_below_the_start(ten: Any, peer: Metadata, is_maintained_after: bool) -> None:
    log = ten.metadata.log
    assert await log.trim(ten.partition, 65) == (65, 100, 100)
    if is_maintained_after:
        await ten.maintain(entry_count_min=0)

    assert await peer.log.bounds([ten.partition]) == {ten.partition: (65, 100, 100)}
    assert bases(await peer.log.locate(ten.partition, 0, limit=2)) == [60, 70]
    assert bases(await peer.log.locate_timestamp(ten.partition, 0)) == [60]
    assert bases(await peer.log.locate_timestamp(ten.partition, 75)) == [70]
    assert bases(await peer.log.locate_timestamp(ten.partition, 150)) == []
    assert bases(await peer.log.locate_max_timestamp(ten.partition)) == [90]
    usage = (await peer.log.usage([ten.partition]))[ten.partition]
    assert (usage.size_bytes, usage.record_count) == (106 + 107 + 108 + 109, 35)


@pytest.mark.parametrize("is_maintained_after", [False, True])
async def test_a_partition_trimmed_to_its_end_is_empty_and_continues(
    ten: Any, peer: Metadata, is_maintained_after: bool
) -> None:
    assert await peer.log.trim(ten.partition, 100) == (100, 100, 100)
    if is_maintained_after:
        await ten.maintain(entry_count_min=0)
    log = ten.metadata.log
    assert bases(await log.locate(ten.partition, 0, limit=2)) == []
    assert bases(await log.locate_timestamp(ten.partition, 0)) == []
    assert bases(await log.locate_max_timestamp(ten.partition)) == []
    assert (await log.usage([ten.partition]))[ten.partition] == (0, 0)
    committed = await ten.commit(ten.batch(ten.partition, 2, length=33))
    if is_maintained_after:
        await ten.maintain(entry_count_min=0)

    assert committed.outcomes[0] == (0, 100, 100)
    assert bases(await log.locate(ten.partition, 0, limit=2)) == [100]
    assert (await peer.log.usage([ten.partition]))[ten.partition] == (33, 2)


async def test_the_start_only_moves_forward(ten: Any, peer: Metadata) -> None:
    await ten.metadata.log.trim(ten.partition, 50)
    head = await ten.metadata.log.head()

    assert await peer.log.trim(ten.partition, 20) == (50, 100, 100)
    assert await peer.log.trim(ten.partition, 50) == (50, 100, 100)
    assert await ten.metadata.log.head() == head
    with pytest.raises(OutOfRange) as raised:
        await peer.log.trim(ten.partition, 101)
    assert (raised.value.start, raised.value.end) == (50, 100)


async def test_a_trim_in_several_steps_adds_up(ten: Any) -> None:
    for start in (5, 10, 11, 35, 95):
        await ten.metadata.log.trim(ten.partition, start)
        await ten.maintain(entry_count_min=0)
        located = await ten.metadata.log.locate(ten.partition, 0, limit=100)
        usage = (await ten.metadata.log.usage([ten.partition]))[ten.partition]

        assert bases(located) == list(range(start // 10 * 10, 100, 10))
        assert usage == (sum(located_slice.slice.length for located_slice in located.slices), 100 - start)


async def test_usage_counts_bytes_and_records(ten: Any, peer: Metadata) -> None:
    usage = await peer.log.usage([ten.partition, ten.partition + 1, NOWHERE])

    assert usage == {ten.partition: (sum(range(100, 110)), 100), ten.partition + 1: (70, 10)}


async def test_the_outcome_names_the_start(ten: Any) -> None:
    await ten.metadata.log.trim(ten.partition, 50)
    committed = await ten.commit(ten.batch(ten.partition, 1))

    assert committed.outcomes[0].start_offset == 50


async def test_a_reopened_store_answers_the_same(ten: Any, backend: Any) -> None:
    await ten.metadata.log.trim(ten.partition, 25)
    await ten.commit(ten.batch(ten.partition, 1, producer=1))
    other = await backend.open()

    assert await other.log.locate(ten.partition, 0, limit=99) == await ten.metadata.log.locate(
        ten.partition, 0, limit=99
    )
    assert await other.log.producers(ten.partition) == await ten.metadata.log.producers(ten.partition)
    assert await other.log.usage([ten.partition]) == await ten.metadata.log.usage([ten.partition])


async def test_partitions_that_never_existed_are_not_found(scene: Any) -> None:
    log = scene.metadata.log

    assert await log.bounds([NOWHERE]) == {}
    assert await log.bounds([]) == {}
    assert await log.usage([NOWHERE]) == {}
    for step in (
        log.locate(NOWHERE, 0, limit=1),
        log.locate_timestamp(NOWHERE, 0),
        log.locate_max_timestamp(NOWHERE),
        log.trim(NOWHERE, 0),
    ):
        with pytest.raises(NotFound):
            await step


async def test_an_empty_partition_has_no_slices(scene: Any) -> None:
    partition = await scene.partition()
    log = scene.metadata.log

    for located in (
        await log.locate(partition, 0, limit=5),
        await log.locate_timestamp(partition, 0),
        await log.locate_max_timestamp(partition),
    ):
        assert (list(located.slices), located.bounds) == ([], (0, 0, 0))
    assert await log.trim(partition, 0) == (0, 0, 0)
    assert await log.usage([partition]) == {partition: (0, 0)}


async def test_many_slices_fill_many_pages(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    batches = [scene.batch(partition, 1, timestamp=number) for number in range(40)]
    gap = [scene.batch(NOWHERE)]
    for start in range(0, 600, 40):
        laid = [
            laid_batch
            for batch in batches
            for laid_batch in (batch._replace(max_timestamp=start + batch.max_timestamp), *gap)
        ]
        await scene.commit(*laid)
        if start % 120 == 0:
            await scene.maintain(entry_count_min=0)
    everything = await peer.log.locate(partition, 0, limit=1_000)

    assert bases(everything) == list(range(600))
    assert bases(await peer.log.locate(partition, 517, limit=2)) == [517, 518]
    assert bases(await peer.log.locate_timestamp(partition, 431)) == [431]
    assert bases(await peer.log.locate_max_timestamp(partition)) == [599]
    await peer.log.trim(partition, 300)
    await scene.maintain(entry_count_min=0)
    assert bases(await scene.metadata.log.locate(partition, 0, limit=1)) == [300]
    assert (await scene.metadata.log.usage([partition]))[partition] == (300 * 100, 300)
