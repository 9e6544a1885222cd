"""No partition moves between servers, and tools that ask for moves get an empty list (KIP-455, KIP-73)."""

import pytest

from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode

ALTER = m.IncrementalAlterConfigsRequest
LIST = m.ListPartitionReassignmentsRequest
BROKER = 4
SET, DELETE = 0, 1


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


async def test_limits_of_moves_are_deleted_from_servers_without_effect(kafka):
    """`kafka-reassign-partitions.sh --verify` deletes them once it has seen that no partition moves."""
    client = await kafka.client()
    server = str(kafka.member.node_id)

    async def alter(name, operation, value=None):
        configs = [ALTER.Config(name="leader.replication.throttled.rate", config_operation=operation, value=value)]
        resource = ALTER.Resource(resource_type=BROKER, resource_name=name, configs=configs)
        return (await client.ask(ALTER(resources=[resource]), 1)).responses[0].error_code

    assert await alter(server, DELETE) == 0
    assert await alter("", DELETE) == 0
    assert await alter("99", DELETE) == ErrorCode.INVALID_REQUEST
    assert await alter(server, SET, "1000") == ErrorCode.INVALID_REQUEST
