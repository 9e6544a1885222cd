"""No hostile request blocks the event loop: in each iteration of the loop, a request uses less processor time than a bound.

The bound is twice the watchdog's because a test's client and server share the loop.
"""

import asyncio
import struct

import pytest

from bearlake import kernel
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.handlers import produce
from bearlake.protocols.kafka.handlers.produce import AT_ONCE_BYTES_MAX, AT_ONCE_COUNT_MAX
from bearlake.records.batch import Compression
from bearlake.records.codec import Record, encode
from bearlake.telemetry.watchdog import LIMIT_S
from fixtures.held import held_at_most
from fixtures.kafka_server import batch_of, fetch_request

MIB = 1024 * 1024
BOUND_S = 2 * LIMIT_S


def compressed(kind, values):
    return encode([Record(value=value, timestamp=-1) for value in values], codec=kind)


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
    for kind in Compression:
        assert (await client.produce("t", batch_of(b"warm", compression=kind))).error_code == 0
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


COUNT = 100_000
"""Items of one request, in less than 4 MB: what the largest sensible message has."""


def asked(key, count):
    """A request with so many items, and its version; those whose items take long have a quarter."""
    match key:
        case ApiKey.FIND_COORDINATOR:
            return m.FindCoordinatorRequest(coordinator_keys=["g"] * count), 4
        case ApiKey.LIST_OFFSETS:
            r = m.ListOffsetsRequest
            partition = r.Partition(partition_index=0, timestamp=-1)
            return r(replica_id=-1, topics=[r.Topic(name="t", partitions=[partition] * count)]), 7
        case ApiKey.OFFSET_FOR_LEADER_EPOCH:
            r = m.OffsetForLeaderEpochRequest
            partition = r.Partition(partition=0, leader_epoch=0)
            return r(topics=[r.Topic(topic="t", partitions=[partition] * count)]), 4
        case ApiKey.FETCH:
            return fetch_request([("t", 0, 0)] * count), 11
        case ApiKey.OFFSET_FETCH:
            r = m.OffsetFetchRequest
            topic = r.GroupTopic(name="t", partition_indexes=[0] * count)
            return r(groups=[r.Group(group_id="g", topics=[topic])]), 8
        case ApiKey.OFFSET_COMMIT:
            r = m.OffsetCommitRequest
            partition = r.Partition(partition_index=0, committed_offset=1, committed_metadata="")
            return r(group_id="g", topics=[r.Topic(name="t", partitions=[partition] * count)]), 8
        case ApiKey.DESCRIBE_CONFIGS:
            r = m.DescribeConfigsRequest
            return r(resources=[r.Resource(resource_type=32, resource_name="t")] * (count // 4)), 4
        case ApiKey.ALTER_CONFIGS:
            r = m.AlterConfigsRequest
            return r(resources=[r.Resource(resource_type=32, resource_name="t", configs=[])] * (count // 4)), 2
        case ApiKey.DESCRIBE_PRODUCERS:
            r = m.DescribeProducersRequest
            return r(topics=[r.Topic(name="t", partition_indexes=[7] * count)]), 0
        case ApiKey.DESCRIBE_LOG_DIRS:
            r = m.DescribeLogDirsRequest
            return r(topics=[r.Topic(topic="t", partitions=[0] * count)]), 4
        case ApiKey.METADATA:
            r = m.MetadataRequest
            return r(topics=[r.Topic(name=f"/{at}") for at in range(count)]), 12


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.FIND_COORDINATOR,
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.FETCH,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_COMMIT,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.METADATA,
    ],
)
async def test_a_request_with_many_items_does_not_hold_the_loop(kafka, key):
    client = await kafka.client()
    await kafka.create("t")
    await client.ask(*asked(key, 4))
    request, version = asked(key, COUNT)
    frame = b"".join(codec.request(key, version).frame(1, "test", request))

    async with held_at_most(LIMIT_S):
        client.send_bytes(frame)
        await client.receive_frame()


async def test_a_name_that_is_repeated_does_not_multiply_its_partitions(kafka):
    """Otherwise a request of 2 MB would ask for 10^9 partitions."""
    client = await kafka.client()
    await kafka.create("t", 10_000)
    await client.ask(m.MetadataRequest(topics=[]), 12)
    client.send(m.MetadataRequest(topics=[m.MetadataRequest.Topic(name="t")] * 100_000), 12)

    async with held_at_most(BOUND_S):
        frame = await client.receive_frame()

    assert len(frame) < 1 * MIB


LARGE = {
    "20,000 partitions that need a check": (19_000, lambda: batch_of(b"v", compression=Compression.GZIP)),
    "70 MB of small records": (90, lambda: compressed(Compression.NONE, [None] * 90_000)),
}


@pytest.mark.parametrize("what", LARGE)
async def test_batches_of_a_large_request_are_admitted_in_turns(kafka, monkeypatch, what):
    """The bound counts what is asked of the checks and the kernel between two steps of the loop."""
    await kafka.create("t", 10)
    client = await kafka.client()
    count, make = LARGE[what]
    await client.produce("t", batch_of(b"first"))  # so that the kernel may take the next ones
    batch = make()
    r = m.ProduceRequest
    partitions = [r.Partition(index=at % 10, records=batch) for at in range(count)]
    turn = TurnCount(monkeypatch)

    client.send(r(acks=-1, timeout_ms=10_000, topic_data=[r.Topic(name="t", partition_data=partitions)]), 9)
    answers = (await client.receive()).responses[0].partition_responses

    assert [answer.error_code for answer in answers] == [0] * count
    assert turn.count_most + turn.bytes_most > 0
    assert turn.count_most <= 2 * AT_ONCE_COUNT_MAX
    assert turn.bytes_most <= AT_ONCE_BYTES_MAX + len(batch)


class TurnCount:
    """Counts the batches that one turn of the loop admits one by one, and the bytes that the kernel admits."""

    def __init__(self, monkeypatch):
        self.count = self.size_bytes = self.count_most = self.bytes_most = 0
        alone, together = produce._admit_one, kernel.admit_plain  # noqa: SLF001 - what is counted

        def admit_one(*arguments):
            self.add(1, 0)
            return alone(*arguments)

        def admit_plain(entries, at, *arguments):
            end = together(entries, at, *arguments)
            self.add(0, sum(entry[3] - entry[2] for entry in entries[at:end]))
            return end

        monkeypatch.setattr(produce, "_admit_one", admit_one)
        monkeypatch.setattr(kernel, "admit_plain", admit_plain)

    def add(self, count, size_bytes):
        if not self.count and not self.size_bytes:
            asyncio.get_running_loop().call_soon(self.end)
        self.count += count
        self.size_bytes += size_bytes
        self.count_most, self.bytes_most = max(self.count, self.count_most), max(self.size_bytes, self.bytes_most)

    def end(self):
        self.count = self.size_bytes = 0
