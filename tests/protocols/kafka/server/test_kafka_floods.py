"""Floods of connections: neither one address nor silent clients can take the connections of everyone."""

from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.settings import KafkaSettings
from fixtures.bursts import kept_of
from fixtures.waiting import until


def check_after(connections, seconds):
    """Check the connections as `Connections.check` does so many seconds from now."""
    now = connections.loop.time() + seconds
    for connection in connections:
        connection.check(now)


async def test_the_connections_of_one_address_are_limited(kafka_cluster):
    cluster = await kafka_cluster(1, settings=KafkaSettings(address_connections_max=2))
    first, second = await cluster.client(), await cluster.client()
    await until(lambda: len(cluster[0].server.connections) == 2)

    assert await (await cluster.client()).is_closed()
    await first.close()
    await until(lambda: len(cluster[0].server.connections) == 1)
    third = await cluster.client()

    for client in (second, third):
        assert (await client.ask(m.MetadataRequest(topics=[]), 12)).brokers


async def test_a_connection_that_sends_no_request_is_closed(kafka_cluster):
    cluster = await kafka_cluster(1, settings=KafkaSettings(first_request_ms=1_000))
    silent, partial, client = await cluster.client(), await cluster.client(), await cluster.client()
    partial.send_bytes(b"\0\0")
    assert (await client.ask(m.MetadataRequest(topics=[]), 12)).brokers
    connections = cluster[0].server.connections
    await until(lambda: len(connections) == 3)

    check_after(connections, 2)

    assert await silent.is_closed()
    assert await partial.is_closed()
    await until(lambda: len(connections) == 1)
    assert (await client.ask(m.MetadataRequest(topics=[]), 12)).brokers


async def test_many_clients_that_connect_at_once_wait_until_the_server_accepts_them(kafka):
    """The event loop kept 100 of them. A client beyond that waited for seconds, or was reset after a minute on a busy machine."""
    assert kept_of(400, kafka.port) == 400


async def test_answers_that_a_client_does_not_read_are_bounded(kafka_cluster):
    """A client sends many small requests at once, whose answers are large, and reads none."""
    limit = 64 * 1024
    node = (await kafka_cluster(1, settings=KafkaSettings(response_bytes_max=limit)))[0]
    for at in range(2):
        await node.create(f"t{at}", 5_000)
    client = await node.client()
    client.send(m.DescribeLogDirsRequest(topics=None), 4)
    size = len(await client.receive_frame())
    client.sent.clear()
    (connection,) = node.server.connections
    client.writer.transport.pause_reading()
    for _ in range(40):
        client.send(m.DescribeLogDirsRequest(topics=None), 4)
    lane = connection._others  # noqa: SLF001 - no metric counts answers that are not written yet
    await until(lambda: not lane._is_working and connection._is_write_paused)  # noqa: SLF001

    assert limit <= connection._ready_bytes < limit + 2 * size  # noqa: SLF001
    client.writer.transport.resume_reading()
    for _ in range(40):
        assert len(await client.receive_frame()) == size
