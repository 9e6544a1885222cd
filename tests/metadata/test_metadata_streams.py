"""The stream catalog of every store."""

import asyncio
import uuid
from dataclasses import replace
from typing import Any

import pytest

from bearlake.errors import AlreadyExists, Conflict, Invalid, NotFound
from bearlake.metadata import Metadata
from bearlake.metadata.model import PARTITION_COUNT_MAX, EntryKind, StreamSpec
from fixtures import by_name


async def test_a_created_stream_is_read_back_and_its_partitions_are_empty(metadata: Metadata, peer: Metadata) -> None:
    spec = StreamSpec(name="orders", partition_count=3, configs={"retention.ms": "1000", "x": "ü"})
    stream = await metadata.streams.create(spec)

    assert await peer.streams.get("orders") == stream
    assert (stream.name, stream.partition_count, stream.configs) == ("orders", 3, {"retention.ms": "1000", "x": "ü"})
    assert isinstance(stream.id, uuid.UUID)
    assert not stream.is_deleted
    assert stream.created_ms > 0
    partitions = [stream.partition(index) for index in range(3)]
    assert await peer.log.bounds(partitions) == dict.fromkeys(partitions, (0, 0, 0))


async def test_a_name_is_taken_until_its_stream_is_deleted(metadata: Metadata, peer: Metadata) -> None:
    first = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    with pytest.raises(AlreadyExists):
        await peer.streams.create(StreamSpec(name="orders", partition_count=2))
    deleted = await by_name.delete(peer, "orders")
    second = await metadata.streams.create(StreamSpec(name="orders", partition_count=1, after=first.number))

    assert deleted.is_deleted
    assert deleted.id == first.id
    assert second.id != first.id
    assert second.number > first.number


async def test_one_of_many_concurrent_creations_wins(metadata: Metadata, peer: Metadata) -> None:
    spec = StreamSpec(name="orders", partition_count=1)
    handles = [metadata, peer] * 5
    results = await asyncio.gather(*(handle.streams.create(spec) for handle in handles), return_exceptions=True)

    assert sum(not isinstance(result, Exception) for result in results) == 1
    assert sum(isinstance(result, AlreadyExists) for result in results) == 9


@pytest.mark.parametrize("partition_count", [0, -1, PARTITION_COUNT_MAX + 1])
async def test_a_partition_count_outside_the_limits_is_invalid(metadata: Metadata, partition_count: int) -> None:
    with pytest.raises(Invalid):
        await metadata.streams.create(StreamSpec(name="orders", partition_count=partition_count))
    with pytest.raises(NotFound):
        await metadata.streams.get("orders")


@pytest.mark.parametrize(
    "step",
    [
        lambda metadata: metadata.streams.get("none"),
        lambda metadata: by_name.delete(metadata, "none"),
        lambda metadata: by_name.alter(metadata, "none", set_configs={"a": "b"}, unset_configs=()),
        lambda metadata: by_name.add_partitions(metadata, "none", 2),
    ],
)
async def test_operations_on_unknown_and_deleted_names_are_not_found(metadata: Metadata, step: Any) -> None:
    with pytest.raises(NotFound):
        await step(metadata)

    await metadata.streams.create(StreamSpec(name="none", partition_count=1))
    await by_name.delete(metadata, "none")
    with pytest.raises(NotFound):
        await step(metadata)


async def test_configs_are_set_and_unset_in_one_step(metadata: Metadata, peer: Metadata) -> None:
    await metadata.streams.create(StreamSpec(name="orders", partition_count=1, configs={"a": "1", "b": "2", "c": "3"}))
    altered = await by_name.alter(peer, "orders", set_configs={"a": "9", "d": "4"}, unset_configs=["b", "unknown"])

    assert altered.configs == {"a": "9", "c": "3", "d": "4"}
    assert await metadata.streams.get("orders") == altered


