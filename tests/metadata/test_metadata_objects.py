"""The register of objects in every store: unreferenced objects, since when, and the keys of deleted objects."""

import contextlib
from typing import Any

import pytest

from bearlake.errors import Conflict, Fenced
from bearlake.metadata import Metadata
from bearlake.metadata.model import ObjectKind, OutcomeKind
from fixtures import by_name
from fixtures.compaction_scene import Compaction

WAL, PARQUET = ObjectKind.WAL, ObjectKind.PARQUET


@pytest.fixture
async def two(compaction: Compaction) -> Compaction:
    """Two partitions; WAL objects `wal/0` … `wal/3` with ten records for each."""
    scene = compaction.scene
    scene.first = await scene.stream(partition_count=2)
    scene.key, scene.other = scene.first.partition(0), scene.first.partition(1)
    for number in range(4):
        await scene.commit(scene.batch(scene.key, 10), scene.batch(scene.other, 10), token=f"wal/{number}")
    return compaction


async def test_committed_objects_are_in_use(two: Compaction) -> None:
    assert await two.unused(WAL) == []
    assert await two.unused(PARQUET) == []


async def test_wal_objects_are_unused_when_all_their_slices_are_swapped(two: Compaction, peer: Metadata) -> None:
    await two.compacted((two.scene.key, 0, 30))
    assert await two.unused(WAL) == []
    await two.compacted((two.scene.other, 0, 20))

    assert await two.unused(WAL) == ["wal/0", "wal/1"]
    (first, _) = await peer.objects.unused(WAL, unused_ms=0)
    assert (first.object, first.stream_number, first.unused_ms) == (("wal/0", 200, WAL), 0, 0)


@pytest.mark.parametrize(("start", "expected"), [(5, []), (10, ["wal/0"]), (25, ["wal/0", "wal/1"]), (40, None)])
async def test_trims_release_rows_inside_pages(two: Compaction, start: int, expected: list[str] | None) -> None:
    await two.scene.maintain()
    await two.metadata.log.trim(two.scene.key, start)
    await two.metadata.log.trim(two.scene.other, start)

    assert await two.unused(WAL) == (expected if expected is not None else [f"wal/{number}" for number in range(4)])


async def test_a_deleted_stream_releases_everything(two: Compaction, peer: Metadata) -> None:
    file = await two.compacted((two.scene.key, 0, 30))
    await by_name.delete(peer, "orders")
    while len(await two.unused(WAL)) < 4:
        await two.metadata.log.maintain(entry_count_min=0)

    assert await two.unused(WAL) == [f"wal/{number}" for number in range(4)]
    (entry,) = await peer.objects.unused(PARQUET, unused_ms=0)
    assert (entry.object, entry.stream_number) == (file.object, two.scene.first.number)


async def test_the_age_of_being_unused_counts_from_the_last_release(two: Compaction, peer: Metadata) -> None:
    await two.compacted((two.scene.key, 0, 10))
    await two.scene.backend.advance(1_000)
    await two.compacted((two.scene.other, 0, 10))
    await two.scene.backend.advance(3_000)

    assert [unused_object.unused_ms for unused_object in await peer.objects.unused(WAL, unused_ms=3_000)] == [3_000]
    assert list(await peer.objects.unused(WAL, unused_ms=3_001)) == []


async def test_unused_objects_are_listed_by_key_in_pages(two: Compaction, peer: Metadata) -> None:
    await two.compacted((two.scene.key, 0, 40), (two.scene.other, 0, 40))
    first = await peer.objects.unused(WAL, unused_ms=0, limit=3)
    rest = await peer.objects.unused(WAL, unused_ms=0, after=first[-1].object.key)

    assert [unused_object.object.key for unused_object in first] == ["wal/0", "wal/1", "wal/2"]
    assert [unused_object.object.key for unused_object in rest] == ["wal/3"]


async def test_deleted_objects_are_not_listed_again_and_those_in_use_stay(two: Compaction, peer: Metadata) -> None:
    await two.compacted((two.scene.key, 0, 10), (two.scene.other, 0, 20))
    await two.metadata.objects.deleted(["wal/0", "wal/1", "none"])
    await two.metadata.objects.deleted(["wal/0"])

    assert await two.unused(WAL) == []
    assert (await peer.log.locate(two.scene.key, 10, limit=1)).slices[0].object_key == "wal/1"
    await two.compacted((two.scene.key, 10, 20))
    assert await two.unused(WAL) == ["wal/1"]


