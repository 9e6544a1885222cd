"""Two live processes with one server name: the earlier one confirms nothing more, even before a heartbeat reports its replacement.

A process may be started again while its predecessor is only suspended or cut off. Both then serve clients. What the earlier process
confirmed would be lost to the clients of the later one, or would contradict them.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from bearlake.errors import BearlakeError
from bearlake.metadata import Metadata, registering
from bearlake.metadata.model import CommittedOffset, PartitionKey, StreamSpec
from bearlake.objects.memory import MemoryObjectStore
from bearlake.streams.append import Verdict
from bearlake.streams.groups.model import JoinRequest, MemberRef
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.service import Streams, StreamsSettings
from bearlake.streams.subscriptions.model import EntryAck
from fixtures import by_name
from fixtures.deployment import append, batch_of
from fixtures.groups import RANGE
from fixtures.subscriptions import Consumer, attach, attachment

JOIN = JoinRequest(
    member_id="",
    instance_id=None,
    client_id="c",
    client_host="/h",
    session_timeout_ms=60_000,
    rebalance_timeout_ms=60_000,
    protocol_type="consumer",
    protocols=RANGE,
    requires_known_id=False,
    can_skip_assignment=False,
)
SETTINGS = StreamsSettings(groups=GroupSettings(initial_rebalance_delay_ms=0))


class Process:
    """A process that serves one of each kind of client, and sends no heartbeats."""

    def __init__(self, streams: Streams, partition: PartitionKey) -> None:
        self.streams = streams
        self.partition = partition
        self.group = f"members-{streams.server.epoch}"
        self.member = MemberRef(group=self.group)
        self.consumer: Consumer
        self.acknowledged_count = 0

    async def serve_clients(self) -> None:
        """A member joins a group of its own, a consumer gets entries, and a client commits an offset and produces."""
        coordinator = self.streams.coordinator
        joined = await coordinator.join(self.group, JOIN)
        self.member = MemberRef(group=self.group, member_id=joined.member_id, generation=joined.generation)
        assignments = {joined.member_id: b"all"}
        await coordinator.sync(self.member, (None, None), assignments)
        await self.commit()
        await self.produce()
        await self.produce()
        self.consumer = await attach(self.streams.subscriptions, self.partition)  # type: ignore[arg-type]
        await self.consumer.got(2)

    async def produce(self) -> None:
        """A record."""
        view = await self.streams.catalog.find("t")
        ((verdict, _, _),) = await append(self.streams, view, batch_of(b"a"))
        if verdict != Verdict.ACCEPTED:
            raise Refused(Verdict(verdict).name)

    async def commit(self) -> None:
        """An offset, by a client outside of the group protocol."""
        offsets = {self.partition: CommittedOffset(offset=1, leader_epoch=-1, metadata="")}
        await self.streams.coordinator.commit(MemberRef(group="loose"), offsets)

    async def commit_nothing(self) -> None:
        """A member's commit without offsets, which writes nothing."""
        await self.streams.coordinator.commit(self.member, {})

    async def heartbeat(self) -> None:
        """A member gets the answer that it still has its partitions."""
        await self.streams.coordinator.heartbeat(self.member)

    async def describe(self) -> None:
        """The group's members."""
        await self.streams.coordinator.describe(self.group)

    async def acknowledge(self) -> None:
        """A receipt for the next acknowledgement."""
        self.acknowledged_count += 1
        attachment(self.consumer).acknowledge([EntryAck(self.consumer.bases[self.acknowledged_count - 1])])
        await attachment(self.consumer).flushed()


class Refused(Exception):
    """A batch was not accepted."""


CONFIRMATIONS: list[Callable[[Process], Awaitable[None]]] = [
    Process.produce,
    Process.commit,
    Process.commit_nothing,
    Process.heartbeat,
    Process.describe,
    Process.acknowledge,
]


Start = Callable[[Metadata], Awaitable[Process]]


@pytest.fixture
async def start(metadata: Metadata) -> AsyncIterator[Start]:
    """Starts a process under the one name."""
    store = MemoryObjectStore()
    stream = await by_name.create(metadata, StreamSpec(name="t", partition_count=1))
    async with AsyncExitStack() as closing:

        async def started(handle: Metadata) -> Process:
            found = await registering.register(
                handle.servers, "one", zone=None, endpoints={}, version="1", timeout_ms=600_000
            )
            streams = Streams(handle, store, found.server, SETTINGS)
            await streams.start()
            running = asyncio.create_task(streams.run())

            async def end() -> None:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                await streams.close()

            closing.push_async_callback(end)
            return Process(streams, stream.partition(0))

        yield started


@pytest.mark.parametrize("confirm", CONFIRMATIONS, ids=[confirmation.__name__ for confirmation in CONFIRMATIONS])
async def test_the_elder_of_two_processes_with_one_name_confirms_nothing(
    metadata: Metadata, peer: Metadata, start: Start, confirm: Callable[[Process], Awaitable[None]]
) -> None:
    first = await start(metadata)
    await first.serve_clients()
    await confirm(first)
    second = await start(peer)
    with pytest.raises((BearlakeError, GroupRefusal, Refused)):
        await confirm(first)

    await second.serve_clients()
    await confirm(second)
    third = await start(metadata)  # the first one is started again, while the second one lives
    with pytest.raises((BearlakeError, GroupRefusal, Refused)):
        await confirm(second)
    await third.serve_clients()
    await confirm(third)
