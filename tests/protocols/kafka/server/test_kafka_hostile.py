"""Clients that break the protocol, flood, stall or do not read: they affect only their own connection."""

import asyncio
import random
import struct

import pytest

from bearlake.objects.memory import MemoryObjectStore
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.settings import KafkaSettings
from bearlake.streams.fetch import ReaderSettings
from bearlake.streams.service import StreamsSettings
from bearlake.streams.writer_settings import WriterSettings
from bearlake.telemetry import metrics
from fixtures.kafka_server import batch_of, fetch_request, produce_request, values_of
from fixtures.waiting import until

MIB = 1024 * 1024
STALL_S = KafkaSettings().stall_ms / 1000


def check_after(connections, seconds):
    """Check the connections with `Connections.check` as of this many seconds from now."""
    now = asyncio.get_running_loop().time() + seconds
    for connection in connections:
        connection.check(now)


def frame_of(request, version, correlation_id=1):
    key = codec.ApiKey[type(request).__name__.removesuffix("Request").upper()]
    return b"".join(codec.request(key, version).frame(correlation_id, "h", request))


def header(key, version, size=8):
    return struct.pack(">ihhi", size, key, version, 1)


async def is_well(kafka):
    """A well-behaved client is served."""
    client = await kafka.client()
    answer = await client.ask(m.MetadataRequest(topics=[]), 12)
    return bool(answer.brokers)


MALFORMED = {
    "size 0": struct.pack(">i", 0) + bytes(20),
    "size 7": struct.pack(">i", 7) + bytes(20),
    "negative size": struct.pack(">i", -1) + bytes(20),
    "smallest size": struct.pack(">i", -(2**31)) + bytes(20),
    "http": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "tls": bytes.fromhex("16030100f6010000f20303") + bytes(60),
    "unknown api": header(999, 0) + bytes(8),
    "negative api": header(-1, 0) + bytes(8),
    "api that is not supported": header(24, 0) + bytes(8),
    "version above": header(3, 14) + bytes(8),
    "negative version": header(3, -1) + bytes(8),
    "fetch version below": header(1, 3) + bytes(8),
    "client id beyond the frame": struct.pack(">ihhih", 10, 3, 1, 1, 500),
    "client id that is not utf-8": struct.pack(">ihhih", 12, 3, 1, 1, 2) + b"\xff\xfe",
    "body cut off": struct.pack(">ihhihi", 14, 3, 1, 1, -1, 5),
    "array of 2 billion": struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),
    "produce cut off": struct.pack(">ihhih", 10, 0, 3, 1, -1),
    "produce of 2 billion topics": struct.pack(">ihhihhhii", 20, 0, 3, 1, -1, -1, 1, 1000, 2**31 - 1),
    "larger than any request": struct.pack(">ihhi", 101 * MIB, 0, 9, 1),
    "larger than a metadata request": struct.pack(">ihhi", 17 * MIB, 3, 9, 1),
}


@pytest.mark.parametrize("what", list(MALFORMED))
async def test_a_malformed_frame_closes_only_its_own_connection(kafka, what):
    client, other = await kafka.client(), await kafka.client()
    await other.ask(m.MetadataRequest(topics=[]), 12)

    client.send_bytes(MALFORMED[what])

    assert await client.is_closed()
    assert (await other.ask(m.MetadataRequest(topics=[]), 12)).brokers
    assert await is_well(kafka)


@pytest.mark.parametrize("seed", range(20))
async def test_random_bytes_close_a_connection_or_wait_for_more(kafka, seed):
    noise = random.Random(seed)
    clients = [await kafka.client() for _ in range(5)]
    for client in clients:
        client.send_bytes(noise.randbytes(noise.choice([1, 5, 100, 5000])))
        await client.close()

    assert await is_well(kafka)


@pytest.mark.parametrize("seed", range(20))
async def test_damaged_requests_close_a_connection_or_are_answered(kafka, seed):
    noise = random.Random(seed)
    await kafka.create("t")
    good = [
        frame_of(m.MetadataRequest(topics=[m.MetadataRequest.Topic(name="t")]), 12),
        frame_of(produce_request("t", batch_of(b"v")), 9),
        frame_of(fetch_request([("t", 0, 0)]), 12),
    ]
    for _ in range(10):
        client = await kafka.client()
        frame = bytearray(noise.choice(good))
        for _ in range(noise.randrange(1, 4)):
            frame[noise.randrange(4, len(frame))] = noise.randrange(256)
        client.send_bytes(bytes(frame))
        await client.close()

    assert await is_well(kafka)


