"""Commits of transactional batches by a store that may decide from memory: other processes, repeats and zombies (decision 304)."""

from typing import Any

import pytest

from bearlake.errors import Fenced
from bearlake.metadata import Metadata
from bearlake.metadata.model import ChangeKind
from fixtures.store_producer import Producer
from metadata.test_metadata_transactions import ACCEPTED, NO_TRANSACTION, kinds, last_stable


async def test_a_transaction_begins_where_another_process_has_left_the_log(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    producer = await Producer(scene).begin()
    for _ in range(2):
        await producer.write(partition)  # a store may know by now that no other process writes
        await producer.end()
    await scene.commit(scene.batch(partition, 5), by=peer)
    committed = await producer.write(partition)
    (isolation,) = (await peer.transactions.isolation([partition])).values()
    (entry,) = (await peer.log.follow(committed.position - 1, limit=1)).entries

    assert committed.outcomes[0][:2] == (ACCEPTED, 9)
    assert (isolation.open_offset, isolation.end) == (9, 10)
    assert [change[:4] for change in entry.changes] == [(ChangeKind.BEGUN, partition, producer.row.producer_id, 9)]
    await producer.end()
    assert await last_stable(scene, partition) == 11


async def test_a_repeated_token_of_transactional_batches_begins_nothing(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    producer = await Producer(scene).begin()
    await producer.write(partition)
    commit = scene.object(producer.batch(partition))
    first = await scene.metadata.log.commit(commit)
    again = await scene.metadata.log.commit(commit)
    await producer.end()
    late = await scene.metadata.log.commit(commit)

    assert (again.position, again.outcomes) == (late.position, late.outcomes) == (first.position, first.outcomes)
    assert await peer.transactions.open_offsets() == []
    assert await last_stable(scene, partition) == 3


async def test_a_fenced_server_begins_no_transaction(scene: Any) -> None:
    partition = await scene.partition()
    producer = await Producer(scene).begin()
    await producer.write(partition)
    await producer.end()
    commit = scene.object(producer.batch(partition))
    await scene.register(scene.metadata)  # the next epoch of the same server
    with pytest.raises(Fenced):
        await scene.metadata.log.commit(commit)

    assert await scene.metadata.transactions.open_offsets() == []
    assert await last_stable(scene, partition) == 2


async def test_batches_without_a_transaction_share_objects_with_others(scene: Any) -> None:
    partition, other = await scene.partition(), await scene.partition("others")
    producer = await Producer(scene, is_v2=False).begin()
    await producer.add(partition)
    for _ in range(2):
        committed = await scene.commit(producer.batch(partition), producer.batch(other), scene.batch(other, 3))

    assert kinds(committed) == [ACCEPTED, NO_TRANSACTION, ACCEPTED]
    assert await last_stable(scene, partition) == 0
    assert await last_stable(scene, other) == 6
