"""Faults and changes of a simulated deployment while clients use it: crashes, zombies, stalls; trims, deletions, growth; orphan sweeps."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from bearlake.errors import AlreadyExists, BearlakeError, Invalid, NotFound, OutOfRange, Overloaded, Unavailable
from bearlake.metadata.model import PartitionKey, Stream, partition_index
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.service import Streams
from simulator.clients import Client
from simulator.history.model import Call, Create, Delete, Trim
from simulator.network import run_in
from simulator.nodes import Node

if TYPE_CHECKING:
    from simulator.deployment import Deployment


class Chaos:
    """Breaks servers and stores, and starts servers again."""

    def __init__(self, deployment: "Deployment") -> None:
        self._deployment = deployment
        self._random: random.Random = deployment.randomness("chaos")

    async def run(self) -> None:
        """Cause faults at random times, until cancelled."""
        deployment = self._deployment
        deeds = [
            self._crash,
            self._zombie,
            self._freeze,
            self._stop,
            self._cut,
            self._stall_objects,
            self._stall_metadata,
        ]
        while True:
            await asyncio.sleep(self._random.expovariate(1.0) * deployment.settings.chaos_pause_s)
            deed = self._random.choices(deeds, deployment.settings.chaos_weights)[0]
            await deed()

    async def keep_serving(self) -> None:
        """Restart each server some time after it has gone, until cancelled."""
        while True:
            await asyncio.sleep(0.1 + self._random.random() * 0.4)
            self.replace_gone()

    def replace_gone(self) -> None:
        """Start a new server for each server that is gone."""
        for name, node in list(self._deployment.nodes.items()):
            if node.is_gone:
                self._deployment.start_node(name)

    def _node(self) -> Node | None:
        nodes = [node for node in self._deployment.nodes.values() if not node.is_gone and not node.process.is_paused]
        return self._random.choice(nodes) if nodes else None

    async def _crash(self) -> None:
        node = self._node()
        if node is not None:
            self._deployment.events["crash"] += 1
            node.crash()

    async def _zombie(self) -> None:
        """Freeze a server, replace it, and resume it later."""
        node = self._node()
        if node is not None:
            deployment = self._deployment
            deployment.events["zombie"] += 1
            deployment.trace("freezes and is replaced", node=node.process.name)
            deployment.loop.pause(node.process)
            deployment.start_node(node.name)
            deployment.zombies.append(node)
            delay_s = self._random.random() * 2
            deployment.loop.call_later(delay_s, self._resume, node)

    async def _freeze(self) -> None:
        """Freeze a server for a while (a long garbage collection)."""
        node = self._node()
        if node is not None:
            self._deployment.events["freeze"] += 1
            self._deployment.trace("freezes", node=node.process.name)
            self._deployment.loop.pause(node.process)
            self._deployment.loop.call_later(self._random.random() * 2, self._resume, node)

    def _resume(self, node: Node) -> None:
        if not node.is_gone:
            self._deployment.trace("goes on", node=node.process.name)
            self._deployment.loop.resume(node.process)

    async def _stop(self) -> None:
        """Stop a server gracefully."""
        node = self._node()
        if node is not None and node.streams is not None:
            self._deployment.events["graceful stop"] += 1
            self._deployment.trace("gets a stop signal", node=node.process.name)
            run_in(node.process, self._deployment.loop, node.stop())

    async def _cut(self) -> None:
        """Close all client connections of a server."""
        node = self._node()
        if node is not None:
            self._deployment.events["connections cut"] += 1
            self._deployment.trace("loses its connections", node=node.process.name)
            node.cut_connections()

    async def _stall_objects(self) -> None:
        self._deployment.network.stall("objects", self._random.random() * 2_000)

    async def _stall_metadata(self) -> None:
        self._deployment.network.stall("metadata", self._random.random() * 1_000)


class Admin(Client):
    """Trims, deletes, re-creates, grows, alters and terminates streams through the servers."""

    def __init__(self, deployment: "Deployment") -> None:
        super().__init__(deployment, "admin")

    async def create_all(self) -> None:
        """Create the scenario's streams."""
        for name in self.deployment.settings.streams_of:
            while not any(stream.name == name for stream in self.deployment.truth.active()):
                await self._create(name)

    async def run(self) -> None:
        """Make changes at random times, until cancelled."""
        deeds = [self._trim, self._delete, self._grow, self._alter, self._probe, self._terminate]
        while True:
            await self.pause(self.deployment.settings.admin_pause_s)
            await self.random.choices(deeds, self.deployment.settings.admin_weights)[0]()
            await self.create_all()

    async def _do(self, what: str, work: Callable[[Streams], Awaitable[Any]], call: Call | None = None) -> None:
        """Run `work` on a server; `call` describes it in the history, None if the history has no such operation."""
        connection = await self.connection(keep_rate=0.3)
        client_history = self.deployment.client_history
        number = None if call is None else client_history.begins(call)
        result: Any
        try:
            result = await self.call(connection, work)
            self.deployment.events[what] += 1
        except (Unavailable, Overloaded) as error:
            result = error
        except (AlreadyExists, NotFound, OutOfRange, Invalid) as error:
            self.deployment.trace(f"could not {what}", error=repr(error))
            result = error
        if number is not None:
            client_history.ends(number, result)
        if isinstance(result, Unavailable | Overloaded):
            await self.pause(0.1)

    async def _change(
        self, what: str, name: str, work: Callable[[Streams, Stream], Awaitable[Any]], call: Call | None = None
    ) -> None:
        """Resolve the name, then run the work on the stream found; `call` as in `_do`."""

        async def resolved(streams: Streams) -> None:
            await work(streams, (await streams.catalog.resolve(name)).stream)

        await self._do(what, resolved, call)

    async def _create(self, name: str) -> None:
        count, configs = self.deployment.settings.streams_of[name]
        work = Create(topic=name)
        await self._do("create", lambda streams: streams.create(ANONYMOUS, name, count, configs), work)

    def _any(self) -> tuple[str, PartitionKey] | None:
        active = self.deployment.truth.active()
        if not active:
            return None
        stream = self.random.choice(active)
        return stream.name, self.random.choice(self.deployment.keys(stream))

    async def _trim(self) -> None:
        if (found := self._any()) is not None:
            name, key = found
            partition = self.deployment.truth.partition(key)
            start = self.random.randint(partition.start, partition.end)
            work = Trim(log=self.deployment.client_history.log(key), start=start)
            await self._do("trim", lambda streams: streams.trim(ANONYMOUS, name, partition_index(key), start), work)

    async def _delete(self) -> None:
        if (found := self._any()) is not None:
            name = found[0]
            await self._change(
                "delete", name, lambda streams, stream: streams.delete(ANONYMOUS, stream), Delete(topic=name)
            )

    async def _terminate(self) -> None:
        if (found := self._any()) is not None:
            await self._change("terminate", found[0], lambda streams, stream: streams.terminate(ANONYMOUS, stream))

    async def _grow(self) -> None:
        if (found := self._any()) is not None:
            count = self.random.randint(1, 4)
            await self._change(
                "grow", found[0], lambda streams, stream: streams.add_partitions(ANONYMOUS, stream, count)
            )

    async def _alter(self) -> None:
        if (found := self._any()) is not None:
            configs = {"retention.ms": str(self.random.randint(1, 10**9))}
            await self._change(
                "alter", found[0], lambda streams, stream: streams.change(ANONYMOUS, stream, lambda _: (configs, []))
            )

    async def _probe(self) -> None:
        """Check I4 now, at the stores themselves: an arbitrary offset is found, and its object exists."""
        if (found := self._any()) is None:
            return
        _, key = found
        truth = self.deployment.truth
        partition = truth.partition(key)
        if partition.start < partition.end:
            offset = self.random.randint(partition.start, partition.end - 1)
            limit = self.random.randint(1, 3)
            located = await self.deployment.metadata.log.locate(key, offset, limit=limit)
            following = partition.at(offset).base
            for piece, token, size, _ in located.slices:
                truth.expect(token in truth.objects and len(truth.objects[token]) == size, "I4: the object is there")
                truth.expect(
                    piece.base_offset == following
                    if following > offset
                    else piece.base_offset <= offset < piece.end_offset,
                    "I4: what is committed is found",
                    offset=offset,
                    slice=piece,
                )
                following = piece.end_offset
            truth.expect(following > offset, "I4: what is committed is found", offset=offset, slices=located.slices)


async def sweep(deployment: "Deployment") -> None:
    """Delete unused objects, a grace period after they became unused; until cancelled.

    An orphan's token is forbidden first, so that its commit cannot succeed later. A committed object is deleted once all its data is
    trimmed or deleted.
    """
    settings = deployment.settings
    unused_since_ms: dict[str, int] = {}
    while True:
        await asyncio.sleep(settings.sweep_pause_s)
        now_ms = deployment.clock.now_ms()
        orphans, unused = [], []
        async for found in deployment.store.list("wal/"):
            if found.key not in deployment.truth.commits:
                if found.modified_ms < now_ms - settings.orphan_grace_ms:
                    orphans.append(found.key)
            elif (
                deployment.truth.is_unused(found.key)
                and unused_since_ms.setdefault(found.key, now_ms) < now_ms - settings.unused_grace_ms
            ):
                unused.append(found.key)
        try:
            forbidden = await deployment.metadata.log.forbid(orphans)
            await deployment.store.delete([*sorted(forbidden), *unused])
        except BearlakeError as error:
            deployment.fail(f"the sweep failed: {error!r}")
        deployment.events["orphans swept"] += len(forbidden)
        deployment.events["unused objects swept"] += len(unused)
