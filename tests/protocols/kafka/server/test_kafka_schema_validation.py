"""Validation by schemas for Kafka's producers: INVALID_RECORD with record errors (KIP-467), and what a refused batch leaves as it was."""

import asyncio
import json
import random
from contextlib import AsyncExitStack
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from bearlake.metadata.faulty import FaultyMetadata, MetadataFaults
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.records.batch import Compression
from bearlake.streams.checking import CheckSettings
from bearlake.streams.service import StreamsSettings
from bearlake.streams.validation.settings import ValidationSettings
from fixtures.avro_cases import number, record, text
from fixtures.kafka_server import Make, Node, batch_of, produce_request, values_of
from fixtures.registered import SilentRegistry, register
from fixtures.schema_registry import started
from fixtures.waiting import WAIT_S, until

ORDER = record("string", "long") | {"name": "Order"}
NO_PAUSE = StreamsSettings(checks=CheckSettings(schemas=ValidationSettings(pause_ms=0)))


def order(schema_id: int, note: str = "x") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + text(note) + number(7)


async def stored(node: Node, topic: str = "orders") -> list[bytes | None]:
    client = await node.client()
    return [value for _, value in values_of((await client.fetch(topic, 0)).records)]


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4, Compression.GZIP])
async def test_bad_records_are_named_one_by_one_kip_467(kafka: Node, compression: Compression) -> None:
    await kafka.create("orders", schema_validation="value")
    schema_id = await register(kafka.streams.metadata, ORDER)
    client = await kafka.client()

    values = [order(schema_id), b"none", None, order(99), order(schema_id)[:-1]]
    answer = await client.produce("orders", batch_of(*values, compression=compression))
    good = await client.produce("orders", batch_of(order(schema_id), None, compression=compression))

    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert [error.batch_index for error in answer.record_errors] == [1, 3, 4]
    texts = [error.batch_index_error_message for error in answer.record_errors]
    assert "expected a schema id" in texts[0]
    assert "schema 99 is not registered under orders-value" in texts[1]
    assert "TRUNCATED at f1" in texts[2]
    assert "3 records of the batch" in answer.error_message
    assert (good.error_code, good.base_offset) == (0, 0)
    assert await stored(kafka) == [order(schema_id), None]


@pytest.mark.parametrize("version", [3, 7, 8, 13])
async def test_older_and_newer_requests_get_the_same_code(kafka: Node, version: int) -> None:
    topic_id = await kafka.create("orders", schema_validation="id")
    client = await kafka.client()

    answer = await client.produce(topic_id if version >= 13 else "orders", batch_of(b"none"), version=version)

    assert answer.error_code == ErrorCode.INVALID_RECORD


async def test_a_schema_registered_through_another_server_is_known_at_once(cluster_of_each_store: Make) -> None:
    cluster = await cluster_of_each_store(2, streams=NO_PAUSE)
    client = await cluster[1].client()
    await cluster[0].create("orders", schema_validation="value")
    unknown = await client.produce("orders", batch_of(order(1)))

    for at in range(5):
        schema_id = await register(cluster[0].streams.metadata, ORDER | {"name": f"Order{at}"})
        answer = await client.produce("orders", batch_of(order(schema_id)))
        assert (answer.error_code, answer.base_offset) == (0, at)
    assert unknown.error_code == ErrorCode.INVALID_RECORD


async def test_a_refused_batch_does_not_advance_the_sequence_of_its_producer(kafka: Node) -> None:
    await kafka.create("orders", schema_validation="value")
    schema_id = await register(kafka.streams.metadata, ORDER)
    client = await kafka.client()
    producer = (
        await client.ask(m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
    ).producer_id

    async def send(value: bytes, sequence: int) -> Any:
        return await client.produce("orders", batch_of(value, producer=(producer, 0, sequence)))

    answers = [
        await send(order(schema_id), 0),
        await send(b"none", 1),
        await send(order(schema_id, "again"), 1),
        await send(order(schema_id, "again"), 1),
    ]

    assert [answer.error_code for answer in answers] == [0, ErrorCode.INVALID_RECORD, 0, 0]
    assert [answer.base_offset for answer in answers] == [0, -1, 1, 1]


async def test_requests_keep_their_order_around_those_that_wait_for_the_registry(kafka: Node) -> None:
    await kafka.create("orders", schema_validation="value")
    await kafka.create("plain")
    schema_id = await register(kafka.streams.metadata, ORDER)
    client = await kafka.client()

    values = [order(schema_id, f"{at}") if at % 3 else b"none" for at in range(20)]
    for at, value in enumerate(values):
        client.send(produce_request("orders", batch_of(value)), 9)
        client.send(produce_request("plain", batch_of(b"%d" % at)), 9)
    answers = [(await client.receive()).responses[0].partition_responses[0] for _ in range(40)]

    codes = [answer.error_code for answer in answers[::2]]
    assert codes == [0 if at % 3 else ErrorCode.INVALID_RECORD for at in range(20)]
    assert [answer.error_code for answer in answers[1::2]] == [0] * 20
    assert await stored(kafka) == [value for value in values if value != b"none"]
    assert await stored(kafka, "plain") == [b"%d" % at for at in range(20)]


async def test_a_transaction_may_go_on_after_a_refused_batch(kafka: Node) -> None:
    await kafka.create("orders", schema_validation="value")
    schema_id = await register(kafka.streams.metadata, ORDER)
    client = await kafka.client()
    begun = await client.ask(m.InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000), 4)
    who = begun.producer_id, begun.producer_epoch

    async def send(value: bytes, sequence: int) -> Any:
        batch = batch_of(value, producer=(*who, sequence), is_transactional=True)
        return await client.produce("orders", batch, version=12, transactional_id="t")

    answers = [await send(b"none", 0), await send(order(schema_id), 0), await send(b"none", 1)]
    ended = await client.ask(
        m.EndTxnRequest(transactional_id="t", producer_id=who[0], producer_epoch=who[1], committed=True), 3
    )

    refused = ErrorCode.INVALID_RECORD
    assert [answer.error_code for answer in answers] == [refused, 0, refused]
    assert ended.error_code == 0
    assert (await stored(kafka))[:1] == [order(schema_id)]


