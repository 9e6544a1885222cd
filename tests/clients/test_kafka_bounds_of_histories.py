"""The bounds that histories record (`fixtures/kafka_bounds.py`): right, or an error."""

import asyncio
import contextlib
from collections.abc import Sequence

import confluent_kafka
import pytest

from bearlake.errors import Unavailable
from bearlake.streams.offsets import OffsetAnswer, OffsetQuestion, OffsetSpec
from bearlake.streams.service import Streams
from fixtures.kafka_bounds import bounds
from fixtures.kafka_server import Node, batch_of
from fixtures.waiting import WAIT_S


async def ask(kafka: Node) -> tuple[int, int]:
    await kafka.create("t")
    client = await kafka.client()
    for _ in range(5):
        await client.produce("t", batch_of(b"v"))
    return await asyncio.to_thread(bounds, kafka.address, confluent_kafka.TopicPartition("t", 0), WAIT_S)


async def test_bounds_are_the_start_and_the_end(kafka: Node) -> None:
    assert await ask(kafka) == (0, 5)


@pytest.mark.parametrize("failing", [OffsetSpec.EARLIEST, OffsetSpec.LATEST])
async def test_a_look_up_that_fails_is_an_error_or_is_repeated(
    kafka: Node, monkeypatch: pytest.MonkeyPatch, failing: OffsetSpec
) -> None:
    answer, failures = Streams.offsets, []

    async def offsets(
        self: Streams, questions: Sequence[OffsetQuestion], *, is_committed: bool = False
    ) -> list[OffsetAnswer]:
        found = list(await answer(self, questions, is_committed=is_committed))
        for at, question in enumerate(questions):
            if question.timestamp == failing and not failures:
                failures.append(question)
                found[at] = OffsetAnswer(-1, error=Unavailable("the store is away"))
        return found

    monkeypatch.setattr(Streams, "offsets", offsets)
    with contextlib.suppress(confluent_kafka.KafkaException):
        assert await ask(kafka) == (0, 5)
    assert failures


async def test_a_look_up_that_is_not_answered_is_an_error(kafka: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    async def offsets(
        self: Streams, questions: Sequence[OffsetQuestion], *, is_committed: bool = False
    ) -> list[OffsetAnswer]:
        await asyncio.Event().wait()
        raise AssertionError

    await kafka.create("t")
    monkeypatch.setattr(Streams, "offsets", offsets)
    with pytest.raises(confluent_kafka.KafkaException):
        await asyncio.to_thread(bounds, kafka.address, confluent_kafka.TopicPartition("t", 0), 1.0)
