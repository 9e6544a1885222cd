"""Bound Produce requests of transactions: they are handled as if each had asked anew, whatever has changed since."""

from random import Random

import pytest

from bearlake.metadata.access_rules import AccessRule, PatternKind, Permission
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.records.batch import Compression
from bearlake.streams.principal import Operation, Resource
from fixtures.kafka_server import batch_of, produce_request
from protocols.kafka.server.test_kafka_transactions import Producer, read

DENIED = AccessRule(
    Resource.TRANSACTIONAL_ID, "copier", PatternKind.LITERAL, "User:ANONYMOUS", "*", Operation.WRITE, Permission.DENY
)
BOTH = pytest.mark.parametrize("is_v2", [False, True], ids=["v1", "v2"])


def is_bound(node):
    (connection,) = node.server.connections
    return bool(connection.is_bound)


async def bound_producer(kafka, *, is_v2):
    """A producer in a transaction that has written two records to `t`, and whose next requests are bound."""
    await kafka.create("t", 3)
    producer = Producer(await kafka.client("c"), is_v2=is_v2)
    assert await producer.init() == 0
    if not is_v2:
        assert await producer.add("t", 0, 1) == {0}
    for value in (b"a", b"b"):
        assert await producer.send(value) == 0
    assert is_bound(kafka)
    return producer


@BOTH
async def test_bound_requests_belong_to_their_transaction(kafka, is_v2):
    producer = await bound_producer(kafka, is_v2=is_v2)
    for number in range(5):
        assert await producer.send(b"%d" % number) == 0
        assert await producer.send(b"%d" % number, index=1) == 0
    assert is_bound(kafka)
    before = await read(producer.client)
    assert await producer.end() == 0

    values = [b"%d" % number for number in range(5)]
    assert before == (0, [])
    assert (await read(producer.client))[1] == [b"a", b"b", *values]
    assert (await read(producer.client, index=1))[1] == values


@BOTH
async def test_bound_requests_of_an_aborted_transaction_are_never_committed(kafka, is_v2):
    producer = await bound_producer(kafka, is_v2=is_v2)
    assert await producer.end(is_commit=False) == 0
    if not is_v2:
        assert await producer.add() == {0}
    assert await producer.send(b"c") == 0
    assert await producer.send(b"d") == 0
    assert await producer.end() == 0

    assert (await read(producer.client))[1] == [b"c", b"d"]


@BOTH
async def test_a_right_that_was_taken_ends_the_binding(kafka, is_v2):
    producer = await bound_producer(kafka, is_v2=is_v2)
    await kafka.streams.access.create([DENIED])

    assert await producer.send(b"c") == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    await kafka.streams.access.replace([DENIED], [])
    assert await producer.send(b"c") == 0


@BOTH
async def test_a_fenced_producer_writes_nothing(kafka, is_v2):
    producer = await bound_producer(kafka, is_v2=is_v2)
    other = Producer(await kafka.client("d"), is_v2=is_v2)
    assert await other.init() == 0

    assert await producer.send(b"c") == ErrorCode.INVALID_PRODUCER_EPOCH

    assert await read(other.client, is_committed=False) == (3, [b"a", b"b"])


async def test_after_the_end_a_batch_belongs_to_no_transaction(kafka):
    producer = await bound_producer(kafka, is_v2=False)
    assert await producer.end() == 0

    assert await producer.send(b"c") == ErrorCode.INVALID_TXN_STATE
    assert await producer.send(b"c", index=2) == ErrorCode.INVALID_TXN_STATE


async def test_a_partition_that_was_not_added_is_refused_or_begins(kafka):
    first = await bound_producer(kafka, is_v2=False)
    assert await first.send(b"c", index=2) == ErrorCode.INVALID_TXN_STATE

    first.is_v2 = True
    assert await first.send(b"c", index=2) == 0


