"""ShareGroupHeartbeat and ShareGroupDescribe: members of share groups.

Source: KIP-932; Apache Kafka 4.3 for the order of checks and their texts.
"""

from collections.abc import Iterable
from typing import NoReturn

from bearlake.errors import BearlakeError
from bearlake.metadata.model import PartitionKey
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers.group_codes import code_of
from bearlake.protocols.kafka.handlers.group_membership import by_topic, may_describe, may_read
from bearlake.protocols.kafka.messages import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from bearlake.protocols.kafka.rights import NO_OPERATIONS, group_operations
from bearlake.streams.groups.consumer.model import LEAVES, ConsumerMember, Heartbeat, HeartbeatAnswer
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.principal import Operation
from bearlake.streams.turns import in_turns


class _Refused(Exception):
    """The request is refused before a coordinator sees it."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


async def heartbeat(
    context: KafkaContext, caller: Caller, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """Join a group, stay in it, leave it; answers with the member's partitions if they changed."""
    try:
        if not may_read(context, caller, request.group_id):
            raise _Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
        _check_count(request, context.groups.settings.consumer.topic_count_max)
        await _check_topics(context, caller, request)
        _check(request)
        asked = Heartbeat(
            member_id=request.member_id,
            epoch=request.member_epoch,
            rack_id=request.rack_id,
            topics=request.subscribed_topic_names,
            client_id=caller.client_id or "",
            client_host="/" + caller.peer.rpartition(":")[0],
        )
        return _answer(context, await context.share_groups.beat(request.group_id, asked))
    except _Refused as refused:
        return ShareGroupHeartbeatResponse(error_code=refused.code, error_message=refused.message)
    except GroupRefusal as refusal:
        return ShareGroupHeartbeatResponse(error_code=code_of(refusal), error_message=str(refusal))
    except BearlakeError as error:
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=str(error))


async def _check_topics(context: KafkaContext, caller: Caller, request: ShareGroupHeartbeatRequest) -> None:
    async for part in in_turns(request.subscribed_topic_names or ()):
        for name in part:
            if not context.streams.may(caller.who, Operation.DESCRIBE, name):
                raise _Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)


def _check_count(request: ShareGroupHeartbeatRequest, topic_count_max: int) -> None:
    """Raise `_Refused` if there are too many topics to look at each."""
    count = len(request.subscribed_topic_names or ())
    if count > topic_count_max:
        _invalid(f"SubscribedTopicNames has {count} names, the limit is {topic_count_max}.")


def _check(request: ShareGroupHeartbeatRequest) -> None:
    """Raise `_Refused` unless the request is well-formed."""
    if not request.member_id.strip():
        _invalid("MemberId can't be empty.")
    if not request.group_id.strip():
        _invalid("GroupId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        _invalid("RackId can't be empty.")
    if request.member_epoch < LEAVES:
        _invalid(f"MemberEpoch is invalid: {request.member_epoch}.")
    if request.member_epoch == 0 and not request.subscribed_topic_names:
        _invalid("SubscribedTopicNames must be set in first request.")


def _invalid(message: str) -> NoReturn:
    raise _Refused(ErrorCode.INVALID_REQUEST, message)


def _answer(context: KafkaContext, answer: HeartbeatAnswer) -> ShareGroupHeartbeatResponse:
    assignment = None
    if answer.assigned is not None:
        assignment = ShareGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                ShareGroupHeartbeatResponse.TopicPartitions(topic_id=view.id_bytes, partitions=indexes)
                for view, indexes in by_topic(context.streams.catalog.peek_number, answer.assigned)
            ]
        )
    return ShareGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )


async def describe(
    context: KafkaContext, caller: Caller, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Epochs and members of each group."""
    return ShareGroupDescribeResponse(
        groups=[
            await _describe(context, caller, name, request.include_authorized_operations)
            async for part in in_turns(request.group_ids)
            for name in part
        ]
    )


async def _describe(
    context: KafkaContext, caller: Caller, name: str, with_operations: bool
) -> ShareGroupDescribeResponse.Group:
    answer = ShareGroupDescribeResponse.Group(
        group_id=name,
        members=[],
        authorized_operations=group_operations(context, caller, name) if with_operations else NO_OPERATIONS,
    )
    if not may_describe(context, caller, name):
        answer.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return answer
    try:
        group = await context.share_groups.describe(name)
    except GroupRefusal as refusal:
        answer.error_code, answer.error_message = code_of(refusal), str(refusal)
        return answer
    if not all(context.streams.sees(caller.who, Operation.DESCRIBE, topic) for topic in group.topics):
        answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        answer.error_message = "The group has described topic(s) that the client is not authorized to describe."
        return answer
    answer.group_state = group.state.value
    answer.group_epoch, answer.assignment_epoch = group.epoch, group.assignment_epoch
    answer.assignor_name = group.assignor
    answer.members = [_member(context, member) for member in group.members.values()]
    return answer


def _member(context: KafkaContext, member: ConsumerMember) -> ShareGroupDescribeResponse.Member:
    return ShareGroupDescribeResponse.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        assignment=_assignment(context, member.assigned),
    )


def _assignment(context: KafkaContext, keys: Iterable[PartitionKey]) -> ShareGroupDescribeResponse.Assignment:
    return ShareGroupDescribeResponse.Assignment(
        topic_partitions=[
            ShareGroupDescribeResponse.TopicPartitions(topic_id=view.id_bytes, topic_name=view.name, partitions=indexes)
            for view, indexes in by_topic(context.streams.catalog.peek_number, keys)
        ]
    )
