"""Produce requests that arrive in one piece: each is answered in order, as if it had arrived alone."""

import pytest

from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.settings import KafkaSettings
from fixtures.idle_producers import forget_all
from fixtures.kafka_server import batch_of, produce_request, values_of
from fixtures.waiting import until

GOOD = batch_of(b"good")
BAD = GOOD[:-1] + bytes([GOOD[-1] ^ 1])


async def answers_to(client, requests, version=9):
    """Send Produce requests in one piece; the (error code, base offset) of each."""
    data = b""
    for number, request in enumerate(requests, 100):
        key = codec.ApiKey[type(request).__name__.removesuffix("Request").upper()]
        data += b"".join(codec.request(key, version).frame(number, "c", request))
        if getattr(request, "acks", -1) != 0:
            client.sent.append((key, version, number))
    client.send_bytes(data)
    answers = []
    while client.sent:
        answer = await client.receive()
        if isinstance(answer, m.ProduceResponse):
            (partition,) = answer.responses[0].partition_responses
            answers.append((partition.error_code, partition.base_offset))
        else:
            answers.append(type(answer).__name__)
    return answers


async def stored(client):
    return [value for _, value in values_of((await client.fetch("t", 0)).records)]


@pytest.mark.parametrize("version", [3, 8, 9, 12])
async def test_many_requests_are_answered_and_stored_in_order(kafka, version):
    client = await kafka.client()
    await kafka.create("t")
    requests = [produce_request("t", batch_of(b"%d" % number)) for number in range(20)]

    answers = await answers_to(client, requests, version)

    assert answers == [(0, number) for number in range(20)]
    assert await stored(client) == [b"%d" % number for number in range(20)]


TRANSACTIONAL = batch_of(b"v", producer=(7, 0, 0), is_transactional=True)


@pytest.mark.parametrize("place", [0, 1, 3, 5])
@pytest.mark.parametrize(
    ("odd", "answer"),
    [
        (produce_request("t", BAD), (ErrorCode.CORRUPT_MESSAGE, -1)),
        (produce_request("t", GOOD, index=9), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)),
        (produce_request("nowhere", GOOD), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)),
        (produce_request("t", GOOD, acks=7), (ErrorCode.INVALID_REQUIRED_ACKS, -1)),
        (produce_request("t", TRANSACTIONAL, transactional_id="x"), (ErrorCode.INVALID_TXN_STATE, -1)),
        (m.MetadataRequest(topics=[]), "MetadataResponse"),
    ],
    ids=["bad", "partition", "stream", "acks", "transaction", "metadata"],
)
async def test_a_request_that_needs_special_handling_is_answered_in_order(kafka, odd, answer, place):
    client = await kafka.client()
    await kafka.create("t")
    await client.produce("t", GOOD)
    requests = [produce_request("t", batch_of(b"%d" % number)) for number in range(5)]
    requests.insert(place, odd)

    answers = await answers_to(client, requests)

    assert answers.pop(place) == answer
    assert answers == [(0, 1 + number) for number in range(5)]
    assert await stored(client) == [b"good", *(b"%d" % number for number in range(5))]


async def test_a_request_without_an_answer_is_stored_in_order(kafka):
    client = await kafka.client()
    await kafka.create("t")
    requests = [produce_request("t", batch_of(b"%d" % number), acks=number % 2) for number in range(6)]

    answers = await answers_to(client, requests)

    assert answers == [(0, 1), (0, 3), (0, 5)]
    assert await stored(client) == [b"%d" % number for number in range(6)]


async def test_batches_that_the_commit_refuses_have_their_own_errors(kafka):
    client = await kafka.client()
    await kafka.create("t")
    sequences = [0, 1, 1, 5, 2]
    requests = [produce_request("t", batch_of(b"v", producer=(7, 0, sequence))) for sequence in sequences]

    answers = await answers_to(client, requests)

    out_of_order = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert answers == [(0, 0), (0, 1), (0, 1), out_of_order, (0, 2)]


async def test_an_expired_producer_gets_the_error_with_the_log_start_offset(kafka):
    """Java retries forever while it does not know the start offset (TransactionManager.canRetry)."""
    client = await kafka.client()
    await kafka.create("t")
    metadata = kafka.streams.metadata
    (producer,) = await metadata.producers.allocate(1)
    await client.produce("t", batch_of(b"a", producer=(producer, 0, 0)))
    await forget_all(metadata)

    head = await kafka.streams.metadata.log.head()
    await until(lambda: kafka.streams.seen.position >= head)
    refused = await client.produce("t", batch_of(b"b", producer=(producer, 0, 1)))
    accepted = await client.produce("t", batch_of(b"b", producer=(producer, 1, 0)))

    assert (refused.error_code, refused.base_offset, refused.log_start_offset) == (ErrorCode.UNKNOWN_PRODUCER_ID, -1, 0)
    assert (accepted.error_code, accepted.base_offset) == (0, 1)


async def test_no_more_requests_are_accepted_than_may_be_in_flight(kafka_cluster):
    cluster = await kafka_cluster(1, settings=KafkaSettings(requests_in_flight_max=3))
    client = await cluster.client()
    await cluster[0].create("t")
    requests = [produce_request("t", batch_of(b"%d" % number)) for number in range(20)]

    assert await answers_to(client, requests) == [(0, number) for number in range(20)]
