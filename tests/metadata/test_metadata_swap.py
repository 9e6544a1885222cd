"""Swaps in every store: the index names new objects for the same offsets, and nothing else changes."""

from typing import Any

import pytest

from bearlake.errors import Conflict, Fenced
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import OffsetRange, TaskKind
from bearlake.metadata.model import NO_ROW, EntryKind, ObjectKind, PartitionKey, Slice
from fixtures import by_name
from fixtures.compaction_scene import Compaction, joined
from fixtures.liveness import lapse

WAL, PARQUET = ObjectKind.WAL, ObjectKind.PARQUET


@pytest.fixture(params=["in the log", "rolled up", "half rolled up"])
async def ten(compaction: Compaction, request: pytest.FixtureRequest) -> Compaction:
    """Ten slices of ten records in each of two partitions; timestamps 10, 20, …, but the sixth (offset 50) has 200."""
    scene = compaction.scene
    scene.first = await scene.stream(partition_count=2)
    scene.key, scene.other = scene.first.partition(0), scene.first.partition(1)
    for number in range(10):
        timestamp = 200 if number == 5 else 10 * (number + 1)
        await scene.commit(
            scene.batch(scene.other, 10, length=7),
            scene.batch(scene.key, 10, timestamp=timestamp, length=100 + number),
            token=f"wal/{number}",
        )
        if request.param == "half rolled up" and number == 4:
            await scene.maintain()
    if request.param == "rolled up":
        await scene.maintain()
    return compaction


def spans(slices: Any) -> list[tuple[int, int, str]]:
    return [
        (located_slice.slice.base_offset, located_slice.slice.end_offset, located_slice.object_key)
        for located_slice in slices
    ]


async def located(metadata: Metadata, key: Any, offset: int = 0) -> list[tuple[int, int, str]]:
    return spans((await metadata.log.locate(key, offset, limit=1_000)).slices)


