"""OffsetCommit, OffsetFetch, OffsetDelete.

Offsets belong to one incarnation of a stream: a stream that is deleted and created again has none. OffsetFetch returns -1 without an
error for a partition that has no committed offset. Source: KIP-211, KIP-447 (require_stable: without transactions every offset is
stable), KIP-709 (several groups), KIP-848 (topic ids from version 10 on).
"""

from collections.abc import Iterable

from bearlake.metadata.model import CommittedOffset, PartitionKey, partition_index, stream_number
from bearlake.protocols.kafka.codec import UUID_ZERO
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers.group_codes import code_of
from bearlake.protocols.kafka.handlers.group_membership import may_describe, may_read
from bearlake.protocols.kafka.handlers.list_offsets import find
from bearlake.protocols.kafka.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from bearlake.protocols.kafka.rights import on_group
from bearlake.records.batch import NO_LEADER_EPOCH
from bearlake.streams.catalog import StreamView
from bearlake.streams.groups import subscription
from bearlake.streams.groups.model import GroupState, MemberRef
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.principal import Operation, Resource

_TOPIC_IDS_FROM = 10
_MANY_GROUPS_FROM = 8
_GROUP_ERROR_FROM = 2
NOT_COMMITTED = CommittedOffset(offset=-1)


async def _resolve(
    context: KafkaContext, caller: Caller, operation: Operation, name: str, topic_id: bytes
) -> StreamView | ErrorCode:
    if caller.version < _TOPIC_IDS_FROM:
        return await find(context, caller, name, operation)
    view = context.streams.catalog.peek_id(topic_id)
    if view is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return view if context.streams.may(caller.who, operation, view.name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def commit(context: KafkaContext, caller: Caller, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commit all valid offsets in one transaction."""
    group = request.group_id
    offsets: dict[PartitionKey, CommittedOffset] = {}
    answers: list[OffsetCommitResponse.Partition] = []
    topics: list[OffsetCommitResponse.Topic] = []
    limit = context.groups.settings.offset_metadata_bytes_max
    for topic in request.topics:
        found = await _resolve(context, caller, Operation.READ, topic.name, topic.topic_id)
        partitions: list[OffsetCommitResponse.Partition] = []
        topics.append(OffsetCommitResponse.Topic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
        for partition in topic.partitions:
            answer = OffsetCommitResponse.Partition(partition_index=partition.partition_index)
            partitions.append(answer)
            text = partition.committed_metadata or ""
            if isinstance(found, ErrorCode):
                answer.error_code = found
            elif not 0 <= partition.partition_index < found.partition_count:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(text.encode()) > limit:
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                answers.append(answer)
                offsets[found.partition(partition.partition_index)] = CommittedOffset(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=text,
                )
    code = ErrorCode.NONE
    if not may_read(context, caller, group):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    else:
        try:
            await context.groups.commit(
                MemberRef(
                    group=group,
                    member_id=request.member_id,
                    instance_id=request.group_instance_id,
                    generation=request.generation_id_or_member_epoch,
                ),
                offsets,
            )
        except GroupRefusal as refusal:
            code = code_of(refusal)
    for answer in answers:
        answer.error_code = code
    return OffsetCommitResponse(topics=topics)


async def fetch(context: KafkaContext, caller: Caller, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """The committed offsets of one group, or from version 8 on of several groups."""
    if caller.version >= _MANY_GROUPS_FROM:
        return OffsetFetchResponse(groups=[await _fetch_group(context, caller, group) for group in request.groups])
    asked = OffsetFetchRequest.Group(
        group_id=request.group_id,
        topics=None
        if request.topics is None
        else [
            OffsetFetchRequest.GroupTopic(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ],
    )
    group = await _fetch_group(context, caller, asked)
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponse.Topic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.Partition(
                        partition_index=item.partition_index,
                        committed_offset=item.committed_offset,
                        committed_leader_epoch=item.committed_leader_epoch,
                        metadata=item.metadata,
                        error_code=item.error_code or (group.error_code if caller.version < _GROUP_ERROR_FROM else 0),
                    )
                    for item in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )


async def _fetch_group(
    context: KafkaContext, caller: Caller, asked: OffsetFetchRequest.Group
) -> OffsetFetchResponse.Group:
    answer = OffsetFetchResponse.Group(group_id=asked.group_id, topics=[])
    if not may_describe(context, caller, asked.group_id):
        answer.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return answer
    try:
        if asked.topics is None:
            found = await context.groups.offsets(asked.group_id)
            answer.topics = _all_topics(context, caller, found)
            return answer
        views = [
            await _resolve(context, caller, Operation.DESCRIBE, topic.name, topic.topic_id) for topic in asked.topics
        ]
        keys = [
            view.partition(index)
            for view, topic in zip(views, asked.topics, strict=True)
            if isinstance(view, StreamView)
            for index in topic.partition_indexes
            if 0 <= index < view.partition_count
        ]
        found = await context.groups.offsets(asked.group_id, keys) if keys else {}
    except GroupRefusal as refusal:
        answer.error_code = code_of(refusal)
        if caller.version < _GROUP_ERROR_FROM and asked.topics is not None:
            answer.topics = [_unread(topic) for topic in asked.topics]
        return answer
    for view, topic in zip(views, asked.topics, strict=True):
        partitions = []
        for index in topic.partition_indexes:
            if isinstance(view, StreamView) and 0 <= index < view.partition_count:
                partitions.append(_partition(index, found.get(view.partition(index), NOT_COMMITTED)))
            else:
                item = _partition(index, NOT_COMMITTED)
                if view is ErrorCode.UNKNOWN_TOPIC_ID or view is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    item.error_code = view
                partitions.append(item)
        answer.topics.append(
            OffsetFetchResponse.GroupTopic(name=topic.name, topic_id=topic.topic_id or UUID_ZERO, partitions=partitions)
        )
    return answer


def _unread(topic: OffsetFetchRequest.GroupTopic) -> OffsetFetchResponse.GroupTopic:
    """A topic whose offsets could not be read, for versions that report errors only per partition."""
    partitions = [_partition(index, NOT_COMMITTED) for index in topic.partition_indexes]
    return OffsetFetchResponse.GroupTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _all_topics(
    context: KafkaContext, caller: Caller, found: dict[PartitionKey, CommittedOffset]
) -> list[OffsetFetchResponse.GroupTopic]:
    topics: dict[int, OffsetFetchResponse.GroupTopic] = {}
    for key, offset in sorted(found.items()):
        view = context.streams.catalog.peek_number(stream_number(key))
        if view is None:
            continue  # the stream was deleted; its offsets are deleted with it
        if not context.streams.sees(caller.who, Operation.DESCRIBE, view.name):
            continue
        topic = topics.setdefault(
            view.stream.number,
            OffsetFetchResponse.GroupTopic(name=view.name, topic_id=view.id_bytes, partitions=[]),
        )
        topic.partitions.append(_partition(partition_index(key), offset))
    return list(topics.values())


def _partition(index: int, offset: CommittedOffset) -> OffsetFetchResponse.GroupPartition:
    """The response for a committed offset. Omits its leader epoch: an epoch of another cluster would exceed all epochs here."""
    return OffsetFetchResponse.GroupPartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=NO_LEADER_EPOCH,
        metadata=offset.metadata,
    )


async def delete(context: KafkaContext, caller: Caller, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete committed offsets of topics that no member is subscribed to."""
    if not on_group(context, caller, Operation.DELETE, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        group = await context.groups.describe(request.group_id)
        is_active = group.state is not GroupState.EMPTY
        subscribed: Iterable[str] = subscription.topics(group) if is_active else ()
        if is_active and group.protocol_type != "consumer":
            return OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
        topics = []
        forget: list[PartitionKey] = []
        for topic in request.topics:
            found = await find(context, caller, topic.name, Operation.READ)
            partitions = []
            for partition in topic.partitions:
                answer = OffsetDeleteResponse.Partition(partition_index=partition.partition_index)
                partitions.append(answer)
                if isinstance(found, ErrorCode):
                    answer.error_code = found
                elif not 0 <= partition.partition_index < found.partition_count:
                    answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif topic.name in subscribed:
                    answer.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                else:
                    forget.append(found.partition(partition.partition_index))
            topics.append(OffsetDeleteResponse.Topic(name=topic.name, partitions=partitions))
        details = f"offsets of {', '.join(topic.name for topic in request.topics)}"
        with context.streams.audit.change(
            caller.who, Operation.DELETE, Resource.GROUP.value, request.group_id, details
        ):
            await context.groups.delete_offsets(request.group_id, forget)
    except GroupRefusal as refusal:
        return OffsetDeleteResponse(error_code=code_of(refusal))
    return OffsetDeleteResponse(topics=topics)
