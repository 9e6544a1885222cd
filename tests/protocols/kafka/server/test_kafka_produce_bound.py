"""Produce requests that are bound by an earlier answer: they are handled as if each had asked anew, whatever has changed since."""

import asyncio

import pytest

from bearlake.metadata.access_rules import AccessRule, PatternKind, Permission
from bearlake.metadata.quotas import QuotaChange, QuotaKey
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.settings import KafkaSettings
from bearlake.records.batch import Compression
from bearlake.streams.principal import AllowAll, Operation, Resource, at_host, user_principal
from bearlake.telemetry import watchdog
from fixtures.kafka_server import batch_of, produce_request, values_of
from fixtures.quotas import ANYBODY
from fixtures.waiting import until
from protocols.kafka.server.test_kafka_produce_pipelined import BAD, GOOD, TRANSACTIONAL, answers_to, stored

DENIED = AccessRule(Resource.STREAM, "t", PatternKind.LITERAL, "User:ANONYMOUS", "*", Operation.WRITE, Permission.DENY)


async def bound_client(node, topic="t", version=9):
    """A client whose next Produce requests to the topic are bound."""
    client = await node.client("c")
    for _ in range(2):
        assert (await client.produce(topic, GOOD, version=version)).error_code == 0
    assert is_bound(node)
    return client


def is_bound(node):
    (connection,) = node.server.connections
    return connection.is_bound


@pytest.mark.parametrize("version", [3, 8, 9, 12])
async def test_bound_requests_are_answered_and_stored_in_order(kafka, version):
    await kafka.create("t")
    client = await bound_client(kafka, version=version)
    requests = [produce_request("t", batch_of(b"%d" % number)) for number in range(20)]

    answers = await answers_to(client, requests, version)

    assert is_bound(kafka)
    assert answers == [(0, 2 + number) for number in range(20)]
    assert await stored(client) == [b"good", b"good", *(b"%d" % number for number in range(20))]


async def test_requests_that_name_a_topic_by_its_id_are_bound(kafka):
    topic = await kafka.create("t")
    client = await bound_client(kafka, topic, 13)

    assert (await client.produce(topic, GOOD)).base_offset == 2

    await kafka.streams.access.create([DENIED])
    assert (await client.produce(topic, GOOD)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("place", [0, 1, 3, 5])
@pytest.mark.parametrize(
    ("odd", "answer"),
    [
        (produce_request("t", BAD), (ErrorCode.CORRUPT_MESSAGE, -1)),
        (produce_request("t", GOOD, index=9), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)),
        (produce_request("nowhere", GOOD), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)),
        (produce_request("t", GOOD, acks=7), (ErrorCode.INVALID_REQUIRED_ACKS, -1)),
        (produce_request("t", TRANSACTIONAL, transactional_id="x"), (ErrorCode.INVALID_TXN_STATE, -1)),
        (produce_request("u", GOOD), (0, 0)),
        (m.MetadataRequest(topics=[]), "MetadataResponse"),
    ],
    ids=["bad", "partition", "stream", "acks", "transaction", "other", "metadata"],
)
async def test_special_requests_among_bound_ones_are_answered_in_order(kafka, odd, answer, place):
    await kafka.create("t")
    await kafka.create("u")
    client = await bound_client(kafka)
    requests = [produce_request("t", batch_of(b"%d" % number)) for number in range(5)]
    requests.insert(place, odd)

    answers = await answers_to(client, requests)

    assert answers.pop(place) == answer
    assert answers == [(0, 2 + number) for number in range(5)]
    assert await stored(client) == [b"good", b"good", *(b"%d" % number for number in range(5))]


@pytest.mark.parametrize("codec_name", list(Compression))
async def test_compressed_batches_are_stored_as_they_are(kafka, codec_name):
    await kafka.create("t")
    client = await bound_client(kafka)
    requests = [produce_request("t", batch_of(b"%d" % at, b"x" * 500, compression=codec_name)) for at in range(3)]

    assert await answers_to(client, requests) == [(0, 2), (0, 4), (0, 6)]
    assert await stored(client) == [b"good", b"good", *(v for at in range(3) for v in (b"%d" % at, b"x" * 500))]


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.SNAPPY])
async def test_batches_that_need_more_than_rules_are_not_looked_at_twice(kafka, compression):
    await kafka.create("t")
    client = await bound_client(kafka)

    for offset in range(2, 5):
        assert (await client.produce("t", batch_of(b"v", compression=compression))).base_offset == offset
        assert not is_bound(kafka)

    assert (await client.produce("t", GOOD)).base_offset == 5
    assert is_bound(kafka)


