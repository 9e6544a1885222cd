# ruff: noqa: SLF001 - a server forgets what it has cached
"""The unmodified Python client (pulsar-client, the C++ client underneath) against a server in this process.

Its calls block, so every test's work runs in a separate thread. Waits of the client have their own timeouts.
"""

import asyncio
import contextlib
import datetime
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from bearlake.protocols.pulsar.settings import PulsarSettings
from bearlake.streams.fetched import FetchRange
from bearlake.telemetry import metrics
from fixtures.damaged_objects import Damage
from fixtures.pulsar_server import Make, PulsarCluster, PulsarNode
from fixtures.waiting import WAIT_S, until

pulsar_client = pytest.importorskip("pulsar", reason="PULSAR CLIENT NOT TESTED: pip install pulsar-client")

pytestmark = pytest.mark.integration

WAIT_MS = int(1000 * WAIT_S)
EARLIEST = pulsar_client.InitialPosition.Earliest
Shared, Failover, KeyShared, Exclusive = (
    pulsar_client.ConsumerType.Shared,
    pulsar_client.ConsumerType.Failover,
    pulsar_client.ConsumerType.KeyShared,
    pulsar_client.ConsumerType.Exclusive,
)

Run = Callable[..., Any]
Connect = Callable[[str], Any]