async def test_a_commit_is_answered_after_its_bytes_are_gone(two: Compaction, peer: Metadata) -> None:
    await two.compacted((two.scene.key, 0, 10), (two.scene.other, 0, 10))
    await two.metadata.objects.deleted(["wal/0"])
    await two.scene.maintain(entry_count_min=0)
    await two.scene.backend.advance(9 * 60_000)
    await two.metadata.log.maintain(entry_count_min=0)
    batches = [two.scene.batch(two.scene.key, 10), two.scene.batch(two.scene.other, 10)]
    again = await two.scene.commit(*batches, token="wal/0", by=peer)

    assert [outcome.kind for outcome in again.outcomes] == [OutcomeKind.ACCEPTED] * 2
    assert [outcome.base_offset for outcome in again.outcomes] == [0, 0]
    assert (await peer.log.bounds([two.scene.key]))[two.scene.key].end == 40


async def test_a_commit_repeated_soon_after_it_was_forgotten_is_not_a_new_commit(
    two: Compaction, peer: Metadata
) -> None:
    await two.compacted((two.scene.key, 0, 10), (two.scene.other, 0, 10))
    await two.scene.maintain(entry_count_min=0)
    await two.scene.backend.advance(11 * 60_000)
    await two.metadata.objects.deleted(["wal/0"])
    for _ in range(5):
        await two.metadata.log.maintain(entry_count_min=0)
    with contextlib.suppress(Conflict, Fenced):
        await two.scene.commit(two.scene.batch(two.scene.key, 10), token="wal/0", by=peer)

    assert (await peer.log.bounds([two.scene.key]))[two.scene.key].end == 40


# Data files.


def told(entries: Any) -> list[tuple[str, list[tuple[int, int]]]]:
    return [(entry.object.key, [(two.base_offset, two.end_offset) for two in entry.segments]) for entry in entries]


async def test_data_files_are_listed_in_the_order_of_their_swaps(two: Compaction, peer: Metadata) -> None:
    number = two.scene.first.number
    await two.compacted((two.scene.key, 0, 20), per_segment=1)
    claim = await two.claimed((two.scene.other, 0, 20))
    slices = await two.segments((two.scene.other, 0, 20), per_segment=1)
    files = [two.file([slices[0]], key="data/b"), two.file([slices[1]], key="data/a")]
    position = await two.swapped(claim, *files)
    found = await peer.objects.data_files(number)

    assert told(found) == [
        ("data/000001", [(0, 10), (10, 20)]),
        ("data/a", [(10, 20)]),
        ("data/b", [(0, 10)]),
    ]
    assert [located_slice.position for located_slice in found[1:]] == [position] * 2
    assert found[1].object == files[1].object
    assert found[1].segments[0] == slices[1]
    assert told(await peer.objects.data_files(number, limit=2)) == told(found)
    assert told(await peer.objects.data_files(number, after=found[0].position)) == told(found[1:])
    assert list(await peer.objects.data_files(number, after=position)) == []
    assert list(await peer.objects.data_files(number + 1)) == []


async def test_a_file_that_no_row_names_is_no_longer_a_data_file(two: Compaction, peer: Metadata) -> None:
    await two.compacted((two.scene.key, 0, 20))
    await two.compacted((two.scene.other, 0, 20))
    await two.metadata.log.trim(two.scene.key, 20)
    assert await two.unused(PARQUET) == ["data/000001"]

    assert [file.object.key for file in await peer.objects.data_files(two.scene.first.number)] == ["data/000002"]


async def test_kept_objects_are_wal_objects_of_no_stream(two: Compaction, peer: Metadata) -> None:
    key = two.scene.key
    claim = await two.claimed((key, 0, 10))
    slices = [located_slice.slice for located_slice in await two.slices((key, 0, 10))]
    await two.swapped(claim, two.file(slices, kind=WAL, key="kept/1"))
    await two.metadata.log.trim(key, 10)

    assert "kept/1" in await two.unused(WAL)
    assert list(await peer.objects.data_files(two.scene.first.number)) == []
    assert {unused_object.stream_number for unused_object in await peer.objects.unused(WAL, unused_ms=0)} == {0}