@pytest.mark.parametrize(
    ("transactional_id", "is_transactional", "code"),
    [
        ("copier", True, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("other", True, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (None, True, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (None, False, 0),
    ],
)
async def test_other_requests_among_bound_ones_are_handled_alone(kafka, transactional_id, is_transactional, code):
    producer = await bound_producer(kafka, is_v2=True)
    other = Producer(producer.client, "other")
    assert await other.init() == 0
    assert await other.send(b"x", index=1) == 0
    who = producer if transactional_id == "other" else other
    numbers = (who.id, who.epoch, 0) if is_transactional else None
    batch = batch_of(b"y", producer=numbers, is_transactional=is_transactional)
    for _ in range(2):
        assert await producer.send(b"c") == 0
        answer = await producer.client.produce("t", batch, index=2, version=12, transactional_id=transactional_id)
        assert answer.error_code == code


class Deployment:
    """A server and its producers. `is_asking`: each Produce request has a connection of its own, so that none is bound."""

    def __init__(self, node, version, *, is_asking):
        self.node, self.version, self.is_asking = node, version, is_asking
        self.bound_count = 0
        self.answers = []
        self.producers = {}
        self.sequences = {}

    async def open(self):
        await self.node.create("t", 3)
        self.client = await self.node.client("c")
        for name in ("copier", "other"):
            self.producers[name] = Producer(await self.node.client("control"), name, is_v2=self.version >= 12)
            await self.producers[name].init()

    async def play(self, kind, name, seed):
        random, producer = Random(seed), self.producers[name]
        if kind == "init":
            self.answers.append(await producer.init())
        elif kind == "add":
            self.answers.append(await producer.add("t", 0, 1))
        elif kind == "end":
            self.answers.append(await producer.end(is_commit=random.random() < 0.7))
        elif kind == "deny":
            await self.node.streams.access.create([DENIED])
        elif kind == "allow":
            await self.node.streams.access.replace([DENIED], [])
        else:
            await self.produce(producer, random)

    async def produce(self, producer, random):
        index, epoch = random.choice([0, 0, 0, 1, 2]), producer.epoch - (random.random() < 0.05)
        at = producer.id, producer.epoch, index
        sequence = self.sequences.get(at, 0)
        other = self.producers["other"]
        batch = batch_of(
            b"%d" % random.getrandbits(60),
            producer=(random.choice([producer.id] * 20 + [other.id, 10**9]), epoch, sequence),
            is_transactional=random.random() < 0.95,
            compression=random.choice([Compression.NONE] * 4 + [Compression.LZ4]),
        )
        named = random.choice([producer.name] * 20 + [None, "other", "", "unknown"])
        request = produce_request("t", batch, index=index, transactional_id=named)
        client = await self.node.client("c") if self.is_asking else self.client
        if not self.is_asking:
            self.bound_count += any(connection.is_bound for connection in self.node.server.connections)
        answer = (await client.ask(request, self.version)).responses[0].partition_responses[0]
        if not answer.error_code and epoch == producer.epoch:
            self.sequences[at] = sequence + 1
        self.answers.append((answer.error_code, answer.base_offset))

    async def stored(self):
        client = await self.node.client("c")  # an older one would be closed if it has asked for nothing in ten seconds
        return [await read(client, index=index, is_committed=on) for index in range(3) for on in (False, True)]


@pytest.mark.parametrize("version", [9, 11, 12])
@pytest.mark.parametrize("seed", range(4))
async def test_bound_requests_of_transactions_are_handled_as_if_each_had_asked(kafka_cluster, seed, version):
    bound, asking = [
        Deployment((await kafka_cluster(1))[0], version, is_asking=is_asking) for is_asking in (False, True)
    ]
    for deployment in (bound, asking):
        await deployment.open()
    random = Random(seed)
    for _ in range(200):
        kind = random.choice(["produce"] * 20 + ["add", "add", "end", "end", "init", "deny", "allow", "allow"])
        name, step = random.choice(["copier"] * 5 + ["other"]), random.getrandbits(32)
        for deployment in (bound, asking):
            await deployment.play(kind, name, step)
        assert bound.answers == asking.answers

    assert await bound.stored() == await asking.stored()
    assert bound.bound_count > 30
