"""Topologies of StreamsGroupHeartbeat: checks, limits, and the coordinator's terms.

Source: KIP-1071; Apache Kafka 4.3 for the order of checks and their texts.
"""

from collections.abc import Iterator, Sequence

from bearlake.errors import Invalid
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers.coordinated_groups import Refused, invalid
from bearlake.protocols.kafka.messages import StreamsGroupHeartbeatRequest
from bearlake.streams.catalog import check_name
from bearlake.streams.groups.tasks.settings import StreamsGroupSettings
from bearlake.streams.groups.tasks.topology import InternalTopic, Subtopology, Topology, listed
from bearlake.streams.internal_topics import INTERNAL, NEVER_CREATED
from bearlake.streams.principal import Operation
from bearlake.streams.turns import in_turns

Request = StreamsGroupHeartbeatRequest


def check_size(topology: Request.Topology, settings: StreamsGroupSettings) -> None:
    """Raise `Refused` if the topology is too large to look at."""
    count_max = 4 * settings.topic_count_max
    if _indexes(topology, count_max) > count_max:
        _refuse(f"The copartition groups of the topology name more than {count_max} topics.")
    octets, bytes_max = 0, settings.topology_bytes_max
    for count, text in enumerate(_texts(topology), 1):
        octets += len(text.encode())
        if count > count_max or octets > bytes_max:
            _refuse(
                f"The topology has more than {bytes_max} bytes of names and configs, or more than {count_max} of them."
            )
    for name in _copartitioned(topology):
        octets += len(name.encode())
        if octets > bytes_max:
            _refuse(
                f"The topology has more than {bytes_max} bytes of names and configs, with those that copartition groups name."
            )


def _indexes(topology: Request.Topology, count_max: int) -> int:
    """Count copartition groups and what they name; stops when they are too many."""
    count = 0
    for item in topology.subtopologies:
        count += len(item.copartition_groups)
        if count > count_max:
            break
        count += sum(
            len(group.source_topics) + len(group.source_topic_regex) + len(group.repartition_source_topics)
            for group in item.copartition_groups
        )
    return count


def _texts(topology: Request.Topology) -> Iterator[str]:
    for item in topology.subtopologies:
        yield item.subtopology_id
        yield from item.source_topics
        yield from item.source_topic_regex
        yield from item.repartition_sink_topics
        for topic in (*item.state_changelog_topics, *item.repartition_source_topics):
            yield topic.name
            for config in topic.topic_configs:
                yield config.key
                yield config.value


def _copartitioned(topology: Request.Topology) -> Iterator[str]:
    """Yield the names of copartitioned topics: a save has them once more for each group."""
    for item in topology.subtopologies:
        repartition = [topic.name for topic in item.repartition_source_topics]
        for group in item.copartition_groups:
            yield from _picked(item.source_topics, group.source_topics)
            yield from _picked(repartition, group.repartition_source_topics)


async def check_topics(context: KafkaContext, caller: Caller, topology: Request.Topology) -> None:
    """Raise `Refused` unless the topology names topics that it may use, and that the caller may describe."""
    names = {name for item in topology.subtopologies for name in _names(item)}
    limit = context.groups.settings.streams.topic_count_max
    if len(names) > limit:
        _refuse(f"The topology names {len(names)} topics, the limit is {limit}.")
    internal = {name for name in names if name in INTERNAL or name in NEVER_CREATED}
    if internal:
        _refuse(f"Use of Kafka internal topics {','.join(sorted(internal))} in a Kafka Streams topology is prohibited.")
    wrong = {name for name in names if not _is_name(name)}
    if wrong:
        _refuse(f"Topic names {listed(wrong)} are not valid topic names.")
    async for part in in_turns(sorted(names)):
        for name in part:
            if not context.streams.may(caller.who, Operation.DESCRIBE, name):
                raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _names(item: Request.Subtopology) -> Iterator[str]:
    yield from item.source_topics
    yield from item.repartition_sink_topics
    yield from (topic.name for topic in item.repartition_source_topics)
    yield from (topic.name for topic in item.state_changelog_topics)


def _is_name(name: str) -> bool:
    try:
        check_name(name)
    except Invalid:
        return False
    return True


def check(topology: Request.Topology) -> None:
    """Raise `Refused` if the topology uses what the coordinator does not know."""
    for item in topology.subtopologies:
        if item.source_topic_regex:
            invalid("Regular expressions for source topics are not supported yet.")


def check_changelogs(topology: Request.Topology) -> None:
    """Raise `Refused` if a changelog has a partition count: that follows from the tasks."""
    for item in topology.subtopologies:
        for topic in item.state_changelog_topics:
            if topic.partitions:
                _refuse(
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to {topic.partitions}."
                )


def topology_of(topology: Request.Topology) -> Topology:
    """Return the topology in the coordinator's terms. Raises `Refused`."""
    ids = [item.subtopology_id for item in topology.subtopologies]
    if len(set(ids)) < len(ids):
        _refuse("The topology has several subtopologies of one id.")
    found = (_subtopology(item) for item in topology.subtopologies)
    return Topology(epoch=topology.epoch, subtopologies=tuple(sorted(found, key=lambda item: item.subtopology_id)))


def _subtopology(item: Request.Subtopology) -> Subtopology:
    groups = []
    repartition = [topic.name for topic in item.repartition_source_topics]
    for group in item.copartition_groups:
        if group.source_topic_regex:
            invalid("Regular expressions for source topics are not supported yet.")
        names = [
            *_picked(item.source_topics, group.source_topics),
            *_picked(repartition, group.repartition_source_topics),
        ]
        groups.append(tuple(sorted(set(names))))
    return Subtopology(
        subtopology_id=item.subtopology_id,
        sources=tuple(sorted(set(item.source_topics) - set(repartition))),
        repartition_sources=_internal(item.repartition_source_topics),
        repartition_sinks=tuple(sorted(set(item.repartition_sink_topics))),
        changelogs=_internal(item.state_changelog_topics),
        copartitioned=tuple(sorted(set(groups))),
    )


def _picked(names: Sequence[str], indexes: Sequence[int]) -> Iterator[str]:
    for index in indexes:
        if not 0 <= index < len(names):
            _refuse(f"A copartition group names source topic {index}, but the subtopology has {len(names)}.")
        yield names[index]


def _internal(topics: Sequence[Request.TopicInfo]) -> tuple[InternalTopic, ...]:
    found = {}
    for topic in topics:
        if topic.partitions < 0 or topic.replication_factor < -1:
            _refuse(f"Topic {topic.name} has a negative number of partitions or replicas.")
        configs = tuple(sorted((config.key, config.value) for config in topic.topic_configs))
        found[topic.name] = InternalTopic(topic.name, topic.partitions, max(topic.replication_factor, 0), configs)
    return tuple(sorted(found.values()))


def _refuse(message: str) -> None:
    raise Refused(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
