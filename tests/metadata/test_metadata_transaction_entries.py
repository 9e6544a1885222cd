"""What entries of the log say about transactions: each begins in a partition with its first accepted batch, once, and ends once."""

import asyncio
from dataclasses import replace
from typing import Any

from bearlake.metadata.model import ChangeKind, OutcomeKind, TransactionChange
from bearlake.metadata.transactions import EPOCH_MAX, OpenOffset
from bearlake.records import markers
from bearlake.streams.transactions import TransactionService, TransactionSettings
from fixtures.store_producer import Producer
from fixtures.waiting import WAIT_S


async def changes_of(scene: Any, position: int) -> list[TransactionChange]:
    """The changes of the entry at `position`."""
    (entry,) = (await scene.metadata.log.follow(position - 1, limit=1)).entries
    return sorted(entry.changes)


async def test_a_transaction_begins_with_its_first_batch_and_only_once(scene: Any) -> None:
    stream = await scene.stream(partition_count=2)
    first, second = stream.partition(0), stream.partition(1)
    producer = await Producer(scene).begin()
    await scene.commit(scene.batch(first, 3))
    begun = await producer.write(first, first)
    later = await producer.write(first, second)
    last = await producer.write(second)

    assert await changes_of(scene, begun.position) == [TransactionChange(ChangeKind.BEGUN, first, 0, 3, -1, 3)]
    assert await changes_of(scene, later.position) == [TransactionChange(ChangeKind.BEGUN, second, 0, 0, -1, 0)]
    assert await changes_of(scene, last.position) == []
    assert list(await scene.metadata.transactions.open_offsets()) == [OpenOffset(first, 0, 3), OpenOffset(second, 0, 0)]


async def test_transactions_of_two_producers_begin_in_one_commit(scene: Any) -> None:
    partition = await scene.partition()
    a, b = await Producer(scene, "a").begin(), await Producer(scene, "b").begin()
    begun = await scene.commit(scene.batch(partition), a.batch(partition), b.batch(partition, 2))
    await a.end()

    assert await changes_of(scene, begun.position) == [
        TransactionChange(ChangeKind.BEGUN, partition, 0, 1, -1, 1),
        TransactionChange(ChangeKind.BEGUN, partition, 1, 2, -1, 1),
    ]
    assert await changes_of(scene, begun.position + 1) == [
        TransactionChange(ChangeKind.COMMITTED, partition, 0, 1, 4, 2)
    ]


async def test_batches_that_are_refused_or_not_transactional_begin_nothing(scene: Any) -> None:
    partition = await scene.partition()
    producer, idle = await Producer(scene).begin(), await Producer(scene, "idle").begin()
    out_of_order = producer.batch(partition)._replace(base_sequence=7)
    idempotent = scene.batch(partition, producer=idle.row.producer_id, epoch=0)
    committed = await scene.commit(scene.batch(partition), out_of_order, idempotent)

    assert [outcome.kind is OutcomeKind.ACCEPTED for outcome in committed.outcomes] == [True, False, True]
    assert await changes_of(scene, committed.position) == []
    assert await scene.metadata.transactions.open_offsets() == []
    for beginner in (producer, idle):
        assert await scene.metadata.transactions.get(beginner.name) == beginner.row


async def test_a_refused_batch_does_not_begin_its_transaction_beside_an_accepted_one(scene: Any) -> None:
    partition = await scene.partition()
    refused, accepted = await Producer(scene, "a").begin(), await Producer(scene, "b").begin()
    out_of_order = refused.batch(partition)._replace(base_sequence=7)
    await scene.commit(out_of_order, accepted.batch(partition))

    assert await scene.metadata.transactions.get("a") == refused.row
    assert (await scene.metadata.transactions.get("b")).is_ongoing


async def test_a_batch_leaves_the_row_of_an_ongoing_transaction_as_it_is(scene: Any) -> None:
    partition = await scene.partition()
    producer = await Producer(scene, is_v2=False).begin()
    await producer.add(partition)
    await scene.backend.advance(1_000)
    await producer.write(partition)

    assert await scene.metadata.transactions.get("copier") == producer.row


async def test_the_end_of_a_transaction_wakes_the_followers_of_its_process(scene: Any) -> None:
    """In memory, nothing polls."""
    partition = await scene.partition()
    producer = await Producer(scene).begin()
    head = (await producer.write(partition)).position
    woken = asyncio.ensure_future(scene.metadata.log.wait(head, wait_ms=3_600_000))
    await asyncio.sleep(0)
    service = TransactionService(scene.metadata, TransactionSettings())
    await service.end("copier", (producer.row.producer_id, producer.row.epoch), is_commit=True, bumps=True)
    async with asyncio.timeout(WAIT_S):
        await woken


async def test_markers_of_a_producer_that_gets_a_new_id_have_the_former_one_and_the_last_epoch(scene: Any) -> None:
    partition = await scene.partition()
    producer = await Producer(scene).begin()
    row = replace(producer.row, epoch=EPOCH_MAX - 1)
    producer.row = await scene.metadata.transactions.put(row, row.version)
    begun = await producer.write(partition)
    service = TransactionService(scene.metadata, TransactionSettings())
    who = await service.end("copier", (row.producer_id, row.epoch), is_commit=True, bumps=True)
    (ended,) = (await scene.metadata.log.follow(begun.position, limit=1)).entries
    found = markers.parse(ended.object_key)

    assert (found.producer_id, found.epoch) == (row.producer_id, EPOCH_MAX)
    assert who[0] != row.producer_id
    assert who[1] == 0
