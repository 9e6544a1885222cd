"""Requests of zombies in every store: requests of servers, workers and clients arrive after their senders were replaced.

Promised (I8, I10, I12 to I14): in any order and number, they change no visible state. Each is refused, or gets its earlier answer.
"""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bearlake.errors import AlreadyExists, BearlakeError, Conflict, Fenced, NotFound
from bearlake.metadata import Metadata
from bearlake.metadata.model import (
    BATCH_NAMED,
    CommittedOffset,
    GroupSnapshot,
    OutcomeKind,
    ServerRef,
    StreamSpec,
)
from fixtures import by_name
from fixtures.compaction_scene import PLANNER, Compaction
from fixtures.liveness import lapse

DISPATCH, GROUP = "dispatch", "group-0"
ORDER_COUNT = 3

Request = Callable[[Metadata], Awaitable[Any]]
Late = tuple[Request, tuple[type[BearlakeError], ...]]
"""A request and the refusals that it may get; if there are none, it gets its earlier answer."""


class Zombies:
    """The replaced processes, and their delayed requests."""

    def __init__(self, compaction: Compaction, peer: Metadata) -> None:
        self.compaction = compaction
        self.scene = compaction.scene
        self.peer = peer
        self.late: dict[str, Late] = {}

    async def prepare(self) -> None:
        """The former server and the former worker do their work, and send more requests that hang."""
        scene, metadata = self.scene, self.compaction.metadata
        self.stream = await scene.stream()
        self.bills = await scene.stream("bills")
        self.key = key = self.stream.partition(0)
        self.old: ServerRef = scene.server
        named = (await metadata.producers.named(key, "writer")).producer_id
        stored = scene.object(scene.batch(key, 10), scene.batch(key, producer=named, sequence=5, flags=BATCH_NAMED))
        refused = scene.object(scene.batch(key, expected=99))
        first = await metadata.log.commit(stored)
        never = await metadata.log.commit(refused)
        assert [outcome.kind for outcome in never.outcomes] == [OutcomeKind.UNEXPECTED_OFFSET]
        claim = await self.compaction.claimed((key, 0, 10))
        swap = self.compaction.swap(
            claim, self.compaction.file(await self.compaction.segments((key, 0, 10)), key="data/zombie")
        )
        group = await metadata.leases.acquire(GROUP, self.old)
        dispatch = await metadata.leases.acquire(DISPATCH, self.old)
        snapshot = GroupSnapshot(group="g", protocol_type="consumer", state=b"zombie")
        offsets = {key: CommittedOffset(offset=1)}
        counts = {server.ref: server.heartbeat_count for server in await metadata.servers.live()}
        how: dict[str, Any] = {"zone": None, "endpoints": {}, "version": "1", "timeout_ms": 10_000}
        before = await metadata.servers.last_epoch("server-0") - 1

        async def again(metadata: Metadata, commit: Any, told: Any) -> None:
            assert await metadata.log.commit(commit) == told

        async def heard(metadata: Metadata) -> None:
            assert not await metadata.servers.lapse(self.old, counts[self.old])

        async def swept(metadata: Metadata) -> None:
            assert await metadata.objects.forbid(["data/new"]) == set()

        self.late = {
            "a commit": (
                lambda to: to.log.commit(scene.object(scene.batch(key), token="wal/late", server=self.old)),
                (Fenced,),
            ),
            "a commit that was made": (lambda to: again(to, stored, first), (Fenced,)),
            "a commit of which nothing was accepted": (lambda to: again(to, refused, never), (Fenced,)),
            "a heartbeat": (lambda to: to.servers.heartbeat(self.old), (Fenced,)),
            "a registration": (lambda to: to.servers.register("server-0", after=before, **how), (Conflict,)),
            "a departure": (lambda to: to.servers.leave(self.old), (Fenced,)),
            "a lapse": (heard, ()),
            "a lease": (lambda to: to.leases.acquire("new", self.old), (Fenced,)),
            "the release of a lease": (lambda to: to.leases.release(group), (Fenced,)),
            "a snapshot of a group": (lambda to: to.groups.save(snapshot, group), (Fenced,)),
            "offsets of a group": (lambda to: to.groups.commit_offsets("g", offsets, group), (Fenced,)),
            "the end of a group": (lambda to: to.groups.delete("g", group), (Fenced,)),
            "an exclusive producer": (lambda to: to.producers.raise_epoch(key, dispatch), (Fenced,)),
            "a batch of a fenced producer": (
                lambda to: self._outcome(to, scene.batch(key, producer=named, sequence=6, flags=BATCH_NAMED)),
                (),
            ),
            "an offer": (
                lambda to: to.tasks.offer([Compaction.compact((key, 10, 11))], self.compaction.lease),
                (Fenced,),
            ),
            "objects of a task": (lambda to: to.tasks.prepare(claim, b"late", ["data/zombie"]), (Fenced,)),
            "a look at a claim": (lambda to: to.tasks.check([claim]), (Fenced,)),
            "a swap": (lambda to: to.log.swap(swap), (Fenced,)),
            "the failure of a task": (
                lambda to: to.tasks.fail(claim, "late", retry_after_ms=0, is_quarantined=True),
                (Fenced, NotFound),
            ),
            "the end of a task": (lambda to: to.tasks.cancel(claim), (Fenced, NotFound)),
            "a task that is given back": (lambda to: to.tasks.release([claim]), (Fenced,)),
            "a sweep": (swept, ()),
            "a change of a stream": (
                lambda to: to.streams.alter(
                    self.stream.number, set_configs={"a": "late"}, unset_configs=(), version=self.stream.version
                ),
                (Conflict,),
            ),
            "a deletion": (lambda to: to.streams.delete(self.stream.number, version=self.stream.version), (Conflict,)),
            "a deletion of a former stream": (lambda to: to.streams.delete(self.bills.number), (NotFound,)),
            "a creation": (
                lambda to: to.streams.create(StreamSpec(name="bills", partition_count=1)),
                (AlreadyExists,),
            ),
        }

    async def _outcome(self, to: Metadata, batch: Any) -> None:
        """A batch of a producer with an old epoch, sent by the live server."""
        commit = self.scene.object(batch, server=self.new)
        assert [outcome.kind for outcome in (await to.log.commit(commit)).outcomes] == [OutcomeKind.FENCED]

    async def replace(self) -> None:
        """Successors take over and do the work."""
        peer, scene, key = self.peer, self.scene, self.key
        assert await lapse(peer, self.compaction.worker)
        worker = await scene.register(peer, "worker-1")
        claim = await self.compaction.claim(worker)
        file = self.compaction.file(await self.compaction.segments((key, 0, 10)), key="data/new")
        await peer.tasks.prepare(claim, None, ["data/new"])
        self.new = await scene.register(peer, "server-0")
        await peer.servers.heartbeat(self.new)
        for name in (PLANNER, GROUP, DISPATCH):
            lease = await peer.leases.acquire(name, self.new)
            if name == GROUP:
                await peer.groups.save(GroupSnapshot(group="g", protocol_type="consumer", state=b"new"), lease)
                await peer.groups.commit_offsets("g", {key: CommittedOffset(offset=7)}, lease)
            elif name == DISPATCH:
                await peer.producers.raise_epoch(key, lease)
        assert await peer.log.forbid(["wal/late"]) == {"wal/late"}
        await peer.log.swap(self.compaction.swap(claim, file))
        await peer.streams.alter(
            self.stream.number, set_configs={"a": "new"}, unset_configs=(), version=self.stream.version
        )
        await by_name.delete(peer, "bills")
        await by_name.create(peer, StreamSpec(name="bills", partition_count=2))

    async def visible(self) -> list[Any]:
        """The complete visible state."""
        peer, key = self.peer, self.key
        return [
            await peer.log.head(),
            await peer.log.bounds([key]),
            await peer.log.producers(key),
            await peer.log.locate(key, 0, limit=10),
            await peer.streams.list(),
            await peer.servers.live(),
            await peer.servers.last_epoch("server-0"),
            [await peer.leases.holder(name) for name in (PLANNER, GROUP, DISPATCH, "new")],
            await peer.groups.load("g"),
            await peer.groups.offsets("g"),
            await peer.tasks.list(),
            await peer.tasks.compacted([key]),
            await peer.objects.data_files(self.stream.number),
        ]


@pytest.mark.parametrize("order", range(ORDER_COUNT))
async def test_late_writes_of_replaced_servers_change_nothing(
    compaction: Compaction, peer: Metadata, order: int
) -> None:
    zombies = Zombies(compaction, peer)
    await zombies.prepare()
    await zombies.replace()
    before = await zombies.visible()
    names = 2 * list(zombies.late)
    random.Random(order).shuffle(names)
    for name in names:
        request, refusals = zombies.late[name]
        try:
            await request(peer if order % 2 else compaction.metadata)
        except refusals:
            pass
        except BearlakeError as error:
            raise AssertionError(f"{name} is refused by {error!r}") from error

        assert await zombies.visible() == before, name
