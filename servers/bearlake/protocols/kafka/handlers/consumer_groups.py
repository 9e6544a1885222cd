"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups whose coordinator assigns the partitions.

Source: KIP-848, KIP-1082 (clients choose member ids), KIP-1099 (member types); Apache Kafka for the order of checks and their texts.
"""

from collections.abc import Iterable, Sequence

from bearlake.errors import BearlakeError
from bearlake.metadata.model import PARTITION_COUNT_MAX, PartitionKey
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers.coordinated_groups import Refused, check_topics, describe_into, invalid
from bearlake.protocols.kafka.handlers.group_codes import code_of
from bearlake.protocols.kafka.handlers.group_membership import by_topic, may_read
from bearlake.protocols.kafka.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from bearlake.streams.groups.consumer.model import (
    LEAVES,
    LEAVES_FOR_A_WHILE,
    ConsumerGroup,
    ConsumerMember,
    Heartbeat,
    HeartbeatAnswer,
)
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.turns import in_turns

_OWN_ID_FROM = 1
_UNCHANGED_MS = -1
_KEYS_AT_ONCE = 2_000
"""Partitions that are looked at in one turn of the event loop: 1 ms."""
_CONSUMER, _CLASSIC = 1, 0
"""Member types."""


async def heartbeat(
    context: KafkaContext, caller: Caller, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Join a group, stay in it, leave it; answers with the member's partitions if they changed."""
    try:
        if not may_read(context, caller, request.group_id):
            raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        await check_topics(context, caller, request.subscribed_topic_names)
        _check(caller, request, context.groups.settings.consumer.topic_count_max)
        asked = await _asked(context, caller, request)
        return _answer(context, await context.groups.beat(request.group_id, asked))
    except Refused as refused:
        return ConsumerGroupHeartbeatResponse(error_code=refused.code, error_message=refused.message)
    except GroupRefusal as refusal:
        return ConsumerGroupHeartbeatResponse(error_code=code_of(refusal), error_message=str(refusal))
    except BearlakeError as error:
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=str(error))


def _check(caller: Caller, request: ConsumerGroupHeartbeatRequest, topic_count_max: int) -> None:
    """Raise `Refused` unless the request is well-formed."""
    if len(request.subscribed_topic_names or ()) > topic_count_max:
        invalid(
            f"SubscribedTopicNames has {len(request.subscribed_topic_names or ())} names, the limit is {topic_count_max}."
        )
    for name, value in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            invalid(f"{name} can't be empty.")
    if request.member_epoch < LEAVES_FOR_A_WHILE:
        invalid("MemberEpoch is invalid.")
    if not request.member_id.strip() and (caller.version >= _OWN_ID_FROM or request.member_epoch != 0):
        invalid("MemberId can't be empty.")
    if request.member_epoch == LEAVES_FOR_A_WHILE and request.instance_id is None:
        invalid("InstanceId can't be null.")
    if request.member_epoch == 0:
        if request.rebalance_timeout_ms == _UNCHANGED_MS:
            invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


async def _asked(context: KafkaContext, caller: Caller, request: ConsumerGroupHeartbeatRequest) -> Heartbeat:
    """Return the request in the coordinator's terms. Raises `GroupRefusal` (INVALID_PATTERN)."""
    pattern = request.subscribed_topic_regex
    matches: frozenset[str] | None = None
    matched_version = 0
    if request.member_epoch > LEAVES:
        known = pattern if pattern is not None else context.groups.pattern_of(request.group_id, request.member_id)
        if known:
            found = await context.patterns.matches(known, caller.who)
            matches, matched_version = found.names, found.version
    return Heartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=None if request.rebalance_timeout_ms == _UNCHANGED_MS else request.rebalance_timeout_ms,
        topics=request.subscribed_topic_names,
        pattern=pattern,
        matches=matches,
        matched_version=matched_version,
        assignor=request.server_assignor,
        owned=None if request.topic_partitions is None else await _owned(context, request.topic_partitions),
        client_id=caller.client_id or "",
        client_host="/" + caller.peer.rpartition(":")[0],
    )


async def _owned(
    context: KafkaContext, topics: Sequence[ConsumerGroupHeartbeatRequest.TopicPartitions]
) -> set[PartitionKey]:
    """The partitions of topics that exist; a member cannot have others.

    A partition that this server does not know yet counts: one that is left out is given up. Raises `Unavailable`.
    """
    known = context.topics
    keys: set[PartitionKey] = set()
    has_asked = False
    async for part in in_turns(topics):
        for topic in part:
            view = known.peek_id(topic.topic_id)
            if view is None and not has_asked:
                await known.catch_up()
                view, has_asked = known.peek_id(topic.topic_id), True
            if view is not None:
                first = view.first_key
                async for indexes in in_turns(topic.partitions, _KEYS_AT_ONCE):
                    keys.update(PartitionKey(first | index) for index in indexes if 0 <= index < PARTITION_COUNT_MAX)
    return keys


def _answer(context: KafkaContext, answer: HeartbeatAnswer) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if answer.assigned is not None:
        assignment = ConsumerGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=view.id_bytes, partitions=indexes)
                for view, indexes in by_topic(context.topics.peek_number, answer.assigned)
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )


async def describe(
    context: KafkaContext, caller: Caller, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Epochs and members of each group."""
    return ConsumerGroupDescribeResponse(
        groups=[
            await _describe(context, caller, name, request.include_authorized_operations)
            async for part in in_turns(request.group_ids)
            for name in part
        ]
    )


async def _describe(
    context: KafkaContext, caller: Caller, name: str, with_operations: bool
) -> ConsumerGroupDescribeResponse.Group:
    answer = ConsumerGroupDescribeResponse.Group(group_id=name, members=[])
    ask = context.groups.describe_consumer
    group = await describe_into(answer, context, caller, ask, with_operations=with_operations)
    if group is not None:
        answer.members = [_member(context, group, member) for member in group.members.values()]
    return answer


def _member(
    context: KafkaContext, group: ConsumerGroup, member: ConsumerMember
) -> ConsumerGroupDescribeResponse.Member:
    return ConsumerGroupDescribeResponse.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.pattern,
        assignment=_assignment(context, (*member.assigned, *member.revoking)),
        target_assignment=_assignment(context, group.target.get(member.member_id, ())),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _assignment(context: KafkaContext, keys: Iterable[PartitionKey]) -> ConsumerGroupDescribeResponse.Assignment:
    return ConsumerGroupDescribeResponse.Assignment(
        topic_partitions=[
            ConsumerGroupDescribeResponse.TopicPartitions(
                topic_id=view.id_bytes, topic_name=view.name, partitions=indexes
            )
            for view, indexes in by_topic(context.topics.peek_number, keys)
        ]
    )
