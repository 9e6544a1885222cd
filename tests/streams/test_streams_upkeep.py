"""Upkeep of the metadata store: the log stays short, producers that are idle are forgotten, outages are survived."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from bearlake.clock import ManualClock
from bearlake.errors import OutOfRange
from bearlake.metadata import Metadata, registering
from bearlake.metadata.faulty import FaultyMetadata, MetadataFaults
from bearlake.metadata.model import BATCH_NAMED, BatchCommit, ObjectCommit, PartitionKey, StreamSpec
from bearlake.metadata.open import open_metadata
from bearlake.streams.upkeep import Upkeep, UpkeepSettings

SETTINGS = UpkeepSettings(pause_ms=1, entry_count_min=2, producer_pause_ms=1, producer_idle_ms=1_000_000)


async def written(metadata: Metadata, count: int) -> PartitionKey:
    """A partition with a batch of each of `count` producers, one of them named."""
    key = (await metadata.streams.create(StreamSpec(name="orders", partition_count=1))).partition(0)
    registered = await registering.register(
        metadata.servers, "server", zone=None, endpoints={}, version="", timeout_ms=1_000
    )
    named = await metadata.producers.named(key, "name")
    ids = [named.producer_id, *await metadata.producers.allocate(count - 1)]
    for number, producer_id in enumerate(ids):
        flags = BATCH_NAMED if producer_id == named.producer_id else 0
        batch = BatchCommit(key, 0, 10, 1, 0, producer_id, 0, 0, flags)
        await metadata.log.commit(
            ObjectCommit(token=f"wal/{number}", server=registered.server, size=10, batches=[batch])
        )
    return key


async def test_idle_producers_are_forgotten_and_busy_ones_are_not() -> None:
    clock = ManualClock()
    metadata = await open_metadata("memory:///", clock=clock)
    key = await written(metadata, 5)
    running = asyncio.create_task(Upkeep(metadata.log, metadata.producers, SETTINGS).run())
    await until(lambda: _is_short(metadata))
    assert len(await metadata.log.producers(key)) == 4

    clock.advance(1_000_001)
    await until(lambda: _has_none(metadata, key))
    assert (await metadata.producers.named(key, "name")).last_sequence == -1
    running.cancel()
    await asyncio.wait([running])
    await metadata.close()


async def test_a_store_that_fails_is_asked_again() -> None:
    clock = ManualClock()
    inner = await open_metadata("memory:///", clock=clock)
    key = await written(inner, 5)
    clock.advance(1_000_001)
    metadata = FaultyMetadata(inner, MetadataFaults(error_rate=0.5), random.Random(1))
    running = asyncio.create_task(Upkeep(metadata.log, metadata.producers, SETTINGS).run())

    await until(lambda: _has_none(inner, key))
    running.cancel()
    await asyncio.wait([running])
    await inner.close()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await holds():  # noqa: ASYNC110 - what happens in the store has no event here
            await asyncio.sleep(0)


async def _has_none(metadata: Metadata, key: PartitionKey) -> bool:
    return not await metadata.log.producers(key)


async def _is_short(metadata: Metadata) -> bool:
    """Whether only the newest entries can still be followed."""
    try:
        await metadata.log.follow(await metadata.log.head() - SETTINGS.entry_count_min - 1, limit=1)
    except OutOfRange:
        return True
    return False
