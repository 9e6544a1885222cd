"""Quotas of Pulsar clients: like Pulsar's own server, ours reads and sends nothing while the client owes. The clock is the test's."""

import asyncio

import pytest

from bearlake.metadata.quotas import Entity, QuotaChange, QuotaKey
from bearlake.protocols.pulsar import framing
from bearlake.protocols.pulsar.connection import Connection
from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.streams.quotas.control import QuotaControl
from fixtures.pulsar_server import PulsarNode
from fixtures.quotas import ManualTimers, take_a_second_for
from fixtures.waiting import until


class Limited:
    """A server whose quotas follow a clock that stands still."""

    def __init__(self, node: PulsarNode) -> None:
        self.node = node
        self.timers = ManualTimers()
        self.quotas = node.streams.quotas = QuotaControl(
            node.streams.metadata.quotas, clock=self.timers, call_later=self.timers.call_later
        )

    async def limit(self, key: QuotaKey, value: float, entity: Entity | None = None) -> None:
        await self.quotas.change([QuotaChange(entity or Entity(user="ANONYMOUS"), key, value)])

    def connection(self) -> Connection:
        """The newest connection."""
        return list(self.node.server.connections)[-1]

    async def pass_time(self, seconds: float) -> None:
        """Let the clock advance, and the waiting connections look at it."""
        self.timers.advance(seconds)
        for connection in list(self.node.server.connections):
            if connection.quota_wait is not None:
                connection.end_quota_wait()


@pytest.fixture
def limited(pulsar: PulsarNode) -> Limited:
    return Limited(pulsar)


async def test_a_producer_over_its_quota_is_not_read(limited: Limited) -> None:
    await limited.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0)
    client = await limited.node.client()
    await client.produce("t")
    client.send_message(b"x" * 3000, 0)
    assert (await client.receive("send_receipt")).sequence_id == 0

    connection = limited.connection()
    assert connection.waits_for_quota
    client.send_message(b"y", 1)
    await limited.pass_time(1)
    await until(lambda: connection.waits_for_quota)
    await limited.pass_time(10)
    assert (await client.receive("send_receipt")).sequence_id == 1


async def test_a_producer_on_another_connection_waits_too(limited: Limited) -> None:
    await limited.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0)
    first, second = await limited.node.client(), await limited.node.client()
    await first.produce("t")
    await second.produce("u")
    other = limited.connection()
    first.send_message(b"x" * 3000, 0)
    await first.receive("send_receipt")
    second.send_message(b"y", 0)
    await until(lambda: other.waits_for_quota)

    await limited.pass_time(10)
    assert (await second.receive("send_receipt")).sequence_id == 0


async def test_a_consumer_over_its_quota_gets_nothing_until_it_has_waited(limited: Limited) -> None:
    client = await limited.node.client()
    await client.produce("t")
    for at in range(3):
        client.send_message(b"x" * 3000, at)
        await client.receive("send_receipt")
    await limited.limit(QuotaKey.CONSUMER_BYTE_RATE, 1000.0)
    consumer = await limited.node.client()
    await consumer.subscribe("t")
    consumer.flow(1)
    await consumer.receive_message()
    for _ in range(2):
        consumer.flow(1)
        consumer.send("ping", pb.CommandPing())
        await consumer.receive("pong")
        await consumer.ask("consumer_stats", pb.CommandConsumerStats(consumer_id=1))
        await limited.pass_time(10)
        await consumer.receive_message()


async def test_connections_over_the_quota_of_their_address_are_read_later(limited: Limited) -> None:
    await limited.limit(QuotaKey.CONNECTION_CREATION_RATE, 1.0, Entity(address="127.0.0.1"))
    await limited.node.client()
    opening = asyncio.create_task(limited.node.client())
    await until(lambda: any(connection.waits_for_quota for connection in limited.node.server.connections))

    await limited.pass_time(1)
    assert (await opening).connected is not None


async def test_time_on_the_event_loop_counts(limited: Limited, monkeypatch: pytest.MonkeyPatch) -> None:
    await limited.limit(QuotaKey.REQUEST_PERCENTAGE, 50.0)
    take_a_second_for(monkeypatch, framing, "read_frame")
    await limited.node.client()

    assert limited.connection().waits_for_quota


async def test_topics_are_created_at_the_rate_of_the_quota(limited: Limited) -> None:
    await limited.limit(QuotaKey.CONTROLLER_MUTATION_RATE, 1.0)
    client = await limited.node.client()
    for at in range(2):
        await client.produce(f"t{at}", at)
    refused = await client.produce("t9", 9)

    assert refused.error == pb.ServerError.Value("TooManyRequests")
