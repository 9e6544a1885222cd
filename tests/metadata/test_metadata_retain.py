"""Retention in every store deletes whole slices and segments from the start, by age, by size, or both."""

from typing import Any

import pytest

from bearlake.errors import Conflict, NotFound
from bearlake.metadata import Metadata
from bearlake.metadata.model import EntryKind, PartitionKey, Stream, partition_index
from fixtures import by_name
from fixtures.compaction_scene import Compaction

OLD_MS = 3_600_000


@pytest.fixture(params=["in the log", "rolled up", "compacted", "half compacted"])
async def six(compaction: Compaction, request: pytest.FixtureRequest) -> Compaction:
    """Six slices of ten records and 100 bytes; each a minute newer than the one before, by the store's time; the last one is new."""
    scene = compaction.scene
    scene.first = await scene.stream(partition_count=2)
    scene.key, scene.other = scene.first.partition(0), scene.first.partition(1)
    now_ms = (await scene.metadata.streams.get("orders")).created_ms
    for number in range(6):
        await scene.commit(scene.batch(scene.key, 10, timestamp=now_ms - (5 - number) * 60_000), token=f"wal/{number}")
    if request.param != "in the log":
        await scene.maintain()
    if "compacted" in request.param:
        end = 60 if request.param == "compacted" else 30
        await compaction.compacted((scene.key, 0, end), per_segment=1)
    return compaction


async def retain(store: Metadata, *keys: PartitionKey, **rules: Any) -> dict[PartitionKey, Any]:
    stream = await store.streams.get("orders")
    return await retain_as_of(store, stream, *map(partition_index, keys), **rules)


async def retain_as_of(store: Metadata, stream: Stream, *indexes: int, **rules: Any) -> dict[PartitionKey, Any]:
    return await store.log.retain(stream, indexes, **{"before_ms": None, "size_max": None, **rules})


@pytest.mark.parametrize(
    ("before_ms", "start"), [(OLD_MS, 0), (300_000, 0), (299_999, 10), (150_000, 30), (1, 50), (60_000, 40)]
)
async def test_older_records_are_trimmed(six: Compaction, peer: Metadata, before_ms: int, start: int) -> None:
    key = six.scene.key
    moved = await retain(six.metadata, key, before_ms=before_ms)

    assert moved == ({key: (start, 60, 60)} if start else {})
    assert (await peer.log.bounds([key]))[key] == (start, 60, 60)
    assert (await peer.log.usage([key]))[key] == (600 - 10 * start, 60 - start)


async def test_all_records_may_be_too_old(six: Compaction, peer: Metadata) -> None:
    await six.scene.backend.advance(OLD_MS)
    key = six.scene.key

    assert await retain(six.metadata, key, before_ms=1_000) == {key: (60, 60, 60)}
    await six.scene.maintain()
    assert (await peer.log.locate(key, 0, limit=10)).slices == []
    assert await retain(six.metadata, key, before_ms=1_000) == {}


async def test_a_young_slice_keeps_the_older_slices_after_it(six: Compaction) -> None:
    await six.scene.commit(six.scene.batch(six.scene.key, 10, timestamp=0))

    assert (await retain(six.metadata, six.scene.key, before_ms=90_000))[six.scene.key].start == 40


@pytest.mark.parametrize(("size_max", "start"), [(600, 0), (10_000, 0), (550, 0), (450, 10), (250, 30), (50, 50)])
async def test_records_beyond_the_size_limit_are_trimmed(
    six: Compaction, peer: Metadata, size_max: int, start: int
) -> None:
    key = six.scene.key
    moved = await retain(six.metadata, key, size_max=size_max)

    assert moved == ({key: (start, 60, 60)} if start else {})
    assert (await peer.log.usage([key]))[key].size_bytes == 600 - 10 * start


async def test_either_rule_trims(six: Compaction) -> None:
    key = six.scene.key

    assert (await retain(six.metadata, key, before_ms=150_000, size_max=450))[key].start == 30
    assert (await retain(six.metadata, key, before_ms=OLD_MS, size_max=150))[key].start == 40
    assert await retain(six.metadata, key) == {}


async def test_each_trim_is_one_entry(six: Compaction, peer: Metadata) -> None:
    key, other = six.scene.key, six.scene.other
    for _ in range(2):
        await six.scene.commit(six.scene.batch(other, 1, timestamp=1))
    head = await peer.log.head()
    await retain(six.metadata, key, other, six.scene.first.partition(31), before_ms=150_000)
    entries = (await peer.log.follow(head, limit=10)).entries

    assert [(entry.kind, entry.partition, entry.start_offset) for entry in entries] == [
        (EntryKind.TRIM, key, 30),
        (EntryKind.TRIM, other, 2),
    ]


async def test_a_trim_without_effect_writes_nothing(six: Compaction, peer: Metadata) -> None:
    head = await peer.log.head()

    assert await retain(six.metadata, six.scene.key, six.scene.other, before_ms=OLD_MS, size_max=10_000) == {}
    assert await peer.log.head() == head


async def test_a_start_inside_a_slice_counts_the_slice_whole(six: Compaction) -> None:
    key = six.scene.key
    await six.metadata.log.trim(key, 15)

    assert await retain(six.metadata, key, size_max=500) == {}
    assert (await retain(six.metadata, key, size_max=399))[key].start == 20


async def test_a_trim_of_a_segment_that_begins_below_the_start_never_adds_bytes(six: Compaction) -> None:
    key = six.scene.key
    (compacted,) = (await six.metadata.tasks.compacted([key])).values()
    if compacted == 0:
        claim = await six.claimed((key, 0, 60))
        segments = await six.segments((key, 0, 60))
        await six.metadata.log.trim(key, 35)
        await six.swapped(claim, six.file(segments))
    sizes = []
    for start in (36, 45, 59, 60):
        await six.metadata.log.trim(key, start)
        sizes.append((await six.metadata.log.usage([key]))[key].size_bytes)

    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 0


async def test_retention_decided_by_configs_that_have_changed_deletes_nothing(six: Compaction, peer: Metadata) -> None:
    """A delayed request names the version on which it was decided, so the records that the new configs keep stay."""
    key, old = six.scene.key, await six.metadata.streams.get("orders")
    await by_name.alter(peer, "orders", set_configs={"retention.ms": str(OLD_MS)}, unset_configs=())

    for rules in ({"before_ms": 1}, {"size_max": 50}, {"before_ms": OLD_MS}):  # the last one would move nothing
        with pytest.raises(Conflict):
            await retain_as_of(six.metadata, old, 0, **rules)

    assert (await peer.log.bounds([key]))[key] == (0, 60, 60)
    present = await six.metadata.streams.get("orders")
    assert (await retain_as_of(six.metadata, present, 0, before_ms=1))[key].start == 50


async def test_every_part_of_a_long_retention_names_the_version(six: Compaction, peer: Metadata) -> None:
    old = await six.metadata.streams.get("orders")
    await by_name.add_partitions(peer, "orders", 300)

    with pytest.raises(Conflict):
        await retain_as_of(six.metadata, old, *range(300), before_ms=1)
    assert (await retain(six.metadata, *map(old.partition, range(300)), before_ms=1))[six.scene.key].start == 50


async def test_retention_of_a_deleted_stream_is_not_found(six: Compaction, peer: Metadata) -> None:
    old = await six.metadata.streams.get("orders")
    await by_name.delete(peer, "orders")

    for before_ms in (1, OLD_MS):
        with pytest.raises(NotFound):
            await retain_as_of(six.metadata, old, 0, before_ms=before_ms)
