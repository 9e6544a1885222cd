"""Partitions have no place that they could leave: what tools that ask for moves of partitions are told. KIP-455."""

import pytest

from bearlake.protocols.kafka import messages as m

LIST = m.ListPartitionReassignmentsRequest


@pytest.mark.parametrize(
    "topics",
    [
        None,
        [],
        [LIST.Topic(name="t", partition_indexes=[0])],
        [LIST.Topic(name="t", partition_indexes=[-1, 7]), LIST.Topic(name="none", partition_indexes=[0])],
        [LIST.Topic(name="", partition_indexes=[]), LIST.Topic(name="__consumer_offsets", partition_indexes=[0])],
    ],
    ids=["all", "none", "one", "unknown ones", "strange ones"],
)
async def test_no_partition_moves_whatever_topics_are_named(kafka, topics):
    await kafka.create("t", 2)
    client = await kafka.client()

    answer = await client.ask(LIST(topics=topics), 0)

    assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])
