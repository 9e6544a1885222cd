"""Consumers that start some time back, while messages arrive."""

from typing import Any

import pytest

from fixtures.pulsar_server import PulsarNode


async def test_a_message_that_arrives_before_the_subscription_exists_is_delivered(
    pulsar: PulsarNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, consumer = await pulsar.client(), await pulsar.client()
    await producer.produce("t")
    look_up = pulsar.streams.offsets

    async def slow(questions: Any) -> Any:
        answers = await look_up(questions)
        producer.send_message(b"new", 0)
        await producer.receive("send_receipt")
        return answers

    monkeypatch.setattr(pulsar.streams, "offsets", slow)
    await consumer.subscribe("t", start_message_rollback_duration_sec=3600)
    consumer.flow(1)

    assert (await consumer.receive_message())[2] == b"new"
