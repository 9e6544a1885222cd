"""The isolation index of a server and the store agree, whenever the server read the state, and however late the answer came."""

import random
from collections.abc import Iterable
from typing import Any

import pytest

from bearlake.errors import OutOfRange
from bearlake.index.isolation import IsolationIndex
from bearlake.metadata import Metadata
from bearlake.metadata.aborted import Aborted
from bearlake.metadata.model import PartitionKey
from bearlake.streams.transactions import TransactionService, TransactionSettings
from fixtures.store_producer import Producer

STEP_COUNT = 60


class Server:
    """Follows the log, and reads states that arrive later."""

    def __init__(self, metadata: Metadata, partitions: list[PartitionKey]) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self.index = IsolationIndex()
        self.position = 0
        self._under_way: list[Any] = []

    async def follow(self, limit: int = 100) -> None:
        """Apply the next entries; start over at the head if they are truncated."""
        try:
            for entry in (await self._metadata.log.follow(self.position, limit=limit)).entries:
                self.index.apply(entry)
                self.position = entry.position
        except OutOfRange:
            self.position = await self._metadata.log.head()
            self.index.reset(self.position)

    async def ask(self, choice: random.Random) -> None:
        """Ask the store for some states; the answer is under way."""
        chosen = [partition for partition in self._partitions if choice.random() < 0.6]
        self._under_way.append(await self._metadata.transactions.isolation(chosen))

    def receive(self, choice: random.Random) -> None:
        """One of the answers arrives."""
        if self._under_way:
            self.index.learn(self._under_way.pop(choice.randrange(len(self._under_way))))

    async def check(self) -> None:
        """At the head of the log, the known states are those of the store."""
        head = await self._metadata.log.head()
        while self.position < head:
            await self.follow()
        for partition, found in (await self._metadata.transactions.isolation(self._partitions)).items():
            known = self.index.get(partition)
            if known is None:
                continue
            bounds = (await self._metadata.log.bounds([partition]))[partition]
            assert (
                known.start <= found.start
            )  # a trim may be applied before the answer arrives; the tail index has the start
            assert known.open_offset == found.open_offset
            assert max(found.start, known.last_stable(found.end)) == bounds.last_stable
            assert visible(known.aborted, found.start) == visible(found.aborted, found.start)


def visible(aborted: Iterable[Aborted], start: int) -> list[Aborted]:
    """What is left at or above the start offset: a trim may have cut off the beginning of a row that was extended later."""
    return sorted(
        item._replace(first_offset=max(item.first_offset, start)) for item in aborted if item.marker_offset > start
    )


@pytest.mark.parametrize("seed", range(4))
async def test_a_followed_state_is_that_of_the_store(scene: Any, peer: Metadata, seed: int) -> None:
    choice = random.Random(seed)
    stream = await scene.stream(partition_count=3)
    partitions = [stream.partition(index) for index in range(3)]
    producers = [await Producer(scene, name, is_v2=name != "c").begin() for name in ("a", "b", "c")]
    expiring = TransactionService(scene.metadata, TransactionSettings())
    server = Server(peer, partitions)
    for _ in range(STEP_COUNT):
        producer, partition = choice.choice(producers), choice.choice(partitions)
        match choice.randrange(12):
            case 0 | 1 | 2:
                if not producer.is_v2:
                    await producer.add(partition)
                chosen = choice.sample(partitions, choice.randint(1, 3)) if producer.is_v2 else [partition]
                await producer.write(*chosen)
            case 3:
                await scene.commit(scene.batch(partition, choice.randint(1, 3)))
            case 4 | 5:
                if (await producer.transactions.get(producer.name)).is_ongoing:
                    await producer.end(is_commit=choice.random() < 0.5)
            case 6:
                await producer.begin()
            case 7:
                await scene.backend.advance(70_000)
                await expiring.expire()
                for fenced in producers:
                    if (await fenced.transactions.get(fenced.name)).epoch != fenced.row.epoch:
                        await fenced.begin()
            case 8:
                bounds = (await scene.metadata.log.bounds([partition]))[partition]
                await scene.metadata.log.trim(partition, choice.randint(bounds.start, bounds.end))
            case 9:
                await scene.maintain(entry_count_min=choice.choice([0, 5]))
            case 10:
                await server.ask(choice)
            case _:
                server.receive(choice)
        if choice.random() < 0.5:
            await server.follow(choice.randint(1, 4))
        if choice.random() < 0.3:
            await server.check()
    await server.check()
