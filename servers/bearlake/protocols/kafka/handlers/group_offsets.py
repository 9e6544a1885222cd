"""OffsetCommit, OffsetFetch, OffsetDelete.

Offsets belong to one incarnation of a stream: a stream that is deleted and created again has none. OffsetFetch returns -1 without an
error for a partition that has no committed offset. Source: KIP-211, KIP-447 (require_stable), KIP-709 (several groups), KIP-848 (topic ids
from version 10 on).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from bearlake.errors import Overloaded, Unavailable
from bearlake.metadata.model import CommittedOffset, PartitionKey, partition_index, stream_number
from bearlake.protocols.kafka.codec import UUID_ZERO, ApiKey
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers.absence import Absence
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
    TxnOffsetCommitRequest,
)
from bearlake.protocols.kafka.rendered import Rendered, render
from bearlake.protocols.kafka.rights import on_group
from bearlake.records.batch import NO_LEADER_EPOCH
from bearlake.streams.catalog import StreamView
from bearlake.streams.groups import subscription
from bearlake.streams.groups.model import GroupKind, GroupState, MemberRef
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.principal import Operation, Resource
from bearlake.streams.turns import Turns, in_turns

_TOPIC_IDS_FROM = 10
_MEMBER_EPOCH_FROM = 9
_MANY_GROUPS_FROM = 8
_GROUP_ERROR_FROM = 2
_KEYS_AT_ONCE = 2_000
"""Partitions of a topic that are looked at in one turn of the event loop: 1 ms."""
NOT_COMMITTED = CommittedOffset(offset=-1)
UNSTABLE = CommittedOffset(offset=-1)
"""The offset of a partition that an ongoing transaction may change: a client that requires stable offsets asks again (KIP-447)."""


async def resolve(
    context: KafkaContext,
    caller: Caller,
    operation: Operation,
    topics: Sequence[OffsetCommitRequest.Topic | OffsetFetchRequest.GroupTopic | TxnOffsetCommitRequest.Topic],
    absence: Absence,
    *,
    has_ids: bool,
) -> list[StreamView | ErrorCode]:
    """The requested topics, by id or by name, or their error codes."""
    found: list[StreamView | ErrorCode] = []
    async for part in in_turns(topics):
        for topic in part:
            if has_ids:
                found.append(await _by_id(context, caller, operation, topic.topic_id, absence))
            else:
                found.append(await find(context, caller, topic.name, operation))
    return found if has_ids else await _current_topics(context, found)


async def _by_id(
    context: KafkaContext, caller: Caller, operation: Operation, topic_id: bytes, absence: Absence
) -> StreamView | ErrorCode:
    found = await absence.by_id(topic_id)
    if isinstance(found, ErrorCode) or context.streams.may(caller.who, operation, found.name):
        return found
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def _current_topics(context: KafkaContext, found: list[StreamView | ErrorCode]) -> list[StreamView | ErrorCode]:
    """Replace topics that another server has deleted: by those that it then created with the same names, or by error codes.

    Offsets belong to one incarnation. An offset that is committed for a deleted one is lost, and one that is read for it misleads.
    """
    views = [view for view in found if isinstance(view, StreamView)]
    if not views:
        return found
    current: Mapping[str, StreamView] = {}
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        current = await context.topics.current(views)
    except (Unavailable, Overloaded):
        missing = ErrorCode.KAFKA_STORAGE_ERROR
    return [current.get(view.name, missing) if isinstance(view, StreamView) else view for view in found]


async def commit(context: KafkaContext, caller: Caller, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commit all valid offsets in one transaction.

    Where this server cannot know whether a partition exists, the code is one after which clients commit again.
    """
    offsets: dict[PartitionKey, CommittedOffset] = {}
    answers: list[OffsetCommitResponse.Partition] = []
    topics: list[OffsetCommitResponse.Topic] = []
    turns = Turns()
    limit = context.groups.settings.offset_metadata_bytes_max
    absence = Absence(context.topics)
    has_ids = caller.version >= _TOPIC_IDS_FROM
    views = await resolve(context, caller, Operation.READ, request.topics, absence, has_ids=has_ids)
    for found, topic in zip(views, request.topics, strict=True):
        partitions: list[OffsetCommitResponse.Partition] = []
        topics.append(OffsetCommitResponse.Topic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
        view = found
        for partition in topic.partitions:
            if turns.is_over():
                await asyncio.sleep(0)
            if isinstance(view, StreamView) and partition.partition_index >= view.partition_count:
                view = await absence.grown(view)
            checked = checked_offset(view, partition, limit)
            answer = OffsetCommitResponse.Partition(partition_index=partition.partition_index)
            partitions.append(answer)
            if isinstance(checked, ErrorCode):
                answer.error_code = checked
                continue
            answers.append(answer)
            offsets.update([checked])
    code = await _commit(context, caller, request, offsets)
    for answer in answers:
        answer.error_code = code
    return OffsetCommitResponse(topics=topics)


def checked_offset(
    found: StreamView | ErrorCode,
    partition: OffsetCommitRequest.Partition | TxnOffsetCommitRequest.Partition,
    metadata_bytes_max: int,
) -> tuple[PartitionKey, CommittedOffset] | ErrorCode:
    """Return the partition and the offset that is committed for it, or why it is refused. `found`: its topic, or why there is none."""
    if isinstance(found, ErrorCode):  # after COORDINATOR_NOT_AVAILABLE, clients commit again
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if found is ErrorCode.KAFKA_STORAGE_ERROR else found
    if not 0 <= partition.partition_index < found.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    text = partition.committed_metadata or ""
    if len(text.encode()) > metadata_bytes_max:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    if "\0" in text:  # PostgreSQL cannot store it
        return ErrorCode.INVALID_REQUEST
    epoch = max(partition.committed_leader_epoch, NO_LEADER_EPOCH)
    offset = CommittedOffset(offset=partition.committed_offset, leader_epoch=epoch, metadata=text)
    return found.partition(partition.partition_index), offset


async def _commit(
    context: KafkaContext,
    caller: Caller,
    request: OffsetCommitRequest,
    offsets: Mapping[PartitionKey, CommittedOffset],
) -> ErrorCode:
    if not may_read(context, caller, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    member = MemberRef(
        group=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
    )
    try:
        await context.groups.commit(member, offsets, knows_epochs=caller.version >= _MEMBER_EPOCH_FROM)
    except GroupRefusal as refusal:
        return code_of(refusal)
    return ErrorCode.NONE


class _Answer(NamedTuple):
    """The answer for one group; `topics` builds `partition_count` partitions, and may run in a thread."""

    group: OffsetFetchResponse.Group
    partition_count: int
    topics: Callable[[], list[OffsetFetchResponse.GroupTopic]]


async def fetch(context: KafkaContext, caller: Caller, request: OffsetFetchRequest) -> OffsetFetchResponse | Rendered:
    """The committed offsets of one group, or from version 8 on of several groups."""
    has_many = caller.version >= _MANY_GROUPS_FROM
    stable = request.require_stable
    answers = [
        await _fetch_group(context, caller, group, requires_stable=stable)
        for group in (request.groups if has_many else [_only_group(request)])
    ]

    def response() -> OffsetFetchResponse:
        for answer in answers:
            answer.group.topics = answer.topics()
        groups = [answer.group for answer in answers]
        return OffsetFetchResponse(groups=groups) if has_many else _flat(caller, groups[0])

    count = sum(answer.partition_count for answer in answers)
    return await render(context.workers, ApiKey.OFFSET_FETCH, caller.version, count, response)


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequest.Group:
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequest.GroupTopic(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequest.Group(group_id=request.group_id, topics=topics)


def _flat(caller: Caller, group: OffsetFetchResponse.Group) -> OffsetFetchResponse:
    """The response of versions that have one group."""
    partition_error = group.error_code if caller.version < _GROUP_ERROR_FROM else 0
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
                        error_code=item.error_code or partition_error,
                    )
                    for item in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )


async def _fetch_group(
    context: KafkaContext, caller: Caller, asked: OffsetFetchRequest.Group, *, requires_stable: bool
) -> _Answer:
    group = OffsetFetchResponse.Group(group_id=asked.group_id, topics=[])
    if not may_describe(context, caller, asked.group_id):
        group.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return _Answer(group, 0, list)
    absence = Absence(context.topics)
    try:
        if asked.member_id is not None or asked.member_epoch >= 0:
            await context.groups.check_fetch(asked.group_id, asked.member_id or "", asked.member_epoch)
        # Before the offsets: what is not pending now has its final offset in the answer.
        pending = await context.groups.pending(asked.group_id) if requires_stable else set()
        if asked.topics is None:
            found = await context.groups.offsets(asked.group_id)
            found |= dict.fromkeys(pending, UNSTABLE)
            seen = await _seen(context, caller, found, absence)
            return _Answer(group, len(found), partial(_all_topics, seen, found))
        has_ids = caller.version >= _TOPIC_IDS_FROM
        views = await resolve(context, caller, Operation.DESCRIBE, asked.topics, absence, has_ids=has_ids)
        keys = await _keys(asked.topics, views, absence)
        if ErrorCode.KAFKA_STORAGE_ERROR in views:  # a client that is told "no offset" would reset its position
            raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE)
        found = await context.groups.offsets(asked.group_id, keys) if keys else {}
        found |= dict.fromkeys(pending & keys, UNSTABLE)
    except GroupRefusal as refusal:
        group.error_code = code_of(refusal)
        if caller.version < _GROUP_ERROR_FROM and asked.topics is not None:
            return _Answer(group, _count(asked.topics), partial(list, map(_unread, asked.topics)))
        return _Answer(group, 0, list)
    return _Answer(group, _count(asked.topics), partial(_asked_topics, asked.topics, views, found))


