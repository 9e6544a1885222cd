"""Pulsar's Python client, unmodified, against a server process: what `protocols/pulsar/test_pulsar_python.py` does not show."""

import subprocess
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
import requests

from clients.python_clients import ConfluentKafka
from faults.waiting import until
from fixtures.server_process import ServerProcess
from fixtures.waiting import WAIT_S

pulsar = pytest.importorskip("pulsar", reason="PULSAR CLIENT NOT TESTED: pip install pulsar-client")

from pulsar.schema import Integer, JsonSchema, Record, String, StringSchema  # noqa: E402

pytestmark = pytest.mark.integration

WAIT_MS = int(1000 * WAIT_S)
QUIET_MS = 500
KEY_COUNT = 30


@pytest.fixture
def client(pulsar_server: ServerProcess, tmp_path: Path) -> Iterator[Any]:
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(tmp_path / "client.log"))
    made = pulsar.Client(
        f"pulsar://{pulsar_server.ready['pulsar']}", operation_timeout_seconds=WAIT_MS // 1000, logger=logger
    )
    yield made
    made.close()


@pytest.fixture
def topic() -> str:
    return f"python-{uuid.uuid4().hex[:8]}"


def subscribe(client: Any, topic: str, **options: Any) -> Any:
    return client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest, **options)


def send(client: Any, topic: str, numbers: range, key_count: int, **options: Any) -> None:
    """Messages whose values are `numbers`, of `key_count` keys in turn."""
    producer = client.create_producer(topic, **options)
    results: list[Any] = []
    for number in numbers:
        key = f"key-{number % key_count}"
        producer.send_async(b"%d" % number, lambda result, _: results.append(result), partition_key=key)
    producer.flush()
    producer.close()
    assert results == [pulsar.Result.Ok] * len(numbers)


def received(consumer: Any, wait_ms: int = 20) -> Any:
    """The next message, or None."""
    try:
        return consumer.receive(wait_ms)
    except pulsar.Timeout:
        return None


def test_key_shared_with_ranges_that_consumers_choose(client: Any, topic: str) -> None:
    def sticky(start: int, last: int) -> Any:
        policy = pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, sticky_ranges=[(start, last)])
        return subscribe(client, topic, consumer_type=pulsar.ConsumerType.KeyShared, key_shared_policy=policy)

    consumers = [sticky(0, 32767), sticky(32768, 65535)]
    with pytest.raises(pulsar.PulsarException):
        sticky(100, 200)
    send(client, topic, range(28), 7)
    owners = defaultdict(set)
    count = 0

    def take() -> bool:
        nonlocal count
        for at, consumer in enumerate(consumers):
            if message := received(consumer):
                owners[message.partition_key()].add(at)
                consumer.acknowledge(message)
                count += 1
        return count == 28

    until(take, WAIT_MS / 1000, "all messages are there")
    assert {len(owner) for owner in owners.values()} == {1}
    assert {at for owner in owners.values() for at in owner} == {0, 1}


def test_key_shared_while_consumers_come_and_go(client: Any, topic: str) -> None:
    """The messages of a key are complete and in order. A consumer that leaves passes its last and its unread messages to the others."""
    round_count, per_round = 20, 100
    due = list(range(KEY_COUNT))
    taken = 0

    def join() -> Any:
        return subscribe(client, topic, consumer_type=pulsar.ConsumerType.KeyShared, receiver_queue_size=20)

    def take(until_count: int) -> bool:
        nonlocal taken
        for consumer in consumers:
            while taken < until_count and (message := received(consumer)):
                number = int(message.data())
                assert number == due[number % KEY_COUNT]
                due[number % KEY_COUNT] += KEY_COUNT
                consumer.acknowledge(message)
                taken += 1
        return taken >= until_count

    consumers = [join(), join()]
    for round_ in range(round_count):
        send(client, topic, range(round_ * per_round, (round_ + 1) * per_round), KEY_COUNT)
        if round_ % 2 == 0:
            consumers.append(join())
        else:
            leaving = consumers.pop(0)
            received(leaving, QUIET_MS)
            leaving.close()
        wanted = taken + per_round // 2
        until(lambda wanted=wanted: take(wanted), WAIT_MS / 1000, f"{wanted} messages are there")  # type: ignore[misc]
    until(lambda: take(round_count * per_round), WAIT_MS / 1000, "all messages are there")

    assert not any(received(consumer, QUIET_MS) for consumer in consumers)


def test_failover_divides_partitions(client: Any, topic: str, pulsar_server: ServerProcess) -> None:
    ConfluentKafka(pulsar_server.kafka).create_topic(topic, 3)
    first, second = (
        subscribe(client, topic, consumer_type=pulsar.ConsumerType.Failover, consumer_name=name)
        for name in ("one", "two")
    )

    def active() -> set[str]:
        route = f"{pulsar_server.ready['pulsar_http']}/admin/v2/persistent/public/default/{topic}-partition-"
        stats = [requests.get(f"{route}{at}/stats", timeout=WAIT_MS / 1000).json() for at in range(3)]
        return {found["subscriptions"]["s"]["activeConsumerName"] for found in stats}

    until(lambda: active() == {"one", "two"}, WAIT_MS / 1000, "both have partitions")
    owners = defaultdict(set)
    last: dict[str, int] = {}
    count = 0

    def take(consumers: list[Any], wanted: int) -> bool:
        nonlocal count
        for at, consumer in enumerate(consumers):
            if message := received(consumer):
                partition = message.topic_name()
                assert last.get(partition, -1) < int(message.data())
                last[partition] = int(message.data())
                owners[partition].add(at)
                consumer.acknowledge(message)
                count += 1
        return count == wanted

    send(client, topic, range(60), 7)
    until(lambda: take([first, second], 60), WAIT_MS / 1000, "all messages are there")
    assert [len(owner) for owner in owners.values()] == [1, 1, 1]
    assert len(set.union(*owners.values())) == 2
    first.close()
    send(client, topic, range(60, 120), 7)
    until(lambda: take([second], 120), WAIT_MS / 1000, "the other one has all")


