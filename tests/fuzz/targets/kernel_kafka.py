"""Kafka's Produce and Fetch in the native kernel and in its Python twin: request bodies of all versions, requests back to back, plain
admission, responses."""

import struct
from random import Random
from typing import Any

from bearlake.kernel import fallback
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka.messages import FetchRequest, ProduceRequest
from fuzz.target import Choices, Target, exact, outcome
from fuzz.targets.kernel import ERRORS, agreed, batches, native, repair

VERSIONS = range(2, 15)
GOOD = range(3, 14)
RULES = (bytes(16), 1 << 32, 3, 10_000, -1, 2**62, 1)
LEADS = (b"\0\1c", b"\0\1c\0")


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


def parse_many(data: bytes) -> object:
    """Parse frames in a receive buffer."""
    choices = Choices(data)
    version, lead = choices.of(GOOD), choices.of(LEADS)
    start, size_max, count_max = choices.byte() % 16 // 14, choices.of((10_000, 100, 2**31 - 1)), choices.byte() - 1
    frames = choices.rest
    end = len(frames)
    arguments = (start if start <= end else 0, end, version, lead, size_max, count_max)
    theirs = outcome(ERRORS, fallback.parse_produces, frames, *arguments)
    ours = outcome(ERRORS, native.parse_produces, exact(frames), *arguments)
    assert ours == theirs, f"native {ours!r:.300}, Python {theirs!r:.300}"
    return len(theirs[0]) if isinstance(theirs[0], list) else theirs


def _frames() -> list[bytes]:
    seeds = []
    for version in GOOD:
        lead = LEADS[version >= 9]
        contents = [struct.pack(">hhi", 0, version, 7) + lead + body for body in bodies(version)]
        frames = [struct.pack(">i", len(content)) + content for content in contents]
        parameters = bytes([version - GOOD[0], version >= 9, 0, 0, 9])
        seeds += [parameters + frame for frame in frames[:2]]
        seeds.append(parameters + frames[0] * 3 + frames[2])
    return seeds


def _sizes(random: Random, data: bytearray) -> None:
    """Give the last frame the size of its bytes; or repair the batch that begins at a place that looks like one."""
    if random.random() < 0.5 and len(data) > 9:
        struct.pack_into(">i", data, 5, len(data) - 9)
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
    Target(name="kernel produces", seeds=_frames, run=parse_many, change=_sizes),
]
