"""Creates the internal topics of streams groups: repartition topics and changelogs, with the rights of the member that asks.

A heartbeat creates the topics that are missing, and tells the member why, if that fails. The next heartbeat of any member finds them, or
tries again. Source: KIP-1071; Apache Kafka 4.3, KafkaApis (texts).
"""

import asyncio
from collections.abc import Sequence

from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers import topics
from bearlake.protocols.kafka.messages import CreateTopicsRequest
from bearlake.streams.groups.tasks.configuring import Status, StatusCode
from bearlake.streams.groups.tasks.model import StreamsAnswer
from bearlake.streams.groups.tasks.topology import InternalTopic, listed
from bearlake.streams.turns import Turns, in_turns

_FAILURE_COUNT_MAX = 5
"""Failures that a status tells."""
_WEIGHT = 10
"""Creating a topic takes as long as so many items of a turn."""


async def create(context: KafkaContext, caller: Caller, answer: StreamsAnswer) -> Sequence[Status]:
    """Create the missing topics; returns the answer's statuses, with what failed."""
    denied = {
        topic.name
        async for part in in_turns(answer.missing)
        for topic in part
        if not context.streams.may_create(caller.who, topic.name)
    }
    if denied:
        return _told(answer.statuses, f"Unauthorized to CREATE on topics {listed(denied)}.")
    failures: list[str] = []
    deadline = asyncio.get_running_loop().time() + context.groups.settings.streams.topics_create_ms / 1000
    turns = Turns()
    for topic in answer.missing:
        if turns.is_over(_WEIGHT):
            await asyncio.sleep(0)  # a metadata store in memory never waits
        if asyncio.get_running_loop().time() > deadline or len(failures) >= _FAILURE_COUNT_MAX:
            break
        try:
            await topics.create_one(context, caller, _request(topic))
        except topics.Refused as refused:
            if refused.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # another member was faster
                failures.append(f"{topic.name} ({refused})")
    return _told(answer.statuses, f"Creation failed: {', '.join(failures)}.") if failures else answer.statuses


def _request(topic: InternalTopic) -> CreateTopicsRequest.Topic:
    return CreateTopicsRequest.Topic(
        name=topic.name,
        num_partitions=topic.partition_count,
        replication_factor=topic.replication_factor or topics.USE_DEFAULT,
        assignments=[],
        configs=[CreateTopicsRequest.Config(name=name, value=value) for name, value in topic.configs],
    )


def _told(statuses: Sequence[Status], text: str) -> list[Status]:
    """Add a text to the status of missing internal topics."""
    return [
        status._replace(detail=f"{status.detail}; {text}")
        if status.code is StatusCode.MISSING_INTERNAL_TOPICS
        else status
        for status in statuses
    ]
