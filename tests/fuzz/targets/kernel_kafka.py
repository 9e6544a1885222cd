"""Kafka's Produce and Fetch in the native kernel and in its Python twin: request bodies of all versions, plain admission, responses,
and requests back to back on their way into a write buffer and to their responses."""

import struct
from random import Random
from typing import Any

from bearlake.kernel import Append, BoundTransaction, PartitionKey, fallback
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka.messages import FetchRequest, ProduceRequest
from bearlake.records.codec import Producer, Record, encode
from fixtures import kernel_turns, produces
from fixtures.produces import Reads
from fuzz.target import Choices, Target, exact
from fuzz.targets.kernel import agreed, batches, native, repair

VERSIONS = range(2, 15)
GOOD = range(3, 14)
RULES = (bytes(16), 1 << 32, 3, 10_000, -1, 2**62, 1)
LEADS = (b"\0\1c", b"\0\1c\0")
SHIFT = 3
"""Binds requests, with a transaction of the producer of this number."""
TRANSACTIONAL = encode(
    [Record(timestamp=5)], producer=Producer(id=SHIFT, epoch=0, base_sequence=0, is_transactional=True)
)


def _request(*records: Any, transactional_id: str | None = None, acks: int = -1) -> ProduceRequest:
    topics = [
        ProduceRequest.Topic(
            name=f"topic-{at}",
            topic_id=bytes([at + 1]) * 16,
            partition_data=[ProduceRequest.Partition(index=index, records=batch) for index in range(2)],
        )
        for at, batch in enumerate(records)
    ]
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=topics)


def bodies(version: int) -> list[bytes]:
    """Bodies of Produce requests, without headers."""
    made = batches()
    requests = (
        _request(made[0]),
        _request(made[1], made[3]),
        _request(made[2], None, b""),
        _request(made[0], transactional_id="é", acks=0),
        _request(),
        _request(TRANSACTIONAL, transactional_id="é", acks=1),
    )
    return [b"".join(codec.request(0, version).encode(request)) for request in requests]


def parse(data: bytes) -> object:
    """Parse one body, and admit its plain entries."""
    choices = Choices(data)
    version, position, rule = choices.of(VERSIONS), choices.byte(), choices.byte()
    body = choices.rest
    position = 0 if position < 250 else position - 252
    found = agreed("parse_produce", body, position, version)
    if not isinstance(found[0], str | None):
        return found[1]
    entries = found[3]
    rules = RULES if rule < 128 else (bytes(16), 0, rule - 128, rule, -(2**63), 2**63 - 1, rule & 1)
    at = 0
    while at < len(entries):
        ours: list[Any] = []
        theirs: list[Any] = []
        end = native.admit_plain(entries, at, exact(body), None, rules, ours)
        assert end == fallback.admit_plain(entries, at, memoryview(body), None, rules, theirs)
        assert ours == theirs
        at = max(end, at + 1)
    return [entry[4] for entry in entries[:8]], found[0] is None


def take_many(data: bytes) -> object:
    """Take frames from two receive buffers into write buffers, add other batches, and follow all of them to their responses."""
    choices = Choices(data)
    version, lead, shift = choices.of(GOOD), choices.of(LEADS), choices.byte()
    size_max, count_max = choices.of((10_000, 100, 2**31 - 1)), choices.of((64, 1, 0, 2, -1))
    buffer_bytes = choices.of((10_000, 0, 80, 500, 1200))
    cut, appends = choices.byte(), [_append(choices) for _ in range(choices.byte() % 4)]
    frames = choices.rest
    reads = Reads(
        memories=(frames, frames[cut:]),
        version=version,
        lead=lead,
        size_max=size_max,
        count_max=count_max,
        buffer_bytes=buffer_bytes,
        shift=shift,
        appends=appends,
        seen=shift - 3,
        bound=(None, "topic-0" if version < 13 else bytes([1]) * 16)[shift & 1],
        transaction=(None, BoundTransaction("é", shift, 2))[shift & 2 > 0],
    )
    story = produces.agreed(native, fallback, reads)
    return story.taken, min(len(story.told), 30)


def _append(choices: Choices) -> Append:
    partition, batch = PartitionKey(choices.number()), bytes(choices.byte() % 70 + 1)
    numbers = [choices.number() for _ in range(6)]
    return Append(partition, bytes([choices.byte() % 3]) * 16, batch, None, *numbers)


