"""Micro benchmark of the Kafka codec: microseconds per message, best of several runs.

    .venv/bin/python bench/micro/codec.py

Goals: decode a produce request with one batch of 16 KiB in 4 us, encode a fetch response with 1 MiB in 9 us.
"""

import subprocess
import sys
import timeit

from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka.messages import (
    FetchRequest,
    FetchResponse,
    MetadataResponse,
    OffsetCommitRequest,
    ProduceRequest,
    ProduceResponse,
)

PARTITIONS = 1000
START = """
import time
start = time.perf_counter()
from bearlake.protocols.kafka import codec, messages
imported = time.perf_counter()
codec.response(18, 4).frame(1, messages.ApiVersionsResponse())
print((imported - start) * 1e6, (time.perf_counter() - imported) * 1e6)
"""


def measure(name, call):
    """Print the best time of one call."""
    timer = timeit.Timer(call)
    count, _ = timer.autorange()
    best = min(timer.repeat(repeat=7, number=max(1, count // 4))) / max(1, count // 4)
    print(f"{name:<58} {best * 1e6:>9.2f} us")


def produce_request(records):
    """Return a Produce request with one partition."""
    partition = ProduceRequest.Partition(index=3, records=records)
    topics = [ProduceRequest.Topic(name="telemetry", topic_id=bytes(16), partition_data=[partition])]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)


def fetch_response(records):
    """Return a Fetch response with one partition."""
    partition = FetchResponse.Partition(partition_index=3, high_watermark=12_345, records=records)
    return FetchResponse(responses=[FetchResponse.Topic(topic="telemetry", partitions=[partition])])


def metadata_partitions():
    """Return the partitions of a large Metadata response."""
    return [
        MetadataResponse.Partition(
            partition_index=index, leader_id=1, leader_epoch=0, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3]
        )
        for index in range(PARTITIONS)
    ]


def handle(frame):
    """The server's work before the handler of a request runs."""
    header, position = codec.read_request_header(frame)
    return codec.request(header.api_key, header.version).decode(frame, position)


def read_cases():
    """Measure the decoding of requests."""
    for version in (7, 9, 13):
        frame = codec.request(0, version).frame(7, "rdkafka", produce_request(bytes(16_384)))
        view = memoryview(b"".join(frame))[4:]
        measure(f"Produce v{version}, 16 KiB: header and decode", lambda view=view: handle(view))
    topic = FetchRequest.Topic(topic="telemetry", partitions=[FetchRequest.Partition(partition=3)])
    for version in (11, 17):
        frame = codec.request(1, version).frame(7, "rdkafka", FetchRequest(topics=[topic]))
        view = memoryview(b"".join(frame))[4:]
        measure(f"Fetch v{version}: header and decode", lambda view=view: handle(view))
    partitions = [OffsetCommitRequest.Partition(partition_index=index) for index in range(100)]
    commit = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequest.Topic(name="t", partitions=partitions)])
    view = memoryview(b"".join(codec.request(8, 9).frame(7, "rdkafka", commit)))[4:]
    measure("OffsetCommit v9, 100 partitions: header and decode", lambda: handle(view))


def write_cases():
    """Measure the encoding of responses."""
    partition = ProduceResponse.Partition(index=3, base_offset=12_345)
    answer = ProduceResponse(responses=[ProduceResponse.Topic(name="telemetry", partition_responses=[partition])])
    measure("Produce v9 response: frame", lambda: codec.response(0, 9).frame(7, answer))
    response = fetch_response(bytes(1 << 20))
    for version in (11, 12, 17):
        measure(f"Fetch v{version} response, 1 MiB: frame", lambda v=version: codec.response(1, v).frame(7, response))
    batches = fetch_response([bytes(16_384)] * 64)
    measure("Fetch v12 response, 64 batches of 16 KiB: frame", lambda: codec.response(1, 12).frame(7, batches))
    measure(f"Metadata, {PARTITIONS} partitions: build the objects", metadata_partitions)
    metadata = MetadataResponse(topics=[MetadataResponse.Topic(name="t", partitions=metadata_partitions())])
    measure(f"Metadata v12, {PARTITIONS} partitions: frame", lambda: codec.response(3, 12).frame(7, metadata))
    view = memoryview(b"".join(codec.response(3, 12).encode(metadata)))
    measure(f"Metadata v12, {PARTITIONS} partitions: decode", lambda: codec.response(3, 12).decode(view))


def start_case():
    """Measure the import of the codec and its first use in a new process."""
    runs = [subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True) for _ in range(5)]
    imported, first = (min(times) for times in zip(*(map(float, run.stdout.split()) for run in runs), strict=True))
    print(f"{'import of codec and messages':<58} {imported:>9.0f} us")
    print(f"{'first ApiVersions response, with its schema and codec':<58} {first:>9.0f} us")


if __name__ == "__main__":
    read_cases()
    write_cases()
    start_case()
