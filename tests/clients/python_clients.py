"""Clients that are Python packages: confluent-kafka (librdkafka), kafka-python, aiokafka."""

import asyncio
import time
import warnings
from collections.abc import Sequence
from typing import cast

import aiokafka  # type: ignore[import-untyped]
from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped]
from aiokafka.admin import NewTopic as AiokafkaTopic
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from clients.messages import TIMEOUT_S, ClientFailed, Message

with warnings.catch_warnings():
    warnings.simplefilter(
        "ignore", DeprecationWarning
    )  # kafka-python reads its schemas in a way that Python deprecates
    import kafka  # type: ignore[import-untyped]
    import kafka.codec  # type: ignore[import-untyped]

ALL_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


class ConfluentKafka:
    """confluent-kafka: librdkafka as most programs outside Java use it."""

    compressions = ALL_COMPRESSIONS
    is_text_only = False
    has_null_headers = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def create_topic(self, topic: str, partition_count: int) -> None:
        """Create the topic. Raises `ClientFailed`."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        for future in admin.create_topics([NewTopic(topic, partition_count)]).values():
            future.result(timeout=TIMEOUT_S)

    def produce(self, topic: str, messages: Sequence[Message], compression: str = "none") -> None:
        """Write the messages to partition 0, in order. Raises `ClientFailed`."""
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "compression.type": compression, "enable.idempotence": True}
        )
        errors: list[KafkaError] = []
        for message in messages:
            producer.produce(
                topic,
                value=message.value,
                key=message.key,
                headers=list(message.headers),
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        left = producer.flush(TIMEOUT_S)
        if left or errors:
            raise ClientFailed(f"{left} messages not delivered, errors: {errors[:3]}")

    def consume(self, topic: str, group: str, count: int) -> list[Message]:
        """Read `count` messages as a member of `group`. Raises `ClientFailed`."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
            }
        )
        try:
            consumer.subscribe([topic])
            messages: list[Message] = []
            deadline = time.monotonic() + TIMEOUT_S
            while len(messages) < count:
                if time.monotonic() > deadline:
                    raise ClientFailed(f"{len(messages)} of {count} messages after {TIMEOUT_S} s")
                record = consumer.poll(1)
                if record is None:
                    continue
                if record.error():
                    raise ClientFailed(str(record.error()))
                headers = cast(list[tuple[str, bytes | None]], record.headers() or [])
                messages.append(Message(record.value(), record.key(), tuple(headers)))
                consumer.store_offsets(message=record)
            consumer.commit(asynchronous=False)
            return messages
        finally:
            consumer.close()


class KafkaPython:
    """kafka-python: pure Python; its snappy, lz4 and zstd come from optional packages."""

    is_text_only = False
    has_null_headers = False

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @property
    def compressions(self) -> Sequence[str]:
        """Compressions that the installed optional packages support."""
        optional = ("gzip", "snappy", "lz4", "zstd")
        return ("none", *(name for name in optional if getattr(kafka.codec, f"has_{name}")()))

    def create_topic(self, topic: str, partition_count: int) -> None:
        """Create the topic. Raises `ClientFailed`."""
        admin = kafka.KafkaAdminClient(bootstrap_servers=self._bootstrap)
        try:
            admin.create_topics({topic: {"num_partitions": partition_count, "replication_factor": 1}})
        finally:
            admin.close()

    def produce(self, topic: str, messages: Sequence[Message], compression: str = "none") -> None:
        """Write the messages to partition 0, in order. Raises `ClientFailed`."""
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._bootstrap, compression_type=None if compression == "none" else compression
        )
        try:
            futures = [
                producer.send(topic, value=message.value, key=message.key, headers=list(message.headers))
                for message in messages
            ]
            for future in futures:
                future.get(timeout=TIMEOUT_S)
        finally:
            producer.close()

    def consume(self, topic: str, group: str, count: int) -> list[Message]:
        """Read `count` messages as a member of `group`. Raises `ClientFailed`."""
        consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=self._bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        try:
            messages: list[Message] = []
            deadline = time.monotonic() + TIMEOUT_S
            while len(messages) < count:
                if time.monotonic() > deadline:
                    raise ClientFailed(f"{len(messages)} of {count} messages after {TIMEOUT_S} s")
                for records in consumer.poll(timeout_ms=1000, max_records=count - len(messages)).values():
                    messages += [Message(record.value, record.key, tuple(record.headers)) for record in records]
            consumer.commit()
            return messages
        finally:
            consumer.close()


class Aiokafka:
    """aiokafka: asyncio, with old request versions."""

    compressions = ALL_COMPRESSIONS
    is_text_only = False
    has_null_headers = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def create_topic(self, topic: str, partition_count: int) -> None:
        """Create the topic. Raises `ClientFailed`."""
        asyncio.run(self._create_topic(topic, partition_count))

    def produce(self, topic: str, messages: Sequence[Message], compression: str = "none") -> None:
        """Write the messages to partition 0, in order. Raises `ClientFailed`."""
        asyncio.run(self._produce(topic, messages, None if compression == "none" else compression))

    def consume(self, topic: str, group: str, count: int) -> list[Message]:
        """Read `count` messages as a member of `group`. Raises `ClientFailed`."""
        try:
            return asyncio.run(asyncio.wait_for(self._consume(topic, group, count), TIMEOUT_S))
        except TimeoutError:
            raise ClientFailed(f"not {count} messages after {TIMEOUT_S} s") from None

    async def _create_topic(self, topic: str, partition_count: int) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            response = await admin.create_topics([AiokafkaTopic(topic, partition_count, 1)])
            if any(error[1] for error in response.topic_errors):
                raise ClientFailed(str(response))
        finally:
            await admin.close()

    async def _produce(self, topic: str, messages: Sequence[Message], compression: str | None) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, compression_type=compression, enable_idempotence=True
        )
        await producer.start()
        try:
            futures = [
                await producer.send(topic, value=message.value, key=message.key, headers=list(message.headers))
                for message in messages
            ]
            await asyncio.wait_for(asyncio.gather(*futures), TIMEOUT_S)
        finally:
            await producer.stop()

    async def _consume(self, topic: str, group: str, count: int) -> list[Message]:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=self._bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            messages: list[Message] = []
            while len(messages) < count:
                polled = await consumer.getmany(timeout_ms=1000, max_records=count - len(messages))
                for records in polled.values():
                    messages += [Message(record.value, record.key, tuple(record.headers)) for record in records]
            await consumer.commit()
            return messages
        finally:
            await consumer.stop()
