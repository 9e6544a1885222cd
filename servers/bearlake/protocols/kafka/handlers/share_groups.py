"""ShareGroupHeartbeat and ShareGroupDescribe: members of share groups.

Source: KIP-932; Apache Kafka 4.3 for the order of checks and their texts.
"""

from collections.abc import Iterable

from bearlake.errors import BearlakeError
from bearlake.metadata.model import PartitionKey
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers.coordinated_groups import Refused, check_topics, describe_into, invalid
from bearlake.protocols.kafka.handlers.group_codes import code_of
from bearlake.protocols.kafka.handlers.group_membership import by_topic, may_read
from bearlake.protocols.kafka.messages import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from bearlake.streams.groups.consumer.model import LEAVES, ConsumerMember, Heartbeat, HeartbeatAnswer
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.turns import in_turns


async def heartbeat(
    context: KafkaContext, caller: Caller, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """Join a group, stay in it, leave it; answers with the member's partitions if they changed."""
    try:
        if not may_read(context, caller, request.group_id):
            raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        _check_count(request, context.groups.settings.consumer.topic_count_max)
        await check_topics(context, caller, request.subscribed_topic_names)
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
    except Refused as refused:
        return ShareGroupHeartbeatResponse(error_code=refused.code, error_message=refused.message)
    except GroupRefusal as refusal:
        return ShareGroupHeartbeatResponse(error_code=code_of(refusal), error_message=str(refusal))
    except BearlakeError as error:
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=str(error))


def _check_count(request: ShareGroupHeartbeatRequest, topic_count_max: int) -> None:
    """Raise `Refused` if there are too many topics to look at each."""
    count = len(request.subscribed_topic_names or ())
    if count > topic_count_max:
        invalid(f"SubscribedTopicNames has {count} names, the limit is {topic_count_max}.")


def _check(request: ShareGroupHeartbeatRequest) -> None:
    """Raise `Refused` unless the request is well-formed."""
    if not request.member_id.strip():
        invalid("MemberId can't be empty.")
    if not request.group_id.strip():
        invalid("GroupId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        invalid("RackId can't be empty.")
    if request.member_epoch < LEAVES:
        invalid(f"MemberEpoch is invalid: {request.member_epoch}.")
    if request.member_epoch == 0 and not request.subscribed_topic_names:
        invalid("SubscribedTopicNames must be set in first request.")


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
    answer = ShareGroupDescribeResponse.Group(group_id=name, members=[])
    ask = context.share_groups.describe
    group = await describe_into(answer, context, caller, ask, with_operations=with_operations)
    if group is not None:
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
