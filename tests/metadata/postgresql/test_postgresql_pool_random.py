"""Random callers of a pool, cancelled anywhere, on a server that refuses and breaks: no connection and no place is lost."""

import asyncio
import random
from contextlib import suppress
from typing import Any

import asyncpg
import pytest

from bearlake.metadata.postgresql.pool import STATEMENTS_MAX, Pool

CALLER_COUNT = 400


class Connection:
    """A connection of `World`."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.statement_count = 0
        self._is_closed = False
        self.user: object = None
        world.open.add(self)

    def is_closed(self) -> bool:
        return self._is_closed

    def terminate(self) -> None:
        self._is_closed = True
        self._world.open.discard(self)

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.terminate()


class World:
    """A pool, its server and its callers; what happens follows from the seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.size_max = self.random.randint(1, 4)
        self.open: set[Connection] = set()
        self.most_open = self.refused_count = self.served_count = 0
        idle_s = self.random.choice([0.0, 3_600.0])
        self.pool = Pool(self._connect, self.size_max, wait_s=3_600, idle_s=idle_s)

    async def _connect(self) -> Any:
        for _ in range(self.random.randint(0, 3)):
            await asyncio.sleep(0)
        if self.random.random() < 0.3:
            self.refused_count += 1
            raise self.random.choice([ConnectionRefusedError(), asyncpg.TooManyConnectionsError()])
        made = Connection(self)
        self.most_open = max(self.most_open, len(self.open))
        return made

    async def call(self) -> None:
        """Run a statement as `Database` does, or fail."""
        with suppress(ConnectionRefusedError, asyncpg.TooManyConnectionsError):
            lent: Any = await self.pool.take()
            try:
                assert lent.user is None, "two callers have one connection"
                lent.user = self
                for _ in range(self.random.randint(0, 3)):
                    await asyncio.sleep(0)
                self._end_statement(lent)
            except BaseException:
                lent.terminate()
                raise
            finally:
                lent.user = None
                self.pool.give_back(lent)
            self.served_count += 1

    def _end_statement(self, lent: Any) -> None:
        chance = self.random.random()
        if chance < 0.1:
            lent.terminate()
        elif chance < 0.15:
            lent.statement_count = STATEMENTS_MAX
        elif chance < 0.2:
            self.pool.expire()
        elif chance < 0.3 and self.open:
            self.random.choice(sorted(self.open, key=id)).terminate()  # the server closes any connection

    async def run(self) -> None:
        """Run the callers, and cancel some of them."""
        tasks = []
        for _ in range(CALLER_COUNT):
            tasks.append(asyncio.ensure_future(self.call()))
            for _ in range(self.random.randint(0, 2)):
                await asyncio.sleep(0)
            if self.random.random() < 0.4:
                self.random.choice(tasks).cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()


@pytest.mark.parametrize("seed", range(25))
async def test_no_place_and_no_connection_is_lost(seed: int) -> None:
    world = World(seed)
    await world.run()

    assert world.refused_count > 0
    assert world.served_count > CALLER_COUNT // 4
    assert len(world.open) <= world.size_max
    assert world.most_open <= world.size_max
    for _ in range(world.size_max):  # all places are free: as many callers as places get a connection
        while True:
            with suppress(ConnectionRefusedError, asyncpg.TooManyConnectionsError):
                await world.pool.take()
                break
    assert len(world.open) == world.size_max
    world.pool.terminate()
    assert not world.open


async def test_callers_are_served_in_turn() -> None:
    world = World(0)
    pool = Pool(world._connect, 1, wait_s=3_600, idle_s=3_600)
    world.random.random = lambda: 1.0  # type: ignore[method-assign] # nothing is refused
    lent: Any = await pool.take()
    served: list[int] = []

    async def call(number: int) -> None:
        found = await pool.take()
        served.append(number)
        pool.give_back(found)

    waiting = [asyncio.ensure_future(call(number)) for number in range(5)]
    for _ in range(5):
        await asyncio.sleep(0)
    pool.give_back(lent)
    late = asyncio.ensure_future(call(5))  # comes when a place is free, but others wait for it
    await asyncio.wait([*waiting, late])

    assert served == [0, 1, 2, 3, 4, 5]
