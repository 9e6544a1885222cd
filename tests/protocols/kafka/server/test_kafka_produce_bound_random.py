"""Bound Produce requests against those that ask anew: random stories of requests and changes get the same answers and
store the same records.

A story runs on two deployments of two servers. The client's server binds requests on one of them, and on the other it must always ask.
Either server changes rights, quotas and streams. What the other server changes counts once the client's server has followed it.
"""

from asyncio import IncompleteReadError
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from bearlake.errors import BearlakeError, NotFound
from bearlake.metadata.access_rules import AccessRule, PatternKind, Permission
from bearlake.metadata.quotas import QuotaChange, QuotaKey
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka import messages as m
from bearlake.records.batch import Compression
from bearlake.streams.configs import IMPORT_SOURCE
from bearlake.streams.principal import Operation, Resource
from fixtures.kafka_server import batch_of, fetch_request, key_of, values_of
from fixtures.quotas import ANYBODY
from fixtures.waiting import until

DENIED = AccessRule(Resource.STREAM, "t", PatternKind.LITERAL, "User:ANONYMOUS", "*", Operation.WRITE, Permission.DENY)
CONFIGS = [
    ("max.message.bytes", "90"),
    ("message.timestamp.type", "LogAppendTime"),
    ("message.timestamp.before.max.ms", "1000"),
    ("message.timestamp.after.max.ms", "9223372036854775807"),
    ("cleanup.policy", "compact"),
    ("record.validation", "full"),
    ("compression.type", "zstd"),
    (IMPORT_SOURCE, "elsewhere"),
]
TAGS = b"\x02\x05\x01a\x63\x02bc"
"""Two tagged fields of a request header that no version knows."""


@dataclass
class Sent:
    """A request of a story, before it is encoded for a deployment, whose topics have ids of their own."""

    version: int
    client_id: str | None
    body: Any
    topics: list[str] = field(default_factory=list)
    has_tags: bool = False

    @property
    def has_answer(self) -> bool:
        """Whether the server answers."""
        return getattr(self.body, "acks", -1) != 0

    def frame(self, number: int, ids: dict[str, bytes]) -> bytes:
        """Return the request's bytes; `ids` are the topics'."""
        if self.version == 13:
            for topic, name in zip(self.body.topic_data, self.topics, strict=True):
                topic.topic_id = ids.get(name, b"?" * 16)
        key = key_of(self.body)
        whole = b"".join(codec.request(key, self.version).frame(number, self.client_id, self.body))
        if not self.has_tags:
            return whole
        at = 4 + 8 + 2 + len(self.client_id or "")
        assert whole[at] == 0
        whole = whole[4:at] + TAGS + whole[at + 1 :]
        return len(whole).to_bytes(4, "big") + whole


@dataclass
class Change:
    """A change that a server makes."""

    kind: str
    server: int
    topic: str = "t"
    config: tuple[str, str] = ("", "")


@dataclass
class Step:
    """Requests that the client sends; `change` happens while `missing_bytes` of the last one have not arrived."""

    sent: list[Sent]
    pieces: int
    missing_bytes: int
    change: Change | None


