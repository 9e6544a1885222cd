"""The fault-injecting wrapper of the metadata store, and what its faults mean for commits."""

import asyncio
import random
from typing import Any

import pytest

from bearlake.clock import ManualClock
from bearlake.errors import NotFound, Unavailable
from bearlake.metadata import Metadata
from bearlake.metadata.faulty import FaultyMetadata, MetadataFaults
from bearlake.metadata.model import BatchCommit, ObjectCommit, OutcomeKind, StreamSpec
from bearlake.metadata.open import open_metadata


@pytest.fixture
async def inner() -> Any:
    store = await open_metadata("memory:///", clock=ManualClock())
    yield store
    await store.close()


def wrapped(inner: Metadata, seed: int = 1, **faults: float) -> FaultyMetadata:
    return FaultyMetadata(inner, MetadataFaults(**faults), random.Random(seed))


async def test_without_faults_calls_and_errors_pass_through(inner: Metadata) -> None:
    store = wrapped(inner)
    stream = await store.streams.create(StreamSpec(name="orders", partition_count=1))

    assert await inner.streams.get("orders") == stream
    assert await store.cluster_id() == await inner.cluster_id()
    with pytest.raises(NotFound):
        await store.streams.get("none")


async def test_an_error_before_the_effect_changes_nothing(inner: Metadata) -> None:
    store = wrapped(inner, error_rate=1.0)
    with pytest.raises(Unavailable):
        await store.streams.create(StreamSpec(name="orders", partition_count=1))

    assert await inner.streams.list() == []


async def test_a_lost_reply_has_had_its_effect(inner: Metadata) -> None:
    store = wrapped(inner, lost_reply_rate=1.0)
    with pytest.raises(Unavailable):
        await store.streams.create(StreamSpec(name="orders", partition_count=1))

    assert len(await inner.streams.list()) == 1


async def test_faults_can_end(inner: Metadata) -> None:
    store = wrapped(inner, error_rate=1.0)
    store.misbehave(MetadataFaults())

    assert await store.streams.list() == []


async def test_a_seed_replays_exactly(inner: Metadata) -> None:
    async def run(seed: int) -> list[bool]:
        store = wrapped(inner, seed, error_rate=0.3, lost_reply_rate=0.3)
        results = [await asyncio.gather(store.streams.list(), return_exceptions=True) for _ in range(50)]
        return [isinstance(result[0], Unavailable) for result in results]

    assert await run(5) == await run(5)
    assert await run(5) != await run(6)


@pytest.mark.parametrize("seed", range(5))
async def test_commits_that_are_repeated_until_answered_happen_once(inner: Metadata, seed: int) -> None:
    store = wrapped(inner, seed, delay_ms_max=0.3, error_rate=0.2, lost_reply_rate=0.3)
    stream = await inner.streams.create(StreamSpec(name="orders", partition_count=1))
    server = (await inner.servers.register("a", zone=None, endpoints={}, version="1", timeout_ms=1_000)).server

    async def commit(number: int) -> int:
        batch = BatchCommit(stream.partition(0), 0, 10, 1 + number % 3, 0, number, 0, 0)
        while True:
            try:
                one = ObjectCommit(token=f"wal/{number}", server=server, size=10, batches=[batch])
                committed = await store.log.commit(one)
            except Unavailable:
                continue
            assert committed.outcomes[0].kind is OutcomeKind.ACCEPTED
            return committed.outcomes[0].base_offset

    await commit(0)
    bases = [0, *await asyncio.gather(*(commit(3 * number) for number in range(1, 30)))]

    assert sorted(bases) == list(range(30))
    assert (await inner.log.bounds([stream.partition(0)]))[stream.partition(0)].end == 30
