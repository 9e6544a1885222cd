"""Random histories of streams with a current table: records in any partition, added partitions, workers that die at any of their calls or
work at the same time, changed settings. After each turn the table has exactly the newest record of each key below the offsets that it
states, by a plain scan of the stream's table.
"""

import asyncio
import random
from pathlib import Path

import pytest

from bearlake.compaction.settings import CompactionSettings
from fixtures.cleaned_stream import Life
from fixtures.current_lake import CurrentLake
from fixtures.deployment import NOW_MS
from fixtures.typed_lake import settings, typed_lake

SEEDS = range(4)
TURN_COUNT = 6
CALL_COUNT = 60
KEYS = [b"", b"\0", b"a", b"aa", b"\xff" * 40, b"k0", b"k1", b"k2"]


async def send(scene: CurrentLake, choice: random.Random) -> None:
    """Send some batches, with timestamps in any order."""
    for _ in range(choice.randrange(1, 6)):
        records: list[tuple[bytes | None, bytes | None]] = [
            (choice.choice([None, *KEYS]), choice.choice([None, b"", choice.randbytes(6)]))
            for _ in range(choice.randrange(1, 6))
        ]
        index = choice.randrange(scene.stream.partition_count)
        await scene.send(*records, index=index, timestamp_ms=NOW_MS + choice.randrange(8))


async def change(scene: CurrentLake, choice: random.Random) -> None:
    """Perhaps change the stream."""
    step = choice.random()
    if step < 0.25 and scene.stream.partition_count < 4:
        await scene.add_partitions(scene.stream.partition_count + 1)
    elif step < 0.35:
        await scene.alter(table__current__buckets=choice.choice(["1", "3", "4"]))


def worker(choice: random.Random) -> CompactionSettings:
    """Settings of a worker."""
    return settings(merges=choice.random() < 0.5, sweeps=choice.random() < 0.3)


async def work(scene: CurrentLake, choice: random.Random) -> None:
    """Let workers run: some die, some work at the same time."""
    scene.lake.stores.clock.advance(120_000)
    kind = choice.random()
    if kind < 0.4:
        await scene.lake.work(scene.is_current, worker(choice), life=Life(dies_at=choice.randrange(1, CALL_COUNT)))
    elif kind < 0.7:
        async with asyncio.TaskGroup() as group:
            for name in ("worker", "other"):
                group.create_task(scene.lake.work(scene.is_current, worker(choice), name=name))
    else:
        await scene.update(worker(choice))


@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_happens_the_table_has_the_newest_record_of_each_key(seed: int, tmp_path: Path) -> None:
    choice = random.Random(seed)
    async with typed_lake(tmp_path) as lake:
        configs = {
            "table__current": "on",
            "table__value__mode": "raw",
            "table__current__buckets": "3",
            "table__current__freshness_ms": "1000",
        }
        scene = CurrentLake(lake, await lake.create(partition_count=2, **configs))
        for _ in range(TURN_COUNT):
            await send(scene, choice)
            await change(scene, choice)
            await work(scene, choice)
            if await scene.ends():
                assert await scene.newest() == await scene.expected()
        await scene.update()

        assert await scene.newest() == await scene.expected()
