"""Bounds on what one client makes a server do: waiting requests, partitions, streams on demand; and a caller without rights."""

import asyncio
import socket

import pytest

from bearlake.protocols.kafka import dispatch
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.settings import KafkaSettings
from bearlake.streams.principal import Authorizer
from bearlake.streams.relief import ReliefLine
from bearlake.streams.service import StreamsSettings
from bearlake.telemetry import metrics
from fixtures.kafka_server import batch_of, produce_request, values_of
from fixtures.waiting import until

KIB = 1024


def commit(metadata):
    partition = m.OffsetCommitRequest.Partition(partition_index=0, committed_offset=1, committed_metadata=metadata)
    return m.OffsetCommitRequest(group_id="g", topics=[m.OffsetCommitRequest.Topic(name="t", partitions=[partition])])


def creation(partition_count, name="t"):
    topic = m.CreateTopicsRequest.Topic(
        name=name, num_partitions=partition_count, replication_factor=-1, assignments=[], configs=[]
    )
    return m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False)


def named(*names):
    return m.MetadataRequest(
        topics=[m.MetadataRequest.Topic(name=name) for name in names], allow_auto_topic_creation=True
    )


async def test_requests_behind_a_waiting_request_are_bounded_in_bytes(kafka_cluster, monkeypatch):
    """64 requests of 16 MiB, decoded, on each of many connections would take all memory."""
    limit = 64 * KIB
    held = asyncio.Event()
    describe = dispatch.HANDLERS[ApiKey.METADATA]

    async def wait(context, caller, request):
        await held.wait()
        return await describe(context, caller, request)

    monkeypatch.setitem(dispatch.HANDLERS, ApiKey.METADATA, wait)
    cluster = await kafka_cluster(1, settings=KafkaSettings(control_request_bytes_max=limit))
    client = await cluster.client()
    taken = metrics.KAFKA_REQUESTS.labels("OFFSET_COMMIT")
    paused, before = metrics.KAFKA_PAUSED.value, taken.value

    client.send(m.MetadataRequest(topics=[]), 12)
    for _ in range(20):
        client.send(commit("x" * 16 * KIB), 8)
    await until(lambda: metrics.KAFKA_PAUSED.value > paused)

    assert taken.value - before <= 1 + limit // (16 * KIB)
    held.set()
    assert (await client.receive()).brokers
    for _ in range(20):
        assert (await client.receive()).topics


@pytest.mark.parametrize("size", [8, 100 * KIB])
async def test_a_malformed_request_closes_its_connection_when_its_turn_comes(kafka, size):
    client, other = await kafka.client(), await kafka.client()
    body = b"\0\x03\0\x0c\0\0\0\1\0\1c\0" + b"\xff" * size

    client.send_bytes(len(body).to_bytes(4, "big") + body)

    assert await client.is_closed()
    assert (await other.ask(m.MetadataRequest(topics=[]), 12)).brokers


async def test_a_large_request_is_answered_like_a_small_one(kafka):
    client = await kafka.client()
    await kafka.create("t", 3)
    names = ["t", *(f"missing-{at}" for at in range(10_000))]

    request = named(*names)
    request.allow_auto_topic_creation = False
    answer = await client.ask(request, 12)

    assert len(answer.topics) == len(names)
    assert len(answer.topics[0].partitions) == 3


async def test_metadata_of_many_partitions_is_complete(kafka):
    first, second = await kafka.client(), await kafka.client()
    await kafka.create("large", 5_000)
    await kafka.create("small", 1)
    everything = m.MetadataRequest(topics=None)

    answers = await asyncio.gather(first.ask(everything, 12), second.ask(everything, 12))

    for answer in answers:
        sizes = {topic.name: len(topic.partitions) for topic in answer.topics if not topic.is_internal}
        assert sizes == {"large": 5_000, "small": 1}