def test_a_reader_seeks_by_time(client: Any, topic: str) -> None:
    send(client, topic, range(20), 7)
    probe = client.create_reader(topic, pulsar.MessageId.earliest)
    last_ms = max(probe.read_next(WAIT_MS).publish_timestamp() for _ in range(20))
    until(lambda: time.time() * 1000 > last_ms + 1, WAIT_MS / 1000, "it is later")
    send(client, topic, range(20, 30), 7)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    first = [int(reader.read_next(WAIT_MS).data()) for _ in range(30)]

    reader.seek(last_ms + 1)
    again = [int(reader.read_next(WAIT_MS).data()) for _ in range(10)]
    assert not reader.has_message_available()
    reader.seek(last_ms - 3_600_000)
    assert (first, again) == (list(range(30)), list(range(20, 30)))
    assert int(reader.read_next(WAIT_MS).data()) == 0


def test_a_table_view_receives_later_messages(client: Any, topic: str) -> None:
    send(client, topic, range(20), 7)
    heard: Queue[tuple[str, bytes]] = Queue()
    view = client.create_table_view(topic)
    assert (len(view), view.get("key-3")) == (7, b"17")
    view.for_each_and_listen(lambda key, value: heard.put((key, value)))
    before = {heard.get(timeout=WAIT_MS / 1000)[0] for _ in range(7)}

    producer = client.create_producer(topic)
    producer.send(b"new", partition_key="key-3")
    producer.send(b"", partition_key="key-4")
    producer.send(b"more", partition_key="later")
    later = [heard.get(timeout=WAIT_MS / 1000) for _ in range(2)]
    while later[-1][0] != "later":
        later.append(heard.get(timeout=WAIT_MS / 1000))
    assert len(before) == 7
    assert (view.get("key-3"), view.get("key-4"), view.get("later")) == (b"new", None, b"more")
    view.close()


def test_an_encrypted_message_is_for_those_who_have_the_key(client: Any, topic: str, tmp_path: Path) -> None:
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    make = ["openssl", "genrsa", "-traditional", "-out", private, "2048"]
    for command in (make, ["openssl", "rsa", "-in", private, "-pubout", "-out", public]):
        subprocess.run(command, check=True, capture_output=True, timeout=WAIT_S)
    keys = pulsar.CryptoKeyReader(str(public), str(private))
    options = {"encryption_key": "key", "crypto_key_reader": keys, "compression_type": pulsar.CompressionType.LZ4}
    for is_batched in (False, True):
        producer = client.create_producer(topic, batching_enabled=is_batched, **options)
        for value in (b"secret", b"more"):
            producer.send_async(value, None, properties={"plain": "text"})
        producer.flush()
        producer.close()

    knowing = subscribe(client, topic, crypto_key_reader=keys)
    messages = [knowing.receive(WAIT_MS) for _ in range(4)]
    other = client.create_reader(
        topic,
        pulsar.MessageId.earliest,
        crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME,
    )
    unread = other.read_next(WAIT_MS)

    assert [message.data() for message in messages] == [b"secret", b"more"] * 2
    assert messages[0].properties() == {"plain": "text"}
    assert b"secret" not in unread.data()
    assert [key.key for key in unread.encryption_context().keys()] == ["key"]  # noqa: SIM118


class Point(Record):  # type: ignore[misc]  # no stubs
    """A value with a schema."""

    name = String(required=True)
    height = Integer(required=True)


def test_a_schema_is_used_and_an_incompatible_schema_is_refused(client: Any, topic: str) -> None:
    producer = client.create_producer(topic, schema=JsonSchema(Point))
    producer.send(Point(name="Zugspitze", height=2962))
    consumer = subscribe(client, topic, schema=JsonSchema(Point))

    point = consumer.receive(WAIT_MS).value()
    assert (point.name, point.height) == ("Zugspitze", 2962)
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=StringSchema())


def test_an_exclusive_producer_waits(client: Any, topic: str) -> None:
    first = client.create_producer(topic, access_mode=pulsar.ProducerAccessMode.Exclusive)
    first.send(b"0")
    with ThreadPoolExecutor(1) as thread:
        waits = pulsar.ProducerAccessMode.WaitForExclusive
        made = thread.submit(client.create_producer, topic, access_mode=waits)
        first.send(b"1")
        assert not made.done()
        first.close()
        made.result(WAIT_MS / 1000).send(b"2")

    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert [reader.read_next(WAIT_MS).data() for _ in range(3)] == [b"0", b"1", b"2"]


def test_an_exclusive_producer_fences(client: Any, topic: str) -> None:
    first = client.create_producer(topic, access_mode=pulsar.ProducerAccessMode.Exclusive)
    first.send(b"0")
    second = client.create_producer(topic, access_mode=pulsar.ProducerAccessMode.ExclusiveWithFencing)
    with pytest.raises(pulsar.ProducerFenced):
        first.send(b"1")
    second.send(b"2")

    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert [reader.read_next(WAIT_MS).data() for _ in range(2)] == [b"0", b"2"]
    assert not reader.has_message_available()
