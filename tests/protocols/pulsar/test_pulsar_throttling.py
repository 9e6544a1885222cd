"""Quotas of Pulsar clients: like Pulsar's own server, ours reads and sends nothing while the client owes. The clock is the test's."""

import asyncio

import pytest

from bearlake.metadata.quotas import Entity, QuotaChange, QuotaKey
from bearlake.protocols.pulsar import framing, handlers
from bearlake.protocols.pulsar.connection import Connection
from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.streams.principal import ANONYMOUS
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


async def test_consumers_of_a_client_get_messages_in_turn(limited: Limited) -> None:
    """Each message makes the client owe. The consumer that was served first is not served first again."""
    writer = await limited.node.client()
    consumers = []
    for at in range(3):
        await writer.produce(f"t{at}", at)
        for number in range(6):
            writer.send_message(b"x" * 3000, number, producer_id=at)
            await writer.receive("send_receipt")
    await limited.limit(QuotaKey.CONSUMER_BYTE_RATE, 1000.0)
    for at in range(3):
        consumers.append(await limited.node.client())
        await consumers[-1].subscribe(f"t{at}")
        consumers[-1].flow(1)
    order: list[int] = []

    async def receive(at: int) -> None:
        for _ in range(3):
            await consumers[at].receive_message()
            order.append(at)
            consumers[at].flow(1)

    async with asyncio.TaskGroup() as tasks:
        for at in range(3):
            tasks.create_task(receive(at))
        for count in range(1, 10):
            await until(lambda count=count: len(order) == count)
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(order) == count
            await limited.pass_time(10)

    assert [sorted(order[at : at + 3]) for at in (0, 3, 6)] == [[0, 1, 2]] * 3


async def test_connections_of_a_client_take_their_commands_in_turn(
    limited: Limited, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command takes a second. All connections wait for the same debt; one takes a command whenever nothing is owed."""
    await limited.limit(QuotaKey.REQUEST_PERCENTAGE, 100.0)
    clients = [await limited.node.client() for _ in range(3)]
    assert limited.quotas.usage is not None
    limited.quotas.usage.charge_time(ANONYMOUS, 10)
    for count, client in enumerate(clients, start=1):
        for _ in range(2):
            client.send("ping", pb.CommandPing())
        await until(lambda count=count: limited.quotas.lines.waiting_count == count)
    spent_s = take_a_second_for(monkeypatch, handlers, "carry_out")
    await limited.pass_time(8.5)
    for count in range(1, 7):
        await limited.pass_time(1)
        assert (await clients[(count - 1) % 3].receive("pong")) is not None
        for _ in range(20):
            await asyncio.sleep(0)
        assert spent_s[0] == count


async def test_producers_of_a_client_are_read_in_turn(limited: Limited) -> None:
    """Each message makes the client owe. The connection that sends again first is not read first again."""
    clients = [await limited.node.client() for _ in range(3)]
    for at, client in enumerate(clients):
        await client.produce(f"t{at}")
    await limited.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0)
    order: list[int] = []

    async def receive(at: int) -> None:
        for number in range(3):
            clients[at].send_message(b"x" * 3000, number)
            await clients[at].receive("send_receipt")
            order.append(at)

    async with asyncio.TaskGroup() as tasks:
        for at in range(3):
            tasks.create_task(receive(at))
        for count in range(1, 10):
            await until(lambda count=count: len(order) == count)
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(order) == count
            await limited.pass_time(10)

    assert [sorted(order[at : at + 3]) for at in (0, 3, 6)] == [[0, 1, 2]] * 3
