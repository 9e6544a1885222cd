"""DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets: where share groups are in their partitions.

The group's coordinator answers: it knows in which streams the group has state. Offsets are changed by the partitions' dispatchers, only
while the group has no members.

Source: KIP-932, KIP-1226 (lag); Apache Kafka 4.3 for codes and texts.
"""

import asyncio
from collections.abc import Sequence

from bearlake.errors import BearlakeError, NotFound
from bearlake.protocols.kafka.codec import UUID_ZERO
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode, code_of
from bearlake.protocols.kafka.handlers import group_codes
from bearlake.protocols.kafka.handlers.group_membership import may_describe, may_read
from bearlake.protocols.kafka.messages import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from bearlake.protocols.kafka.rights import on_group
from bearlake.streams.catalog import StreamView
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.principal import Operation, Resource
from bearlake.streams.share_deletion import delete_share_group, forget
from bearlake.streams.turns import Turns, in_turns

_UNKNOWN_OFFSET = -1
_AT_ONCE = 32
"""Partitions that are changed at once."""


async def describe(
    context: KafkaContext, caller: Caller, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """The start offsets and lags of each group; -1 for partitions in which it has no state."""
    return DescribeShareGroupOffsetsResponse(
        groups=[await _describe(context, caller, group) async for part in in_turns(request.groups) for group in part]
    )


async def _describe(
    context: KafkaContext, caller: Caller, asked: DescribeShareGroupOffsetsRequest.Group
) -> DescribeShareGroupOffsetsResponse.Group:
    answer = DescribeShareGroupOffsetsResponse.Group(group_id=asked.group_id, topics=[])
    if not may_describe(context, caller, asked.group_id):
        answer.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return answer
    try:
        group = await context.share_groups.describe(asked.group_id)
        if asked.topics is None:
            views = [view for number in sorted(group.known) if (view := context.streams.catalog.peek_number(number))]
            seen = [view for view in views if context.streams.sees(caller.who, Operation.DESCRIBE, view.name)]
            topics = [await _positions(context, asked.group_id, view, range(view.partition_count)) for view in seen]
            answer.topics = [_with_state(topic) for topic in topics]
        else:
            answer.topics = [
                await _topic(context, caller, asked.group_id, topic)
                async for part in in_turns(asked.topics)
                for topic in part
            ]
    except GroupRefusal as refusal:
        answer.error_code, answer.error_message = group_codes.code_of(refusal), str(refusal)
    except BearlakeError as error:
        answer.error_code, answer.error_message = ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)
    return answer


async def _topic(
    context: KafkaContext, caller: Caller, group: str, topic: DescribeShareGroupOffsetsRequest.Topic
) -> DescribeShareGroupOffsetsResponse.Topic:
    found = await _find(context, caller, topic.topic_name, Operation.DESCRIBE)
    if isinstance(found, StreamView):
        return await _positions(context, group, found, topic.partitions)
    failed = [_failed(index, found) async for part in in_turns(topic.partitions) for index in part]
    return DescribeShareGroupOffsetsResponse.Topic(topic_name=topic.topic_name, topic_id=UUID_ZERO, partitions=failed)