def _count(topics: Sequence[OffsetFetchRequest.GroupTopic]) -> int:
    return sum(len(topic.partition_indexes) for topic in topics)


async def _keys(
    topics: Sequence[OffsetFetchRequest.GroupTopic], views: list[StreamView | ErrorCode], absence: Absence
) -> set[PartitionKey]:
    """The requested partitions that exist, in turns of the event loop; replaces views of streams that have grown."""
    keys: set[PartitionKey] = set()
    for place, topic in enumerate(topics):
        async for part in in_turns(topic.partition_indexes, _KEYS_AT_ONCE):
            view = views[place]
            if isinstance(view, StreamView) and max(part) >= view.partition_count:
                view = views[place] = await absence.grown(view)
            if isinstance(view, StreamView):
                keys.update(view.partition(index) for index in part if 0 <= index < view.partition_count)
    return keys


async def _seen(
    context: KafkaContext, caller: Caller, found: Collection[PartitionKey], absence: Absence
) -> dict[int, StreamView]:
    """The streams of these partitions that the caller may describe, by number; the offsets of deleted streams are deleted with them.

    Raises `GroupRefusal` if this server cannot know whether a stream is deleted.
    """
    seen: dict[int, StreamView] = {}
    async for part in in_turns(list({stream_number(key) for key in found})):
        for number in part:
            view = await absence.by_number(number)
            if view is ErrorCode.KAFKA_STORAGE_ERROR:
                raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE)
            if isinstance(view, StreamView) and context.streams.sees(caller.who, Operation.DESCRIBE, view.name):
                seen[number] = view
    return seen


