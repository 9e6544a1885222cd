"""Upkeep of the metadata store: the log stays short, producers that are idle are forgotten, outages are survived."""

import asyncio
import random
from dataclasses import replace

from bearlake.clock import ManualClock
from bearlake.errors import OutOfRange
from bearlake.metadata import CommitLog, Metadata, registering
from bearlake.metadata.faulty import FaultyMetadata, MetadataFaults
from bearlake.metadata.model import BATCH_NAMED, BatchCommit, ObjectCommit, PartitionKey, StreamSpec
from bearlake.metadata.open import open_metadata
from bearlake.streams.upkeep import PRODUCER_COUNT_MAX, Upkeep, UpkeepSettings
from simulator.loop import virtual_time

SETTINGS = UpkeepSettings(pause_ms=1_000, entry_count_min=2, producer_pause_ms=1_000, producer_idle_ms=1_000_000)


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


@virtual_time
async def test_only_idle_producers_are_forgotten() -> None:
    metadata = await open_metadata("memory:///", clock=ManualClock())
    key = await written(metadata, 5)
    running = asyncio.create_task(Upkeep(metadata.log, metadata.producers, SETTINGS).run())
    await asyncio.sleep(1_000)
    assert await _is_short(metadata)
    assert len(await metadata.log.producers(key)) == 4

    await asyncio.sleep(200)
    assert await _has_none(metadata, key)
    assert (await metadata.producers.named(key, "name")).last_sequence == -1
    running.cancel()
    await asyncio.wait([running])
    await metadata.close()


@virtual_time
async def test_the_smallest_idle_time_of_all_servers_applies() -> None:
    metadata = await open_metadata("memory:///", clock=ManualClock())
    key = await written(metadata, 5)
    times_ms = (86_400_000, SETTINGS.producer_idle_ms)
    servers = [
        Upkeep(metadata.log, metadata.producers, replace(SETTINGS, producer_idle_ms=idle_ms)) for idle_ms in times_ms
    ]
    running = [asyncio.create_task(server.run()) for server in servers]
    await asyncio.sleep(1_000)
    assert len(await metadata.log.producers(key)) == 4

    await asyncio.sleep(200)
    assert await _has_none(metadata, key)
    for upkeep in running:
        upkeep.cancel()
    await asyncio.wait(running)
    await metadata.close()


@virtual_time
async def test_no_producer_is_forgotten_when_the_wall_clock_jumps() -> None:
    clock = ManualClock()
    metadata = await open_metadata("memory:///", clock=clock)
    key = await written(metadata, 5)
    running = asyncio.create_task(Upkeep(metadata.log, metadata.producers, SETTINGS).run())
    for _ in range(30):
        await asyncio.sleep(30)
        clock.advance(30 * 86_400_000)

    assert len(await metadata.log.producers(key)) == 4
    running.cancel()
    await asyncio.wait([running])
    await metadata.close()


@virtual_time
async def test_many_servers_count_minutes_no_faster_than_one_and_go_on_when_one_ends() -> None:
    """Servers come and go, and messages are late or lost. The clock never runs ahead, and lags by a minute when its server ends."""
    inner = await open_metadata("memory:///", clock=ManualClock())
    counts: list[int] = []
    for number in range(3):
        faults = MetadataFaults(delay_ms_max=1_000, lost_reply_rate=0.1, late_rate=0.1)
        stores = [FaultyMetadata(inner, faults, random.Random(10 * number + index)) for index in range(3)]
        running = [asyncio.create_task(Upkeep(store.log, store.producers, SETTINGS).run()) for store in stores]
        before = await inner.producers.advance_clock(-1)
        await asyncio.sleep(1_000)
        counts.append(await inner.producers.advance_clock(-1) - before)
        for task in running:
            task.cancel()
        await asyncio.wait(running)

    assert max(counts) <= 16  # minutes in 1,000 s
    assert min(counts) >= 10
    await inner.close()


class NeverIdle(CommitLog):
    """A log that is written all the time: each turn of upkeep finds entries that came since the turn before."""

    turn_count = 0

    async def maintain(self, *, entry_count_min: int) -> int:
        await asyncio.sleep(0.01)
        self.turn_count += 1
        return 1


@virtual_time
async def test_entries_gather_between_two_turns_however_fast_they_come() -> None:
    """The index has a row to write per partition and turn: turns without a pause would write a row for each slice."""
    metadata = await open_metadata("memory:///", clock=ManualClock())
    log = NeverIdle()
    running = asyncio.create_task(Upkeep(log, metadata.producers, SETTINGS).run())
    await asyncio.sleep(60)
    running.cancel()
    await asyncio.wait([running])

    assert 50 <= log.turn_count <= 60
    await metadata.close()


@virtual_time
async def test_idle_producers_are_forgotten_while_others_write_all_the_time() -> None:
    metadata = await open_metadata("memory:///", clock=ManualClock())
    key = await written(metadata, 5)
    running = asyncio.create_task(Upkeep(NeverIdle(), metadata.producers, SETTINGS).run())
    await asyncio.sleep(1_200)

    assert await _has_none(metadata, key)
    running.cancel()
    await asyncio.wait([running])
    await metadata.close()


@virtual_time
async def test_one_search_forgets_all_names_that_never_wrote() -> None:
    """Clients may register names faster than one step per search would forget them."""
    settings = replace(SETTINGS, producer_pause_ms=600_000, producer_idle_ms=60_000)
    metadata = await open_metadata("memory:///", clock=ManualClock())
    key = (await metadata.streams.create(StreamSpec(name="orders", partition_count=1))).partition(0)
    count = PRODUCER_COUNT_MAX + 1
    first = [await metadata.producers.named(key, f"name-{number}") for number in range(count)]
    running = asyncio.create_task(Upkeep(metadata.log, metadata.producers, settings).run())
    await asyncio.sleep(700)
    running.cancel()
    await asyncio.wait([running])

    again = [await metadata.producers.named(key, f"name-{number}") for number in range(count)]
    assert {producer.producer_id for producer in first} & {producer.producer_id for producer in again} == set()
    await metadata.close()


@virtual_time
async def test_a_store_that_fails_is_asked_again() -> None:
    inner = await open_metadata("memory:///", clock=ManualClock())
    key = await written(inner, 5)
    metadata = FaultyMetadata(inner, MetadataFaults(error_rate=0.5), random.Random(1))
    running = asyncio.create_task(Upkeep(metadata.log, metadata.producers, SETTINGS).run())
    await asyncio.sleep(2_000)

    assert await _has_none(inner, key)
    running.cancel()
    await asyncio.wait([running])
    await inner.close()


async def _has_none(metadata: Metadata, key: PartitionKey) -> bool:
    return not await metadata.log.producers(key)


async def _is_short(metadata: Metadata) -> bool:
    """Whether only the newest entries can still be followed."""
    try:
        await metadata.log.follow(await metadata.log.head() - SETTINGS.entry_count_min - 1, limit=1)
    except OutOfRange:
        return True
    return False