async def _positions(
    context: KafkaContext, group: str, view: StreamView, indexes: Sequence[int]
) -> DescribeShareGroupOffsetsResponse.Topic:
    keys = {
        index: view.partition(index)
        async for part in in_turns(indexes)
        for index in part
        if 0 <= index < view.partition_count
    }
    positions = await context.shares.positions(group, list(keys.values()))
    partitions = []
    turns = Turns()
    for index in indexes:
        if turns.is_over():
            await asyncio.sleep(0)
        if index not in keys:
            partitions.append(_failed(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            continue
        position = positions.get(keys[index])
        partitions.append(
            DescribeShareGroupOffsetsResponse.Partition(
                partition_index=index,
                start_offset=_UNKNOWN_OFFSET if position is None else position.start,
                lag=-1 if position is None else position.lag,
            )
        )
    return DescribeShareGroupOffsetsResponse.Topic(topic_name=view.name, topic_id=view.id_bytes, partitions=partitions)


def _with_state(topic: DescribeShareGroupOffsetsResponse.Topic) -> DescribeShareGroupOffsetsResponse.Topic:
    topic.partitions = [item for item in topic.partitions if item.start_offset != _UNKNOWN_OFFSET]
    return topic


def _failed(index: int, code: ErrorCode) -> DescribeShareGroupOffsetsResponse.Partition:
    return DescribeShareGroupOffsetsResponse.Partition(
        partition_index=index, start_offset=_UNKNOWN_OFFSET, lag=-1, error_code=code
    )


async def _find(context: KafkaContext, caller: Caller, name: str, operation: Operation) -> StreamView | ErrorCode:
    if not context.streams.may(caller.who, operation, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    try:
        return await context.streams.catalog.find(name)
    except NotFound:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except BearlakeError as error:
        return code_of(error)


# -- changes ---------------------------------------------------------------------------------------------------------


async def alter(
    context: KafkaContext, caller: Caller, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Set the start offsets of an empty group, which is created if needed."""
    if not may_read(context, caller, request.group_id):
        return AlterShareGroupOffsetsResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, responses=[])
    found = {
        topic.topic_name: await _find(context, caller, topic.topic_name, Operation.READ)
        async for part in in_turns(request.topics)
        for topic in part
    }
    views = [view for view in found.values() if isinstance(view, StreamView)]
    partition_counts = {view.stream.number: view.partition_count for view in views}
    try:
        await context.share_groups.note_streams(request.group_id, partition_counts)
    except GroupRefusal as refusal:
        return AlterShareGroupOffsetsResponse(
            error_code=group_codes.code_of(refusal), error_message=str(refusal), responses=[]
        )
    with context.streams.audit.change(
        caller.who, Operation.ALTER, Resource.GROUP.value, request.group_id, "share group offsets"
    ):
        answers = [
            await _alter_topic(context, request.group_id, topic, found[topic.topic_name])
            async for part in in_turns(request.topics)
            for topic in part
        ]
    return AlterShareGroupOffsetsResponse(responses=answers)


async def _alter_topic(
    context: KafkaContext, group: str, topic: AlterShareGroupOffsetsRequest.Topic, found: StreamView | ErrorCode
) -> AlterShareGroupOffsetsResponse.Topic:
    async def alter_partition(
        item: AlterShareGroupOffsetsRequest.Partition,
    ) -> AlterShareGroupOffsetsResponse.Partition:
        code, message = ErrorCode.NONE, None
        if isinstance(found, ErrorCode):
            code = found
        elif not 0 <= item.partition_index < found.partition_count:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            try:
                await context.shares.reset(group, found.partition(item.partition_index), item.start_offset)
            except BearlakeError as error:
                code, message = code_of(error), str(error)
        return AlterShareGroupOffsetsResponse.Partition(
            partition_index=item.partition_index, error_code=code, error_message=message
        )

    partitions = []
    for start in range(0, len(topic.partitions), _AT_ONCE):
        partitions += await asyncio.gather(*map(alter_partition, topic.partitions[start : start + _AT_ONCE]))
    topic_id = found.id_bytes if isinstance(found, StreamView) else UUID_ZERO
    return AlterShareGroupOffsetsResponse.Topic(topic_name=topic.topic_name, topic_id=topic_id, partitions=partitions)


async def delete(
    context: KafkaContext, caller: Caller, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Delete what an empty group has in the topics."""
    if not on_group(context, caller, Operation.DELETE, request.group_id):
        return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, responses=[])
    try:
        known = set((await context.share_groups.check_empty(request.group_id)).known)
        await context.streams.catalog.catch_up()  # another server may have added partitions
    except GroupRefusal as refusal:
        return DeleteShareGroupOffsetsResponse(
            error_code=group_codes.code_of(refusal), error_message=str(refusal), responses=[]
        )
    except BearlakeError as error:
        return DeleteShareGroupOffsetsResponse(
            error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=str(error), responses=[]
        )
    answers = []
    with context.streams.audit.change(
        caller.who, Operation.DELETE, Resource.GROUP.value, request.group_id, "share group offsets"
    ):
        turns = Turns()
        for topic in request.topics:
            if turns.is_over():
                await asyncio.sleep(0)
            answer = DeleteShareGroupOffsetsResponse.Topic(topic_name=topic.topic_name, topic_id=UUID_ZERO)
            answers.append(answer)
            found = await _find(context, caller, topic.topic_name, Operation.READ)
            if isinstance(found, ErrorCode):
                answer.error_code = found
                continue
            answer.topic_id = found.id_bytes
            if found.stream.number not in known:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                answer.error_message = "There is no offset information to delete."
                continue
            try:
                partitions = list(found.partitions())
                await forget(context.shares, request.group_id, partitions)
                await context.share_groups.forget_stream(request.group_id, found.stream.number)
                await forget(context.shares, request.group_id, partitions)  # what a late request has created meanwhile
            except GroupRefusal as refusal:
                answer.error_code, answer.error_message = group_codes.code_of(refusal), str(refusal)
            except BearlakeError as error:
                answer.error_code, answer.error_message = code_of(error), str(error)
    return DeleteShareGroupOffsetsResponse(responses=answers)


async def delete_group(context: KafkaContext, group: str) -> None:
    """Delete an empty group, and what it has in all topics. Raises `GroupRefusal`."""
    known = (await context.share_groups.check_empty(group)).known
    await delete_share_group(group, known, context.streams.catalog, context.shares, context.groups.delete)