def _frames() -> list[bytes]:
    seeds = []
    for version in GOOD:
        lead = LEADS[version >= 9]
        contents = [struct.pack(">hhi", 0, version, 7) + lead + body for body in bodies(version)]
        frames = [struct.pack(">i", len(content)) + content for content in contents]
        parameters = bytes([version - GOOD[0], version >= 9, 0, 0, 0, 0, 0, 0])
        seeds += [parameters + frame for frame in frames[:2]]
        seeds.append(parameters + frames[0] * 3 + frames[2])
        seeds.append(parameters[:2] + bytes([SHIFT]) + parameters[3:] + frames[5] * 2)
        appends = bytes([0, 7, 20, *[0, 1] * 6, 1]) * 2  # two batches, each of a small partition number
        seeds.append(bytes([version - GOOD[0], version >= 9, 5, 2, 0, 4, 0, 2]) + appends + frames[0] * 2)
    return seeds


def _sizes(random: Random, data: bytearray) -> None:
    """Give the first frame the size of its bytes; or repair the batch that begins at a place that looks like one."""
    if random.random() < 0.5 and len(data) > 12 and data[7] % 4 == 0:
        struct.pack_into(">i", data, 8, len(data) - 12)
    _checksums(random, data)


def _checksums(random: Random, data: bytearray) -> None:
    """Repair the CRC of the batches whose magic and length fit."""
    at = 16
    while (at := data.find(2, at)) >= 0:
        start = at - 16
        length = int.from_bytes(data[start + 8 : start + 12], "big")
        if 49 <= length <= len(data) - start - 12:
            part = data[start : start + 12 + length]
            repair(random, part)
            data[start : start + 12 + length] = part
            at = start + 12 + length
        at += 1


SCRIPT_BYTES_MAX = 100
"""A longer script takes more than a few ms."""


def _turn_frames() -> list[bytes]:
    contents = [struct.pack(">hhi", 0, 3, 7) + LEADS[0] + body for body in bodies(3)]
    contents.append(struct.pack(">hhi", 3, 3, 7) + LEADS[0])
    return [struct.pack(">i", len(content)) + content for content in contents]


def turn(data: bytes) -> object:
    """Follow a connection, whose first requests are bound, through what the input says."""
    bindings = [(3, LEADS[0], size_max, "topic-0", RULES, None) for size_max in (10_000, 100)]
    story = kernel_turns.agreed(native, fallback, data[:SCRIPT_BYTES_MAX], _turn_frames(), bindings)
    return min(story.taken, 8), min(len(story.told) // 16, 8)


def _scripts() -> list[bytes]:
    """Bind, then read; change something, then read again."""
    return [bytes([6, 0, 0, 0, 0, 0, 7, number, 0, 0, 1, 9, 4, 5, 3, 6, 1, 1, 0, 0, 0]) for number in range(16)]


FETCHES = range(4, 19)


def _fetch_bodies() -> list[bytes]:
    topics = [
        FetchRequest.Topic(
            topic=name,
            topic_id=bytes([at + 1]) * 16,
            partitions=[FetchRequest.Partition(partition=index, fetch_offset=2**40) for index in range(2)],
        )
        for at, name in enumerate(("orders", "é"))
    ]
    messages = (
        FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics, rack_id="r"),
        FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics[:1], session_epoch=0),
        FetchRequest(topics=topics, session_id=1, session_epoch=1),
    )
    return [
        bytes([version - FETCHES[0], 100]) + b"".join(codec.request(1, version).encode(message))
        for version in FETCHES
        for message in messages
    ]


def fetch(data: bytes) -> object:
    """Parse the body of a Fetch request, and answer its partitions with views of the body."""
    choices = Choices(data)
    version, count_max = choices.of(FETCHES), choices.byte()
    body = choices.rest
    found = agreed("parse_fetch", body, version, count_max)
    if found is None:
        return None
    entries = found[3]
    size = max(len(body), 1)
    views = [memoryview(body * (1 + 2000 // size)), memoryview(body)]
    answers = [(index, offset, bytes_max, views[: index % 3]) for _, index, _, offset, bytes_max in entries]
    return len(entries), len(agreed("encode_fetch", version, count_max, entries, answers))


TARGETS = [
    Target(name="kernel fetch", seeds=_fetch_bodies, run=fetch),
    Target(
        name="kernel produce",
        seeds=lambda: [bytes([version - VERSIONS[0], 0, 0]) + body for version in GOOD for body in bodies(version)],
        run=parse,
        change=_checksums,
        share=2,
    ),
    Target(name="kernel turn", seeds=_scripts, run=turn),
    Target(name="kernel produces", seeds=_frames, run=take_many, change=_sizes),
]
