"""Requests above 64 KiB run a few at a time; a turn is held by requests that run, and by no others (decision 361)."""

import asyncio

from bearlake.protocols.kafka import dispatch
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.handlers import coordinators
from bearlake.protocols.kafka.settings import KafkaSettings
from bearlake.telemetry import metrics
from fixtures.kafka_server import fetch_request
from fixtures.waiting import until

KIB = 1024
MIB = KIB * KIB


def large(mark):
    """A request of 3 MiB: a client may have one of them under way."""
    return m.MetadataRequest(
        topics=[m.MetadataRequest.Topic(name=f"{mark}{number:06}{'x' * 200}") for number in range(15 * KIB)],
        allow_auto_topic_creation=False,
    )


def too_new(size):
    """A large ApiVersions request, which is answered with UNSUPPORTED_VERSION as soon as it is taken."""
    body = b"\0\x12\x7f\x00\0\0\0\1\xff\xff" + bytes(size)
    return len(body).to_bytes(4, "big") + body


async def test_a_large_request_for_versions_that_is_too_new_leaves_no_turn_taken(kafka):
    """Two clients that each sent one, and stayed connected, had all turns for good."""
    idle, other = await kafka.client(), await kafka.client()

    idle.send_bytes(too_new(4 * MIB))
    await idle.receive_frame()

    assert (await asyncio.wait_for(other.ask(large("a"), 9), 10)).brokers


async def test_a_large_request_behind_one_that_runs_leaves_the_turn_to_others(kafka_cluster, monkeypatch):
    """Behind a JoinGroup it waits for the group's other members, and their requests may be large, too."""
    begun, ends = asyncio.Event(), asyncio.Event()
    describe = coordinators.find_coordinator

    async def wait(context, caller, request):
        begun.set()
        await ends.wait()
        return await describe(context, caller, request)

    monkeypatch.setitem(dispatch.HANDLERS, ApiKey.FIND_COORDINATOR, wait)
    cluster = await kafka_cluster(1)
    busy, other = await cluster.client(), await cluster.client()
    paused = metrics.KAFKA_PAUSED.value
    busy.send(m.FindCoordinatorRequest(key="g", key_type=0), 1)
    await begun.wait()
    busy.send(large("a"), 9)
    await until(lambda: metrics.KAFKA_PAUSED.value > paused)

    assert (await asyncio.wait_for(other.ask(large("b"), 9), 10)).brokers
    ends.set()
    assert (await busy.receive()).error_code == 0
    assert (await busy.receive()).brokers


async def test_a_client_whose_first_request_waits_for_its_turn_is_not_silent(kafka_cluster, monkeypatch):
    """Connections without a first request are closed (`first_request_ms`); this one has sent all of it."""
    begun, ends = asyncio.Event(), asyncio.Event()
    describe = dispatch.HANDLERS[ApiKey.METADATA]

    async def wait(context, caller, request):
        begun.set()
        await ends.wait()
        return await describe(context, caller, request)

    monkeypatch.setitem(dispatch.HANDLERS, ApiKey.METADATA, wait)
    cluster = await kafka_cluster(1, settings=KafkaSettings(first_request_ms=1_000))
    first, second = await cluster.client(), await cluster.client()
    first.send(large("a"), 9)
    await begun.wait()
    paused = metrics.KAFKA_PAUSED.value
    second.send(large("b"), 9)
    await until(lambda: metrics.KAFKA_PAUSED.value > paused)

    connections = cluster[0].server.connections
    for connection in connections:
        connection.check(connections.loop.time() + 2)

    ends.set()
    for client in (first, second):
        assert (await client.receive()).brokers


async def test_a_large_request_behind_one_that_waited_for_its_turn_is_answered(kafka_cluster, monkeypatch):
    """It asked for its turn while the one before it began, and was forgotten: its connection was closed after 25 s."""
    begun, ends = asyncio.Event(), asyncio.Event()
    describe = dispatch.HANDLERS[ApiKey.METADATA]

    async def wait(context, caller, request):
        begun.set()
        await ends.wait()
        return await describe(context, caller, request)

    monkeypatch.setitem(dispatch.HANDLERS, ApiKey.METADATA, wait)
    cluster = await kafka_cluster(1)
    busy, other = await cluster.client(), await cluster.client()
    busy.send(large("a"), 9)
    await begun.wait()
    paused = metrics.KAFKA_PAUSED.value
    other.send_bytes(too_new(2 * MIB) + too_new(3 * MIB))
    await until(lambda: metrics.KAFKA_PAUSED.value > paused)

    ends.set()

    for _ in range(2):
        assert await other.receive_frame()


async def test_a_client_whose_first_request_waits_for_a_receive_buffer_is_not_silent(kafka_cluster):
    """Others hold all buffers that it could have. It has begun to send, and goes on once the server reads."""
    settings = KafkaSettings(receive_bytes_max=4 * MIB, request_bytes_max=4 * MIB, first_request_ms=1_000)
    cluster = await kafka_cluster(1, settings=settings)
    liars, good = [await cluster.client() for _ in range(3)], await cluster.client()
    for liar in liars:
        liar.send(m.MetadataRequest(topics=[]), 9)
        await liar.receive()
        liar.send_bytes((2 * MIB).to_bytes(4, "big") + bytes(100 * KIB))
    await until(lambda: cluster[0].server.connections.slabs.has_waiters)
    paused = metrics.KAFKA_PAUSED.value
    good.send(large("a"), 9)
    await until(lambda: metrics.KAFKA_PAUSED.value > paused)

    connections = cluster[0].server.connections
    for connection in connections:
        connection.check(connections.loop.time() + 2)
    for liar in liars:
        liar.writer.transport.abort()

    assert (await good.receive()).brokers


async def test_a_first_request_that_arrives_slowly_is_not_silent(kafka_cluster):
    """It has `stall_ms`, as any other that has begun."""
    cluster = await kafka_cluster(1, settings=KafkaSettings(first_request_ms=1_000))
    client = await cluster.client()
    frame = too_new(2 * MIB)
    client.send_bytes(frame[:MIB])
    connections = cluster[0].server.connections
    await until(lambda: any(connection.unconsumed_bytes == MIB for connection in connections))

    for connection in connections:
        connection.check(connections.loop.time() + 2)
    client.send_bytes(frame[MIB:])

    assert await client.receive_frame()


async def test_a_large_fetch_does_not_keep_its_turn_for_as_long_as_its_client_would_wait(kafka):
    """Two clients could keep all turns by Fetch requests that wait for a minute."""
    await kafka.create("t")
    poll = fetch_request([("t", 0, 0)] * 4_000, wait_ms=60_000, bytes_min=1)
    pollers, other = [await kafka.client() for _ in range(10)], await kafka.client()
    for poller in pollers:  # together, they leave too little for the other request
        poller.send(poll, 11)
    await until(lambda: metrics.FETCH_WAITING.value > 0)

    assert (await other.ask(large("a"), 9)).brokers
    assert (await pollers[0].receive()).responses
