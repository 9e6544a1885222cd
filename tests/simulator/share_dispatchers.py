"""Share groups on the servers of a simulated deployment: dispatchers that `ShareTruth` watches, over a network that loses answers."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from bearlake.errors import BearlakeError, Unavailable
from bearlake.metadata.model import PartitionKey, ServerRef
from bearlake.streams.groups.shares import ShareCoordinator
from bearlake.streams.service import Streams
from bearlake.streams.shares import ShareReach, Shares
from bearlake.streams.subscriptions.share.acknowledgements import ShareAck
from bearlake.streams.subscriptions.share.terms import ShareAnswer, ShareAsk
from bearlake.streams.subscriptions.share_dispatch import LocalShares, ShareDispatch
from simulator.nodes import Connection, Node
from simulator.share_truth import ShareTruth

if TYPE_CHECKING:
    from simulator.deployment import Deployment

ANSWER_S = 3.0
"""Longest wait for an answer of another server, beyond the wait for records."""
WAIT_MS_MAX = 1_000
"""Longest wait for records of one request to another server."""


class WatchedShares(ShareDispatch):
    """A server's own dispatcher; `ShareTruth` learns what it does. Runs in the node's process."""

    def __init__(self, node: Node, inner: LocalShares, share_truth: ShareTruth) -> None:
        self.terms_of = inner.terms_of
        self._node = node
        self._inner = inner
        self._truth = share_truth

    def _epoch(self, partition: PartitionKey) -> int:
        """Return the epoch of the lease under which this server dispatches the partition; -1: it does not."""
        held = self._inner._holdings.get(partition)
        return -1 if held is None else held.lease.epoch

    @override
    async def acquire(self, ask: ShareAsk) -> list[ShareAnswer]:
        answers = await self._inner.acquire(ask)  # nothing runs between the acquiring and its return
        for answer in answers:
            place = answer.partition, ask.group
            if answer.acquired:
                epoch = self._epoch(answer.partition)
                self._truth.acquired(self._node, epoch, place, ask.member, answer.acquired)
        return answers

    @override
    async def acknowledge(self, group: str, partition: PartitionKey, member: str, acks: Sequence[ShareAck]) -> None:
        with self._truth.arriving(self._node, self._epoch(partition), (partition, group), member, acks) as arrival:
            await self._inner.acknowledge(group, partition, member, acks)
            arrival.is_done = True

    @override
    async def release(self, group: str, partition: PartitionKey, member: str, via: str | None = None) -> None:
        self._truth.leaves(self._node, self._epoch(partition), (partition, group), member)
        await self._inner.release(group, partition, member, via)

    @override
    async def give_back(
        self, group: str, partition: PartitionKey, member: str, ranges: Sequence[tuple[int, int]]
    ) -> None:
        self._truth.gives_back(self._node, self._epoch(partition), (partition, group), member, ranges)
        await self._inner.give_back(group, partition, member, ranges)

    @override
    async def reset(self, group: str, partition: PartitionKey, offset: int) -> None:
        await self._inner.reset(group, partition, offset)

    @override
    async def forget(self, group: str, partition: PartitionKey) -> None:
        await self._inner.forget(group, partition)

    @override
    async def seek(self, subscription: str, partition: PartitionKey, offset: int) -> None:
        await self._inner.seek(subscription, partition, offset)


class RemoteShares(ShareDispatch):
    """The dispatcher of another server, over a connection of its own for each request. Its answers have no batches."""

    def __init__(self, dispatchers: "Dispatchers", node: Node) -> None:
        self._dispatchers = dispatchers
        self._node = node

    async def _ask(self, work: Callable[[ShareDispatch], Awaitable[Any]], wait_s: float = 0.0) -> Any:
        """Run `work` on the other server. Raises its errors, and `Unavailable`."""
        dispatchers = self._dispatchers

        async def there(streams: Streams) -> Any:
            return await work(dispatchers.watched(self._node, streams))

        dispatchers.deployment.connection_count += 1
        connection = Connection(self._node, dispatchers.deployment.connection_count)
        answer = connection.call(there)
        if dispatchers.deployment.network.happens(dispatchers.lost_rate, "answer of a dispatcher lost"):
            connection.reset()
        try:
            async with asyncio.timeout(ANSWER_S + wait_s):
                return await answer
        except TimeoutError as error:
            raise Unavailable("no answer from the dispatcher") from error
        finally:
            if connection in self._node.connections:
                self._node.connections.remove(connection)

    @override
    async def acquire(self, ask: ShareAsk) -> list[ShareAnswer]:
        ask = replace(ask, wait_ms=min(ask.wait_ms, WAIT_MS_MAX))
        try:
            answers: list[ShareAnswer] = await self._ask(lambda dispatch: dispatch.acquire(ask), ask.wait_ms / 1000)
        except BearlakeError as error:
            return [ShareAnswer(partition=partition, error=error) for partition in ask.partitions]
        return [replace(answer, views=[]) for answer in answers]

    @override
    async def acknowledge(self, group: str, partition: PartitionKey, member: str, acks: Sequence[ShareAck]) -> None:
        await self._ask(lambda dispatch: dispatch.acknowledge(group, partition, member, acks))

    @override
    async def release(self, group: str, partition: PartitionKey, member: str, via: str | None = None) -> None:
        await self._ask(lambda dispatch: dispatch.release(group, partition, member, via))

    @override
    async def give_back(
        self, group: str, partition: PartitionKey, member: str, ranges: Sequence[tuple[int, int]]
    ) -> None:
        await self._ask(lambda dispatch: dispatch.give_back(group, partition, member, ranges))

    @override
    async def reset(self, group: str, partition: PartitionKey, offset: int) -> None:
        await self._ask(lambda dispatch: dispatch.reset(group, partition, offset))

    @override
    async def forget(self, group: str, partition: PartitionKey) -> None:
        await self._ask(lambda dispatch: dispatch.forget(group, partition))

    @override
    async def seek(self, subscription: str, partition: PartitionKey, offset: int) -> None:
        await self._ask(lambda dispatch: dispatch.seek(subscription, partition, offset))


class Dispatchers:
    """The share groups of all servers, made at first use."""

    def __init__(self, deployment: "Deployment", share_truth: ShareTruth, lost_rate: float) -> None:
        """`lost_rate`: probability that the answer to a forwarded request is lost."""
        self.deployment = deployment
        self.share_truth = share_truth
        self.lost_rate = lost_rate
        self._watched: dict[str, WatchedShares] = {}
        self._shares: dict[str, Shares] = {}
        self._coordinators: dict[str, ShareCoordinator] = {}
        self.noted: defaultdict[str, set[int]] = defaultdict(set)
        """By group: the numbers of the streams in which it may have state, as its coordinator has saved them."""

    def watched(self, node: Node, streams: Streams) -> WatchedShares:
        """Return the server's own dispatcher."""
        name = node.process.name
        if name not in self._watched:
            self._watched[name] = WatchedShares(node, streams.local_shares, self.share_truth)
        return self._watched[name]

    def shares(self, node: Node, streams: Streams) -> Shares:
        """Return what the server's protocols use."""
        name = node.process.name
        if name not in self._shares:
            local: Any = self.watched(node, streams)  # stands for the `LocalShares` that it watches
            self._shares[name] = Shares(local, streams.metadata.cursors, streams, _Reach(self))
        return self._shares[name]

    def coordinator(self, node: Node, streams: Streams) -> ShareCoordinator:
        """Return the server's coordinator of share groups."""
        name = node.process.name
        if name not in self._coordinators:
            self._coordinators[name] = ShareCoordinator(streams.metadata, streams.coordinator.ownership)
        return self._coordinators[name]


class _Reach(ShareReach):
    def __init__(self, dispatchers: Dispatchers) -> None:
        self._dispatchers = dispatchers

    @override
    def reach_shares(self, server: ServerRef) -> ShareDispatch | None:
        serving = self._dispatchers.deployment.serving()
        return next((RemoteShares(self._dispatchers, node) for node in serving if node.server == server), None)