async def test_partitions_are_added_and_never_removed(scene: Any, peer: Metadata) -> None:
    stream = await scene.stream(partition_count=2)
    assert (await scene.commit(scene.batch(stream.partition(2)))).outcomes[0].base_offset == -1
    grown = await by_name.add_partitions(peer, "orders", 3)
    committed = await scene.commit(scene.batch(stream.partition(2)))

    assert grown.partition_count == 3
    assert committed.outcomes[0].base_offset == 0
    for partition_count in (3, 2, 0, PARTITION_COUNT_MAX + 1):
        with pytest.raises(Invalid):
            await by_name.add_partitions(scene.metadata, "orders", partition_count)


async def test_streams_are_listed_by_name_in_pages(metadata: Metadata) -> None:
    for name in ("b", "a.2", "a.10", "a", "c", "B", "a-1", "ab"):
        await metadata.streams.create(StreamSpec(name=name, partition_count=1))
    await by_name.delete(metadata, "c")

    async def names(**how: Any) -> list[str]:
        return [stream.name for stream in await metadata.streams.list(**how)]

    assert await names() == ["B", "a", "a-1", "a.10", "a.2", "ab", "b"]
    assert await names(prefix="a.") == ["a.10", "a.2"]
    assert await names(prefix="a", after="a", limit=2) == ["a-1", "a.10"]
    assert await names(after="a.2") == ["ab", "b"]
    assert await names(prefix="zzz") == []


async def test_incarnations_are_found_by_number_also_when_deleted(metadata: Metadata, peer: Metadata) -> None:
    first = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    await by_name.delete(metadata, "orders")
    second = await metadata.streams.create(StreamSpec(name="orders", partition_count=1, after=first.number))
    found = await peer.streams.by_numbers([second.number, first.number, 999_999])

    assert {stream.number: stream.is_deleted for stream in found} == {first.number: True, second.number: False}
    assert await peer.streams.by_numbers([]) == []


async def test_all_incarnations_are_paged_by_number_across_gaps_and_deletions(
    metadata: Metadata, peer: Metadata
) -> None:
    spec = StreamSpec(name="orders", partition_count=1)
    made = [await by_name.create(metadata, spec)]
    await by_name.delete(metadata, "orders")
    made.append(await by_name.create(metadata, spec))
    for _ in range(20):  # attempts that may consume numbers
        with pytest.raises(AlreadyExists):
            await by_name.create(metadata, spec)
    made.append(await by_name.create(metadata, replace(spec, name="bills")))
    pages, after = [], 0
    while page := await peer.streams.incarnations(after=after, limit=2):
        pages.append([stream.number for stream in page])
        after = page[-1].number

    numbers = [stream.number for stream in made]
    assert numbers == sorted(numbers)
    assert pages == [numbers[:2], numbers[2:]]
    found = await peer.streams.incarnations()
    assert [(stream.name, stream.is_deleted) for stream in found] == [
        ("orders", True),
        ("orders", False),
        ("bills", False),
    ]
    assert await peer.streams.incarnations(after=numbers[-1]) == []


async def test_every_change_of_a_stream_is_an_entry_of_the_log(metadata: Metadata) -> None:
    before = await metadata.log.head()
    changes = [
        await metadata.streams.create(StreamSpec(name="orders", partition_count=1)),
        await by_name.alter(metadata, "orders", set_configs={"a": "b"}, unset_configs=()),
        await by_name.add_partitions(metadata, "orders", 2),
        await by_name.delete(metadata, "orders"),
    ]
    entries = (await metadata.log.follow(before, limit=10)).entries

    assert [entry.kind for entry in entries] == [EntryKind.STREAM] * 4
    assert {entry.stream_number for entry in entries} == {changes[0].number}
    assert [entry.position for entry in entries] == [stream.version for stream in changes]


async def test_a_refused_change_adds_no_entry_to_the_log(metadata: Metadata) -> None:
    await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    head = await metadata.log.head()
    with pytest.raises(AlreadyExists):
        await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    with pytest.raises(Invalid):
        await by_name.add_partitions(metadata, "orders", 1)

    assert await metadata.log.head() == head


