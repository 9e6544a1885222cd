"""A request that creates a subscription was given up, and stands still in its server or on its way to the store (I12).

A client was promised: a subscription whose deletion was acknowledged does not come back by a request that was given up before the deletion.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from bearlake.errors import Unavailable
from bearlake.metadata.model import PartitionKey
from bearlake.metadata.subscriptions import EARLIEST, Cursor, CursorStore, dispatch_lease
from bearlake.streams.subscriptions.creating import create_cursor


class Standing:
    """A server's way to the store: its first creation waits until it may `go`."""

    def __init__(self, inner: CursorStore) -> None:
        self._inner = inner
        self.arrived = asyncio.Event()
        self.go = asyncio.Event()

    async def deletion_count(self, partition: PartitionKey) -> int:
        return await self._inner.deletion_count(partition)

    async def create(
        self, partition: PartitionKey, name: str, *, mark_delete: int, properties: Mapping[str, str], after: int
    ) -> Cursor:
        self.arrived.set()
        await self.go.wait()
        return await self._inner.create(partition, name, mark_delete=mark_delete, properties=properties, after=after)


async def begin_creation(scene: Any, partition: PartitionKey) -> tuple[Any, "asyncio.Future[Cursor]"]:
    standing: Any = Standing(scene.metadata.cursors)
    creating = asyncio.ensure_future(create_cursor(standing, partition, "readers", EARLIEST, {}))
    await standing.arrived.wait()
    return standing, creating


async def test_a_creation_that_was_given_up_does_not_bring_a_deleted_subscription_back(scene: Any, peer: Any) -> None:
    partition = await scene.partition()
    standing, creating = await begin_creation(scene, partition)

    made = await create_cursor(peer.cursors, partition, "readers", EARLIEST, {})
    lease = await peer.leases.acquire(dispatch_lease(partition), scene.server)
    count = await peer.cursors.deletion_count(partition)
    await peer.cursors.delete(partition, {"readers": made.generation}, lease, after=count)
    standing.go.set()
    with pytest.raises(Unavailable, match="at the same time"):
        await creating

    assert await peer.cursors.load(partition) == []


async def test_a_creation_that_meets_another_creation_finds_its_subscription(scene: Any, peer: Any) -> None:
    partition = await scene.partition()
    standing, creating = await begin_creation(scene, partition)

    made = await create_cursor(peer.cursors, partition, "readers", EARLIEST, {})
    standing.go.set()

    assert await creating == made
