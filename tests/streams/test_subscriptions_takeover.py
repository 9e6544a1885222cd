"""A dispatcher's server is killed: how long its consumers wait until another server delivers.

The lease can be taken when the other server has seen no heartbeat for `timeout_ms`; it checks once per `heartbeat_ms`. A client whose
connection is reset reconnects after 100 ms, then after twice as long each time (Pulsar's clients: 0.1, 0.3, 0.7, 1.5, 3.1 s after the
kill). So with a timeout and an interval of at most 1.4 s together, consumers continue within 2 s; with the default of 6 s they do not.
"""

import asyncio
import random

import pytest

from bearlake.metadata.open import open_metadata
from bearlake.objects.memory import MemoryObjectStore
from bearlake.serving.membership import RegisteredServer, ServerSettings
from bearlake.streams.service import Streams
from bearlake.streams.subscriptions.model import EARLIEST, ConsumerSpec, EntryAck, NotHolder, SubscriptionType
from fixtures.deployment import append, batch_of, create
from fixtures.subscriptions import Consumer, KeyReader
from simulator.deployment import LoopClock
from simulator.loop import SimulationLoop, virtual_time

FIRST_PAUSE_S = 0.1


async def seconds_until_delivered_again(heartbeat_ms: int, timeout_ms: int, killed_after_s: float) -> float:
    """Return how long a consumer of a killed server waits until another server delivers to it."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulationLoop)
    clock = LoopClock(loop)
    metadata = await open_metadata("memory:///", clock=clock)
    objects = MemoryObjectStore(clock)
    servers: list[tuple[Streams, list[asyncio.Task[None]]]] = []
    for name in ("one", "other"):
        settings = ServerSettings(name=name, heartbeat_ms=heartbeat_ms, timeout_ms=timeout_ms)
        member = await RegisteredServer.join(metadata.servers, settings, {"pulsar": f"{name}:6650"})
        streams = Streams(
            metadata, objects, member.server, clock=clock, random_source=random.Random(1), tenure=member.tenure
        )
        await streams.start()
        servers.append((streams, [asyncio.create_task(streams.run()), asyncio.create_task(member.run())]))
    (first, tasks), (second, _) = servers
    view = await create(first)
    await append(second, view, batch_of(b"a"), batch_of(b"b"))
    spec = ConsumerSpec(type=SubscriptionType.SHARED, name="c", position=EARLIEST)
    consumer = Consumer()
    attached = await first.subscriptions.attach(view.partition(0), "s", spec, consumer, KeyReader())
    attached.flow(10)
    await consumer.got(2)
    attached.acknowledge([EntryAck(0)])
    await attached.flushed()

    await asyncio.sleep(killed_after_s)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    killed_at, pause_s = loop.time(), FIRST_PAUSE_S
    again = Consumer()
    while True:
        await asyncio.sleep(pause_s)
        try:
            attached = await second.subscriptions.attach(view.partition(0), "s", spec, again, KeyReader())
            break
        except NotHolder:
            pause_s *= 2
    attached.flow(10)
    assert await again.got(1) == [1]
    waited_s = loop.time() - killed_at
    for streams, tasks in servers:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await streams.close()
    await metadata.close()
    return waited_s


@pytest.mark.parametrize("killed_after_s", [2.0, 2.06, 2.12, 2.18, 2.24])
def test_with_a_timeout_of_1000_ms_consumers_continue_within_two_seconds(killed_after_s: float) -> None:
    @virtual_time
    async def measure() -> None:
        assert await seconds_until_delivered_again(250, 1_000, killed_after_s) < 2.0

    measure()


@virtual_time
async def test_with_the_default_timeout_they_wait_for_seconds() -> None:
    waited_s = await seconds_until_delivered_again(1_000, 6_000, 2.5)

    assert 5.0 < waited_s < 8.0
