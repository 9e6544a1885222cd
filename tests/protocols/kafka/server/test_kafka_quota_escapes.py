"""Ways around the quotas of Kafka clients that look open: each request is charged to its own client, whatever else the connection sends."""

import pytest

from bearlake.metadata.quotas import DEFAULT, Entity, QuotaKey
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.codec import ApiKey
from fixtures.kafka_server import batch_of, key_of, produce_request
from fixtures.quotas import LimitedServer

BATCH = Entity(user=DEFAULT, client_id="batch")


@pytest.fixture
async def limited(kafka):
    await kafka.create("t")
    return LimitedServer(kafka)


def produce(size):
    return produce_request("t", batch_of(b"x" * size))


def frame(request, version, client_id):
    return b"".join(codec.request(key_of(request), version).frame(7, client_id, request))


async def test_a_request_under_another_client_id_does_not_free_the_next_ones_of_a_limited_client_id(limited):
    """Pipelined requests are of the client that sent the last Produce request, whoever sent the last request."""
    await limited.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0, BATCH)
    client = await limited.node.client("batch")
    client.send_bytes(frame(produce(10), 9, "batch") + frame(m.MetadataRequest(topics=[]), 9, "free"))
    client.sent += [(ApiKey.PRODUCE, 9, 7), (ApiKey.METADATA, 9, 7)]
    await client.receive()
    await client.receive()

    client.client_id = "batch"
    answer = await client.ask(produce(3000), 9)
    assert answer.throttle_time_ms >= 1900
