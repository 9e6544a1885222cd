"""ShareAcknowledge, and the acknowledgements in a ShareFetch: members of share groups say what became of the records that they acquired.

Source: KIP-932, KIP-1222 (renew); Apache Kafka 4.3 for the order of checks and their texts.
"""

import asyncio
from collections.abc import Mapping, Sequence

from bearlake.errors import BearlakeError
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers.coordinated_groups import Refused
from bearlake.protocols.kafka.handlers.share_requests import (
    AT_ONCE,
    check_counts,
    find_partition,
    key_of,
    release,
    share_code_of,
)
from bearlake.protocols.kafka.messages import ShareAcknowledgeRequest, ShareAcknowledgeResponse, ShareFetchRequest
from bearlake.protocols.kafka.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SessionKey,
    SessionProblem,
    TopicPartition,
)
from bearlake.streams.subscriptions.share.acknowledgements import ShareAck
from bearlake.telemetry import metrics

_ACKS_AT_ONCE = 2_000
"""Acknowledgement batches and types that are applied in one turn: at most some 10 ms."""

Problem = tuple[ErrorCode, str | None]
Batches = Sequence[ShareFetchRequest.AcknowledgementBatch] | Sequence[ShareAcknowledgeRequest.AcknowledgementBatch]


async def acknowledge(
    context: KafkaContext, caller: Caller, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    """Apply acknowledgements; they are saved when this returns."""
    try:
        key = key_of(context, caller, request.group_id, request.member_id)
        if request.share_session_epoch == INITIAL_EPOCH:
            raise Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        check_counts(context, request, ())
        session = context.share_sessions.next(key, request.share_session_epoch, caller.peer)
    except Refused as refused:
        return ShareAcknowledgeResponse(error_code=refused.code, error_message=refused.message, responses=[])
    except SessionProblem as problem:
        return ShareAcknowledgeResponse(error_code=problem.code, error_message=str(problem), responses=[])
    problems = await apply_all(context, caller, key, acks_of(request))
    if request.share_session_epoch == FINAL_EPOCH:
        context.share_sessions.close(key)
        await release(context, key, session)
    topics: dict[bytes, ShareAcknowledgeResponse.Topic] = {}
    for (topic_id, index), (code, message) in problems.items():
        topic = topics.setdefault(topic_id, ShareAcknowledgeResponse.Topic(topic_id=topic_id, partitions=[]))
        topic.partitions.append(
            ShareAcknowledgeResponse.Partition(
                partition_index=index,
                error_code=code,
                error_message=message,
                current_leader=ShareAcknowledgeResponse.Leader(leader_id=-1, leader_epoch=-1),
            )
        )
    lock_ms = context.shares.terms_of(key.group).lock_ms
    return ShareAcknowledgeResponse(acquisition_lock_timeout_ms=lock_ms, responses=list(topics.values()))


def acks_of(request: ShareFetchRequest | ShareAcknowledgeRequest) -> dict[TopicPartition, Batches]:
    """Return a request's acknowledgements by partition."""
    return {
        (topic.topic_id, item.partition_index): item.acknowledgement_batches
        for topic in request.topics
        for item in topic.partitions
        if item.acknowledgement_batches
    }


async def apply_all(
    context: KafkaContext, caller: Caller, key: SessionKey, acks: Mapping[TopicPartition, Batches]
) -> dict[TopicPartition, Problem]:
    """Apply acknowledgements; returns the outcome of each partition, saved if there is no error."""
    found: dict[TopicPartition, Problem] = {}
    part: list[TopicPartition] = []
    count = 0
    for item, batches in acks.items():
        part.append(item)
        count += _size_of(batches)
        if len(part) == AT_ONCE or count > _ACKS_AT_ONCE:
            found.update(await _apply_some(context, caller, key, part, acks))
            part, count = [], 0
    found.update(await _apply_some(context, caller, key, part, acks))
    return found


async def _apply_some(
    context: KafkaContext,
    caller: Caller,
    key: SessionKey,
    items: Sequence[TopicPartition],
    acks: Mapping[TopicPartition, Batches],
) -> dict[TopicPartition, Problem]:
    problems = await asyncio.gather(*(_apply(context, caller, key, item, acks[item]) for item in items))
    return dict(zip(items, problems, strict=True))


async def _apply(
    context: KafkaContext, caller: Caller, key: SessionKey, item: TopicPartition, batches: Batches
) -> Problem:
    partition = find_partition(context, caller, item)
    if isinstance(partition, ErrorCode):
        return partition, None
    count_max = context.streams.settings.groups.share.partition_record_locks_max
    if _size_of(batches) > 2 * count_max:  # a batch and a type for each record that can be in flight
        return (
            ErrorCode.INVALID_REQUEST,
            f"A request acknowledges at most {count_max} records of a partition one by one.",
        )
    acks = [ShareAck(batch.first_offset, batch.last_offset + 1, batch.acknowledge_types) for batch in batches]
    try:
        await context.shares.acknowledge(key.group, partition, key.member, acks)
    except BearlakeError as error:
        code = share_code_of(error)
        metrics.KAFKA_ERRORS.labels("SHARE_ACKNOWLEDGE", code.name).inc()
        return code, str(error)
    return ErrorCode.NONE, None


def _size_of(batches: Batches) -> int:
    """The number of acknowledgement batches and of their types."""
    return len(batches) + sum(len(batch.acknowledge_types) for batch in batches)