async def test_a_registry_that_is_away_is_a_retriable_error(kafka_cluster: Make) -> None:
    cluster = await kafka_cluster(1)
    node = cluster[0]
    await node.create("orders", schema_validation="value")
    schema_id = await register(cluster.metadata, ORDER)
    client = await node.client()
    known = (await node.streams.checks.validating()).known
    faulty = FaultyMetadata(cluster.metadata, MetadataFaults(error_rate=1.0), random.Random(1))
    known._store = faulty.schemas  # noqa: SLF001

    answer = await client.produce("orders", batch_of(order(schema_id)))
    faulty.misbehave(MetadataFaults())

    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (await client.produce("orders", batch_of(order(schema_id)))).error_code == 0


async def test_a_batch_is_checked_again_by_rules_that_changed_while_its_request_waited(kafka: Node) -> None:
    await kafka.create("orders", schema_validation="id")
    await kafka.create("plain")
    schema_id = await register(kafka.streams.metadata, ORDER)
    known = (await kafka.streams.checks.validating()).known
    known._store = silent = SilentRegistry(known._store)  # type: ignore[assignment]  # noqa: SLF001
    client = await kafka.client()
    request = produce_request("plain", batch_of(b"none"))
    request.topic_data += produce_request("orders", batch_of(order(schema_id))).topic_data

    client.send(request, 9)
    await silent.asked.wait()
    view = await kafka.streams.catalog.find("plain")
    given = {"schema.validation": "id", "table.value.subjects": "orders-value"}
    metadata = kafka.streams.metadata
    await metadata.streams.alter(view.stream.number, set_configs=given, unset_configs=(), version=view.stream.version)
    await until(lambda: kafka.streams.catalog.peek("plain").rules.schemas is not None)
    silent.speak()
    answers = {topic.name: topic.partition_responses[0] for topic in (await client.receive()).responses}

    assert (answers["plain"].error_code, answers["orders"].error_code) == (ErrorCode.INVALID_RECORD, 0)
    assert await stored(kafka, "plain") == []


@pytest.mark.integration
async def test_the_serializers_of_confluent_and_its_producers(kafka: Node) -> None:
    async with AsyncExitStack() as closing:
        registry = await started(closing, metadata=kafka.streams.metadata)
        await kafka.create("orders", schema_validation="value", schema_key_validation="id")
        await asyncio.to_thread(produce, kafka.address, registry.url)

    assert [value is None for value in await stored(kafka)] == [False, True]


def produce(address: str, registry_url: str) -> None:
    """Send good and bad records as an application does; check what its callbacks are told."""
    outcomes: list[KafkaError | None] = []
    with SchemaRegistryClient({"url": registry_url}) as registry:
        value_of = AvroSerializer(registry, json.dumps(ORDER))
        key_of = AvroSerializer(registry, '"string"')
        value = value_of({"f0": "x", "f1": 7}, SerializationContext("orders", MessageField.VALUE))
        key = key_of("k", SerializationContext("orders", MessageField.KEY))
        foreign = value_of({"f0": "x", "f1": 7}, SerializationContext("refunds", MessageField.VALUE))
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "enable.idempotence": True})

    def send(key: bytes | None, value: bytes | None) -> None:
        producer.produce("orders", key=key, value=value, on_delivery=lambda error, _: outcomes.append(error))
        assert producer.flush(WAIT_S) == 0

    send(key, value)
    assert foreign == value  # the same schema has the same id under both subjects
    send(key, value[:-1])
    send(b"no id", value)
    send(key, b"no id")
    send(key, None)
    codes = [None if error is None else error.code() for error in outcomes]
    assert codes == [None, *[KafkaError.INVALID_RECORD] * 3, None]