async def test_partitions_are_bounded_per_stream_and_in_all(kafka_cluster):
    limits = StreamsSettings(partition_count_max=25, stream_partition_count_max=10)
    cluster = await kafka_cluster(1, streams=limits)
    client = await cluster.client()

    async def create(count, name):
        return (await client.ask(creation(count, name), 5)).topics[0].error_code

    assert await create(1_048_576, "huge") == ErrorCode.INVALID_PARTITIONS
    assert await create(11, "large") == ErrorCode.INVALID_PARTITIONS
    assert [await create(10, name) for name in "ab"] == [0, 0]
    assert await create(6, "c") == ErrorCode.INVALID_PARTITIONS
    assert await create(5, "c") == 0
    grow = m.CreatePartitionsRequest(
        topics=[m.CreatePartitionsRequest.Topic(name="c", count=6, assignments=None)], timeout_ms=1_000,
        validate_only=True,
    )  # fmt: skip
    assert (await client.ask(grow, 3)).results[0].error_code == ErrorCode.INVALID_PARTITIONS
    deletion = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.Topic(name="a")], timeout_ms=10_000)
    assert (await client.ask(deletion, 6)).responses[0].error_code == 0
    assert await create(10, "d") == 0


async def test_one_request_creates_a_bounded_number_of_streams(kafka_cluster):
    cluster = await kafka_cluster(1, settings=KafkaSettings(auto_create_count_max=32))
    client = await cluster.client()

    answer = await client.ask(named(*(f"t{at}" for at in range(100))), 12)

    assert len(cluster[0].streams.catalog) == 32
    codes = [topic.error_code for topic in answer.topics]
    assert codes.count(0) == 32
    assert codes.count(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) == 68


class DenyAll(Authorizer):
    def allows(self, who, operation, kind, name):
        return False


