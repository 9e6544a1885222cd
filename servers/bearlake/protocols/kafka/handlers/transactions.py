"""The APIs of transactions. Every server serves every transactional id (`streams/transactions.py`); there is no coordinator to find.
Offsets of groups in transactions: `transaction_offsets.py`.

V1 (KIP-98): the client adds partitions and groups before it uses them. V2 (KIP-890, feature transaction.version 2): Produce from version 12
and TxnOffsetCommit from version 5 add them, and EndTxn from version 5 returns the epoch of the next transaction.

Source: KIP-98, KIP-360, KIP-447, KIP-664, KIP-890, KIP-994, KIP-1152.
"""

import asyncio

from bearlake.errors import BearlakeError, NotFound
from bearlake.metadata.defaults import is_group_name
from bearlake.metadata.model import PartitionKey, partition_index, stream_number
from bearlake.metadata.transaction_rules import NO_PRODUCER, Problem
from bearlake.metadata.transactions import TransactionState, is_transactional_id
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers.absence import Absence
from bearlake.protocols.kafka.handlers.group_membership import may_read
from bearlake.protocols.kafka.handlers.list_offsets import find
from bearlake.protocols.kafka.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from bearlake.protocols.kafka.rights import on_cluster, on_transaction
from bearlake.streams.catalog import StreamView
from bearlake.streams.internal_topics import is_internal
from bearlake.streams.principal import Operation
from bearlake.streams.transactions import TransactionRefusal
from bearlake.streams.turns import Turns, in_turns

STATES = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.COMPLETE_COMMIT: "CompleteCommit",
    TransactionState.COMPLETE_ABORT: "CompleteAbort",
}

_FENCED_FROM = {"init": 4, "partitions": 2, "offsets": 2, "end": 2}
"""The version from which on a response may have PRODUCER_FENCED; earlier ones have INVALID_PRODUCER_EPOCH (KIP-588)."""
DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
"""The caller may not use the transactional id."""
BUMPS_FROM = 5
"""The version of EndTxn and TxnOffsetCommit from which on clients use transactions of KIP-890."""
_BATCHED_FROM = 4


