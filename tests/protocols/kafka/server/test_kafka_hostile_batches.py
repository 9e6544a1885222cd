"""Batches that would harm readers are refused, and neither they nor requests with many elements hold the server."""

import random

import pytest

from bearlake.kernel import crc32c
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.records.batch import Compression
from bearlake.records.codec import Record, encode
from bearlake.streams.checking import CheckSettings
from bearlake.streams.service import StreamsSettings
from fixtures.kafka_server import batch_of, produce_request, values_of

KIB = 1024
SMALL, LARGE = 100, 300 * KIB
"""Values of batches that are checked on the event loop, and in a thread."""
COMPRESSED = [codec for codec in Compression if codec is not Compression.NONE]


def batch_with(body, *, count=1, codec=Compression.LZ4):
    """A batch with a good checksum whose header claims `count` records in `body`."""
    batch = bytearray(encode([Record(value=b"x", timestamp=-1)], codec=codec)[:61]) + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[23:27] = (count - 1).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big")
    batch[17:21] = crc32c(batch, 21).to_bytes(4, "big")
    return bytes(batch)


def good(value, codec=Compression.LZ4):
    return encode([Record(value=value, timestamp=-1)], codec=codec)


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("codec", COMPRESSED)
async def test_a_batch_that_no_consumer_could_read_is_refused(kafka, codec, size):
    """Otherwise the partition's consumers stop at its offset for good."""
    client = await kafka.client()
    await kafka.create("t")
    garbage = random.Random(1).randbytes(size)

    refused = await client.produce("t", batch_with(garbage, codec=codec))
    stored = await client.produce("t", good(b"after", codec))

    assert refused.error_code == ErrorCode.CORRUPT_MESSAGE
    assert (stored.error_code, stored.base_offset) == (0, 0)
    assert values_of((await client.fetch("t", 0)).records) == [(0, b"after")]


@pytest.mark.parametrize("count", [2, 1000, 1_000_000, 2**31 - 1])
async def test_a_batch_that_claims_more_records_than_it_has_is_refused(kafka, count):
    client = await kafka.client()
    await kafka.create("t")
    body = good(b"v")[61:]

    refused = await client.produce("t", batch_with(body, count=count))

    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert (await client.list_offset("t", -1)).offset == 0


async def test_a_decompression_bomb_is_refused(kafka_cluster):
    streams = StreamsSettings(checks=CheckSettings(uncompressed_bytes_max=1024 * KIB))
    cluster = await kafka_cluster(1, streams=streams)
    client = await cluster.client()
    await cluster[0].create("t")
    bomb = encode([Record(value=bytes(8 * 1024 * KIB))], codec=Compression.ZSTD)
    assert len(bomb) < 2 * KIB

    assert (await client.produce("t", bomb)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await client.produce("t", good(bytes(2 * KIB)))).error_code == 0


async def test_requests_keep_their_order_while_a_thread_checks_one(kafka):
    client = await kafka.client()
    await kafka.create("t")
    noise = random.Random(1)
    values = [noise.randbytes(LARGE if at % 3 == 0 else SMALL) for at in range(12)]

    for value in values:
        client.send(produce_request("t", good(value)), 9)
    answers = [(await client.receive()).responses[0].partition_responses[0] for _ in values]

    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, at) for at in range(12)]
    stored = []
    while len(stored) < len(values):
        stored += [value for _, value in values_of((await client.fetch("t", len(stored))).records)]
    assert stored == values


async def test_compressed_requests_in_one_write_are_appended_together(kafka):
    client = await kafka.client()
    await kafka.create("t")

    for at in range(20):
        client.send(produce_request("t", good(b"%d" % at)), 9)
    answers = [(await client.receive()).responses[0].partition_responses[0] for _ in range(20)]

    assert [answer.base_offset for answer in answers] == list(range(20))


async def test_a_request_with_a_million_partitions_closes_its_connection(kafka):
    client, other = await kafka.client(), await kafka.client()
    await kafka.create("t")
    request = produce_request("t", None)
    request.topic_data[0].partition_data *= 1_000_000

    client.send(request, 9)

    assert await client.is_closed()
    assert (await other.produce("t", batch_of(b"a"))).error_code == 0