async def test_a_caller_without_rights_learns_and_changes_nothing(kafka):
    client = await kafka.client()
    await kafka.create("t")
    kafka.streams.authorizer = DenyAll()
    only_validated = creation(1, "new")
    only_validated.validate_only = True
    grow = m.CreatePartitionsRequest(
        topics=[m.CreatePartitionsRequest.Topic(name="t", count=6, assignments=None)], timeout_ms=1_000,
        validate_only=True,
    )  # fmt: skip
    broker = m.DescribeConfigsRequest.Resource(
        resource_type=4, resource_name=str(kafka.member.server.node_id), configuration_keys=None
    )

    assert (await client.ask(only_validated, 5)).topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (await client.ask(grow, 3)).results[0].error_code
    described = (await client.ask(m.DescribeConfigsRequest(resources=[broker]), 4)).results[0]
    assert described.error_code
    assert not described.configs
    assert (await client.produce("t", batch_of(b"a"))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_produce_requests_without_an_answer_that_wait_for_their_stream_are_bounded(kafka_cluster, monkeypatch):
    """They keep receive buffers, whose small ones no bound counts, for as long as the metadata store does not answer."""
    cluster = await kafka_cluster(1, settings=KafkaSettings(requests_in_flight_max=4))
    kafka, held = cluster[0], asyncio.Event()
    client, other = await kafka.client(), await kafka.client()
    find = kafka.streams.catalog.find

    async def wait(name):
        await held.wait()
        return await find(name)

    monkeypatch.setattr(kafka.streams.catalog, "find", wait)
    taken = metrics.KAFKA_REQUESTS.labels("PRODUCE")
    before = taken.value
    for number in range(100):
        client.send(produce_request("t", batch_of(b"%d" % number), acks=0), 9, has_answer=False)
    await until(lambda: taken.value - before >= 4)
    for _ in range(20):  # time in which a server without the limit would read the rest of the client's bytes
        await other.ask(named(), 12)

    assert taken.value - before == 4
    await kafka.create("t")
    held.set()
    last = await client.ask(produce_request("t", batch_of(b"last")), 9)
    assert last.responses[0].partition_responses[0].base_offset == 100
    assert values_of((await other.fetch("t", 0)).records)[:100] == [(number, b"%d" % number) for number in range(100)]


async def test_connections_that_end_while_they_wait_for_room_leave_the_line(kafka_cluster, monkeypatch):
    """Clients may come and go all the time while a store does not answer."""
    kafka = (await kafka_cluster(1))[0]
    await kafka.create("t")
    used = [2.0]
    line = ReliefLine(lambda: used[0])
    monkeypatch.setattr(kafka.streams._writer, "relief", line)  # noqa: SLF001
    clients = [await kafka.client() for _ in range(5)]
    for client in clients:
        client.send(produce_request("t", batch_of(b"v")), 9)
    await until(lambda: len(line) == 5)

    for connection in list(kafka.server.connections)[1:]:
        connection.close("the test says so", "test")
    await until(lambda: len(line) == 1)
    used[0] = 0.0
    line.relieve()

    assert (await clients[0].receive()).responses[0].partition_responses[0].error_code == 0


def large(mark: str) -> m.MetadataRequest:
    """A request of 3 MiB, of which two are more than a client may have under way."""
    return named(*(f"{mark}{number:06}{'x' * 200}" for number in range(15 * KIB)))


async def test_large_requests_of_a_client_run_one_at_a_time_over_all_its_connections(kafka_cluster, monkeypatch):
    """Each takes up to sixty times its size, so a hundred of them took gigabytes."""
    begun, ends = [], asyncio.Event()
    describe = dispatch.HANDLERS[ApiKey.METADATA]

    async def wait(context, caller, request):
        if request.topics:
            begun.append(request.topics[0].name[0])
            await ends.wait()
            request.topics.clear()
        return await describe(context, caller, request)

    monkeypatch.setitem(dispatch.HANDLERS, ApiKey.METADATA, wait)
    cluster = await kafka_cluster(1)
    clients = [await cluster.client() for _ in range(3)]
    paused = metrics.KAFKA_PAUSED.value
    for client, mark in zip(clients, "abc", strict=True):
        client.send(large(mark), 9)
    await until(lambda: len(begun) == 1 and metrics.KAFKA_PAUSED.value >= paused + 2)

    small = await cluster.client()
    assert (await small.ask(m.MetadataRequest(topics=[]), 12)).brokers
    assert len(begun) == 1
    waiting = next(client for client, mark in zip(clients, "abc", strict=True) if mark != begun[0])
    await waiting.close()
    ends.set()
    for client in clients:
        if client is not waiting:
            assert (await client.receive()).brokers
    assert (await small.ask(large("d"), 9)).brokers  # the request that was not taken has left no trace


async def connection_from(address, port):
    sock = socket.socket()
    sock.bind((address, 0))
    sock.connect(("127.0.0.1", port))  # the kernel accepts it
    return (await asyncio.open_connection(sock=sock))[1]


async def test_frames_that_a_client_does_not_send_leave_receive_buffers_to_others(kafka_cluster):
    """They took all of them for a minute, and producers of more than 64 KiB waited."""
    cluster = await kafka_cluster(1, settings=KafkaSettings(receive_bytes_max=16 * KIB * KIB))
    await cluster[0].create("t")
    holding = [await connection_from("127.0.0.2", cluster[0].port) for _ in range(8)]
    paused = metrics.KAFKA_PAUSED.value
    for writer in holding:
        writer.write((8 * KIB * KIB).to_bytes(4, "big") + b"\0\3\0\x08\0\0\0\1\xff\xff" + bytes(4 * KIB * KIB))
    await until(lambda: metrics.KAFKA_PAUSED.value >= paused + 4)

    producer = await cluster.client()
    for _ in range(3):
        assert (await producer.produce("t", batch_of(bytes(300 * KIB)))).error_code == 0
    for writer in holding:
        writer.close()