@pytest.mark.parametrize("version", [10, 11, 12])
async def test_a_topic_without_a_name_is_answered_in_versions_whose_responses_need_a_name(kafka, version):
    """Versions 10 and 11 have topic ids, and responses that need a name (Kafka: INVALID_REQUEST)."""
    await kafka.create("t")
    client = await kafka.client()
    topics = [m.MetadataRequest.Topic(name=None), m.MetadataRequest.Topic(name="t")]

    answer = await client.ask(m.MetadataRequest(topics=topics), version)

    nameless, named = answer.topics
    assert nameless.error_code == (100 if version >= 12 else 42)
    assert nameless.name == (None if version >= 12 else "")
    assert (named.error_code, named.name) == (0, "t")


async def test_a_frame_that_arrives_byte_by_byte_is_answered(kafka):
    client = await kafka.client()
    await kafka.create("t")
    frame = frame_of(produce_request("t", batch_of(b"v")), 9)
    for at in range(len(frame)):
        client.send_bytes(frame[at : at + 1])
        await asyncio.sleep(0)
        await client.writer.drain()

    found, position = codec.read_response_header(await client.receive_frame(), 0, 9)

    assert found == 1
    assert position
    assert (await client.list_offset("t", -1)).offset == 1


async def test_many_requests_in_one_write_are_answered_in_order(kafka):
    client = await kafka.client()
    await kafka.create("t")
    for at in range(300):
        if at % 3 == 0:
            client.send(produce_request("t", batch_of(b"v")), 9)
        elif at % 3 == 1:
            client.send(fetch_request([("t", 0, 0)]), 12)
        else:
            client.send(m.MetadataRequest(topics=[]), 12)

    for _ in range(300):
        await client.receive()  # checks the correlation id


async def test_a_slow_request_does_not_let_later_answers_pass(kafka):
    client = await kafka.client()
    await kafka.create("t")
    client.send(fetch_request([("t", 0, 0)], wait_ms=300, bytes_min=1), 12)
    client.send(m.MetadataRequest(topics=[]), 12)

    first, second = await client.receive(), await client.receive()

    assert first.responses
    assert second.brokers