async def test_partitions_of_a_deleted_stream_do_not_exist(scene: Any, peer: Metadata) -> None:
    stream = await scene.stream()
    partition = stream.partition(0)
    await scene.commit(scene.batch(partition))
    await by_name.delete(peer, "orders")
    log = scene.metadata.log

    assert await log.bounds([partition]) == {}
    assert await log.usage([partition]) == {}
    for step in (
        log.locate(partition, 0, limit=1),
        log.locate_timestamp(partition, 0),
        log.locate_max_timestamp(partition),
        log.trim(partition, 0),
        log.producers(partition),
    ):
        with pytest.raises(NotFound):
            await step


async def test_a_change_of_a_version_applies_only_to_that_version(metadata: Metadata, peer: Metadata) -> None:
    made = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    altered = await peer.streams.alter(made.number, set_configs={"a": "1"}, unset_configs=(), version=made.version)
    with pytest.raises(Conflict):
        await metadata.streams.alter(made.number, set_configs={"a": "2"}, unset_configs=(), version=made.version)
    with pytest.raises(Conflict):
        await metadata.streams.delete(made.number, version=made.version)

    assert await metadata.streams.get("orders") == altered
    assert altered.configs == {"a": "1"}
    assert (await metadata.streams.delete(made.number, version=altered.version)).is_deleted


async def test_a_late_change_of_a_deleted_stream_does_not_affect_its_successor(
    metadata: Metadata, peer: Metadata
) -> None:
    first = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    deleted = await peer.streams.delete(first.number)
    second = await peer.streams.create(StreamSpec(name="orders", partition_count=1, after=first.number))
    for late in (
        metadata.streams.delete(first.number),
        metadata.streams.delete(first.number, version=deleted.version),
        metadata.streams.terminate(first.number),
        metadata.streams.add_partitions(first.number, 5),
        metadata.streams.alter(first.number, set_configs={"a": "b"}, unset_configs=(), version=first.version),
        metadata.streams.alter(first.number, set_configs={"a": "b"}, unset_configs=(), version=deleted.version),
    ):
        with pytest.raises(NotFound):
            await late

    assert await metadata.streams.list() == [second]


async def test_a_late_creation_does_not_restore_a_deleted_stream(metadata: Metadata, peer: Metadata) -> None:
    assert await metadata.streams.newest("orders") == 0
    first = await peer.streams.create(StreamSpec(name="orders", partition_count=1))
    assert await metadata.streams.newest("orders") == first.number
    await peer.streams.delete(first.number)
    assert await metadata.streams.newest("orders") == first.number

    with pytest.raises(Conflict):
        await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    second = await peer.streams.create(StreamSpec(name="orders", partition_count=1, after=first.number))
    await peer.streams.delete(second.number)
    with pytest.raises(Conflict):
        await metadata.streams.create(StreamSpec(name="orders", partition_count=1, after=first.number))

    assert await metadata.streams.list() == []


async def test_a_refused_creation_consumes_no_number(metadata: Metadata, peer: Metadata) -> None:
    first = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    for after in (0, first.number, 7):
        with pytest.raises(AlreadyExists):
            await peer.streams.create(StreamSpec(name="orders", partition_count=1, after=after))
    with pytest.raises(Conflict):
        await peer.streams.create(StreamSpec(name="bills", partition_count=1, after=7))
    second = await metadata.streams.create(StreamSpec(name="bills", partition_count=1))

    assert second.number == first.number + 1


async def test_only_one_of_many_concurrent_changes_of_a_version_succeeds(metadata: Metadata, peer: Metadata) -> None:
    made = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    changes = [
        handle.streams.alter(made.number, set_configs={"a": str(at)}, unset_configs=(), version=made.version)
        for at, handle in enumerate([metadata, peer] * 5)
    ]
    results = await asyncio.gather(*changes, return_exceptions=True)
    done = [result for result in results if not isinstance(result, BaseException)]

    assert sum(isinstance(result, Conflict) for result in results) == 9
    assert [await metadata.streams.get("orders")] == done


async def test_the_time_is_the_store_s(backend: Any, metadata: Metadata, peer: Metadata) -> None:
    before_ms = await metadata.now_ms()
    await backend.advance(5_000)

    assert await peer.now_ms() >= before_ms + 5_000
