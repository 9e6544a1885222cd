"""ListOffsets and OffsetForLeaderEpoch.

An offset has leader epoch 0, as in a Kafka without elections. Clients validate an offset only if Metadata has an epoch too, which it
has not (decision 170). For a client that validates nevertheless, every epoch ends at the partition's end: the log is never truncated.
Source: KIP-79, KIP-734, KIP-405, KIP-1005, KIP-1023 (special timestamps); KIP-320 (leader epochs).
"""

import asyncio

from bearlake.errors import BearlakeError, NotFound, Overloaded, Unavailable
from bearlake.metadata.model import PartitionKey
from bearlake.protocols.kafka.context import EPOCH_MAX, Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode, code_of
from bearlake.protocols.kafka.messages import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from bearlake.records.batch import NO_LEADER_EPOCH
from bearlake.streams.catalog import StreamView
from bearlake.streams.internal_topics import is_internal
from bearlake.streams.offsets import NOTHING, OffsetAnswer, OffsetQuestion, OffsetSpec
from bearlake.streams.principal import Operation
from bearlake.streams.turns import Turns, in_turns

EARLIEST_PENDING_UPLOAD = -6
"""KIP-1023. Without tiered storage there is no such offset; the response is -1."""
_SPECS = frozenset({*OffsetSpec, EARLIEST_PENDING_UPLOAD})
_BOUNDS = frozenset({OffsetSpec.EARLIEST, OffsetSpec.LATEST, OffsetSpec.EARLIEST_LOCAL})
_FIRST = OffsetAnswer(0)
"""Start and end of an internal topic, which has no records."""
_KNOWS_EPOCHS_FROM = 4
READ_COMMITTED = 1
"""The isolation level for which the latest offset is the last stable one (KIP-98)."""


async def handle(context: KafkaContext, caller: Caller, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Look up the offsets of all partitions: current values from the store, never cached values."""
    topics: list[ListOffsetsResponse.Topic] = []
    waiting: list[ListOffsetsResponse.Partition] = []
    questions: list[OffsetQuestion] = []
    asked: set[PartitionKey] = set()
    turns = Turns()
    for topic in request.topics:
        found = await find(context, caller, topic.name)
        partitions: list[ListOffsetsResponse.Partition] = []
        topics.append(ListOffsetsResponse.Topic(name=topic.name, partitions=partitions))
        for partition in topic.partitions:
            if turns.is_over():
                await asyncio.sleep(0)
            answer = ListOffsetsResponse.Partition(
                partition_index=partition.partition_index, timestamp=-1, offset=-1, leader_epoch=NO_LEADER_EPOCH
            )
            partitions.append(answer)
            answer.error_code = _check(found, partition)
            if not answer.error_code and partition.timestamp != EARLIEST_PENDING_UPLOAD:
                assert isinstance(found, StreamView)
                key = found.partition(partition.partition_index)
                if key in asked:  # as in Kafka: one request must not ask a million questions about one partition
                    answer.error_code = ErrorCode.INVALID_REQUEST
                    continue
                asked.add(key)
                if is_internal(found):
                    _fill(answer, _FIRST if partition.timestamp in _BOUNDS else NOTHING)
                    continue
                waiting.append(answer)
                questions.append(OffsetQuestion(key, partition.timestamp))
    results = await context.streams.offsets(questions, is_committed=request.isolation_level == READ_COMMITTED)
    async for part in in_turns(range(len(waiting))):
        for place in part:
            _fill(waiting[place], results[place])
    return ListOffsetsResponse(topics=topics)


async def find(
    context: KafkaContext, caller: Caller, name: str, operation: Operation = Operation.DESCRIBE
) -> StreamView | ErrorCode:
    """The stream or internal topic of that name if the caller may do `operation` to it, else the error code."""
    if not context.streams.may(caller.who, operation, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    try:
        return await context.topics.find(name)
    except NotFound:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except (Unavailable, Overloaded):
        return ErrorCode.KAFKA_STORAGE_ERROR


def _check(found: StreamView | ErrorCode, partition: ListOffsetsRequest.Partition) -> ErrorCode:
    if isinstance(found, ErrorCode):
        return found
    if not 0 <= partition.partition_index < found.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.current_leader_epoch > EPOCH_MAX:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if partition.timestamp < 0 and partition.timestamp not in _SPECS:
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


def _fill(answer: ListOffsetsResponse.Partition, result: OffsetAnswer) -> None:
    if result.error is not None:
        answer.error_code = _code(result.error)
        return
    answer.offset = result.offset
    answer.timestamp = result.timestamp
    if result.offset >= 0:
        answer.leader_epoch = EPOCH_MAX


def _code(error: BearlakeError) -> ErrorCode:
    return ErrorCode.KAFKA_STORAGE_ERROR if isinstance(error, Unavailable | Overloaded) else code_of(error)


async def for_leader_epoch(
    context: KafkaContext, caller: Caller, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """The end offset of an epoch, which is the partition's end.

    Of any epoch: a committed offset may have the epoch of another cluster, and to clients, an epoch that does not exist means lost records.
    """
    topics: list[OffsetForLeaderEpochResponse.Topic] = []
    waiting: list[tuple[OffsetForLeaderEpochResponse.Partition, PartitionKey]] = []
    turns = Turns()
    for topic in request.topics:
        found = await find(context, caller, topic.topic)
        partitions: list[OffsetForLeaderEpochResponse.Partition] = []
        topics.append(OffsetForLeaderEpochResponse.Topic(topic=topic.topic, partitions=partitions))
        for partition in topic.partitions:
            if turns.is_over():
                await asyncio.sleep(0)
            answer = OffsetForLeaderEpochResponse.Partition(
                partition=partition.partition, leader_epoch=-1, end_offset=-1
            )
            partitions.append(answer)
            if isinstance(found, ErrorCode):
                answer.error_code = found
            elif not 0 <= partition.partition < found.partition_count:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif partition.current_leader_epoch > EPOCH_MAX:
                answer.error_code = ErrorCode.UNKNOWN_LEADER_EPOCH
            elif partition.leader_epoch >= 0:
                answer.leader_epoch = partition.leader_epoch
                if is_internal(found):
                    answer.end_offset = 0
                    continue
                waiting.append((answer, found.partition(partition.partition)))
    try:
        bounds = await context.streams.bounds({partition for _, partition in waiting})
    except (Unavailable, Overloaded):
        for answer, _ in waiting:
            answer.error_code, answer.leader_epoch = ErrorCode.KAFKA_STORAGE_ERROR, NO_LEADER_EPOCH
    else:
        async for part in in_turns(waiting):
            for answer, key in part:
                if key in bounds:
                    answer.end_offset = bounds[key].end
                else:
                    answer.error_code, answer.leader_epoch = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_LEADER_EPOCH
    return OffsetForLeaderEpochResponse(topics=topics)