class Author:
    """Writes a story. The most frequent requests are alike, so that they can be bound."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.version = self.random.choice([3, 7, 9, 11, 12, 13])
        self.number = 0
        self.sequences = {7: 0, 8: 0}

    def story(self, length: int) -> list[Step]:
        """Return the steps. From time to time there are no rules left, and the client binds its requests."""
        steps: list[Step] = []
        while len(steps) < length:
            begin = Step([self.good("t")], 1, 1, Change("restore", self.random.randrange(2)))
            steps += [begin, *(Step([self.good("t")], 1, 0, None) for _ in range(2))]
            steps += [self.step() for _ in range(self.random.choice([1, 2, 2, 4]))]
        return steps

    def step(self) -> Step:
        """Mostly requests alone; often a change while the last one arrives."""
        random = self.random
        if random.random() < 0.06:  # a refusal closes the connection, before the answer to the request behind it
            return Step([self.produce("t", acks=0), self.good("u")], 1, 0, None)
        ways: list[Callable[[], Sent]] = [self.request, self.request, lambda: self.good("t")]
        write = random.choice(ways)
        sent = [write() for _ in range(random.choice([1, 1, 2, 3, 8]))]
        change = self.change() if random.random() < 0.6 else None
        return Step(sent, random.choice([1, 1, 2, 5]), random.choice([1, 3, 20, 40, 70]), change)

    def change(self) -> Change:
        """Mostly what ends or begins a rule of `t`."""
        kinds = ["deny", "allow", "quota", "no quota", "set", "set", "unset", "unset", "delete", "create", "create"]
        kind = self.random.choice([*kinds, "grow", "terminate", "other"])
        return Change(kind, self.random.randrange(2), config=self.random.choice(CONFIGS))

    def request(self) -> Sent:
        """Mostly a plain batch for `t`."""
        random = self.random
        kind = random.random()
        if kind < 0.7:
            return self.produce("t")
        if kind < 0.76:
            return self.produce("u")
        if kind < 0.8:
            return self.produce("t", acks=7)
        if kind < 0.84:
            return self.produce(*random.choice([("t", "u"), ("nowhere",), ("t", "nowhere"), ("t", "t"), ()]))
        if kind < 0.87:
            return self.produce("t", transactional_id="x")
        if kind < 0.9:
            sent = self.produce("t")
            sent.client_id = random.choice([None, "", "d"])
            return sent
        if kind < 0.93:
            return self.produce("t", version=random.choice([3, 8, 9, 12, 13]))
        if kind < 0.95 and self.version >= 9:
            sent = self.produce("t")
            sent.has_tags = True
            return sent
        others = [(m.MetadataRequest(topics=[]), 9), (m.ApiVersionsRequest(), 0), (fetch_request([("u", 0, 0)]), 11)]
        body, version = random.choice(others)
        return Sent(version, "c", body)

    def good(self, topic: str) -> Sent:
        """A request that nothing refuses but a rule of the topic."""
        self.number += 1
        partition = m.ProduceRequest.Partition(index=0, records=memoryview(batch_of(b"%d" % self.number)))
        topics = [m.ProduceRequest.Topic(name=topic, partition_data=[partition])]
        body = m.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=topics)
        return Sent(self.version, "c", body, [topic])

    def produce(
        self, *topics: str, acks: int = 1, transactional_id: str | None = None, version: int | None = None
    ) -> Sent:
        """A Produce request with a batch or two for each topic."""
        random = self.random
        body = m.ProduceRequest(
            transactional_id=transactional_id,
            acks=random.choice([1, -1]) if acks == 1 else acks,
            timeout_ms=10_000,
            topic_data=[
                m.ProduceRequest.Topic(
                    name=name,
                    partition_data=[
                        m.ProduceRequest.Partition(index=random.choice([0, 0, 0, 1, 1, 2, 3]), records=self.batch())
                        for _ in range(random.choice([1, 1, 1, 2]))
                    ],
                )
                for name in topics
            ],
        )
        return Sent(version or self.version, "c", body, list(topics))

    def batch(self) -> memoryview | None:
        """Mostly a good one; its values are in no other batch."""
        random = self.random
        self.number += 1
        values: list[bytes | None] = [b"%d" % self.number]
        if random.random() < 0.1:
            values += [None, b"x" * random.choice([10, 3_000])]
        producer = None
        if random.random() < 0.25:
            name = random.choice([7, 8])
            producer = (name, random.choice([0, 0, 0, 1]), self.sequences[name] + random.choice([0, 0, 0, -1, 2]))
            producer = (producer[0], producer[1], max(producer[2], 0))
            self.sequences[name] += len(values)
        batch = batch_of(
            *values,
            key=random.choice([b"k", b"k", b"k", None]),
            timestamp=random.choice([1_700_000_000_000] * 6 + [4_000_000_000_000, -1]),
            compression=random.choice([Compression.NONE] * 8 + list(Compression)),
            producer=producer,
            step_ms=0,
        )
        odd = random.random()
        if odd < 0.03:
            return memoryview(batch[:-1] + bytes([batch[-1] ^ 1]))
        return None if odd < 0.04 else memoryview(batch)


class Stage:
    """A deployment on which a story runs."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.streams = cluster[0].streams
        self.ids: dict[str, bytes] = {}
        self.client: Any = None
        self.connection: Any = None
        self.answers: list[Any] = []
        self.bound_count = 0

    async def open(self) -> None:
        """Make the topics, and connect."""
        for name in ("t", "u"):
            self.ids[name] = await self.cluster[0].create(name, 2)
        await self.connect()

    async def connect(self) -> None:
        """Connect, once the connection before has gone."""
        connections = self.cluster[0].server.connections
        await until(lambda: not len(connections))
        self.client = await self.cluster[0].client("c")
        await until(lambda: len(connections) == 1)
        (self.connection,) = connections

    async def play(self, step: Step, number: int) -> None:
        """Send the requests, make the change, and note the answers."""
        frames = [sent.frame(number + at, self.ids) for at, sent in enumerate(step.sent)]
        whole = b"".join(frames)
        missing = min(step.missing_bytes, len(frames[-1])) if step.change is not None else 0
        early = whole[: len(whole) - missing]
        self.bound_count += self.connection.is_bound
        for at in range(step.pieces):
            self.client.send_bytes(early[len(early) * at // step.pieces : len(early) * (at + 1) // step.pieces])
            await self.client.writer.drain()
        answered = [(at, sent) for at, sent in enumerate(step.sent) if sent.has_answer]
        if step.change is not None:
            await self.take(number, answered[:-1])
            if answered[:-1] or missing < len(frames[-1]):
                await until(lambda: self.connection.unconsumed_bytes == len(frames[-1]) - missing)
            await self.make(step.change)
            self.client.send_bytes(whole[len(whole) - missing :])
            answered = answered[-1:]
        await self.take(number, answered)
        assert self.streams.quotas.usage is None or not self.connection.is_bound

    async def take(self, number: int, requests: list[tuple[int, Sent]]) -> None:
        """Note the answers to these requests, in order."""
        for at, sent in requests:
            self.client.sent.append((key_of(sent.body), sent.version, number + at))
            try:
                self.answers.append((number + at, told(await self.client.receive())))
            except (IncompleteReadError, ConnectionError):
                self.answers.append((number + at, "closed"))
                await self.connect()

    async def make(self, change: Change) -> None:
        """Make a change, and return when the client's server applies it. A change that is refused is noted."""
        try:
            await self._make(change, self.cluster[change.server].streams)
        except BearlakeError as error:
            self.answers.append(type(error).__name__)
        other = self.cluster[1].streams
        await self.streams.catalog.catch_up()
        await until(lambda: self.streams.access.revision >= other.access.revision)
        await until(lambda: self.streams.quotas.revision >= other.quotas.revision)

    async def _make(self, change: Change, streams: Any) -> None:
        catalog, (name, value) = streams.catalog, change.config
        match change.kind:
            case "deny":
                await streams.access.create([DENIED])
            case "allow":
                await streams.access.replace([DENIED], [])
            case "quota" | "no quota":
                rate = 1e12 if change.kind == "quota" else None
                await streams.quotas.change([QuotaChange(ANYBODY, QuotaKey.PRODUCER_BYTE_RATE, rate)])
            case "restore":
                await self._restore(streams)
            case "create":
                self.ids["t"] = (await catalog.create("t", 2, {})).id_bytes
            case "other":
                await catalog.alter((await catalog.resolve("u")).stream, {"retention.ms": "1000000000"}, [])
            case _:
                stream = (await catalog.resolve("t")).stream
                if change.kind == "set":
                    await catalog.alter(stream, {name: value}, [])
                elif change.kind == "unset":
                    await catalog.alter(stream, {}, [*stream.configs])
                elif change.kind == "grow":
                    await catalog.add_partitions(stream, stream.partition_count + 1)
                elif change.kind == "terminate":
                    await catalog.terminate(stream)
                else:
                    await catalog.delete(stream)

    async def _restore(self, streams: Any) -> None:
        """Leave no rule and no quota, and a stream that takes records."""
        await streams.access.replace([DENIED], [])
        await streams.quotas.change([QuotaChange(ANYBODY, QuotaKey.PRODUCER_BYTE_RATE, None)])
        with suppress(NotFound):
            stream = (await streams.catalog.resolve("t")).stream
            if not stream.is_terminated:
                await streams.catalog.alter(stream, {}, [*stream.configs])
                return
            await streams.catalog.delete(stream)
        self.ids["t"] = (await streams.catalog.create("t", 2, {})).id_bytes

    async def stored(self) -> dict[tuple[str, int], Any]:
        """What the other server reads from the topics."""
        other = self.cluster[1]
        head = await other.streams.metadata.log.head()
        await until(lambda: other.streams.seen.position >= head)
        client = await other.client("reader")
        return {
            (name, index): values_of((await client.fetch(name, 0, index=index)).records)
            for name in ("t", "u")
            for index in range(4)
        }


def told(answer: Any) -> Any:
    """What an answer says, without times."""
    if not isinstance(answer, m.ProduceResponse):
        return type(answer).__name__
    return [
        (
            part.index,
            part.error_code,
            part.base_offset,
            part.log_append_time_ms >= 0,
            part.log_start_offset,
            [error.batch_index for error in part.record_errors],
        )
        for topic in answer.responses
        for part in topic.partition_responses
    ]


@pytest.mark.parametrize("seed", range(12))
async def test_bound_requests_are_handled_as_if_each_had_asked(kafka_cluster: Any, seed: int) -> None:
    stages = [Stage(await kafka_cluster(2)) for _ in range(2)]
    bound, asking = stages
    asking.streams.keeps_answers = False
    for stage in stages:
        await stage.open()

    for number, step in enumerate(Author(seed).story(60)):
        for stage in stages:
            await stage.play(step, 100 * number)
        assert bound.answers == asking.answers
    assert await bound.stored() == await asking.stored()

    assert bound.bound_count > 20
    assert asking.bound_count == 0
