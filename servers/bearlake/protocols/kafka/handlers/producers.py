"""InitProducerId and DescribeProducers.

An idempotent producer gets a new id with epoch 0. The commit checks its sequences. Source: KIP-98, KIP-360, KIP-664.
"""

from bearlake.errors import BearlakeError, NotFound
from bearlake.protocols.kafka import apis
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode, code_of
from bearlake.protocols.kafka.handlers import transactions
from bearlake.protocols.kafka.handlers.list_offsets import find
from bearlake.protocols.kafka.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from bearlake.protocols.kafka.rights import may_take_producer_id
from bearlake.streams.catalog import StreamView
from bearlake.streams.internal_topics import is_internal
from bearlake.streams.principal import Operation
from bearlake.streams.turns import in_turns


async def init(context: KafkaContext, caller: Caller, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Return a new producer id, or that of a transactional id with its next epoch."""
    if request.transactional_id is not None:
        if apis.SERVES_TRANSACTIONS:
            return await transactions.init(context, caller, request)
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_id=-1, producer_epoch=-1)
    if not may_take_producer_id(context, caller):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    try:
        producer_id = await context.producer_ids.take()
    except BearlakeError:
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def describe(
    context: KafkaContext, caller: Caller, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """The active idempotent producers of each requested partition."""
    topics: list[DescribeProducersResponse.Topic] = []
    for topic in request.topics:
        found = await find(context, caller, topic.name, Operation.READ)
        partitions: list[DescribeProducersResponse.Partition] = []
        topics.append(DescribeProducersResponse.Topic(name=topic.name, partitions=partitions))
        async for part in in_turns(topic.partition_indexes):
            partitions += [await _describe(context, found, index) for index in part]
    return DescribeProducersResponse(topics=topics)


async def _describe(
    context: KafkaContext, found: StreamView | ErrorCode, index: int
) -> DescribeProducersResponse.Partition:
    answer = DescribeProducersResponse.Partition(partition_index=index, active_producers=[])
    if isinstance(found, ErrorCode):
        answer.error_code = found
        return answer
    try:
        partition = found.partition(index)
        if is_internal(found):
            return answer
        states = await context.streams.metadata.log.producers(partition)
        opened = await context.streams.metadata.transactions.open_offsets(partition=partition)
    except NotFound:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except BearlakeError as error:
        answer.error_code, answer.error_message = code_of(error), str(error)
    else:
        first_offsets = {item.producer_id: item.first_offset for item in opened}
        answer.active_producers = [
            DescribeProducersResponse.Producer(
                producer_id=state.producer_id,
                producer_epoch=state.producer_epoch,
                last_sequence=state.last_sequence,
                last_timestamp=state.last_timestamp_ms,
                coordinator_epoch=-1,
                current_txn_start_offset=first_offsets.get(state.producer_id, -1),
            )
            for state in states
        ]
    return answer
