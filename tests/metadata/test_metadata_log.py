"""Following the commit log of every store: order, truncation, waiting; and producers' states."""

import asyncio
from typing import Any

import pytest

from bearlake.errors import Invalid, NotFound, OutOfRange
from bearlake.metadata import Metadata
from bearlake.metadata.model import EntryKind, ProducerState, StreamSpec, partition_key
from fixtures import by_name
from fixtures.idle_producers import pass_minutes
from fixtures.waiting import WAIT_S


async def test_entries_are_returned_in_order_and_in_pages(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    for count in range(1, 6):
        await scene.commit(scene.batch(partition, count), by=(scene.metadata, peer)[count % 2])
    await peer.log.trim(partition, 4)
    everything = await scene.metadata.log.follow(0, limit=100)
    page = await peer.log.follow(everything.entries[1].position, limit=2)

    assert [entry.kind for entry in everything.entries] == [EntryKind.STREAM] + [EntryKind.COMMIT] * 5 + [
        EntryKind.TRIM
    ]
    positions = [entry.position for entry in everything.entries]
    assert positions == sorted(set(positions))
    assert everything.head == positions[-1] == await peer.log.head()
    assert (list(page.entries), page.head) == (list(everything.entries[2:4]), everything.head)
    trim = everything.entries[-1]
    assert (trim.partition, trim.start_offset) == (partition, 4)
    assert list((await peer.log.follow(everything.head, limit=5)).entries) == []


async def test_a_new_store_has_an_empty_log(metadata: Metadata) -> None:
    page = await metadata.log.follow(0, limit=10)

    assert (list(page.entries), page.head) == ([], 0)
    assert await metadata.log.head() == 0
    assert await metadata.log.maintain(entry_count_min=0) == 0


async def test_the_log_that_maintenance_leaves_can_be_followed(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    for _ in range(10):
        await scene.commit(scene.batch(partition))
    head = await scene.metadata.log.head()
    rolled = 0
    while count := await peer.log.maintain(entry_count_min=3):
        rolled += count
    kept = await scene.metadata.log.follow(head - 3, limit=10)

    assert rolled == head
    assert [entry.position for entry in kept.entries] == [head - 2, head - 1, head]
    assert await scene.metadata.log.head() == head


async def test_following_from_a_truncated_position_is_out_of_range(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    for _ in range(10):
        await scene.commit(scene.batch(partition))
    await scene.maintain(entry_count_min=2)

    with pytest.raises(OutOfRange):
        await peer.log.follow(1, limit=10)


async def test_positions_continue_when_the_whole_log_is_truncated(scene: Any, peer: Metadata, backend: Any) -> None:
    partition = await scene.partition()
    for _ in range(3):
        await scene.commit(scene.batch(partition))
    head = await scene.metadata.log.head()
    await scene.maintain(entry_count_min=0)
    reopened = await backend.open()
    committed = await scene.commit(scene.batch(partition), by=reopened)

    assert await peer.log.head() == committed.position > head
    assert [entry.position for entry in (await peer.log.follow(head, limit=9)).entries] == [committed.position]
    assert committed.outcomes[0].base_offset == 3


async def test_maintenance_of_a_settled_log_does_nothing(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    await scene.commit(scene.batch(partition))
    await scene.maintain()

    assert await peer.log.maintain(entry_count_min=0) == 0
    assert await scene.metadata.log.maintain(entry_count_min=0) == 0


async def test_concurrent_maintenance_counts_each_entry_once(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    for _ in range(9):
        await scene.commit(scene.batch(partition))
    head = await scene.metadata.log.head()
    counts = await asyncio.gather(*(handle.log.maintain(entry_count_min=100) for handle in [scene.metadata, peer] * 10))

    assert sum(counts) == head


async def test_waiting_ends_when_this_process_commits(scene: Any) -> None:
    partition = await scene.partition()
    head = await scene.metadata.log.head()
    async with asyncio.timeout(WAIT_S):
        waiting = asyncio.create_task(scene.metadata.log.wait(head, wait_ms=60_000))
        await asyncio.sleep(0)
        await scene.commit(scene.batch(partition))
        await waiting

    assert await scene.metadata.log.head() > head


async def test_waiting_ends_when_another_process_commits(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    head = await scene.metadata.log.head()
    async with asyncio.timeout(WAIT_S):
        waiting = asyncio.create_task(scene.metadata.log.wait(head, wait_ms=60_000))
        await asyncio.sleep(0)
        await scene.commit(scene.batch(partition), by=peer)
        await waiting

    assert await scene.metadata.log.head() > head


async def test_waiting_ends_when_a_stream_changes_or_a_partition_is_trimmed(scene: Any) -> None:
    partition = await scene.partition()
    await scene.commit(scene.batch(partition))
    async with asyncio.timeout(WAIT_S):
        for step in (
            scene.metadata.log.trim(partition, 1),
            by_name.alter(scene.metadata, "orders", set_configs={"a": "b"}, unset_configs=()),
        ):
            waiting = asyncio.create_task(scene.metadata.log.wait(await scene.metadata.log.head(), wait_ms=60_000))
            await asyncio.sleep(0)
            await step
            await waiting


async def test_waiting_for_an_existing_entry_or_for_no_time_returns_at_once(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    await scene.commit(scene.batch(partition))
    async with asyncio.timeout(WAIT_S):
        await peer.log.wait(0, wait_ms=60_000)
        await peer.log.wait(await peer.log.head(), wait_ms=5)
        await peer.log.wait(await peer.log.head(), wait_ms=0)


@pytest.mark.parametrize("is_maintained", [False, True])
async def test_producer_states_are_described(scene: Any, peer: Metadata, is_maintained: bool) -> None:
    partition = await scene.partition()
    await scene.commit(scene.batch(partition, 3, producer=9, epoch=2))
    before = (await peer.log.producers(partition))[0].last_timestamp_ms
    await scene.backend.advance(1_000)
    await scene.commit(
        scene.batch(partition, 2, producer=9, epoch=2, sequence=3), scene.batch(partition, 1, producer=4)
    )
    if is_maintained:
        await scene.maintain()
    first, second = await peer.log.producers(partition)

    assert second == ProducerState(
        producer_id=9, producer_epoch=2, last_sequence=4, last_offset=4, last_timestamp_ms=second.last_timestamp_ms
    )
    assert (first.producer_id, first.last_offset) == (4, 5)
    assert second.last_timestamp_ms >= before + 1_000
    with pytest.raises(NotFound):
        await peer.log.producers(partition_key(999, 0))


async def test_producer_ids_are_given_once(metadata: Metadata, peer: Metadata) -> None:
    ranges = await asyncio.gather(*(handle.producers.allocate(7) for handle in [metadata, peer] * 5))
    given = sorted(id_ for taken in ranges for id_ in taken)

    assert {len(taken) for taken in ranges} == {7}
    assert len(set(given)) == 70
    assert given[0] >= 0
    with pytest.raises(Invalid):
        await metadata.producers.allocate(0)


async def test_idle_producers_are_forgotten(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    await scene.commit(*(scene.batch(partition, producer=number) for number in range(5)))
    await scene.maintain()
    await pass_minutes(scene.metadata, 2)
    await scene.commit(scene.batch(partition, producer=3, sequence=1))
    await scene.maintain()

    assert await peer.producers.expire(idle_ms=60_001, limit=100) == 0
    assert await peer.producers.expire(idle_ms=60_000, limit=3) == 3
    assert await scene.metadata.producers.expire(idle_ms=60_000, limit=100) == 1
    assert [state.producer_id for state in await scene.metadata.log.producers(partition)] == [3]
    scene.seen = await scene.metadata.log.head()  # the batch follows the expiry
    committed = await scene.commit(scene.batch(partition, producer=0, epoch=1))
    assert committed.outcomes[0].base_offset == 6


async def test_the_log_is_bounded_work_for_any_number_of_rounds(scene: Any) -> None:
    partition = await scene.partition()
    for number in range(30):
        await scene.commit(scene.batch(partition, 2, producer=1, sequence=2 * number))
        if number % 7 == 0:
            await scene.metadata.log.maintain(entry_count_min=number % 3)
    await scene.maintain(entry_count_min=0)
    located = await scene.metadata.log.locate(partition, 0, limit=100)

    assert [located_slice.slice.base_offset for located_slice in located.slices] == list(range(0, 60, 2))


async def test_a_process_that_was_paused_during_truncation_continues(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    await scene.commit(scene.batch(partition, 1, producer=1), by=peer)
    for number in range(1, 12):
        await scene.commit(scene.batch(partition, 1, producer=1, sequence=number))
        if number == 6:
            await scene.metadata.streams.create(StreamSpec(name="other", partition_count=1))
        await scene.maintain(entry_count_min=0)
    other = (await peer.streams.get("other")).partition(0)
    committed = await scene.commit(scene.batch(partition, 1, producer=1, sequence=12), scene.batch(other), by=peer)

    assert [outcome.base_offset for outcome in committed.outcomes] == [12, 0]
    assert len((await peer.log.locate(partition, 0, limit=100)).slices) == 13