async def test_a_bug_while_answers_are_sent_closes_the_connection_and_is_counted(kafka, monkeypatch):
    """Otherwise the client would wait for its answers until its own timeout."""
    other = await kafka.client()
    await other.ask(m.MetadataRequest(topics=[]), 12)
    served = set(kafka.server.connections)
    client = await kafka.client()
    await client.ask(m.MetadataRequest(topics=[]), 12)
    (victim,) = set(kafka.server.connections) - served
    before = metrics.CONTAINED_FAULTS.labels("send responses").value

    def broken(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr(victim, "_write", broken)
    client.send(m.MetadataRequest(topics=[]), 12)

    assert await client.is_closed()
    assert metrics.CONTAINED_FAULTS.labels("send responses").value == before + 1
    assert (await other.ask(m.MetadataRequest(topics=[]), 12)).brokers
    assert await is_well(kafka)


async def test_a_connection_that_can_be_neither_checked_nor_closed_does_not_stop_the_checks_of_others(
    kafka, monkeypatch
):
    for _ in range(4):
        await (await kafka.client()).ask(m.MetadataRequest(topics=[]), 12)
    connections = list(kafka.server.connections)
    checked = []
    before = metrics.CONTAINED_FAULTS.labels("check a connection").value

    def broken(*_):
        raise RuntimeError("a bug")

    for number, connection in enumerate(connections):  # whatever the order, a valid connection follows a stuck one
        is_well = number in (0, len(connections) - 1)
        monkeypatch.setattr(connection, "check", (lambda _, at=number: checked.append(at)) if is_well else broken)
        monkeypatch.setattr(connection, "failed", broken)
    kafka.server.connections.check()

    assert checked == [0, len(connections) - 1]
    assert metrics.CONTAINED_FAULTS.labels("check a connection").value == before + len(connections) - 2


async def test_a_server_accepts_a_limited_number_of_connections(kafka_cluster):
    cluster = await kafka_cluster(1, settings=KafkaSettings(connections_max=3))
    kept = [await cluster.client() for _ in range(3)]
    for client in kept:
        await client.ask(m.MetadataRequest(topics=[]), 12)

    extra = await cluster.client()
    assert await extra.is_closed()
    await kept.pop().close()
    await until(lambda: len(cluster[0].server.connections) == 2)

    assert (await (await cluster.client()).ask(m.MetadataRequest(topics=[]), 12)).brokers


async def test_only_idle_connections_are_closed(kafka_cluster):
    cluster = await kafka_cluster(1, settings=KafkaSettings(idle_ms=600_000))
    await cluster[0].create("t")
    idle, waiting = await cluster.client(), await cluster.client()
    await idle.ask(m.MetadataRequest(topics=[]), 12)
    fetched_count = metrics.KAFKA_REQUESTS.labels("FETCH").value
    waiting.send(fetch_request([("t", 0, 0)], wait_ms=600_000, bytes_min=1), 12)
    await until(lambda: metrics.KAFKA_REQUESTS.labels("FETCH").value > fetched_count)

    check_after(cluster[0].server.connections, 601)

    assert await idle.is_closed()
    producer = await cluster.client()
    await producer.produce("t", batch_of(b"v"))
    assert (await waiting.receive()).responses


async def test_a_request_that_does_not_arrive_is_given_up(kafka_cluster):
    cluster = await kafka_cluster(1, settings=KafkaSettings(stall_ms=600_000, idle_ms=6_000_000))
    slow, good = await cluster.client(), await cluster.client()
    await good.ask(m.MetadataRequest(topics=[]), 12)
    received = metrics.KAFKA_RECEIVED_BYTES.value
    for chunk, count in ((struct.pack(">ihh", 1000, 3, 9), 8), (b"\0", 9)):  # one more byte does not extend the time
        slow.send_bytes(chunk)
        await until(lambda count=count: metrics.KAFKA_RECEIVED_BYTES.value - received == count)
    check_after(cluster[0].server.connections, 1)
    assert (await good.ask(m.MetadataRequest(topics=[]), 12)).brokers
    assert len(cluster[0].server.connections) == 2

    check_after(cluster[0].server.connections, 601)

    assert await slow.is_closed()
    assert (await good.ask(m.MetadataRequest(topics=[]), 12)).brokers


async def test_quiet_connections_hold_no_receive_buffer(kafka):
    clients = [await kafka.client() for _ in range(20)]
    for client in clients:
        await client.ask(m.MetadataRequest(topics=[]), 12)
    assert kafka.server.connections.slabs.used_bytes == 20 * 65536

    for connection in kafka.server.connections:
        connection.release_idle_memory()

    assert kafka.server.connections.slabs.used_bytes == 0
    for client in clients:
        assert (await client.ask(m.MetadataRequest(topics=[]), 12)).brokers


# -- memory --------------------------------------------------------------------------------------------------------


async def test_many_large_requests_at_once_wait_in_a_queue_and_all_are_answered(kafka_cluster):
    cluster = await kafka_cluster(1, settings=KafkaSettings(receive_bytes_max=12 * MIB, request_bytes_max=12 * MIB))
    server = cluster[0].server
    await cluster[0].create("t", max_message_bytes=str(8 * MIB))
    clients = [await cluster.client() for _ in range(30)]
    frames = [frame_of(produce_request("t", batch_of(bytes([at]) * (5 * MIB + 1000 * at))), 9) for at in range(30)]
    most = 0
    for client, frame in zip(
        clients, frames, strict=True
    ):  # all requests begin, so that each holds a part of its bytes
        client.send_bytes(frame[:100_000])
    await until(lambda: server.connections.slabs.has_waiters)
    for client, frame in zip(clients, frames, strict=True):
        client.send_bytes(frame[100_000:])

    async def answer(client):
        nonlocal most
        frame = await client.receive_frame(60)
        most = max(most, server.connections.slabs.used_bytes)
        return frame

    answers = await asyncio.gather(*(answer(client) for client in clients))

    assert len(answers) == 30
    assert (await clients[0].list_offset("t", -1)).offset == 30
    assert most <= 12 * MIB + 8 * MIB + 60 * 65536


async def test_announced_but_unsent_requests_do_not_take_the_memory_of_others(kafka_cluster):
    cluster = await kafka_cluster(1, settings=KafkaSettings(receive_bytes_max=16 * MIB, request_bytes_max=16 * MIB))
    server = cluster[0].server
    topic_bytes = 3 * MIB
    await cluster[0].create("t", max_message_bytes=str(4 * MIB))
    liars = [await cluster.client() for _ in range(20)]
    for liar in liars:
        liar.send_bytes(struct.pack(">ihhi", 15 * MIB, 0, 9, 1) + bytes(70_000))
    await until(lambda: server.connections.slabs.has_waiters)
    lying = list(server.connections)
    good = await cluster.client()
    good.send(produce_request("t", batch_of(b"x" * topic_bytes)), 9)
    small = await cluster.client()
    assert (await small.ask(m.MetadataRequest(topics=[]), 12)).brokers

    answered = asyncio.create_task(good.receive())
    await until(lambda: check_after(lying, STALL_S + 1) or answered.done())
    answer = await answered

    assert answer.responses[0].partition_responses[0].error_code == 0


async def test_announced_bytes_cost_little_memory_until_they_arrive(kafka):
    await kafka.create("t", max_message_bytes=str(40 * MIB))
    liars = [await kafka.client() for _ in range(10)]
    for liar in liars:
        liar.send_bytes(struct.pack(">ihhi", 90 * MIB, 0, 9, 1) + bytes(200_000))
    await until(lambda: kafka.server.connections.slabs.used_bytes >= 10 * MIB)

    assert kafka.server.connections.slabs.used_bytes <= 10 * 5 * MIB
    good = await kafka.client()
    assert (await good.produce("t", batch_of(b"x" * (30 * MIB)))).error_code == 0


async def test_a_client_that_never_reads_its_fetches_uses_little_memory_and_is_closed(kafka_cluster):
    settings = KafkaSettings(unsent_bytes_max=4 * MIB)
    cluster = await kafka_cluster(
        1, settings=settings, streams=StreamsSettings(reader=ReaderSettings(bytes_max=8 * MIB))
    )
    kafka = cluster[0]
    await kafka.create("t", max_message_bytes=str(2 * MIB))
    writer, reader, glutton = await kafka.client(), await kafka.client(), await kafka.client()
    for at in range(20):
        await writer.produce("t", batch_of(bytes([at]) * MIB))
    glutton.writer.transport.pause_reading()
    for _ in range(60):
        glutton.send(fetch_request([("t", 0, 0)]), 12)

    await until(lambda: kafka.server.context.slow_readers.unread_bytes > 0)
    for _ in range(20):  # other clients are served, with less memory at once
        assert values_of((await reader.fetch("t", 0)).records)
    assert kafka.server.context.slow_readers.unread_bytes <= 9 * MIB
    # No metric counts answers that are rendered and not written yet.
    pinned = sum(connection._ready_bytes for connection in kafka.server.connections)  # noqa: SLF001
    assert pinned <= 9 * MIB
    check_after(kafka.server.connections, STALL_S + 1)
    await until(lambda: len(kafka.server.connections) == 2)

    assert kafka.server.context.slow_readers.unread_bytes == 0


async def test_many_clients_that_read_nothing_cannot_hold_more_than_twice_the_limit(kafka_cluster):
    settings = KafkaSettings(unsent_bytes_max=4 * MIB, stall_ms=600_000)
    kafka = (await kafka_cluster(1, settings=settings))[0]
    await kafka.create("t", max_message_bytes=str(2 * MIB))
    writer = await kafka.client()
    for at in range(3):
        await writer.produce("t", batch_of(bytes([at]) * MIB))
    gluttons = [await kafka.client() for _ in range(30)]
    for glutton in gluttons:
        glutton.writer.transport.pause_reading()
        for _ in range(4):
            glutton.send(fetch_request([("t", 0, 0)]), 12)

    await until(lambda: len(kafka.server.connections) < 31)
    reader = await kafka.client()
    for _ in range(5):
        assert values_of((await reader.fetch("t", 0)).records)
        assert kafka.server.context.slow_readers.unread_bytes <= 8 * MIB
    assert len(kafka.server.context.slow_readers) <= 8
    assert (await writer.produce("t", batch_of(b"x"))).error_code == 0


async def test_a_client_that_floods_is_not_read_beyond_its_requests_in_flight(kafka_cluster):
    cluster = await kafka_cluster(1, settings=KafkaSettings(requests_in_flight_max=8))
    kafka = cluster[0]
    await kafka.create("t")
    flooder, other = await kafka.client(), await kafka.client()
    flooder.send(fetch_request([("t", 0, 0)], wait_ms=20_000, bytes_min=1), 12)
    taken = metrics.KAFKA_REQUESTS.labels("METADATA")
    before = taken.value
    for _ in range(20_000):
        flooder.send(m.MetadataRequest(topics=[]), 12)
    await until(lambda: taken.value - before == 7)
    for _ in range(20):  # time in which a server without the limit would read the rest of the flooder's bytes
        await other.list_offset("t", -1)

    assert taken.value - before == 7
    await other.produce("t", batch_of(b"v"))
    for _ in range(20_001):
        await flooder.receive()


class StalledStore(MemoryObjectStore):
    """Puts wait until the test releases them."""

    def __init__(self):
        super().__init__()
        self.gate = asyncio.Event()

    async def put(self, key, parts):
        await self.gate.wait()
        await super().put(key, parts)


async def test_while_the_store_stalls_produce_waits_and_other_requests_are_answered(kafka_cluster):
    store = StalledStore()
    streams = StreamsSettings(writer=WriterSettings(bytes_max=10 * MIB, object_bytes_max=4 * MIB, flush_bytes=MIB))
    cluster = await kafka_cluster(1, store=store, streams=streams)
    kafka = cluster[0]
    await kafka.create("t")
    producers = [await kafka.client() for _ in range(10)]
    for at, producer in enumerate(producers):
        for number in range(10):
            producer.send(produce_request("t", batch_of(bytes([at]) * 500_000, b"%d" % number)), 9)
    await until(lambda: kafka.streams.is_over_budget)
    other = await kafka.client()
    for _ in range(20):  # time in which a server without the limit would read the rest of the producers' bytes
        assert (await other.ask(m.MetadataRequest(topics=[]), 12)).brokers

    # No metric counts the bytes that wait.
    assert kafka.streams._writer.pending_bytes < 10 * MIB + 10 * 4 * MIB  # noqa: SLF001
    assert (await other.fetch("t", 0, wait_ms=50, bytes_min=1)).error_code == 0
    late = await kafka.client()
    answer = asyncio.create_task(late.ask(produce_request("t", batch_of(b"late")), 9))
    for _ in range(20):
        assert (await other.ask(m.MetadataRequest(topics=[]), 12)).brokers
    assert not answer.done()
    store.gate.set()

    for producer in producers:
        for _ in range(10):
            assert (await producer.receive()).responses[0].partition_responses[0].error_code == 0
    assert (await answer).responses[0].partition_responses[0].error_code == 0
    assert (await other.list_offset("t", -1)).offset == 201


async def test_connections_that_end_at_any_point_leave_no_state(kafka):
    await kafka.create("t")
    frame = frame_of(produce_request("t", batch_of(b"x" * 200_000)), 9)
    unknown = frame_of(produce_request("none", batch_of(b"x" * 200_000)), 9)
    for cut in (1, 3, 5, 50, 1000, 70_000, 150_000, len(frame)):
        for whole in (frame, unknown):
            client = await kafka.client()
            client.send_bytes(whole[:cut])
            await client.writer.drain()
            client.writer.transport.abort()

    await until(lambda: len(kafka.server.connections) == 0)
    await until(lambda: kafka.server.connections.slabs.used_bytes == 0)


async def test_a_connection_that_is_lost_before_its_produce_could_look_up_the_stream_leaks_nothing(kafka):
    client = await kafka.client()
    await client.ask(m.MetadataRequest(topics=[]), 12)
    (connection,) = kafka.server.connections
    frame = frame_of(produce_request("none", batch_of(b"x")), 9)
    view = connection.get_buffer(-1)
    view[: len(frame)] = frame

    connection.buffer_updated(len(frame))
    connection.close("the client has gone", "lost")

    await until(lambda: len(kafka.server.connections) == 0)
    await until(lambda: kafka.server.connections.slabs.used_bytes == 0)
