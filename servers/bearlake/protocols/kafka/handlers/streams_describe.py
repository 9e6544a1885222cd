"""StreamsGroupDescribe: epochs, topology and members of streams groups.

Source: KIP-1071; Apache Kafka 4.3 for texts.
"""

import asyncio
from collections.abc import Iterable, Mapping
from itertools import groupby

from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers.group_codes import code_of
from bearlake.protocols.kafka.handlers.group_membership import may_describe
from bearlake.protocols.kafka.messages import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from bearlake.protocols.kafka.rights import NO_OPERATIONS, group_operations
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.groups.tasks.model import StreamsGroup, StreamsMember, TaskId, Tasks
from bearlake.streams.groups.tasks.topology import InternalTopic, Topology
from bearlake.streams.principal import Operation
from bearlake.streams.turns import Turns, in_turns

Response = StreamsGroupDescribeResponse

_TASKS_OF_AN_ITEM = 10
"""Tasks that take as long as an item of a turn."""


async def describe(context: KafkaContext, caller: Caller, request: StreamsGroupDescribeRequest) -> Response:
    """Epochs, topology and members of each group."""
    return Response(
        groups=[
            await _describe(context, caller, name, request.include_authorized_operations)
            async for part in in_turns(request.group_ids)
            for name in part
        ]
    )


async def _describe(context: KafkaContext, caller: Caller, name: str, with_operations: bool) -> Response.Group:
    answer = Response.Group(group_id=name, members=[])
    answer.authorized_operations = group_operations(context, caller, name) if with_operations else NO_OPERATIONS
    if not may_describe(context, caller, name):
        answer.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return answer
    try:
        group = await context.streams_groups.describe(name)
    except GroupRefusal as refusal:
        answer.error_code, answer.error_message = code_of(refusal), str(refusal)
        return answer
    names = set() if group.topology is None else group.topology.names()
    async for part in in_turns(sorted(names)):
        if not all(context.streams.sees(caller.who, Operation.DESCRIBE, topic) for topic in part):
            answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            answer.error_message = "The described group uses topics that the client is not authorized to describe."
            return answer
    answer.group_state = group.state.value
    answer.group_epoch, answer.assignment_epoch = group.epoch, group.assignment_epoch
    if group.topology is not None:
        counts = {} if group.configured is None else group.configured.internal
        answer.topology = _topology(group.topology, counts)
    turns = Turns()
    for member in list(group.members.values()):
        if turns.is_over(1 + (len(member.active) + len(member.standby)) // _TASKS_OF_AN_ITEM):
            await asyncio.sleep(0)
        answer.members.append(_member(group, member))
    return answer


def _topology(topology: Topology, counts: Mapping[str, int]) -> Response.Topology:
    def infos(topics: Iterable[InternalTopic]) -> list[Response.TopicInfo]:
        return [
            Response.TopicInfo(
                name=topic.name,
                partitions=counts.get(topic.name, topic.partition_count),
                replication_factor=topic.replication_factor,
                topic_configs=[Response.KeyValue(key=key, value=value) for key, value in topic.configs],
            )
            for topic in topics
        ]

    return Response.Topology(
        epoch=topology.epoch,
        subtopologies=[
            Response.Subtopology(
                subtopology_id=item.subtopology_id,
                source_topics=list(item.sources),
                repartition_sink_topics=list(item.repartition_sinks),
                state_changelog_topics=infos(item.changelogs),
                repartition_source_topics=infos(item.repartition_sources),
            )
            for item in topology.subtopologies
        ],
    )


def _member(group: StreamsGroup, member: StreamsMember) -> Response.Member:
    endpoint = member.endpoint
    return Response.Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Response.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[Response.KeyValue(key=key, value=value) for key, value in member.tags.items()],
        assignment=_assignment(member.tasks()),
        target_assignment=_assignment(group.target.get(member.member_id, Tasks())),
    )


def _assignment(tasks: Tasks) -> Response.Assignment:
    return Response.Assignment(active_tasks=_task_ids(tasks.active), standby_tasks=_task_ids(tasks.standby))


def _task_ids(tasks: Iterable[TaskId]) -> list[Response.TaskIds]:
    return [
        Response.TaskIds(subtopology_id=name, partitions=[task.partition for task in several])
        for name, several in groupby(sorted(tasks), lambda task: task.subtopology_id)
    ]