async def test_repeated_batches_of_an_idempotent_producer_get_their_first_offsets(kafka):
    await kafka.create("t")
    client = await bound_client(kafka)
    requests = [produce_request("t", batch_of(b"v", producer=(7, 0, sequence))) for sequence in (0, 1, 1, 5, 2)]

    assert await answers_to(client, requests) == [
        (0, 2),
        (0, 3),
        (0, 3),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        (0, 4),
    ]


async def test_a_right_that_is_taken_away_ends_the_binding(kafka):
    await kafka.create("t")
    client = await bound_client(kafka)

    await kafka.streams.access.create([DENIED])
    answers = await answers_to(client, [produce_request("t", GOOD)] * 3)

    assert answers == [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)] * 3
    await kafka.streams.access.replace([DENIED], [])
    assert await answers_to(client, [produce_request("t", GOOD)] * 3) == [(0, 2), (0, 3), (0, 4)]


async def test_a_right_that_another_server_takes_away_ends_the_binding(kafka_cluster):
    cluster = await kafka_cluster(2)
    await cluster[0].create("t")
    client = await bound_client(cluster[0])

    await cluster[1].streams.access.create([DENIED])
    await until(lambda: cluster[0].streams.access.revision == 1)

    assert (await client.produce("t", GOOD)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_a_request_that_began_to_arrive_before_the_change_is_refused_by_it(kafka):
    await kafka.create("t")
    client = await bound_client(kafka)
    whole = b"".join(codec.request(ApiKey.PRODUCE, 9).frame(1, "c", produce_request("t", GOOD)))
    (connection,) = kafka.server.connections

    client.send_bytes(whole[:-10])
    await until(lambda: connection.unconsumed_bytes == len(whole) - 10)
    await kafka.streams.access.create([DENIED])
    client.sent.append((ApiKey.PRODUCE, 9, 1))
    client.send_bytes(whole[-10:])

    answer = (await client.receive()).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_a_quota_ends_the_binding(kafka):
    await kafka.create("t")
    client = await bound_client(kafka)

    await kafka.streams.quotas.change([QuotaChange(ANYBODY, QuotaKey.PRODUCER_BYTE_RATE, 1.0)])
    answer = await client.ask(produce_request("t", GOOD), 9)

    assert answer.throttle_time_ms > 0
    assert not is_bound(kafka)


async def test_requests_are_not_bound_while_a_quota_exists(kafka):
    await kafka.create("t")
    await kafka.streams.quotas.change([QuotaChange(ANYBODY, QuotaKey.PRODUCER_BYTE_RATE, 1e12)])
    client = await kafka.client("c")

    for _ in range(3):
        assert (await client.produce("t", GOOD)).error_code == 0

    assert not is_bound(kafka)


async def test_a_draining_server_sends_bound_clients_away(kafka):
    await kafka.create("t")
    client = await bound_client(kafka)

    kafka.server.context.redirect()

    assert (await client.produce("t", GOOD)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_changed_config_applies_to_the_next_request(kafka):
    await kafka.create("t")
    client = await bound_client(kafka)
    stream = kafka.streams.catalog.peek("t").stream

    await kafka.streams.catalog.alter(stream, {"max.message.bytes": "70"}, [])
    assert (await client.produce("t", batch_of(b"x" * 100))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    stream = kafka.streams.catalog.peek("t").stream
    await kafka.streams.catalog.alter(stream, {"message.timestamp.before.max.ms": "1000"}, ["max.message.bytes"])
    assert (await client.produce("t", GOOD)).error_code == ErrorCode.INVALID_TIMESTAMP


async def test_a_stream_that_was_made_again_gets_the_next_request(kafka):
    await kafka.create("t")
    client = await bound_client(kafka)
    catalog = kafka.streams.catalog

    await catalog.delete(catalog.peek("t").stream)
    assert (await client.produce("t", GOOD)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await kafka.create("t")

    assert (await client.produce("t", batch_of(b"new"))).base_offset == 0
    assert await stored(client) == [b"new"]


async def test_another_client_id_on_the_connection_is_not_bound_by_the_first(kafka):
    await kafka.create("t")
    client = await bound_client(kafka)

    client.client_id = "d"
    assert (await client.produce("t", GOOD)).base_offset == 2

    assert not is_bound(kafka)
    (connection,) = kafka.server.connections
    assert connection.who.client_id == "d"


async def test_frames_may_be_cut_anywhere(kafka):
    await kafka.create("t")
    client = await bound_client(kafka)
    (connection,) = kafka.server.connections
    whole = b"".join(codec.request(ApiKey.PRODUCE, 9).frame(1, "c", produce_request("t", GOOD)))

    for cut in range(1, len(whole)):
        client.send_bytes(whole + whole[:cut])
        await client.receive_frame()
        await until(lambda cut=cut: connection.unconsumed_bytes == cut)
        client.send_bytes(whole[cut:])
        await client.receive_frame()

    assert is_bound(kafka)
    head = (await client.fetch("t", 0)).high_watermark
    assert head == 2 + 2 * (len(whole) - 1)


async def test_a_frame_that_follows_bound_requests_has_its_own_time_to_arrive(kafka):
    await kafka.create("t")
    client = await bound_client(kafka)
    (connection,) = kafka.server.connections
    loop = asyncio.get_running_loop()
    whole = b"".join(codec.request(ApiKey.PRODUCE, 9).frame(1, "c", produce_request("t", GOOD)))
    stall_s = kafka.server.settings.stall_ms / 1000

    client.send_bytes(whole[:100])
    await until(lambda: connection.unconsumed_bytes == 100)
    first_s = loop.time()
    await until(lambda: loop.time() > first_s + 0.01)
    client.send_bytes(whole[100:] + whole[:100])
    await client.receive_frame()
    connection.check(first_s + stall_s + 0.005)
    assert connection.is_open

    connection.check(loop.time() + stall_s + 0.005)
    assert await client.is_closed()


async def test_a_new_login_ends_the_binding(kafka):
    """The user has the same name, but may have other groups."""

    class Session:
        principal = at_host(user_principal("alice", frozenset(["writers"])), "127.0.0.1", "kafka")
        is_refused = False

    await kafka.create("t")
    await bound_client(kafka)
    (connection,) = kafka.server.connections

    connection._note_login(Session())  # noqa: SLF001 - what a request of the login does at its end

    assert not connection.is_bound


async def test_bound_requests_are_named_as_what_holds_the_event_loop(kafka):
    await kafka.create("t")
    client = await bound_client(kafka)

    watchdog.begin("kafka METADATA")
    assert (await client.produce("t", GOOD)).base_offset == 2

    assert watchdog.DOING.request == "kafka PRODUCE"  # what a stall would be reported with


async def test_large_frames_grow_their_receive_buffer(kafka):
    await kafka.create("t")
    client = await bound_client(kafka)
    sizes = [10, 60_000, 200_000, 900_000, 10, 900_000, 65_536]

    answers = await answers_to(client, [produce_request("t", batch_of(b"x" * size)) for size in sizes])

    assert answers == [(0, 2 + at) for at in range(len(sizes))]
    assert is_bound(kafka)


async def test_a_connection_that_ends_inside_a_frame_stores_only_whole_requests(kafka):
    await kafka.create("t")
    client = await bound_client(kafka)
    whole = b"".join(codec.request(ApiKey.PRODUCE, 9).frame(1, "c", produce_request("t", batch_of(b"last"))))

    client.send_bytes(whole + whole[:-1])
    await client.close()
    await until(lambda: not len(kafka.server.connections))
    other = await kafka.client()

    await until_stored(other, [b"good", b"good", b"last"])


async def until_stored(client, values):
    """Wait until the stream has these values."""
    answer = await client.fetch("t", 0, wait_ms=5_000, bytes_min=sum(map(len, values)) + 250)
    assert [value for _, value in values_of(answer.records)] == values


async def test_no_more_bound_requests_are_taken_than_may_be_in_flight(kafka_cluster):
    cluster = await kafka_cluster(1, settings=KafkaSettings(requests_in_flight_max=3))
    await cluster[0].create("t")
    client = await bound_client(cluster[0])

    answers = await answers_to(client, [produce_request("t", batch_of(b"%d" % number)) for number in range(20)])

    assert answers == [(0, 2 + number) for number in range(20)]


async def test_a_malformed_frame_behind_bound_requests_closes_the_connection(kafka):
    await kafka.create("t")
    client = await bound_client(kafka)
    whole = b"".join(codec.request(ApiKey.PRODUCE, 9).frame(1, "c", produce_request("t", GOOD)))

    client.send_bytes(whole + b"\xff\xff\xff\xff")

    assert await client.is_closed()


async def test_an_authorizer_that_may_change_its_mind_is_always_asked(kafka):
    await kafka.create("t")
    kafka.streams.keeps_answers = False
    kafka.streams.authorizer = AllowAll()
    client = await kafka.client("c")

    for _ in range(3):
        assert (await client.produce("t", GOOD)).error_code == 0

    assert not is_bound(kafka)