@pytest.fixture
async def connect(tmp_path: Path) -> AsyncIterator[Connect]:
    """`connect(url)`: a client, which is closed at the end."""
    clients = []

    def make(url: str) -> Any:
        logger = pulsar_client.FileLogger(pulsar_client.LoggerLevel.Warn, str(tmp_path / "client.log"))
        client = pulsar_client.Client(url, operation_timeout_seconds=WAIT_MS // 1000, logger=logger)
        clients.append(client)
        return client

    yield make
    for client in clients:
        with contextlib.suppress(pulsar_client.AlreadyClosed):
            await asyncio.to_thread(client.close)


@pytest.fixture
def client(pulsar: PulsarNode, connect: Connect) -> Any:
    return connect(pulsar.url)


def fill(client: Any, topic: str, count: int, **options: Any) -> list[Any]:
    """Produce `m0`, `m1` … in order; their message ids."""
    ids: list[Any] = []
    producer = client.create_producer(topic, **options)
    for number in range(count):
        producer.send_async(b"m%d" % number, lambda result, message_id: ids.append((result, message_id)))
    producer.flush()
    producer.close()
    assert [result for result, _ in ids] == [pulsar_client.Result.Ok] * count
    return [message_id for _, message_id in ids]


def take(consumer: Any, count: int, *, acknowledges: bool = True) -> list[bytes]:
    values = []
    for _ in range(count):
        message = consumer.receive(WAIT_MS)
        values.append(message.data())
        if acknowledges:
            consumer.acknowledge(message)
    return values


def take_all(consumer: Any, values: list[bytes]) -> None:
    """Receive until each of the values has arrived; messages that were unacknowledged at a move may arrive twice."""
    missing = set(values)
    while missing:
        missing.difference_update(take(consumer, 1))


def values_of(count: int, start: int = 0) -> list[bytes]:
    return [b"m%d" % number for number in range(start, count)]


def has_no_more(consumer: Any) -> bool:
    """Whether no message arrives; a pending message would have been sent by now."""
    try:
        consumer.receive(200)
    except pulsar_client.Timeout:
        return True
    return False


async def test_batches_come_back_in_order_with_ids_that_compare(client: Any) -> None:
    def work() -> None:
        ids = fill(client, "t", 100, batching_enabled=True, batching_max_publish_delay_ms=20)
        consumer = client.subscribe("t", "s", initial_position=EARLIEST)
        messages = [consumer.receive(WAIT_MS) for _ in range(100)]
        assert [message.data() for message in messages] == values_of(100)
        assert [message.message_id() for message in messages] == ids
        assert sorted(ids) == ids
        assert len({message.message_id().entry_id() for message in messages}) < 100, "nothing was batched"
        consumer.acknowledge_cumulative(messages[-1])
        consumer.close()
        again = client.subscribe("t", "s", initial_position=EARLIEST)
        assert has_no_more(again)

    await asyncio.to_thread(work)


@pytest.mark.parametrize("codec", ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"])
@pytest.mark.parametrize("is_batched", [False, True])
async def test_messages_keep_all_their_fields(client: Any, codec: str, is_batched: bool) -> None:
    def work() -> None:
        compression = getattr(pulsar_client.CompressionType, codec)
        producer = client.create_producer("t", batching_enabled=is_batched, compression_type=compression)
        value = b"value " * 1000
        producer.send(value, properties={"a": "b", "ü": "ö"}, partition_key="k", ordering_key="o", event_timestamp=1234)
        reader = client.create_reader("t", pulsar_client.MessageId.earliest)
        message = reader.read_next(WAIT_MS)
        assert (message.data(), message.properties()) == (value, {"a": "b", "ü": "ö"})
        assert (message.partition_key(), message.ordering_key(), message.event_timestamp()) == ("k", "o", 1234)
        assert message.topic_name() == "persistent://public/default/t"
        assert message.producer_name() == producer.producer_name()

    await asyncio.to_thread(work)


@pytest.mark.parametrize("kind", [Shared, Failover, KeyShared], ids=str)
async def test_a_negative_acknowledgement_brings_a_message_back(client: Any, kind: Any) -> None:
    def work() -> None:
        fill(client, "t", 5, batching_enabled=False)
        consumer = client.subscribe(
            "t", "s", consumer_type=kind, initial_position=EARLIEST, negative_ack_redelivery_delay_ms=100
        )
        first = consumer.receive(WAIT_MS)
        consumer.negative_acknowledge(first)
        rest = []
        while first.data() not in rest or len(set(rest)) < 5:
            message = consumer.receive(WAIT_MS)
            consumer.acknowledge(message)
            rest.append(message.data())
        assert set(rest) == set(values_of(5))
        consumer.unsubscribe()

    await asyncio.to_thread(work)


async def test_a_reader_goes_to_the_end_and_back(client: Any) -> None:
    def work() -> None:
        ids = fill(client, "t", 100)
        reader = client.create_reader("t", pulsar_client.MessageId.earliest)
        values = []
        while reader.has_message_available():
            values.append(reader.read_next(WAIT_MS).data())
        assert values == values_of(100)
        reader.seek(pulsar_client.MessageId.earliest)
        assert reader.read_next(WAIT_MS).data() == b"m0"
        reader.close()
        middle = client.create_reader("t", ids[49])
        assert middle.read_next(WAIT_MS).data() == b"m50"

    await asyncio.to_thread(work)


async def test_seek_by_id_and_time(client: Any) -> None:
    def work() -> None:
        ids = fill(client, "t", 10, batching_enabled=False)
        consumer = client.subscribe("t", "s", initial_position=EARLIEST, start_message_id_inclusive=True)
        assert take(consumer, 10) == values_of(10)
        consumer.seek(ids[4])
        assert consumer.receive(WAIT_MS).data() == b"m4"
        consumer.seek(0)  # ms since 1970
        assert consumer.receive(WAIT_MS).data() == b"m0"
        assert consumer.get_last_message_id() == ids[-1]
        consumer.seek(pulsar_client.MessageId.latest)
        assert has_no_more(consumer)

    await asyncio.to_thread(work)


async def test_partitioned_topics(client: Any, pulsar: PulsarNode) -> None:
    await pulsar.create("t", 3)

    def work() -> None:
        names = [f"persistent://public/default/t-partition-{index}" for index in range(3)]
        assert client.get_topic_partitions("t") == names
        fill(client, "t", 30, message_routing_mode=pulsar_client.PartitionsRoutingMode.RoundRobinDistribution)
        consumer = client.subscribe("t", "s", initial_position=EARLIEST)
        messages = [consumer.receive(WAIT_MS) for _ in range(30)]
        assert sorted(message.data() for message in messages) == sorted(values_of(30))
        assert {message.topic_name() for message in messages} <= set(names)

    await asyncio.to_thread(work)


async def test_topics_of_other_namespaces(client: Any, pulsar: PulsarNode) -> None:
    def work() -> None:
        topic = "persistent://acme/prod/my topic"
        fill(client, topic, 3)
        assert take(client.subscribe(topic, "s", initial_position=EARLIEST), 3) == values_of(3)

    await asyncio.to_thread(work)

    assert list(pulsar.streams.catalog.names()) == ["acme..prod..my...20topic"]


async def test_a_table_view_has_the_latest_value_of_each_key(client: Any) -> None:
    def work() -> None:
        producer = client.create_producer("t")
        for value, key in ((b"1", "a"), (b"2", "b"), (b"3", "a")):
            producer.send(value, partition_key=key)
        view = client.create_table_view("t")
        assert {key: view.get(key) for key in ("a", "b")} == {"a": b"3", "b": b"2"}
        view.close()

    await asyncio.to_thread(work)


async def test_a_pattern_and_a_list_of_topics(client: Any) -> None:
    def work() -> None:
        for topic in ("t1", "t2", "u1"):
            fill(client, topic, 2)
        for topics in (re.compile("persistent://public/default/t.*"), ["t1", "t2"]):
            consumer = client.subscribe(topics, f"s-{type(topics).__name__}", initial_position=EARLIEST)
            messages = [consumer.receive(WAIT_MS) for _ in range(4)]
            assert {message.topic_name().rpartition("/")[2] for message in messages} == {"t1", "t2"}
            consumer.close()

    await asyncio.to_thread(work)


async def test_a_large_message_in_chunks(client: Any) -> None:
    def work() -> None:
        value = bytes(range(256)) * (12 * 4096)
        producer = client.create_producer("t", batching_enabled=False, chunking_enabled=True)
        producer.send(value)
        producer.send(b"small")
        consumer = client.subscribe("t", "s", initial_position=EARLIEST)
        assert [message.data() for message in (consumer.receive(WAIT_MS), consumer.receive(WAIT_MS))] == [
            value,
            b"small",
        ]

    await asyncio.to_thread(work)


async def test_a_message_that_fails_too_often_goes_to_the_dead_letters(client: Any) -> None:
    def work() -> None:
        policy = pulsar_client.ConsumerDeadLetterPolicy(2, "dead", "dead-s")
        consumer = client.subscribe(
            "t", "s", consumer_type=Shared, negative_ack_redelivery_delay_ms=50, dead_letter_policy=policy
        )
        fill(client, "t", 1)
        counts = []
        for _ in range(3):
            message = consumer.receive(WAIT_MS)
            counts.append(message.redelivery_count())
            consumer.negative_acknowledge(message)
        dead = client.subscribe("dead", "dead-s", initial_position=EARLIEST)

        # The client sends the message to the dead letters when it is delivered once more; it notices this in a receive.
        assert counts == [0, 1, 2]
        assert has_no_more(consumer)
        assert dead.receive(WAIT_MS).data() == b"m0"

    await asyncio.to_thread(work)


async def test_a_delayed_message_is_delivered_in_time(client: Any) -> None:
    def work() -> None:
        consumer = client.subscribe("t", "s", consumer_type=Shared)
        producer = client.create_producer("t", batching_enabled=False)
        producer.send(b"later", deliver_after=datetime.timedelta(seconds=1))
        producer.send(b"now")
        messages = [consumer.receive(WAIT_MS) for _ in range(2)]
        assert [message.data() for message in messages] == [b"now", b"later"]

    await asyncio.to_thread(work)


async def test_messages_of_a_batch_are_acknowledged_one_by_one(client: Any) -> None:
    def work() -> None:
        fill(client, "t", 10, batching_max_publish_delay_ms=50)
        options = {"consumer_type": Shared, "initial_position": EARLIEST, "batch_index_ack_enabled": True}
        consumer = client.subscribe("t", "s", **options)
        messages = [consumer.receive(WAIT_MS) for _ in range(10)]
        for message in messages[::2]:
            consumer.acknowledge(message)
        consumer.close()
        again = client.subscribe("t", "s", **options)
        assert take(again, 5) == values_of(10)[1::2]
        assert has_no_more(again)

    await asyncio.to_thread(work)


async def test_an_exclusive_producer_keeps_others_out(client: Any) -> None:
    def work() -> None:
        mode = pulsar_client.ProducerAccessMode
        alone = client.create_producer("t", access_mode=mode.Exclusive)
        alone.send(b"1")
        with pytest.raises(pulsar_client.ProducerFenced):
            client.create_producer("t", access_mode=mode.Exclusive)
        with pytest.raises(pulsar_client.ProducerBusy):
            client.create_producer("t")
        alone.close()
        client.create_producer("t", access_mode=mode.WaitForExclusive).send(b"2")
        client.create_producer("u", access_mode=mode.ExclusiveWithFencing).send(b"3")

    await asyncio.to_thread(work)


async def test_a_producer_goes_on_where_its_name_has_come_to(client: Any) -> None:
    def work() -> None:
        producer = client.create_producer("t", producer_name="p")
        for number in range(5):
            producer.send(b"m%d" % number)
        producer.close()
        again = client.create_producer("t", producer_name="p")
        assert again.last_sequence_id() == 4
        again.send(b"m5")
        assert take(client.subscribe("t", "s", initial_position=EARLIEST), 6) == values_of(6)

    await asyncio.to_thread(work)


async def test_a_second_exclusive_consumer_is_refused(client: Any) -> None:
    def work() -> None:
        client.subscribe("t", "s")
        with pytest.raises(pulsar_client.ConsumerBusy):
            client.subscribe("t", "s")

    await asyncio.to_thread(work)


async def test_failover_passes_to_the_next_consumer(client: Any, pulsar: PulsarNode, connect: Connect) -> None:
    def work() -> None:
        options = {"consumer_type": Failover, "initial_position": EARLIEST}
        other = connect(pulsar.url)
        first = client.subscribe("t", "s", consumer_name="a", **options)
        second = other.subscribe("t", "s", consumer_name="b", **options)
        fill(client, "t", 5, batching_enabled=False)
        assert take(first, 3) == values_of(3)
        first.close()
        assert take(second, 2) == values_of(5, 3)

    await asyncio.to_thread(work)


async def test_key_shared_keeps_the_order_of_each_key(client: Any) -> None:
    def work() -> None:
        options = {"consumer_type": KeyShared, "initial_position": EARLIEST}
        consumers = [client.subscribe("t", "s", consumer_name=name, **options) for name in "abc"]
        producer = client.create_producer("t", batching_type=pulsar_client.BatchingType.KeyBased)
        for number in range(60):
            producer.send_async(b"%d" % number, lambda *_: None, partition_key=f"k{number % 12}")
        producer.flush()
        seen: dict[str, list[int]] = {}
        owners: dict[str, set[int]] = {}
        count = 0
        while count < 60:
            for place, consumer in enumerate(consumers):
                try:
                    message = consumer.receive(20)
                except pulsar_client.Timeout:
                    continue
                consumer.acknowledge(message)
                count += 1
                seen.setdefault(message.partition_key(), []).append(int(message.data()))
                owners.setdefault(message.partition_key(), set()).add(place)
        assert all(numbers == sorted(numbers) for numbers in seen.values())
        assert all(len(owner) == 1 for owner in owners.values())

    await asyncio.to_thread(work)


# -- other protocols ---------------------------------------------------------------------------------------------


async def test_records_of_other_protocols_are_messages(client: Any, pulsar: PulsarNode) -> None:
    from bearlake.records import codec as record_codec
    from bearlake.streams.append import Append

    await pulsar.create("t")
    view = await pulsar.streams.catalog.find("t")
    records = [
        record_codec.Record(key=b"k", value=b"v%d" % n, headers=(("h", b"x"),), timestamp=1_000 + n) for n in range(3)
    ]
    batch = record_codec.encode(records)
    append = Append(view.partition(0), view.id_bytes, batch, None, 3, 1_002, -1, -1, -1, 0)
    await pulsar.streams.append([append], 0)

    def work() -> None:
        consumer = client.subscribe("t", "s", initial_position=EARLIEST)
        messages = [consumer.receive(WAIT_MS) for _ in range(3)]
        assert [message.data() for message in messages] == [b"v0", b"v1", b"v2"]
        assert [message.partition_key() for message in messages] == ["k"] * 3
        assert messages[0].properties() == {"h": "x"}

    await asyncio.to_thread(work)


async def test_messages_are_records_of_other_protocols(client: Any, pulsar: PulsarNode) -> None:
    from bearlake.records import codec as record_codec

    def work() -> None:
        producer = client.create_producer("t", batching_enabled=False)
        producer.send(b"value", partition_key="key", properties={"p": "q"}, event_timestamp=1234)

    await asyncio.to_thread(work)
    view = await pulsar.streams.catalog.find("t")
    (found,) = await pulsar.streams.fetch(
        [FetchRange(view.partition(0), 0, 10_000)], bytes_min=1, bytes_max=10_000, wait_ms=10_000
    )
    (record,) = record_codec.decode(found.views[0], 10_000)

    assert (record.key, record.value, record.timestamp) == (b"key", b"value", 1234)
    assert ("p", b"q") in record.headers


# -- several servers ---------------------------------------------------------------------------------------------


async def test_a_drain_moves_producers_and_consumers_without_an_error(pulsar_cluster: Make, connect: Connect) -> None:
    cluster = await pulsar_cluster(2, settings=PulsarSettings(drain_move_ms=60_000))
    topic, busy = await topic_of(cluster, 0)
    client = connect(cluster[1].url)
    results: list[Any] = []

    def open_all() -> tuple[Any, Any]:
        consumer = client.subscribe(topic, "s", consumer_type=Shared, initial_position=EARLIEST)
        return client.create_producer(topic, batching_enabled=False, block_if_queue_full=True), consumer

    def send(producer: Any, start: int, end: int) -> None:
        for number in range(start, end):
            producer.send_async(b"m%d" % number, lambda result, _: results.append(result))
        producer.flush()

    producer, consumer = await asyncio.to_thread(open_all)
    assert busy.server.context.producer_count == 1
    sending = asyncio.create_task(asyncio.to_thread(send, producer, 0, 3_000))
    await until(lambda: len(results) > 200)
    await busy.member.drain()
    drain = asyncio.create_task(busy.server.drain(60_000))
    await sending
    await asyncio.to_thread(take_all, consumer, values_of(3_000))
    await asyncio.to_thread(client.close)
    await drain

    assert results == [pulsar_client.Result.Ok] * 3_000
    assert cluster[1].streams.catalog.peek(topic) is not None


async def topic_of(cluster: PulsarCluster, place: int) -> tuple[str, PulsarNode]:
    """A topic whose clients are sent to the server at `place`."""
    node = cluster[place]
    for number in range(100):
        server = node.server.context.server_for(f"persistent://public/default/t{number}", "pulsar", None)
        if server is not None and server.ref.node_id == node.member.node_id:
            return f"t{number}", node
    raise AssertionError("no topic is sent there")


async def test_a_consumer_of_damaged_messages_tries_again_until_they_are_repaired(
    pulsar_cluster: Make, connect: Connect
) -> None:
    cluster = await pulsar_cluster(1)
    node = cluster.nodes[0]
    client = connect(node.url)
    await asyncio.to_thread(fill, client, "t", 3, batching_enabled=False)
    damage = await Damage.cut(cluster.store, b"m1")
    await node.streams._cache.close()  # drops all bytes
    before = metrics.SUBSCRIPTION_DAMAGED_READS.value

    def work() -> Any:
        return client.subscribe("t", "s", consumer_type=Shared, initial_position=EARLIEST)

    consumer = await asyncio.to_thread(work)
    await until(lambda: metrics.SUBSCRIPTION_DAMAGED_READS.value >= before + 3)
    await damage.repair()

    await asyncio.to_thread(take_all, consumer, values_of(3))
