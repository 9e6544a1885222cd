"""Transactions of two processes on one SQLite file, in random order: they are decided as by one process in memory."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from bearlake.errors import Conflict
from bearlake.metadata.model import BATCH_TRANSACTIONAL
from fixtures.store_producer import Producer
from metadata.conftest import MemoryBackend, Scene, SqliteBackend

NAMES = ("copier", "other")


class World:
    """Two handles of a store (in memory they are the same one), and producers that use either of them."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.told: list[Any] = []
        self.commits: list[Any] = []

    async def open(self, *, is_v2: bool) -> None:
        """Create what the steps use."""
        self.handles = [await self.backend.open() for _ in range(2)]
        self.scene = await Scene.on(self.backend, self.handles[0])
        self.partitions = [await self.scene.partition(name) for name in ("a", "b")]
        self.producers = [Producer(self.scene, name, is_v2=is_v2) for name in NAMES]
        for producer in self.producers:
            await producer.begin()

    async def play(self, kind: str, handle: int, seed: int) -> None:
        """Take one step by one of the handles."""
        random, self.scene.metadata = Random(seed), self.handles[handle]
        producer = random.choice(self.producers)
        try:
            self.told.append(await getattr(self, kind)(producer, random))
        except (AssertionError, Conflict) as error:
            self.told.append(type(error))

    async def write(self, producer: Producer, random: Random) -> Any:
        """Commit batches of transactions, of earlier epochs, with gaps, and of nobody."""
        batches = []
        for _ in range(random.randint(1, 3)):
            partition = random.choice(self.partitions)
            kind = random.random()
            if kind < 0.7:
                batches.append(producer.batch(partition, random.randint(1, 3)))
            elif kind < 0.8:
                who = {"producer": producer.row.producer_id, "epoch": max(producer.row.epoch - 1, 0)}
                batches.append(self.scene.batch(partition, **who, flags=BATCH_TRANSACTIONAL))
            else:
                batches.append(self.scene.batch(partition, 2))
        self.commits.append(self.scene.object(*batches))
        return await self.result(self.commits[-1])

    async def repeat(self, _: Producer, random: Random) -> Any:
        """Commit an object again."""
        return await self.result(random.choice(self.commits)) if self.commits else None

    async def result(self, commit: Any) -> Any:
        """Commit; return what its server learns."""
        done = await self.scene.metadata.log.commit(commit)
        return done.position, list(done.outcomes), list(done.slices)

    async def add(self, producer: Producer, random: Random) -> None:
        """AddPartitionsToTxn."""
        await producer.add(*random.sample(self.partitions, random.randint(1, 2)))

    async def end(self, producer: Producer, random: Random) -> None:
        """EndTxn."""
        await producer.end(is_commit=random.random() < 0.6)

    async def begin(self, producer: Producer, _: Random) -> None:
        """InitProducerId."""
        await producer.begin()

    async def maintain(self, _: Producer, __: Random) -> None:
        """Roll the log up."""
        await self.scene.metadata.log.maintain(entry_count_min=0)

    async def views(self) -> list[Any]:
        """What each handle knows."""
        found = []
        for handle in self.handles:
            bounds = await handle.log.bounds(self.partitions)
            isolation = await handle.transactions.isolation(self.partitions)
            rows = [await handle.transactions.get(name) for name in NAMES]
            found.append([bounds, isolation, await handle.transactions.open_offsets(), rows])
        return found


@pytest.mark.parametrize("is_v2", [False, True], ids=["v1", "v2"])
@pytest.mark.parametrize("seed", range(3))
async def test_two_processes_decide_as_one_in_memory(tmp_path: Path, seed: int, is_v2: bool) -> None:
    worlds = [World(SqliteBackend(tmp_path)), World(MemoryBackend())]
    try:
        for world in worlds:
            await world.open(is_v2=is_v2)
        random, handle = Random(seed), 0
        for number in range(150):
            kind = random.choice(["write"] * 9 + ["end", "end", "add", "add", "repeat", "begin", "maintain"])
            handle ^= random.random() < 0.25
            step = random.getrandbits(32)
            for world in worlds:
                await world.play(kind, handle, step)
            assert worlds[0].told[-1] == worlds[1].told[-1], (number, kind)
            if number % 10 == 0:
                file, memory = [await world.views() for world in worlds]
                assert file == memory
        assert await worlds[0].views() == await worlds[1].views()
    finally:
        for world in worlds:
            await world.backend.close()
