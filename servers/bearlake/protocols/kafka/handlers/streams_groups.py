"""StreamsGroupHeartbeat and StreamsGroupDescribe: groups whose coordinator assigns tasks of a topology, and creates its internal topics.

Source: KIP-1071; Apache Kafka 4.3 for the order of checks and their texts.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from bearlake.errors import BearlakeError
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers import streams_internal_topics, streams_topology
from bearlake.protocols.kafka.handlers.coordinated_groups import Refused, invalid
from bearlake.protocols.kafka.handlers.group_codes import code_of
from bearlake.protocols.kafka.handlers.group_membership import may_read
from bearlake.protocols.kafka.messages import StreamsGroupHeartbeatRequest as Request
from bearlake.protocols.kafka.messages import StreamsGroupHeartbeatResponse as Response
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.groups.tasks.configuring import Status
from bearlake.streams.groups.tasks.model import (
    Endpoint,
    EndpointPartitions,
    StreamsAnswer,
    StreamsHeartbeat,
    TaskId,
    Tasks,
)

_UNCHANGED_MS = -1
_LEAVES_FOR_A_WHILE = -2
_TAG_COUNT_MAX = 100
_MEMBER_BYTES_MAX = 4_096
"""What a member may say of itself: each save of its group writes it. Kafka Streams allows 5 tags of 50 characters."""


async def heartbeat(context: KafkaContext, caller: Caller, request: Request) -> Response:
    """Join a group, stay in it, leave it; answers with the member's tasks if they changed. Creates the group's internal topics."""
    try:
        if not may_read(context, caller, request.group_id):
            raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if request.topology is not None:
            streams_topology.check_size(request.topology, context.groups.settings.streams)
            await streams_topology.check_topics(context, caller, request.topology)
        _check(request, caller, context.groups.settings.streams.task_count_max)
        answer = await context.streams_groups.beat(request.group_id, _asked(caller, request))
        statuses = answer.statuses
        if answer.missing:
            statuses = await streams_internal_topics.create(context, caller, answer)
        return _answer(answer, statuses)
    except Refused as refused:
        return Response(error_code=refused.code, error_message=refused.message)
    except GroupRefusal as refusal:
        return Response(error_code=code_of(refusal), error_message=str(refusal))
    except BearlakeError as error:
        return Response(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=str(error))


def _check(request: Request, caller: Caller, task_count_max: int) -> None:
    """Raise `Refused` unless the request is well-formed, within limits, and asks for nothing that Kafka 4.3 does not have either."""
    if request.instance_id is not None:
        invalid("Static membership is not yet supported.")
    if request.topology is not None:
        streams_topology.check(request.topology)
    for name, value in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            invalid(f"{name} can't be empty.")
    if request.member_epoch == 0:
        _check_join(request)
    elif request.member_epoch == _LEAVES_FOR_A_WHILE:
        invalid("InstanceId can't be null.")
    elif request.member_epoch < _LEAVES_FOR_A_WHILE:
        invalid(f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2.")
    reported = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if any(tasks is None for tasks in reported) and any(tasks is not None for tasks in reported):
        invalid("If one task-type is non-null, all must be non-null.")
    if request.member_epoch != 0 and request.topology is not None:
        invalid("Topology can only be provided when (re-)joining.")
    if sum(1 + len(item.partitions) for tasks in reported for item in tasks or ()) > 2 * task_count_max:
        invalid(f"The member reports more than {task_count_max} tasks.")
    _check_description(request, caller)


def _check_description(request: Request, caller: Caller) -> None:
    """Raise `Refused` if the member says too much of itself."""
    tags = request.client_tags or ()
    if len(tags) > _TAG_COUNT_MAX:
        invalid(f"ClientTags has {len(tags)} tags, the limit is {_TAG_COUNT_MAX}.")
    endpoint = request.user_endpoint
    texts = [
        caller.client_id or "",
        request.member_id,
        request.rack_id or "",
        request.process_id or "",
        "" if endpoint is None else endpoint.host,
    ]
    texts += [text for tag in tags for text in (tag.key, tag.value)]
    if sum(len(text.encode()) for text in texts) > _MEMBER_BYTES_MAX:
        invalid(f"The member describes itself, with its client id, with more than {_MEMBER_BYTES_MAX} bytes.")


def _check_join(request: Request) -> None:
    if request.rebalance_timeout_ms == _UNCHANGED_MS:
        invalid("RebalanceTimeoutMs must be provided in first request.")
    for name, tasks in (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    ):
        if tasks is None or tasks:
            invalid(f"{name} must be empty when (re-)joining.")
    if request.topology is None:
        invalid("Topology must be non-null when (re-)joining.")
    else:
        streams_topology.check_changelogs(request.topology)


def _asked(caller: Caller, request: Request) -> StreamsHeartbeat:
    """Return the request in the coordinator's terms. Raises `Refused`."""
    endpoint, tags = request.user_endpoint, request.client_tags
    owned = None
    if request.active_tasks is not None:
        owned = Tasks(_tasks(request.active_tasks), _tasks(request.standby_tasks or ()))
    return StreamsHeartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        endpoint_epoch=request.endpoint_information_epoch,
        rack_id=request.rack_id,
        rebalance_timeout_ms=None if request.rebalance_timeout_ms == _UNCHANGED_MS else request.rebalance_timeout_ms,
        topology=None if request.topology is None else streams_topology.topology_of(request.topology),
        process_id=request.process_id,
        endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        tags=None if tags is None else {tag.key: tag.value for tag in tags},
        owned=owned,
        shuts_down=request.shutdown_application,
        client_id=caller.client_id or "",
        client_host="/" + caller.peer.rpartition(":")[0],
    )


def _tasks(reported: Iterable[Request.TaskIds]) -> frozenset[TaskId]:
    return frozenset(TaskId(item.subtopology_id, partition) for item in reported for partition in item.partitions)


def _answer(answer: StreamsAnswer, statuses: Sequence[Status]) -> Response:
    response = Response(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        status=[Response.Status(status_code=status.code, status_detail=status.detail) for status in statuses],
        endpoint_information_epoch=answer.endpoint_epoch,
    )
    if answer.tasks is not None:
        response.active_tasks = _task_ids(answer.tasks.active)
        response.standby_tasks = _task_ids(answer.tasks.standby)
        response.warmup_tasks = []
    if answer.endpoints is not None:
        response.partitions_by_user_endpoint = [_endpoint(item) for item in answer.endpoints]
    return response


def _task_ids(tasks: Iterable[TaskId]) -> list[Response.TaskIds]:
    return [
        Response.TaskIds(subtopology_id=name, partitions=[task.partition for task in several])
        for name, several in groupby(sorted(tasks), lambda task: task.subtopology_id)
    ]


def _endpoint(item: EndpointPartitions) -> Response.EndpointToPartitions:
    def listed(partitions: Iterable[tuple[str, Sequence[int]]]) -> list[Response.TopicPartition]:
        return [Response.TopicPartition(topic=name, partitions=list(indexes)) for name, indexes in partitions]

    return Response.EndpointToPartitions(
        user_endpoint=Response.Endpoint(host=item.endpoint.host, port=item.endpoint.port),
        active_partitions=listed(item.active.items()),
        standby_partitions=listed(item.standby.items()),
    )
