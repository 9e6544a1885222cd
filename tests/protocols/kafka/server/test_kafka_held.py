"""No hostile request blocks the event loop: in each iteration of the loop, a request uses less processor time than a bound.

The bound is twice the watchdog's because a test's client and server share the loop.
"""

import struct

import pytest

from bearlake.protocols.kafka import messages as m
from bearlake.records.batch import Compression
from bearlake.records.codec import Record, encode
from bearlake.telemetry.watchdog import LIMIT_S
from fixtures.held import held_at_most
from fixtures.kafka_server import batch_of

MIB = 1024 * 1024
BOUND_S = 2 * LIMIT_S


def compressed(codec, values):
    return encode([Record(value=value, timestamp=-1) for value in values], codec=codec)


BATCHES = {
    "60 MiB of zeros in zstd": lambda: compressed(Compression.ZSTD, [bytes(60 * MIB)]),
    "60 MiB of zeros in gzip": lambda: compressed(Compression.GZIP, [bytes(60 * MIB)]),
    "100 MiB of zeros in lz4": lambda: compressed(Compression.LZ4, [bytes(100 * MIB)]),
    "300,000 empty records": lambda: compressed(Compression.ZSTD, [None] * 300_000),
}


@pytest.mark.parametrize("what", BATCHES)
async def test_a_hostile_batch_does_not_hold_the_loop(kafka, what):
    client = await kafka.client()
    await kafka.create("t")
    for codec in Compression:
        assert (await client.produce("t", batch_of(b"warm", compression=codec))).error_code == 0
    batch = BATCHES[what]()

    async with held_at_most(BOUND_S):
        await client.produce("t", batch)

    assert (await client.produce("t", batch_of(b"after"))).error_code == 0


@pytest.mark.parametrize("count", [9_000, 3_000_000])
async def test_empty_partitions_do_not_hold_the_loop(kafka, count):
    """3,000,000 empty partitions take 18 MB."""
    client, other = await kafka.client(), await kafka.client()
    await kafka.create("t")
    await other.produce("t", batch_of(b"warm"))
    head = b"\0\0\0\x09\0\0\0\1\0\1h\0" + b"\0\xff\xff\0\0\x27\x10\2\2t"
    body = head + varint(count + 1) + b"\0\0\0\0\0\0" * count + b"\0\0"

    async with held_at_most(BOUND_S):
        client.send_bytes(struct.pack(">i", len(body)) + body)
        await client.reader.read(1)

    assert (await other.produce("t", batch_of(b"after"))).error_code == 0


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


async def test_metadata_of_everything_does_not_hold_the_loop(kafka):
    client = await kafka.client()
    for at in range(10):
        await kafka.create(f"t{at}", 5_000)
    await client.ask(m.MetadataRequest(topics=[]), 12)

    async with held_at_most(BOUND_S):
        client.send(m.MetadataRequest(topics=None), 12)
        frame = await client.receive_frame()

    assert len(frame) > 50_000 * 20


async def test_a_name_that_is_repeated_does_not_multiply_its_partitions(kafka):
    """Otherwise a request of 2 MB would ask for 10^9 partitions."""
    client = await kafka.client()
    await kafka.create("t", 10_000)
    await client.ask(m.MetadataRequest(topics=[]), 12)
    client.send(m.MetadataRequest(topics=[m.MetadataRequest.Topic(name="t")] * 100_000), 12)

    async with held_at_most(BOUND_S):
        frame = await client.receive_frame()

    assert len(frame) < 1 * MIB
