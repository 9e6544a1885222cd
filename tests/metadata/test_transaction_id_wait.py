"""A request that waits for a new producer id concerns the transaction that it found first (decision 182)."""

from dataclasses import replace
from typing import Any

import pytest

from bearlake.metadata.model import PartitionKey
from bearlake.metadata.transaction_rules import Problem
from bearlake.metadata.transactions import EPOCH_MAX
from bearlake.streams.transactions import TransactionRefusal, TransactionService, TransactionSettings


async def test_an_end_that_waits_for_an_id_does_not_end_the_next_transaction(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = scene.metadata
    late, other = (TransactionService(metadata, TransactionSettings()) for _ in range(2))
    await late.initialize("copier", 60_000)
    held = await metadata.transactions.get("copier")
    held = await metadata.transactions.put(replace(held, epoch=EPOCH_MAX - 1), held.version)
    who = held.producer_id, held.epoch
    await late.add("copier", who, partitions=[PartitionKey(1)])
    allocate = metadata.producers.allocate

    async def overtaken(count: int) -> Any:
        monkeypatch.setattr(metadata.producers, "allocate", allocate)
        await other.end("copier", who, is_commit=True, bumps=False)
        await scene.backend.advance(5)
        await other.add("copier", who, partitions=[PartitionKey(2)])
        return await allocate(count)

    monkeypatch.setattr(metadata.producers, "allocate", overtaken)
    with pytest.raises(TransactionRefusal) as refused:
        await late.end("copier", who, is_commit=True, bumps=False)

    assert refused.value.problem is Problem.INVALID_STATE
    assert (await metadata.transactions.get("copier")).is_ongoing


async def test_a_request_that_is_refused_takes_no_id(scene: Any) -> None:
    service = TransactionService(scene.metadata, TransactionSettings())
    (before,) = await scene.metadata.producers.allocate(1)
    with pytest.raises(TransactionRefusal):
        await service.end("nobody", (5, 0), is_commit=True, bumps=True)
    (after,) = await scene.metadata.producers.allocate(1)

    assert after == before + 1