async def test_readers_find_segments_where_slices_were(ten: Compaction, peer: Metadata) -> None:
    key, second = ten.scene.key, ten.scene.other
    await ten.compacted((key, 0, 70), (second, 0, 30), per_segment=7)

    assert (await located(peer, key))[:2] == [(0, 70, "data/000001"), (70, 80, "wal/7")]
    assert (await located(peer, second))[:2] == [(0, 30, "data/000001"), (30, 40, "wal/3")]
    first = (await peer.log.locate(key, 35, limit=1)).slices[0]
    assert (first.kind, first.slice.position, first.slice.length) == (PARQUET, 0, sum(range(100, 107)))
    assert first.object == ("data/000001", (sum(range(100, 107)) + 21) // 2, PARQUET)
    assert (await peer.log.locate(key, 70, limit=1)).slices[0].kind is WAL
    assert await peer.log.bounds([key]) == {key: (0, 100, 100)}


async def test_compaction_does_not_change_usage(ten: Compaction) -> None:
    keys = [ten.scene.key, ten.scene.other]
    before = await ten.metadata.log.usage(keys)
    await ten.compacted((ten.scene.key, 0, 70), (ten.scene.other, 0, 100))

    assert await ten.metadata.log.usage(keys) == before
    await ten.scene.maintain(entry_count_min=0)
    assert await ten.metadata.log.usage(keys) == before


async def test_the_compacted_offset_moves_and_the_task_is_gone(ten: Compaction, peer: Metadata) -> None:
    key, other = ten.scene.key, ten.scene.other
    await ten.compacted((key, 0, 70))

    assert await peer.tasks.compacted([key, other]) == {key: 70, other: 0}
    assert list(await peer.tasks.list()) == []


async def test_followers_see_the_swap(ten: Compaction, peer: Metadata) -> None:
    key, other = ten.scene.key, ten.scene.other
    head = await peer.log.head()
    claim = await ten.claimed((key, 0, 70), (other, 0, 30))
    position = await ten.swapped(claim, ten.file(await ten.segments((key, 0, 70), (other, 0, 30), per_segment=3)))
    (entry,) = (await peer.log.follow(head, limit=10)).entries

    assert (entry.position, entry.kind) == (position, EntryKind.SWAP)
    assert sorted(entry.ranges) == [(key, 0, 70), (other, 0, 30)]
    assert await peer.log.head() == position


async def test_commits_continue_after_a_swap(ten: Compaction, peer: Metadata) -> None:
    key = ten.scene.key
    await ten.compacted((key, 0, 100))
    committed = await ten.scene.commit(ten.scene.batch(key, 5), token="wal/next", by=peer)

    assert committed.outcomes[0].base_offset == 100
    assert await located(ten.metadata, key) == [(0, 100, "data/000001"), (100, 105, "wal/next")]
    await ten.scene.maintain(entry_count_min=0)
    assert await located(peer, key) == [(0, 100, "data/000001"), (100, 105, "wal/next")]


async def test_the_same_swap_again_is_answered_the_same(ten: Compaction, peer: Metadata) -> None:
    key = ten.scene.key
    claim = await ten.claimed((key, 0, 70))
    swap = await ten.prepared(claim, ten.file(await ten.segments((key, 0, 70))))
    position = await ten.metadata.log.swap(swap)
    await ten.scene.backend.advance(9 * 60_000)
    await ten.scene.maintain(entry_count_min=0)

    assert await peer.log.swap(swap) == position
    assert await peer.log.head() == position
    assert (await located(peer, key))[0] == (0, 70, "data/000001")


async def test_only_the_newest_claim_may_swap(ten: Compaction, peer: Metadata) -> None:
    key = ten.scene.key
    zombie = await ten.claimed((key, 0, 70))
    segments = await ten.segments((key, 0, 70))
    assert await lapse(peer, zombie.worker)
    heir = await ten.claim(await ten.scene.register(peer, "worker-1"))
    with pytest.raises(Fenced):
        await ten.swapped(zombie, ten.file(segments))
    assert (await located(peer, key))[0] == (0, 10, "wal/0")

    await ten.swapped(heir, ten.file(segments))
    assert (await located(peer, key))[0] == (0, 70, "data/000002")


async def test_a_worker_whose_name_registered_again_is_fenced(ten: Compaction, peer: Metadata) -> None:
    claim = await ten.claimed((ten.scene.key, 0, 70))
    segments = await ten.segments((ten.scene.key, 0, 70))
    await ten.scene.register(peer, "worker-0")

    with pytest.raises(Fenced):
        await ten.swapped(claim, ten.file(segments))


@pytest.mark.parametrize(
    "wrong", ["begins inside a row", "ends inside a row", "behind the end", "a gap", "other bytes", "overlap"]
)
async def test_a_swap_that_does_not_fit_the_index_changes_nothing(ten: Compaction, peer: Metadata, wrong: str) -> None:
    key = ten.scene.key
    claim = await ten.claimed((key, 0, 100))
    (whole,) = await ten.segments((key, 0, 100))
    before = await located(peer, key)
    slices = {
        "begins inside a row": [whole._replace(base_offset=5, record_count=95)],
        "ends inside a row": [whole._replace(record_count=95)],
        "behind the end": [whole._replace(record_count=110)],
        "a gap": [whole._replace(record_count=40, length=406), whole._replace(base_offset=50, record_count=50)],
        "other bytes": [whole._replace(length=whole.length + 1)],
        "overlap": [whole, whole._replace(base_offset=50, record_count=50)],
    }[wrong]

    head = await peer.log.head()
    with pytest.raises(Conflict):
        await ten.swapped(claim, ten.file(slices))
    assert await located(peer, key) == before
    assert await peer.log.head() == head
    assert await peer.tasks.compacted([key]) == {key: 0}


@pytest.mark.parametrize("is_swept", [False, True])
@pytest.mark.parametrize("start", [10, 45, 70, 85])
async def test_slices_that_were_trimmed_before_the_swap_are_not_missed(
    ten: Compaction, peer: Metadata, start: int, is_swept: bool
) -> None:
    key = ten.scene.key
    claim = await ten.claimed((key, 0, 70))
    segments = await ten.segments((key, 0, 70), per_segment=2)
    await ten.metadata.log.trim(key, start)
    if is_swept:
        await ten.scene.maintain()
    before = await peer.log.usage([key])
    await ten.swapped(claim, ten.file(segments))

    found = await located(peer, key)
    assert found[0][0] <= start < found[0][1]
    assert [extent[0] for extent in found[1:]] == [extent[1] for extent in found[:-1]]
    assert found[-1][1] == 100
    assert all(name.startswith("data/" if end <= 70 else "wal/") for _, end, name in found)
    assert await peer.log.usage([key]) == before
    assert await peer.tasks.compacted([key]) == {key: 70}
    assert await peer.log.trim(key, 100) == (100, 100, 100)
    assert (await peer.log.usage([key]))[key].size_bytes == 0
    await ten.scene.maintain()
    assert await located(peer, key) == []
    assert await ten.unused(PARQUET) == ["data/000001"]


@pytest.mark.parametrize("per_segment", [1, 2, 3])
@pytest.mark.parametrize(
    ("swept", "start"), [(25, 45), (25, 40), (25, 65), (35, 45), (35, 75), (45, 85), (0, 45), (45, 45)]
)
async def test_after_a_trim_no_row_is_lost_to_a_page_that_is_itself_replaced(
    backend: Any, new_scene: Any, swept: int, start: int, per_segment: int
) -> None:
    """Pages of four rows: the rest of the first page has room, and ends where the first new row that is still needed begins."""
    ten = await Compaction.on(await new_scene(await backend.fresh(page_slice_count_max=4)))
    key = (await ten.scene.stream()).partition(0)
    for _ in range(10):
        await ten.scene.commit(ten.scene.batch(key, 10))
    await ten.metadata.log.trim(key, swept)
    await ten.scene.maintain()
    claim = await ten.claimed((key, swept, 80))
    file = ten.file(await ten.segments((key, swept, 80), per_segment=per_segment))
    await ten.metadata.log.trim(key, start)
    before = await ten.metadata.log.usage([key])
    await ten.swapped(claim, file)

    found = await located(ten.metadata, key)
    assert found[0][0] <= start < found[0][1]
    assert [extent[0] for extent in found[1:]] == [extent[1] for extent in found[:-1]]
    assert found[-1][1] == 100
    for offset in range(start, 100, 5):
        assert await located(ten.metadata, key, offset) == [extent for extent in found if extent[1] > offset]
    assert await ten.metadata.log.usage([key]) == before
    await ten.metadata.log.trim(key, 100)
    await ten.scene.maintain()
    assert file.object.key in await ten.unused(PARQUET)


async def test_partitions_deleted_meanwhile_are_left_out(ten: Compaction, peer: Metadata) -> None:
    claim = await ten.claimed((ten.scene.key, 0, 70))
    file = ten.file(await ten.segments((ten.scene.key, 0, 70)))
    await by_name.delete(peer, "orders")
    position = await ten.swapped(claim, file)

    assert position == await peer.log.head()
    assert file.object.key in await ten.unused(PARQUET)


async def test_a_kept_object_and_a_file_share_the_offsets(ten: Compaction, peer: Metadata) -> None:
    key = ten.scene.key
    claim = await ten.claimed((key, 0, 30))
    first, second, third = [located_slice.slice for located_slice in await ten.slices((key, 0, 30))]
    kept = ten.file([second._replace(position=32)], kind=WAL, key="kept/1")
    position = await ten.swapped(claim, ten.file([first, third], key="data/000001"), kept)

    assert (await located(peer, key))[:3] == [(0, 10, "data/000001"), (10, 20, "kept/1"), (20, 30, "data/000001")]
    assert [located_slice.kind for located_slice in (await peer.log.locate(key, 0, limit=3)).slices] == [
        PARQUET,
        WAL,
        PARQUET,
    ]
    (entry,) = (await peer.log.follow(position - 1, limit=1)).entries
    assert list(entry.ranges) == [(key, 0, 30)]


async def test_a_task_in_quarantine_moves_its_bytes_only(ten: Compaction, peer: Metadata) -> None:
    key = ten.scene.key
    claim = await ten.claimed((key, 0, 70))
    slices = [located_slice.slice for located_slice in await ten.slices((key, 0, 70))]
    swap = await ten.prepared(claim, ten.file(slices, kind=WAL, key="kept/quarantine"), is_final=False)
    position = await ten.metadata.log.swap(swap)

    assert await peer.log.swap(swap) == position
    assert await peer.tasks.compacted([key]) == {key: 0}
    assert [task.id for task in await peer.tasks.list()] == [claim.task_id]
    assert (await located(peer, key))[6:8] == [(60, 70, "kept/quarantine"), (70, 80, "wal/7")]
    assert (await peer.log.locate(key, 0, limit=1)).slices[0].kind is WAL
    final = await ten.swapped(claim, ten.file(await ten.segments((key, 0, 70))))
    assert final > position
    assert await peer.tasks.compacted([key]) == {key: 70}
    assert "kept/quarantine" in await ten.unused(WAL)


async def test_small_files_become_a_large_one(ten: Compaction, peer: Metadata) -> None:
    key, other = ten.scene.key, ten.scene.other
    files = [await ten.compacted((key, at, at + 20), (other, at, at + 20)) for at in (0, 20, 40)]
    await ten.scene.maintain()
    (task,) = await ten.offer(ten.merge(ten.scene.first.number, *(file.object.key for file in files)))
    claim = await ten.claim()
    before = await peer.log.usage([key, other])
    segments = joined(sorted(Slice(*segment) for file in files for segment in file.slices), per_segment=2)
    await ten.swapped(claim, ten.file(segments, key="data/merged"))

    assert task.kind is TaskKind.MERGE
    assert (await located(peer, key))[:3] == [(0, 40, "data/merged"), (40, 60, "data/merged"), (60, 70, "wal/6")]
    assert await peer.tasks.compacted([key]) == {key: 60}
    assert await peer.log.usage([key, other]) == before
    assert await ten.unused(PARQUET) == [file.object.key for file in files]


async def test_a_merge_may_replace_ranges_that_do_not_touch(ten: Compaction, peer: Metadata) -> None:
    key = ten.scene.key
    files = [await ten.compacted((key, at, at + 20)) for at in (0, 20, 40)]
    await ten.offer(ten.merge(ten.scene.first.number, files[0].object.key, files[2].object.key))
    claim = await ten.claim()
    segments = [*files[0].slices, *files[2].slices]
    position = await ten.swapped(claim, ten.file(segments, key="data/merged"))
    (entry,) = (await peer.log.follow(position - 1, limit=1)).entries

    assert [extent[2] for extent in (await located(peer, key))[:3]] == ["data/merged", "data/000002", "data/merged"]
    assert sorted(entry.ranges) == [(key, 0, 20), (key, 40, 60)]


async def test_a_merge_may_name_segments_without_rows(ten: Compaction, peer: Metadata) -> None:
    key = ten.scene.key
    files = [await ten.compacted((key, at, at + 20)) for at in (0, 20)]
    await ten.offer(ten.merge(ten.scene.first.number, *(file.object.key for file in files)))
    claim = await ten.claim()
    (first,), (second,) = (file.slices for file in files)
    rowless = first._replace(position=NO_ROW, max_timestamp=-1)
    await ten.swapped(claim, ten.file([rowless, second], key="data/merged"))
    found = [located_slice.slice for located_slice in await peer.log.slices([OffsetRange(key, 0, 40)])]

    assert [(piece.base_offset, piece.position, piece.max_timestamp) for piece in found] == [
        (0, NO_ROW, -1),
        (20, second.position, second.max_timestamp),
    ]


@pytest.mark.parametrize(
    ("timestamp", "expected"), [(0, 0), (10, 0), (30, 0), (31, 30), (60, 30), (61, 30), (200, 30), (201, None)]
)
async def test_the_first_segment_with_the_timestamp_is_located(
    ten: Compaction, timestamp: int, expected: int | None
) -> None:
    await ten.compacted((ten.scene.key, 0, 90), per_segment=3)
    found = await ten.metadata.log.locate_timestamp(ten.scene.key, timestamp)

    assert [located_slice.slice.base_offset for located_slice in found.slices] == (
        [] if expected is None else [expected]
    )
    assert all(located_slice.kind is PARQUET for located_slice in found.slices)


async def test_the_largest_timestamp_is_located_in_a_segment_and_after_it(ten: Compaction, peer: Metadata) -> None:
    key = ten.scene.key
    await ten.compacted((key, 0, 90), per_segment=3)
    assert spans((await peer.log.locate_max_timestamp(key)).slices) == [(30, 60, "data/000001")]

    await ten.scene.commit(ten.scene.batch(key, 1, timestamp=300), token="wal/newest")
    assert spans((await peer.log.locate_max_timestamp(key)).slices) == [(100, 101, "wal/newest")]


async def test_ranges_are_answered_by_partition_and_offset(ten: Compaction, peer: Metadata) -> None:
    key, other = ten.scene.key, ten.scene.other
    await ten.compacted((key, 0, 70), per_segment=4)
    await ten.metadata.log.trim(other, 15)
    found = await ten.slices((other, 0, 25), (key, 35, 75), (ten.scene.first.partition(0) + (5 << 20), 0, 10))

    assert spans(found) == [
        (0, 40, "data/000001"),
        (40, 70, "data/000001"),
        (70, 80, "wal/7"),
        (10, 20, "wal/1"),
        (20, 30, "wal/2"),
    ]
    assert [located_slice.slice.partition for located_slice in found] == [key] * 3 + [other] * 2
    assert found == await ten.slices((key, 35, 75), (other, 0, 25))
    assert await ten.slices((key, 100, 200), (key, 70, 70)) == []
    for count in range(7):
        ranges = [OffsetRange(other, 0, 25), OffsetRange(key, 35, 75)]
        assert await ten.metadata.log.slices(ranges, count_max=count) == found[:count]


async def test_a_final_swap_covers_its_task(ten: Compaction, peer: Metadata) -> None:
    key = ten.scene.key
    claim = await ten.claimed((key, 0, 70))
    segments = await ten.segments((key, 0, 50))

    with pytest.raises(Conflict):
        await ten.swapped(claim, ten.file(segments))
    assert await peer.tasks.compacted([key]) == {key: 0}


async def test_a_task_whose_ranges_were_trimmed_ends_without_objects(ten: Compaction, peer: Metadata) -> None:
    key = ten.scene.key
    claim = await ten.claimed((key, 0, 70))
    await peer.log.trim(key, 75)
    position = await ten.swapped(claim)

    assert await peer.log.swap(ten.swap(claim)) == position == await peer.log.head()
    assert list(await peer.tasks.list()) == []
    assert (await peer.tasks.uncompacted(after=PartitionKey(0), limit=1))[0][:3] == (key, 75, 100)


async def test_a_task_given_back_cannot_be_swapped(ten: Compaction, peer: Metadata) -> None:
    claim = await ten.claimed((ten.scene.key, 0, 70))
    file = ten.file(await ten.segments((ten.scene.key, 0, 70)))
    await peer.tasks.release([claim])

    with pytest.raises(Fenced):
        await ten.swapped(claim, file)
