"""Answers of a source that break the protocol: the import says which, and reads nothing from them."""

import uuid
from typing import Any

import pytest

from bearlake.errors import Corrupt
from bearlake.importing.cluster import SourceCluster, SourceTopic
from bearlake.importing.fetching import only_partition
from bearlake.importing.settings import SourceSettings
from bearlake.protocols.kafka import messages

TOPIC = SourceTopic(name="orders", id=uuid.UUID(int=1), leaders=["broker:9092", "broker:9092"])


class Answering:
    """Connections to a broker that gives one answer to every request."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def to(self, address: str) -> "Answering":
        return self

    async def ask(self, request: Any, **options: Any) -> Any:
        return self.answer


def offsets_of(name: str, *indexes: int) -> Any:
    r = messages.ListOffsetsResponse
    partitions = [r.Partition(partition_index=index, error_code=0, timestamp=-1, offset=3) for index in indexes]
    return r(throttle_time_ms=0, topics=[r.Topic(name=name, partitions=partitions)])


@pytest.mark.parametrize(
    "answer",
    [
        offsets_of("orders", 0),
        offsets_of("orders", 0, 2),
        offsets_of("others", 0, 1),
        messages.ListOffsetsResponse(throttle_time_ms=0, topics=[]),
    ],
    ids=["too few partitions", "another partition", "another topic", "no topic"],
)
async def test_an_answer_without_the_offsets_of_a_partition_is_corrupt(answer: Any) -> None:
    cluster = SourceCluster("broker:9092", SourceSettings())

    with pytest.raises(Corrupt, match=r"does not have the offsets of topic 'orders', partition [01]"):
        await cluster.bounds(TOPIC, Answering(answer))

    found = await cluster.bounds(TOPIC, Answering(offsets_of("orders", 1, 0)))
    assert [(item.start, item.stable) for item in found] == [(3, 3), (3, 3)]


def test_an_answer_without_the_partition_that_was_read_is_corrupt() -> None:
    topics = offsets_of("orders", 1).topics

    assert only_partition(topics, 1, "it") is topics[0].partitions[0]
    for answered in [[], topics]:
        with pytest.raises(Corrupt, match="does not have topic 'orders', partition 0"):
            only_partition(answered, 0, "topic 'orders', partition 0")
