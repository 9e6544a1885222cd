"""Requests above 64 KiB run a few at a time; a turn is held by requests that run, and by no others (decision 361)."""

import asyncio

from bearlake.protocols.kafka import dispatch
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.handlers import coordinators
from bearlake.protocols.kafka.settings import KafkaSettings
from bearlake.telemetry import metrics
from fixtures.waiting import until

KIB = 1024
MIB = KIB * KIB


def large(mark):
    """A request of 3 MiB: a client may have one of them under way."""
    return m.MetadataRequest(
        topics=[m.MetadataRequest.Topic(name=f"{mark}{number:06}{'x' * 200}") for number in range(15 * KIB)],
        allow_auto_topic_creation=False,
    )


async def test_a_large_request_for_versions_that_is_too_new_leaves_no_turn_taken(kafka):
    """Two clients that each sent one, and stayed connected, had all turns for good."""
    idle, other = await kafka.client(), await kafka.client()
    body = b"\0\x12\x7f\x00\0\0\0\1\xff\xff" + bytes(4 * MIB)

    idle.send_bytes(len(body).to_bytes(4, "big") + body)
    await idle.receive_frame()  # UNSUPPORTED_VERSION

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
