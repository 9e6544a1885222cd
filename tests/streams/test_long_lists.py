"""Lists of all streams are made a few at a time, and clients that wait take turns."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from bearlake.errors import Overloaded
from bearlake.streams import long_lists
from bearlake.streams.long_lists import LongLists
from bearlake.streams.principal import Principal

ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
MAX = 100


class Scene:
    """Lists with the names of their clients as they begin; each ends when a test says so."""

    def __init__(self, lists: LongLists) -> None:
        self.lists = lists
        self.begun: list[str] = []
        self._ends: list[tuple[str, asyncio.Event]] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def ask(self, who: Principal, size: int) -> asyncio.Task[None]:
        ends = asyncio.Event()

        async def make() -> None:
            async with self.lists.making(who, size):
                self.begun.append(who.name)
                self._ends.append((who.name, ends))
                await ends.wait()

        self.tasks.append(asyncio.create_task(make()))
        await self.settle()
        return self.tasks[-1]

    async def end(self, name: str) -> None:
        """End the oldest list of a client."""
        found = next(item for item in self._ends if item[0] == name)
        self._ends.remove(found)
        found[1].set()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_short_lists_do_not_wait() -> None:
    scene = Scene(LongLists(MAX))
    for _ in range(MAX // 4):
        await scene.ask(ALICE, 1)
        await scene.ask(BOB, 1)

    assert len(scene.begun) == MAX // 2
    for _ in range(MAX // 4):
        await scene.end("alice")
        await scene.end("bob")


async def test_one_client_has_half_and_others_the_rest() -> None:
    scene = Scene(LongLists(MAX))
    for _ in range(3):
        await scene.ask(ALICE, 50)
    await scene.ask(BOB, 50)
    await scene.ask(CAROL, 50)

    assert scene.begun == ["alice", "bob"]
    await scene.end("alice")
    assert scene.begun == ["alice", "bob", "alice"]
    await scene.end("bob")
    assert scene.begun == ["alice", "bob", "alice", "carol"]
    for name in ("carol", "alice", "alice"):
        await scene.end(name)
    assert all(task.done() for task in scene.tasks)


async def test_clients_that_wait_take_turns() -> None:
    scene = Scene(LongLists(MAX))
    await scene.ask(CAROL, 50)
    await scene.ask(ALICE, 30)
    for _ in range(3):
        await scene.ask(ALICE, 30)
    await scene.ask(BOB, 30)

    await scene.end("carol")

    assert scene.begun == ["carol", "alice", "bob"]
    for name in ("alice", "alice", "alice", "alice", "bob"):
        await scene.end(name)
    assert all(task.done() for task in scene.tasks)


async def test_a_list_larger_than_a_share_is_made_alone_among_its_clients() -> None:
    scene = Scene(LongLists(MAX))
    await scene.ask(ALICE, 10 * MAX)
    await scene.ask(ALICE, 1)
    await scene.ask(BOB, 10 * MAX)

    assert scene.begun == ["alice", "bob"]
    await scene.end("alice")
    assert scene.begun == ["alice", "bob", "alice"]
    for name in ("alice", "bob"):
        await scene.end(name)


async def test_a_request_that_is_cancelled_while_it_waits_leaves_the_line() -> None:
    scene = Scene(LongLists(MAX))
    await scene.ask(ALICE, 50)
    waiting = await scene.ask(ALICE, 50)
    await scene.ask(ALICE, 50)

    waiting.cancel()
    await scene.settle()
    await scene.end("alice")

    assert scene.begun == ["alice", "alice"]
    await scene.end("alice")


async def test_a_list_that_fails_gives_its_room_back() -> None:
    lists = LongLists(MAX)
    for _ in range(3):
        with pytest.raises(ValueError, match="broken"):
            async with lists.making(ALICE, MAX):
                raise ValueError("broken")


async def test_a_wait_that_is_too_long_is_overloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_lists, "WAIT_S", 0)
    lists = LongLists(MAX)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(lists.making(ALICE, MAX))
        with pytest.raises(Overloaded, match="retry later"):
            await stack.enter_async_context(lists.making(ALICE, MAX))
    async with lists.making(ALICE, MAX):
        pass
