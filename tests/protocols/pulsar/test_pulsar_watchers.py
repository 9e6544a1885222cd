"""Watched topic lists: a client that cannot be updated is closed, and the others learn of the change."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from bearlake.protocols.pulsar.proto.commands_pb2 import CommandWatchTopicList
from bearlake.protocols.pulsar.watchers import Watcher, Watchers
from bearlake.streams.principal import ANONYMOUS, Principal
from simulator.loop import virtual_time


class Client:
    """A connection; with a bug if it `is_broken`."""

    def __init__(self, *, is_broken: bool = False) -> None:
        self.is_broken = is_broken
        self.frames: list[bytes] = []
        self.errors: list[Exception] = []

    @property
    def who(self) -> Principal:
        return ANONYMOUS

    def send(self, frame: bytes) -> None:
        if self.is_broken:
            raise RuntimeError("a bug")
        self.frames.append(frame)

    def failed(self, error: Exception) -> None:
        self.errors.append(error)

    def close(self, why: str, reason: str) -> None:
        raise AssertionError(why)


class Names:
    """The topics of a namespace, and the watchers of changes."""

    def __init__(self) -> None:
        self.on_change: set[Any] = set()
        self.names: list[str] = []

    @asynccontextmanager
    async def listing_partitions(self, who: Principal) -> AsyncIterator[None]:
        yield

    async def of_namespace(self, who: Principal, namespace: str) -> list[str]:
        return self.names

    @property
    def version(self) -> tuple[int, int]:
        return len(self.names), 0

    def add(self, name: str) -> None:
        self.names.append(name)
        for tell in self.on_change:
            tell()


@asynccontextmanager
async def running(watchers: Watchers) -> AsyncIterator[None]:
    task = asyncio.create_task(watchers.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@virtual_time
async def test_a_watcher_with_a_bug_is_closed_and_the_others_are_updated() -> None:
    names = Names()
    watchers = Watchers(cast(Any, names), cast(Any, names), 1_000)
    clients = [Client(is_broken=number == 2) for number in range(5)]
    for number, client in enumerate(clients):
        request = CommandWatchTopicList(watcher_id=number, namespace="public/default", topics_pattern=".*")
        await watchers.add(Watcher(client, request))

    names.add("persistent://public/default/a")
    async with running(watchers):
        await asyncio.sleep(1)

    assert [len(client.frames) for client in clients] == [1, 1, 0, 1, 1]
    assert [len(client.errors) for client in clients] == [0, 0, 1, 0, 0]
