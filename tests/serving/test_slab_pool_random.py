"""Receive buffers and turns of large requests under random clients: what was begun goes on, and nothing is left behind.

A connection reads a frame into slabs, perhaps waits for a turn with the whole frame in its slab, and is answered. Batches may keep its slab
after that, or after the connection has closed.
"""

import random

import pytest

from bearlake.serving.slabs import SIZES, SMALL_BYTES, Slab, SlabPool, SlabSettings, Wish
from bearlake.streams.client_turns import ClientTurns, Turn

MEDIUM, LARGE = SIZES[1:]
BOUND = 4 * LARGE
FRAMES = (SMALL_BYTES, SMALL_BYTES + 1, MEDIUM, LARGE, 2 * LARGE, 5 * LARGE)
CLIENTS = "aaabc"


class Connection:
    """One client connection, which sends a frame."""

    def __init__(self, world: "World", client: str) -> None:
        self.world = world
        self.client = client
        self.size = world.noise.choice(FRAMES)
        self.is_large = world.noise.random() < 0.5
        self.slab = world.pool.take_small()
        self.wish: Wish | None = None
        self.turn: Turn | None = None
        self.is_whole = self.size <= SMALL_BYTES
        self.is_open = True

    @property
    def is_waiting(self) -> bool:
        return self.wish is not None or (self.turn is not None and not self.turn.has_begun)

    def go_on(self) -> None:
        """Do the next step of a connection that does not wait."""
        if not self.is_whole:
            self._read()
        elif self.is_large and self.turn is None:
            self.turn = self.world.turns.ask(self.client, self.size, lambda: None)
        else:
            self.close()

    def _read(self) -> None:
        """As `Receiver._make_room`: what is not granted at once is asked for in whole."""
        pool, noise = self.world.pool, self.world.noise
        if self.slab.size < self.slab.room:
            part = min(self.slab.room, 2 * self.slab.size)
            if not pool.try_grow(self.slab, part) and not pool.try_grow(self.slab, self.slab.room, is_needed=True):
                self.wish = pool.wish_growth(self.slab, self.slab.room, self.granted)
            self.is_whole = self.slab.size >= self.size
            return
        fresh = pool.try_take(min(self.size, noise.choice(SIZES)), client=self.client, room=self.size)
        if fresh is not None and fresh.size < self.size and fresh.room < self.size:
            fresh.release()
            fresh = None
        fresh = fresh or pool.try_take(self.size, client=self.client, is_needed=True)
        if fresh is None:
            self.wish = pool.wish(self.size, self.granted, client=self.client)
        else:
            self.granted(fresh)

    def granted(self, fresh: Slab) -> None:
        self.wish = None
        if fresh is not self.slab:
            self.slab.leave()
            self.slab = fresh
        self.is_whole = fresh.size >= self.size

    def close(self) -> None:
        """The request is answered, or the client has gone; its batches may keep the slab."""
        self.is_open = False
        if self.wish is not None:
            self.world.pool.cancel(self.wish)
        if self.world.noise.random() < 0.4:
            self.slab.acquire()
            self.world.batches.append(self.slab)
        self.slab.leave()
        if self.turn is not None and self.world.noise.random() < 0.5:
            self.turn.end()
        self.turn = None  # nobody has the turn any more


class World:
    def __init__(self, seed: int) -> None:
        self.noise = random.Random(seed)
        self.pool = SlabPool(SlabSettings(bytes_max=BOUND, is_shared=True))
        self.turns = ClientTurns(2 * LARGE)
        self.connections: list[Connection] = []
        self.batches: list[Slab] = []

    def step(self) -> None:
        noise = self.noise
        chance = noise.random()
        if chance < 0.25 and len(self.connections) < 40:
            self.connections.append(Connection(self, noise.choice(CLIENTS)))
        elif chance < 0.35 and self.batches:
            self.batches.pop(noise.randrange(len(self.batches))).release()
        elif chance < 0.4 and self.connections:
            noise.choice(self.connections).close()
        elif ready := self.ready():
            noise.choice(ready).go_on()
        self.connections = [connection for connection in self.connections if connection.is_open]

    def ready(self) -> list[Connection]:
        return [connection for connection in self.connections if not connection.is_waiting]


def run(seed: int) -> World:
    """Make random steps, then let all that can go on do so."""
    world = World(seed)
    for _ in range(150):
        world.step()
        assert world.pool.used_bytes <= BOUND + 2 * FRAMES[-1] + 200 * SMALL_BYTES
    while world.connections or world.batches:
        if world.batches:
            world.batches.pop().release()
        ready = world.ready()
        assert ready or world.batches or not world.connections, f"seed {seed}: all wait for each other"
        if ready:
            world.noise.choice(ready).go_on()
        world.connections = [connection for connection in world.connections if connection.is_open]
    return world


@pytest.mark.parametrize("first", range(0, 1_000, 250))
def test_every_connection_goes_on_and_nothing_is_left(first: int) -> None:
    for seed in range(first, first + 250):
        world = run(seed)

        pool = world.pool
        assert (pool.used_bytes, pool.has_waiters, pool.is_left_to_batches) == (0, False, False)
        assert pool.try_take(BOUND // 2, client="a") is not None, f"seed {seed}: bytes of the bound are lost"
        extras = [pool.try_take(2 * LARGE, client=client, is_needed=True) for client in "ac"]
        assert None not in extras, f"seed {seed}: a slab over the bound is lost"
        turns = [world.turns.ask(client, LARGE, lambda: None) for client in "ab"]
        assert all(turn.has_begun for turn in turns), f"seed {seed}: turns are lost"
        for turn in turns:
            turn.end()


def test_another_client_takes_buffers_at_the_same_cost_however_many_wait_for_one_client(monkeypatch) -> None:
    """5,000 connections of one address made each release of a buffer take 1 ms, and their ends 2.7 s."""
    pool = SlabPool(SlabSettings(bytes_max=BOUND, is_shared=True))
    held = [pool.try_take(LARGE, client="a", is_needed=True) for _ in range(3)]
    wishes = [pool.wish(LARGE, lambda _: None, client="a") for _ in range(500)]
    asked = 0
    fits = SlabPool._fits  # noqa: SLF001 - counted, because a test measures no time

    def counted(self: SlabPool, client: str, size: int) -> bool:
        nonlocal asked
        asked += 1
        return fits(self, client, size)

    monkeypatch.setattr(SlabPool, "_fits", counted)
    other = pool.try_take(MEDIUM, client="b")
    assert other is not None
    assert not pool.needs(other)
    other.release()
    for wish in reversed(wishes):
        pool.cancel(wish)

    assert asked < 2_000
    for slab in held:
        assert slab is not None
        slab.release()
    assert pool.used_bytes == 0
