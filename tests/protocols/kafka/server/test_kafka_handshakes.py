"""Connections in a TLS handshake are counted, limited in time, and end with the server. Real sockets, on both event loops."""

import asyncio
import itertools
import logging
import socket
import ssl
import struct
import subprocess

import pytest

from bearlake.owned_tasks import TaskDied, Tasks
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka import server
from bearlake.protocols.kafka.settings import KafkaSettings
from bearlake.serving import handshakes
from bearlake.serving.listener import ListenerSettings
from bearlake.telemetry import metrics
from fixtures.waiting import WAIT_S, until


@pytest.fixture(scope="session")
def tls(tmp_path_factory):
    """A listener with a certificate for localhost, made by openssl, and a client's context."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", certificate, "-keyout", key],
        check=True, capture_output=True, timeout=WAIT_S,
    )  # fmt: skip
    listener = ListenerSettings(tls_certificate_file=str(certificate), tls_key_file=str(key))
    return listener, ssl.create_default_context(cafile=str(certificate))


async def silent(node):
    """A client that connects and never begins its handshake."""
    return await asyncio.wait_for(asyncio.open_connection("127.0.0.1", node.port), WAIT_S)


async def is_closed(reader):
    """Whether the server closes the connection."""
    try:
        return await asyncio.wait_for(reader.read(), WAIT_S) == b""
    except ConnectionError:
        return True


def refused(reason):
    return metrics.KAFKA_CONNECTIONS_REFUSED.labels(reason).value


async def test_connections_in_a_handshake_count(kafka_cluster, tls):
    listener, context = tls
    node = (await kafka_cluster(1, listeners=[listener], settings=KafkaSettings(connections_max=2)))[0]
    before = refused("connections_max")
    hanging = [await silent(node) for _ in range(2)]
    await until(lambda: metrics.KAFKA_CONNECTIONS.read() == 2)

    reader, writer = await silent(node)
    assert await is_closed(reader)
    assert refused("connections_max") == before + 1
    writer.close()
    hanging[0][1].close()
    await until(lambda: metrics.KAFKA_CONNECTIONS.read() == 1)
    client = await node.client(tls=context)
    assert (await client.ask(m.MetadataRequest(topics=[]), 12)).brokers
    assert metrics.KAFKA_CONNECTIONS.read() == 2
    await client.close()
    await until(lambda: metrics.KAFKA_CONNECTIONS.read() == 1)
    hanging[1][1].close()


async def test_handshakes_of_one_address_leave_connections_to_others(kafka_cluster, tls):
    """Each silent connection has ten seconds, so that one address could take all connections again and again."""
    listener, context = tls
    settings = KafkaSettings(connections_max=4, address_connections_max=2)
    node = (await kafka_cluster(1, listeners=[listener], settings=settings))[0]
    hanging = [await silent(node) for _ in range(2)]
    await until(lambda: metrics.KAFKA_CONNECTIONS.read() == 2)

    more = [await silent(node) for _ in range(2)]
    for reader, _ in more:
        assert await is_closed(reader)
    place = {"local_addr": ("127.0.0.2", 0), "ssl": context, "server_hostname": "localhost"}
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port, **place)
    writer.write(struct.pack(">ihhih", 10, 18, 0, 1, -1))
    assert len(await asyncio.wait_for(reader.readexactly(4), WAIT_S)) == 4
    hanging[0][1].close()
    await until(lambda: metrics.KAFKA_CONNECTIONS.read() == 2)
    client = await node.client(tls=context)
    assert (await client.ask(m.MetadataRequest(topics=[]), 12)).brokers

    await client.close()
    for _, closing in [*hanging, *more, (reader, writer)]:
        closing.close()
    await until(lambda: metrics.KAFKA_CONNECTIONS.read() == 0)


async def test_a_client_without_tls_is_closed_at_once(kafka_cluster, tls):
    node = (await kafka_cluster(1, listeners=[tls[0]], settings=KafkaSettings(tls_handshake_ms=600_000)))[0]
    reader, writer = await silent(node)
    writer.write(struct.pack(">ihhih", 10, 18, 0, 1, -1))

    assert await is_closed(reader)
    writer.close()


def hello_of(context):
    """The first bytes that a client sends, in one record."""
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def divided(hello, *ends):
    """The same message in several records (RFC 8446, 5.1)."""
    message, places = hello[5:], [0, *ends, len(hello) - 5]
    return [
        hello[:3] + (end - start).to_bytes(2, "big") + message[start:end] for start, end in itertools.pairwise(places)
    ]


async def test_the_hello_of_a_client_may_come_in_pieces_and_in_several_records(kafka_cluster, tls):
    listener, context = tls
    node = (await kafka_cluster(1, listeners=[listener]))[0]
    hello = hello_of(context)
    for sent in (hello, b"".join(divided(hello, 2, 50, 51))):
        reader, writer = await silent(node)
        for start in range(0, len(sent), 100):
            writer.write(sent[start : start + 100])
            await writer.drain()

        answer = await asyncio.wait_for(reader.readexactly(6), WAIT_S)
        writer.close()
        assert (answer[0], answer[5]) == (22, 2)  # a handshake record with the server's hello


def test_a_hello_is_whole_when_the_last_record_of_its_message_is_there(tls):
    """A client could send all but the last bytes of 1,000 hellos, and then these at the same time."""
    hello = hello_of(tls[1])
    records = divided(hello, 2, 50, 51)
    whole = b"".join(records)

    assert {handshakes.hello_bytes(hello[:count]) for count in range(5)} == {5}
    assert {handshakes.hello_bytes(hello[:count]) for count in range(5, len(hello) + 1)} == {len(hello)}
    seen = 0
    for record in records:
        assert handshakes.hello_bytes(whole[:seen]) == seen + 5
        assert handshakes.hello_bytes(whole[: seen + 5]) == seen + len(record)
        seen += len(record)
    assert handshakes.hello_bytes(whole) == handshakes.hello_bytes(whole + b"more") == len(whole)
    assert handshakes.hello_bytes(b"GET / HTTP/1.1") == 5
    for too_long in (divided(hello, *range(1, 17)), [hello[:3] + b"\x3f\xfc" + hello[5:]]):
        with pytest.raises(OSError, match="too long"):
            handshakes.hello_bytes(b"".join(too_long))


async def test_the_handshake_does_not_begin_before_the_hello_is_whole(kafka_cluster, tls, monkeypatch):
    listener, context = tls
    begun = []
    enter = handshakes.HandshakeLine.enter

    async def entered(self, *given):
        begun.append(given)
        return await enter(self, *given)

    monkeypatch.setattr(handshakes.HandshakeLine, "enter", entered)
    node = (await kafka_cluster(1, listeners=[listener], settings=KafkaSettings(tls_handshake_ms=200)))[0]
    first, _ = divided(hello_of(context), 50)
    reader, writer = await silent(node)
    writer.write(first)

    assert await is_closed(reader)
    assert begun == []
    writer.close()


async def test_clients_that_do_not_end_their_handshakes_make_way_for_others(kafka_cluster, tls, monkeypatch):
    """Otherwise a few addresses could take all handshakes that may have begun, again every ten seconds."""
    listener, context = tls
    monkeypatch.setattr(handshakes, "RUNNING_MAX", 2)
    monkeypatch.setattr(handshakes, "HELD_S", 0.01)
    node = (await kafka_cluster(1, listeners=[listener], settings=KafkaSettings(tls_handshake_ms=600_000)))[0]
    hello = hello_of(context)
    before = refused("tls_handshake")
    hanging = []
    for address in ("127.0.0.2", "127.0.0.3"):
        opening = asyncio.open_connection("127.0.0.1", node.port, local_addr=(address, 0))
        reader, writer = await asyncio.wait_for(opening, WAIT_S)
        writer.write(hello)
        await asyncio.wait_for(reader.readexactly(6), WAIT_S)
        hanging.append((reader, writer))

    client = await asyncio.wait_for(node.client(tls=context), WAIT_S)
    assert (await client.ask(m.MetadataRequest(topics=[]), 12)).brokers
    assert await asyncio.wait_for(hanging[0][0].read(), WAIT_S)  # to the end: the rest of the server's first answer
    assert refused("tls_handshake") == before + 1
    await client.close()
    for _, writer in hanging:
        writer.close()


async def test_handshakes_that_arrive_together_begin_in_turns_and_one_address_has_half_of_them(monkeypatch):
    """1,000 of one client, sent at the same time, delayed the requests of all others by four seconds."""
    monkeypatch.setattr(handshakes, "HELD_S", 600.0)
    line = handshakes.HandshakeLine()
    begun, turns = [], []

    async def begin(address):
        async with asyncio.timeout(None) as limit:
            turns.append(await line.enter(address, limit))
            begun.append(address)

    flood = [asyncio.create_task(begin("10.0.0.1")) for _ in range(1_000)]
    await until(lambda: len(begun) == handshakes.RUNNING_MAX // 2)
    others = [asyncio.create_task(begin(f"10.0.1.{number}")) for number in range(20)]
    await asyncio.gather(*others)
    assert begun.count("10.0.0.1") == handshakes.RUNNING_MAX // 2
    for task in flood[:500]:  # those that have begun, and some that wait
        task.cancel()
    await asyncio.gather(*flood[:500], return_exceptions=True)
    for turn in [turn for turn in turns if turn.address == "10.0.0.1"] * 2:
        line.leave(turn)
    await until(lambda: begun.count("10.0.0.1") == handshakes.RUNNING_MAX)

    for task in flood:
        task.cancel()
    await asyncio.gather(*flood, return_exceptions=True)


async def test_a_handshake_has_a_time_limit(kafka_cluster, tls):
    listener, _ = tls
    settings = KafkaSettings(connections_max=1, tls_handshake_ms=50)
    node = (await kafka_cluster(1, listeners=[listener], settings=settings))[0]
    before = refused("tls_handshake")

    reader, writer = await silent(node)
    assert await is_closed(reader)
    await until(lambda: metrics.KAFKA_CONNECTIONS.read() == 0)
    assert refused("tls_handshake") == before + 1
    writer.close()


async def test_a_server_that_closes_ends_handshakes(kafka_cluster, tls):
    node = (await kafka_cluster(1, listeners=[tls[0]]))[0]
    reader, writer = await silent(node)
    await until(lambda: metrics.KAFKA_CONNECTIONS.read() == 1)

    await node.server.close()

    assert await is_closed(reader)
    assert metrics.KAFKA_CONNECTIONS.read() == 0
    writer.close()


async def test_a_server_that_ran_out_of_file_descriptors_accepts_again_later(kafka_cluster, tls, monkeypatch):
    listener, context = tls
    monkeypatch.setattr(handshakes, "PAUSE_S", 0.01)
    accept, failures = socket.socket.accept, []

    def fail_once(self):
        if not failures:
            failures.append(self)
            raise OSError(24, "Too many open files")
        return accept(self)

    node = (await kafka_cluster(1, listeners=[listener]))[0]
    monkeypatch.setattr(socket.socket, "accept", fail_once)
    client = await node.client(tls=context)

    assert (await client.ask(m.MetadataRequest(topics=[]), 12)).brokers
    assert len(failures) == 1


async def test_a_failed_check_closes_only_its_own_connection(kafka_cluster, monkeypatch, caplog):
    monkeypatch.setattr(server, "CHECK_MS", 1)
    node = (await kafka_cluster(1))[0]
    bad, good = await node.client(), await node.client()
    for client in (bad, good):
        await client.ask(m.MetadataRequest(topics=[]), 12)
    address = bad.writer.get_extra_info("sockname")
    (broken,) = [
        connection for connection in node.server.connections if connection.peer == f"{address[0]}:{address[1]}"
    ]
    checked = []

    def check(self, now):
        if self is broken:
            raise ZeroDivisionError
        checked.append(self)

    monkeypatch.setattr(type(broken), "check", check)
    with caplog.at_level(logging.CRITICAL, "bearlake.serving.connections"):
        assert await bad.is_closed()
        await until(lambda: len(checked) > 3)

    assert (await good.ask(m.MetadataRequest(topics=[]), 12)).brokers


async def test_a_server_whose_checks_end_stops(kafka_cluster, monkeypatch):
    monkeypatch.setattr(server, "CHECK_MS", 1)
    node = (await kafka_cluster(1))[0]

    def check():
        raise ZeroDivisionError

    monkeypatch.setattr(node.server.connections, "check", check)

    async def process():
        async with Tasks() as tasks:
            tasks.own("check Kafka connections", node.server.run())
            await asyncio.Event().wait()

    with pytest.raises(TaskDied):
        await asyncio.wait_for(process(), WAIT_S)
