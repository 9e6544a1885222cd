"""All operations concurrently from several handles: no deadlock, dense offsets, and look-ups and usage that agree with the commits."""

import asyncio
import random
from collections import defaultdict
from typing import Any

import pytest

from bearlake.errors import NotFound
from bearlake.metadata import Metadata, registering
from bearlake.metadata.model import (
    BatchCommit,
    CommittedOffset,
    ObjectCommit,
    OutcomeKind,
    PartitionKey,
    PartitionUsage,
    ServerRef,
    Stream,
    StreamSpec,
)
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from fixtures import by_name
from fixtures.idle_producers import pass_minutes

SMALL = PostgresqlSettings(connections_max=4, page_slice_count_max=8, roll_entry_count_max=20, sweep_page_count_max=10)
Ranges = dict[PartitionKey, list[tuple[int, int]]]


async def register(metadata: Metadata, name: str) -> ServerRef:
    registration = await registering.register(
        metadata.servers, name, zone=None, endpoints={}, version="1", timeout_ms=600_000
    )
    return registration.server


async def write(metadata: Metadata, number: int, partitions: list[PartitionKey], accepted: Ranges) -> None:
    """Commit random objects, one in five twice; each batch must be accepted."""
    chance = random.Random(number)
    server = await register(metadata, f"writer-{number}")
    sequences: dict[PartitionKey, int] = defaultdict(int)
    for turn in range(60):
        batches = []
        for key in chance.sample(partitions, chance.randint(1, 60)):
            for _ in range(chance.randint(1, 3)):
                count, is_idempotent = chance.randint(1, 5), chance.random() < 0.6
                producer = (number, 0, sequences[key]) if is_idempotent else (-1, -1, -1)
                sequences[key] += count if is_idempotent else 0
                batches.append(BatchCommit(key, len(batches) * 10, 10, count, chance.randint(0, 1_000), *producer))
        commit = ObjectCommit(token=f"{number}/{turn}", server=server, size=len(batches) * 10, batches=batches)
        committed = await metadata.log.commit(commit)
        for batch, outcome in zip(batches, committed.outcomes, strict=True):
            assert outcome.kind is OutcomeKind.ACCEPTED
            accepted[batch.partition].append((outcome.base_offset, batch.record_count))
        if chance.random() < 0.2:
            assert await metadata.log.commit(commit) == committed


async def disturb(metadata: Metadata, number: int, partitions: list[PartitionKey]) -> None:
    """Everything else that takes locks."""
    chance = random.Random(1_000 + number)
    streams: list[Stream] = []
    for turn in range(60):
        server = await register(metadata, f"other-{number}")
        lease = await metadata.leases.acquire(f"lease-{number}", server)
        key = chance.choice(partitions)
        bounds = (await metadata.log.bounds([key]))[key]
        await metadata.log.trim(key, max(bounds.start, bounds.end - chance.randint(0, 200)))
        await metadata.log.maintain(entry_count_min=chance.choice((0, 50)))
        await pass_minutes(metadata, 1)
        await metadata.producers.expire(idle_ms=1_000_000, limit=100)
        await metadata.log.forbid([f"forbidden/{turn}"])
        streams.append(await metadata.streams.create(StreamSpec(name=f"{number}-{turn}", partition_count=40)))
        await by_name.add_partitions(metadata, streams[-1].name, 70)
        await by_name.alter(metadata, "orders", set_configs={"turn": str(turn)}, unset_configs=[])
        if chance.random() < 0.7:
            await by_name.delete(metadata, streams.pop().name)
        offsets = {partition: CommittedOffset(offset=1) for partition in chance.sample(partitions, 20)}
        await metadata.groups.commit_offsets("group", offsets, lease)
        await check(metadata, chance.choice(partitions))


async def check(metadata: Metadata, partition: PartitionKey) -> PartitionUsage:
    """Check that located slices cover exactly the bounds; return their size."""
    located = await metadata.log.locate(partition, 0, limit=100_000)
    slices = [located_slice.slice for located_slice in located.slices]
    ends = [slice_.end_offset for slice_ in slices]

    assert [slice_.base_offset for slice_ in slices[1:]] == ends[:-1]
    assert (ends or [located.bounds.start])[-1] == located.bounds.end
    assert not slices or slices[0].base_offset <= located.bounds.start < ends[0]
    return PartitionUsage(sum(slice_.length for slice_ in slices), located.bounds.end - located.bounds.start)


async def test_all_operations_at_once_neither_deadlock_nor_contradict_each_other(postgresql_backend: Any) -> None:
    postgresql_backend.settings = SMALL
    handles = [await postgresql_backend.open() for _ in range(3)]
    stream = await handles[0].streams.create(StreamSpec(name="orders", partition_count=100))
    partitions = [stream.partition(i) for i in range(100)]
    accepted: Ranges = defaultdict(list)
    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(write(handles[number], number, partitions, accepted))
            group.create_task(disturb(handles[number], number, partitions))
    usage = await handles[0].log.usage(partitions)
    bounds = await handles[0].log.bounds(partitions)
    deadlocks = await postgresql_backend.execute(
        "select deadlocks from pg_stat_database where datname = current_database()"
    )

    for partition in partitions:
        end = 0
        for base, count in sorted(accepted[partition]):
            assert base == end, "I2: offsets are dense and given once"
            end += count
        assert bounds[partition].end == end
        assert await check(handles[0], partition) == usage[partition]
    assert deadlocks[0][0] == 0
    with pytest.raises(NotFound):
        await handles[0].log.locate(PartitionKey(1 << 60), 0, limit=1)