async def init(context: KafkaContext, caller: Caller, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """InitProducerId with a transactional id."""
    transactional_id = request.transactional_id
    assert transactional_id is not None
    expected = (request.producer_id, request.producer_epoch)
    answer = InitProducerIdResponse(producer_id=-1, producer_epoch=-1)
    if not is_transactional_id(transactional_id) or (expected[0] < 0) != (expected[1] < 0):
        answer.error_code = ErrorCode.INVALID_REQUEST
    elif not on_transaction(context, caller, Operation.WRITE, transactional_id):
        answer.error_code = DENIED
    elif not 0 < request.transaction_timeout_ms <= context.streams.transactions.settings.timeout_max_ms:
        answer.error_code = ErrorCode.INVALID_TRANSACTION_TIMEOUT
    else:
        try:
            answer.producer_id, answer.producer_epoch = await context.streams.transactions.initialize(
                transactional_id, request.transaction_timeout_ms, NO_PRODUCER if expected[0] < 0 else expected
            )
        except (TransactionRefusal, BearlakeError) as error:
            answer.error_code = code_of(error, caller, "init")
    return answer


async def add_partitions(
    context: KafkaContext, caller: Caller, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add partitions to a transaction: all, or none if one of them cannot be added."""
    if caller.version < _BATCHED_FROM:
        only = AddPartitionsToTxnRequest.Transaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _add(context, caller, only))
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResponse.Transaction(
                transactional_id=item.transactional_id, topic_results=await _add(context, caller, item)
            )
            for item in request.transactions
        ]
    )


async def _add(
    context: KafkaContext, caller: Caller, request: AddPartitionsToTxnRequest.Transaction
) -> list[AddPartitionsToTxnResponse.Topic]:
    topics: list[AddPartitionsToTxnResponse.Topic] = []
    partitions: list[PartitionKey] = []
    is_allowed = on_transaction(context, caller, Operation.WRITE, request.transactional_id)
    has_errors = False
    absence = Absence(context.topics)
    turns = Turns()
    for topic in request.topics:
        found = await find(context, caller, topic.name, Operation.WRITE) if is_allowed else DENIED
        results: list[AddPartitionsToTxnResponse.Partition] = []
        topics.append(AddPartitionsToTxnResponse.Topic(name=topic.name, results_by_partition=results))
        for index in topic.partitions:
            if turns.is_over():
                await asyncio.sleep(0)
            if isinstance(found, StreamView) and index >= found.partition_count:
                found = await absence.grown(found)
            code = ErrorCode.NONE
            if isinstance(found, ErrorCode):
                code = found
            elif not 0 <= index < found.partition_count:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif is_internal(found):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED  # as in Kafka
            else:
                partitions.append(found.partition(index))
            has_errors = has_errors or code is not ErrorCode.NONE
            results.append(AddPartitionsToTxnResponse.Partition(partition_index=index, partition_error_code=code))
    code = ErrorCode.OPERATION_NOT_ATTEMPTED
    if not has_errors:
        code = ErrorCode.NONE
        try:
            await context.streams.transactions.add(
                request.transactional_id, (request.producer_id, request.producer_epoch), partitions=partitions
            )
        except (TransactionRefusal, BearlakeError) as error:
            code = code_of(error, caller, "partitions")
    for topic_result in topics:
        for result in topic_result.results_by_partition:
            result.partition_error_code = result.partition_error_code or code
    return topics


async def add_offsets(
    context: KafkaContext, caller: Caller, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Add a group to a transaction."""
    if not on_transaction(context, caller, Operation.WRITE, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=DENIED)
    if not may_read(context, caller, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not is_group_name(request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        await context.streams.transactions.add(
            request.transactional_id, (request.producer_id, request.producer_epoch), group=request.group_id
        )
    except (TransactionRefusal, BearlakeError) as error:
        return AddOffsetsToTxnResponse(error_code=code_of(error, caller, "offsets"))
    return AddOffsetsToTxnResponse()


async def end(context: KafkaContext, caller: Caller, request: EndTxnRequest) -> EndTxnResponse:
    """Commit or abort; when this returns, readers of committed records see the result in all partitions."""
    if not on_transaction(context, caller, Operation.WRITE, request.transactional_id):
        return EndTxnResponse(error_code=DENIED)
    bumps = caller.version >= BUMPS_FROM
    try:
        producer_id, epoch = await context.streams.transactions.end(
            request.transactional_id,
            (request.producer_id, request.producer_epoch),
            is_commit=request.committed,
            bumps=bumps,
        )
    except (TransactionRefusal, BearlakeError) as error:
        return EndTxnResponse(error_code=code_of(error, caller, "end"))
    return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch) if bumps else EndTxnResponse()


async def describe(
    context: KafkaContext, caller: Caller, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """The state of each transactional id; of its partitions, those that the caller may see."""
    states = [
        await _describe(context, caller, name) async for part in in_turns(request.transactional_ids) for name in part
    ]
    return DescribeTransactionsResponse(transaction_states=states)


async def _describe(context: KafkaContext, caller: Caller, name: str) -> DescribeTransactionsResponse.State:
    answer = DescribeTransactionsResponse.State(transactional_id=name, transaction_state="", topics=[])
    if not on_transaction(context, caller, Operation.DESCRIBE, name):
        answer.error_code = DENIED
        return answer
    try:
        row, partitions = await context.streams.transactions.get(name)
    except NotFound:
        answer.error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return answer
    except BearlakeError:
        answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return answer
    answer.transaction_state = STATES[row.state]
    answer.transaction_timeout_ms = row.timeout_ms
    answer.transaction_start_time_ms = row.started_ms
    answer.producer_id, answer.producer_epoch = row.producer_id, row.epoch
    topics: dict[str, list[int]] = {}
    for key in partitions:
        view = context.streams.catalog.peek_number(stream_number(key))
        if view is not None and context.streams.sees(caller.who, Operation.DESCRIBE, view.name):
            topics.setdefault(view.name, []).append(partition_index(key))
    answer.topics = [
        DescribeTransactionsResponse.Topic(topic=topic, partitions=indexes) for topic, indexes in sorted(topics.items())
    ]
    return answer


async def write_markers(
    context: KafkaContext, caller: Caller, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Abort the transactions of these producers, for AdminClient.abortTransaction.

    A transaction ends in all its partitions at once. Only an abort is served: whether a transaction commits is decided by its producer.
    """
    is_allowed = on_cluster(context, caller, Operation.ALTER)
    markers = []
    for marker in request.markers:
        if not is_allowed:
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        elif marker.transaction_result:
            code = ErrorCode.INVALID_REQUEST
        else:
            code = await _abort(context, caller, marker.producer_id, marker.producer_epoch)
        markers.append(
            WriteTxnMarkersResponse.Marker(
                producer_id=marker.producer_id, topics=[_marked(topic, code) for topic in marker.topics]
            )
        )
    return WriteTxnMarkersResponse(markers=markers)


def _marked(topic: WriteTxnMarkersRequest.Topic, code: ErrorCode) -> WriteTxnMarkersResponse.Topic:
    partitions = [
        WriteTxnMarkersResponse.Partition(partition_index=index, error_code=code) for index in topic.partition_indexes
    ]
    return WriteTxnMarkersResponse.Topic(name=topic.name, partitions=partitions)


async def _abort(context: KafkaContext, caller: Caller, producer_id: int, epoch: int) -> ErrorCode:
    try:
        await context.streams.transactions.abort_all((producer_id, epoch))
    except TransactionRefusal:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    except BearlakeError as error:
        return code_of(error, caller, "markers")
    return ErrorCode.NONE


def code_of(error: Exception, caller: Caller, api: str) -> ErrorCode:
    """Return the code of an error of a transactional id, for this API of `_FENCED_FROM`."""
    if not isinstance(error, TransactionRefusal):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error.problem is Problem.FENCED:
        is_known = caller.version >= _FENCED_FROM.get(api, 1_000)
        return ErrorCode.PRODUCER_FENCED if is_known else ErrorCode.INVALID_PRODUCER_EPOCH
    if error.problem is Problem.INVALID_MAPPING:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if error.problem is Problem.TOO_MANY_GROUPS:
        return ErrorCode.POLICY_VIOLATION
    return ErrorCode.INVALID_TXN_STATE