def _asked_topics(
    topics: Sequence[OffsetFetchRequest.GroupTopic],
    views: Sequence[StreamView | ErrorCode],
    found: Mapping[PartitionKey, CommittedOffset],
) -> list[OffsetFetchResponse.GroupTopic]:
    answer = []
    for view, topic in zip(views, topics, strict=True):
        partitions = []
        for index in topic.partition_indexes:
            if isinstance(view, StreamView) and 0 <= index < view.partition_count:
                partitions.append(_partition(index, found.get(view.partition(index), NOT_COMMITTED)))
            else:
                item = _partition(index, NOT_COMMITTED)
                if view is ErrorCode.UNKNOWN_TOPIC_ID or view is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    item.error_code = view
                partitions.append(item)
        answer.append(
            OffsetFetchResponse.GroupTopic(name=topic.name, topic_id=topic.topic_id or UUID_ZERO, partitions=partitions)
        )
    return answer


def _unread(topic: OffsetFetchRequest.GroupTopic) -> OffsetFetchResponse.GroupTopic:
    """A topic whose offsets could not be read, for versions that report errors only per partition."""
    partitions = [_partition(index, NOT_COMMITTED) for index in topic.partition_indexes]
    return OffsetFetchResponse.GroupTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _all_topics(
    seen: Mapping[int, StreamView], found: Mapping[PartitionKey, CommittedOffset]
) -> list[OffsetFetchResponse.GroupTopic]:
    topics: dict[int, OffsetFetchResponse.GroupTopic] = {}
    for key in sorted(found):
        number = stream_number(key)
        view = seen.get(number)
        if view is None:
            continue
        topic = topics.setdefault(
            number, OffsetFetchResponse.GroupTopic(name=view.name, topic_id=view.id_bytes, partitions=[])
        )
        topic.partitions.append(_partition(partition_index(key), found[key]))
    return list(topics.values())


def _partition(index: int, offset: CommittedOffset) -> OffsetFetchResponse.GroupPartition:
    """The response for a committed offset, with the leader epoch that was committed, which may be another cluster's (decision 170)."""
    return OffsetFetchResponse.GroupPartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if offset is UNSTABLE else ErrorCode.NONE,
    )


async def delete(context: KafkaContext, caller: Caller, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete committed offsets of topics that no member is subscribed to."""
    if not on_group(context, caller, Operation.DELETE, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        group = await context.groups.describe(request.group_id)
        is_active = group.state is not GroupState.EMPTY
        subscribed: Iterable[str] = subscription.topics(group) if is_active else ()
        if is_active and group.protocol_type != "consumer" and group.kind is not GroupKind.STREAMS:
            return OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
        topics = []
        forget: list[PartitionKey] = []
        turns = Turns()
        resolved = [await find(context, caller, topic.name, Operation.READ) for topic in request.topics]
        for found, topic in zip(await _current_topics(context, resolved), request.topics, strict=True):
            partitions = []
            for partition in topic.partitions:
                if turns.is_over():
                    await asyncio.sleep(0)
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
