"""TxnOffsetCommit: offsets of a group that take effect when the transaction commits.

The group's coordinator serves it, as it serves OffsetCommit. Source: KIP-98, KIP-447 (members), KIP-890 (from version 5 on, it adds the
group to the transaction), KIP-1319 (from version 6 on, topics have ids, and clients know epochs of members).
"""

import asyncio

from bearlake.errors import BearlakeError
from bearlake.metadata.model import CommittedOffset, PartitionKey
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers import group_codes
from bearlake.protocols.kafka.handlers.absence import Absence
from bearlake.protocols.kafka.handlers.group_membership import may_read
from bearlake.protocols.kafka.handlers.group_offsets import checked_offset, resolve
from bearlake.protocols.kafka.handlers.transactions import BUMPS_FROM, DENIED, code_of
from bearlake.protocols.kafka.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from bearlake.protocols.kafka.rights import on_transaction
from bearlake.streams.catalog import StreamView
from bearlake.streams.groups.model import MemberRef
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.principal import Operation
from bearlake.streams.transactions import TransactionRefusal
from bearlake.streams.turns import Turns

_TOPIC_IDS_FROM = 6
_OF_GENERATIONS = frozenset({Problem.STALE_MEMBER_EPOCH, Problem.NOT_FOUND})
"""Refusals that clients of earlier versions know as ILLEGAL_GENERATION."""


async def commit(context: KafkaContext, caller: Caller, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Keep a group's offsets until the transaction ends."""
    offsets: dict[PartitionKey, CommittedOffset] = {}
    waiting: list[TxnOffsetCommitResponse.Partition] = []
    topics: list[TxnOffsetCommitResponse.Topic] = []
    limit = context.groups.settings.offset_metadata_bytes_max
    absence = Absence(context.topics)
    turns = Turns()
    has_ids = caller.version >= _TOPIC_IDS_FROM
    named = await resolve(context, caller, Operation.READ, request.topics, absence, has_ids=has_ids)
    for found, topic in zip(named, request.topics, strict=True):
        view = found
        partitions: list[TxnOffsetCommitResponse.Partition] = []
        topics.append(TxnOffsetCommitResponse.Topic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
        for partition in topic.partitions:
            if turns.is_over():
                await asyncio.sleep(0)
            answer = TxnOffsetCommitResponse.Partition(partition_index=partition.partition_index)
            partitions.append(answer)
            if isinstance(view, StreamView) and partition.partition_index >= view.partition_count:
                view = await absence.grown(view)
            offset = checked_offset(view, partition, limit)
            if isinstance(offset, ErrorCode):
                answer.error_code = offset
            else:
                offsets.update([offset])
                waiting.append(answer)
    code = await _keep(context, caller, request, offsets)
    for answer in waiting:
        answer.error_code = code
    return TxnOffsetCommitResponse(topics=topics)


async def _keep(
    context: KafkaContext,
    caller: Caller,
    request: TxnOffsetCommitRequest,
    offsets: dict[PartitionKey, CommittedOffset],
) -> ErrorCode:
    if not on_transaction(context, caller, Operation.WRITE, request.transactional_id):
        return DENIED
    if not may_read(context, caller, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not offsets:  # nothing that a transaction could be begun for
        return ErrorCode.NONE
    member = MemberRef(
        group=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
    )
    try:
        await context.streams.transactions.keep_offsets(
            request.transactional_id,
            (request.producer_id, request.producer_epoch),
            request.group_id,
            offsets,
            lambda write: context.groups.write_offsets(member, offsets, write),
            begins=caller.version >= BUMPS_FROM,
        )
    except GroupRefusal as refusal:
        if refusal.problem in _OF_GENERATIONS and caller.version < _TOPIC_IDS_FROM:
            return ErrorCode.ILLEGAL_GENERATION
        return group_codes.code_of(refusal)
    except (TransactionRefusal, BearlakeError) as error:
        return code_of(error, caller, "group")
    return ErrorCode.NONE
