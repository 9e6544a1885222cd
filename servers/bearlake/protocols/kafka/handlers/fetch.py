"""Fetch: long polls over many partitions; responses reference runs of whole batches without copying them.

The server keeps no fetch sessions (KIP-227): it always returns session id 0, so every request lists all its partitions and any server
can handle it. A request that continues a session gets FETCH_SESSION_ID_NOT_FOUND. While clients do not read their responses, fetches
return fewer bytes. Errors are per partition. A consumer of committed records gets empty batches in place of aborted ones, so its list of
aborted transactions is empty (decision 131). Partitions of internal topics are always empty; a request for them waits as any other does.
`fetch_at_tail.py` handles most requests at the end of the log.

Source: KIP-74 (limits), KIP-98 (isolation), KIP-227, KIP-320 (leader epochs), KIP-516 (topic ids).
"""

import asyncio
from itertools import chain

from bearlake.errors import BearlakeError, NotFound, Overloaded, Unavailable
from bearlake.metadata.model import PartitionKey
from bearlake.protocols.kafka.context import EPOCH_MAX, Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode, code_of
from bearlake.protocols.kafka.handlers.list_offsets import find
from bearlake.protocols.kafka.messages import FetchRequest, FetchResponse, ShareFetchResponse
from bearlake.streams.catalog import StreamView
from bearlake.streams.fetched import Fetched, FetchRange
from bearlake.streams.internal_topics import is_internal
from bearlake.streams.principal import Operation
from bearlake.streams.turns import Turns
from bearlake.telemetry import metrics

_TOPIC_IDS_FROM = 13
_FULL_SESSION_EPOCHS = (0, -1)  # 0 starts a session, -1 uses none
_BYTES_MAX_LEAST = 1024 * 1024

READ_COMMITTED = 1
"""The isolation level of consumers that see neither open nor aborted transactions (KIP-98)."""


async def handle(context: KafkaContext, caller: Caller, request: FetchRequest) -> FetchResponse:
    """Read all requested partitions; waits for `min_bytes`, at most `max_wait_ms`."""
    if request.session_epoch not in _FULL_SESSION_EPOCHS:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    asked = _Asked()
    turns = Turns()
    for topic in request.topics:
        answers: list[FetchResponse.Partition] = []
        asked.topics.append(FetchResponse.Topic(topic=topic.topic, topic_id=topic.topic_id, partitions=answers))
        found = await _resolve(context, caller, topic)
        for partition in topic.partitions:
            if turns.is_over():
                await asyncio.sleep(0)
            answer = asked.add(found, partition)
            if answer is not None:
                answers.append(answer)
    if asked.ranges or asked.empties:
        await _read(context, caller, request, asked, turns)
    return FetchResponse(responses=asked.topics)


class _Asked:
    """The partitions of a request, with their answers."""

    def __init__(self) -> None:
        self.topics: list[FetchResponse.Topic] = []
        self.ranges: list[FetchRange] = []
        self.answers: list[tuple[FetchResponse.Partition, str]] = []
        """The answer and the topic's name for each of `ranges`."""
        self.empties: list[tuple[FetchResponse.Partition, str, Fetched]] = []
        """The partitions of internal topics."""
        self.has_errors = False
        self._keys: set[PartitionKey] = set()

    def add(self, found: StreamView | ErrorCode, partition: FetchRequest.Partition) -> FetchResponse.Partition | None:
        """Add a partition of a topic; returns its answer, None if it is already asked for: Kafka, too, answers it once."""
        answer = FetchResponse.Partition(
            partition_index=partition.partition, high_watermark=-1, last_stable_offset=-1, records=b""
        )
        if code := _check(found, partition):
            self.has_errors = True
            _refuse(answer, code)
            return answer
        assert isinstance(found, StreamView)
        key = found.partition(partition.partition)
        if key in self._keys:
            return None
        self._keys.add(key)
        item = FetchRange(key, partition.fetch_offset, partition.partition_max_bytes)
        if is_internal(found):
            self.empties.append((answer, found.name, Fetched(item, start=0, end=0, last_stable=0)))
        else:
            self.ranges.append(item)
            self.answers.append((answer, found.name))
        return answer


async def _read(context: KafkaContext, caller: Caller, request: FetchRequest, asked: _Asked, turns: Turns) -> None:
    """Read what is asked for, and fill in the answers."""
    results = await context.streams.fetch(
        asked.ranges,
        bytes_min=0 if asked.has_errors else request.min_bytes,
        bytes_max=min(request.max_bytes, room(context)),
        wait_ms=max(request.max_wait_ms, 0),
        is_committed=request.isolation_level == READ_COMMITTED,
    )
    read = ((answer, name, result) for (answer, name), result in zip(asked.answers, results, strict=True))
    for answer, name, result in chain(read, asked.empties):
        if turns.is_over():
            await asyncio.sleep(0)
        if context.streams.may(caller.who, Operation.READ, name):
            _fill(answer, result, caller)
        else:  # the access rules changed while the request waited
            _refuse(answer, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def size_of(response: FetchResponse | ShareFetchResponse) -> int:
    """Return the bytes of records in a response."""
    size = 0
    for topic in response.responses:
        for partition in topic.partitions:
            records = partition.records
            if records is not None:
                size += len(records) if isinstance(records, bytes | bytearray | memoryview) else sum(map(len, records))
    return size


def empty(response: FetchResponse) -> None:
    """Take all records out of a response, as Kafka does for a client over its quota: the client asks again."""
    for topic in response.responses:
        for partition in topic.partitions:
            partition.records = b""


def room(context: KafkaContext) -> int:
    """Bytes that one response may have: fewer while clients do not read their responses."""
    return max(context.settings.unsent_bytes_max - context.slow_readers.unread_bytes, _BYTES_MAX_LEAST)


async def _resolve(context: KafkaContext, caller: Caller, topic: FetchRequest.Topic) -> StreamView | ErrorCode:
    if context.is_redirecting:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if caller.version < _TOPIC_IDS_FROM:
        return await find(context, caller, topic.topic, Operation.READ)
    view = context.topics.peek_id(topic.topic_id)
    if view is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return view if context.streams.may(caller.who, Operation.READ, view.name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _check(found: StreamView | ErrorCode, partition: FetchRequest.Partition) -> ErrorCode:
    if isinstance(found, ErrorCode):
        return found
    if not 0 <= partition.partition < found.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.current_leader_epoch > EPOCH_MAX:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if partition.fetch_offset != 0 and is_internal(found):
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return ErrorCode.NONE


def _fill(answer: FetchResponse.Partition, result: Fetched, caller: Caller) -> None:
    if result.error is not None:
        _refuse(answer, _code(result.error, caller))
        return
    answer.high_watermark = result.end
    answer.last_stable_offset = result.last_stable
    answer.log_start_offset = result.start
    if result.views:
        answer.records = result.views
        metrics.FETCH_BYTES.inc(result.size_bytes)


def _refuse(answer: FetchResponse.Partition, code: ErrorCode) -> None:
    answer.error_code = code
    metrics.KAFKA_ERRORS.labels("FETCH", code.name).inc()


def _code(error: BearlakeError, caller: Caller) -> ErrorCode:
    if isinstance(error, Unavailable | Overloaded):
        return ErrorCode.KAFKA_STORAGE_ERROR  # the retriable code that consumers expect in a Fetch response
    if isinstance(error, NotFound) and caller.version >= _TOPIC_IDS_FROM:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return code_of(error)
