"""Offsets of groups in transactions, in every store: which of two offsets for a partition is the newer one (KIP-447, decision 205)."""

from dataclasses import replace
from typing import Any

import pytest

from bearlake.metadata import Metadata
from bearlake.metadata.model import CommittedOffset, partition_key, stream_number
from bearlake.metadata.transactions import TransactionState
from fixtures.store_producer import Producer


@pytest.mark.parametrize("is_commit", [True, False])
async def test_offsets_that_are_committed_during_a_transaction_are_newer_than_those_that_it_holds(
    scene: Any, peer: Metadata, is_commit: bool
) -> None:
    partition, other = await scene.partition(), await scene.partition("others")
    producer = await Producer(scene).begin()
    lease = await scene.metadata.leases.acquire("group/g", scene.server)
    held = await scene.metadata.transactions.get("copier")
    after = replace(held, state=TransactionState.ONGOING)
    pending = {partition: CommittedOffset(offset=3), other: CommittedOffset(offset=4)}
    await scene.metadata.transactions.put_offsets(after, held.version, "g", pending, lease)
    await scene.metadata.groups.commit_offsets("g", {partition: CommittedOffset(offset=7)}, lease)
    unstable = await peer.transactions.pending("g")
    await producer.end(is_commit=is_commit)
    found = await peer.groups.offsets("g")

    assert unstable == {other}
    assert {key: value.offset for key, value in found.items()} == {partition: 7} | ({other: 4} if is_commit else {})


async def test_offsets_of_a_transaction_replace_those_that_were_committed_before_them(scene: Any) -> None:
    partition = await scene.partition()
    producer = await Producer(scene).begin()
    lease = await scene.metadata.leases.acquire("group/g", scene.server)
    held = await scene.metadata.transactions.get("copier")
    after = replace(held, state=TransactionState.ONGOING)
    await scene.metadata.groups.commit_offsets("g", {partition: CommittedOffset(offset=7)}, lease)
    await scene.metadata.transactions.put_offsets(
        after, held.version, "g", {partition: CommittedOffset(offset=3)}, lease
    )
    await producer.end()

    assert (await scene.metadata.groups.offsets("g"))[partition].offset == 3


async def test_offsets_of_a_partition_without_a_stream_take_effect_and_those_of_a_deleted_stream_do_not(
    scene: Any, peer: Metadata
) -> None:
    gone, internal = await scene.partition("gone"), partition_key(2**43 - 1, 0)
    producer = await Producer(scene).begin()
    lease = await scene.metadata.leases.acquire("group/g", scene.server)
    held = await scene.metadata.transactions.get("copier")
    after = replace(held, state=TransactionState.ONGOING)
    pending = {gone: CommittedOffset(offset=3), internal: CommittedOffset(offset=5)}
    await scene.metadata.transactions.put_offsets(after, held.version, "g", pending, lease)
    await scene.metadata.streams.delete(stream_number(gone))
    await producer.end()

    assert {key: value.offset for key, value in (await peer.groups.offsets("g")).items()} == {internal: 5}
