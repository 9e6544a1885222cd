"""Tools that ask for moves of partitions, or for elections of leaders, are told that none is needed. KIP-455, KIP-460."""

import pytest

from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode

ALTER = m.IncrementalAlterConfigsRequest
LIST = m.ListPartitionReassignmentsRequest
ELECT = m.ElectLeadersRequest
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


def elected(answer):
    return {
        (topic.topic, part.partition_id): part.error_code
        for topic in answer.replica_election_results
        for part in topic.partition_result
    }


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_no_partition_needs_another_leader(kafka, version):
    await kafka.create("t", 2)
    client = await kafka.client()
    named = [
        ELECT.TopicPartitions(topic="t", partitions=[0, 1, 2, -1]),
        ELECT.TopicPartitions(topic="none", partitions=[0]),
        ELECT.TopicPartitions(topic="__consumer_offsets", partitions=[0]),
    ]

    answer = await client.ask(ELECT(topic_partitions=named), version)

    not_needed, unknown = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.error_code == 0
    assert elected(answer) == {
        ("t", 0): not_needed,
        ("t", 1): not_needed,
        ("t", 2): unknown,
        ("t", -1): unknown,
        ("none", 0): unknown,
        ("__consumer_offsets", 0): not_needed,
    }


async def test_an_election_of_all_partitions_names_those_that_changed_which_are_none(kafka):
    await kafka.create("t", 2)
    client = await kafka.client()

    answer = await client.ask(ELECT(topic_partitions=None, election_type=1), 2)

    assert (answer.error_code, answer.replica_election_results) == (0, [])


async def test_an_election_of_an_unknown_type_is_refused(kafka):
    await kafka.create("t")
    client = await kafka.client()
    named = [ELECT.TopicPartitions(topic="t", partitions=[0])]

    answer = await client.ask(ELECT(topic_partitions=named, election_type=2), 2)

    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert elected(answer) == {("t", 0): ErrorCode.INVALID_REQUEST}


async def test_an_answer_about_unknown_partitions_is_no_larger_than_its_count_demands(kafka):
    """A request repeats the name of a topic for none of its partitions, and neither may the answer."""
    client = await kafka.client()
    named = [ELECT.TopicPartitions(topic="x" * 30_000, partitions=list(range(1_000)))]

    answer = await client.ask(ELECT(topic_partitions=named), 2)

    parts = answer.replica_election_results[0].partition_result
    assert len(parts) == 1_000
    assert max(len(part.error_message) for part in parts) < 100
