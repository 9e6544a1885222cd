"""ShareFetch and ShareAcknowledge: members of share groups acquire records, and say what became of them (KIP-932).

Any server answers for any partition (decision 185). Acknowledgements in a ShareFetch are applied before records are acquired. Errors are
per partition, for acknowledgements and records apart.

Source: KIP-932, KIP-1206 (acquire mode), KIP-1222 (renew); Apache Kafka 4.3 for the order of checks and their texts.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence

from bearlake.errors import BearlakeError, Invalid, NotFound, Overloaded, Unavailable
from bearlake.metadata.model import PartitionKey
from bearlake.metadata.names import is_name
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode, code_of
from bearlake.protocols.kafka.handlers.fetch import room
from bearlake.protocols.kafka.handlers.group_membership import may_read
from bearlake.protocols.kafka.messages import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from bearlake.protocols.kafka.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SessionKey,
    SessionProblem,
    ShareSession,
    TopicPartition,
    is_member_id,
)
from bearlake.streams.catalog import StreamView
from bearlake.streams.groups.shares import NAME_BYTES_MAX
from bearlake.streams.principal import Operation
from bearlake.streams.subscriptions.model import NotHolder
from bearlake.streams.subscriptions.share.in_flight import InvalidRecordState, ShareAck
from bearlake.streams.subscriptions.share.terms import NoState, ShareAnswer, ShareAsk
from bearlake.streams.turns import Turns
from bearlake.telemetry import metrics

_RECORD_LIMIT = 1
"""Acquire mode: never more records than asked for."""
_AT_ONCE = 64
"""Partitions whose acknowledgements are applied at once."""
_ACKS_AT_ONCE = 2_000
"""Acknowledgement batches and types that are applied in one turn: at most some 10 ms."""

_KNOWN_TO_FETCHERS = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors of a partition that Java's consumer handles, besides UNKNOWN_SERVER_ERROR: any other one ends the application's poll."""

Problem = tuple[ErrorCode, str | None]
Batches = Sequence[ShareFetchRequest.AcknowledgementBatch] | Sequence[ShareAcknowledgeRequest.AcknowledgementBatch]


class _Refused(Exception):
    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


async def fetch(context: KafkaContext, caller: Caller, request: ShareFetchRequest) -> ShareFetchResponse:
    """Acknowledge, then acquire records of the session's partitions; waits for the first one, at most `max_wait_ms`."""
    try:
        key = _key(context, caller, request.group_id, request.member_id)
        _check_counts(context, request, request.forgotten_topics_data)
        acks = _acks(request)
        _check_fetch(request, acks)
        session = _session(context, caller, request, key)
    except _Refused as refused:
        return ShareFetchResponse(error_code=refused.code, error_message=refused.message, responses=[])
    except SessionProblem as problem:
        return ShareFetchResponse(error_code=problem.code, error_message=str(problem), responses=[])
    answers = _Answers()
    for item, (code, message) in (await _acknowledge_all(context, caller, key, acks)).items():
        answer = answers.of(item)
        answer.acknowledge_error_code, answer.acknowledge_error_message = code, message
    if request.share_session_epoch == FINAL_EPOCH:
        context.share_sessions.close(key)
        await release(context, key, session)
    elif not request.is_renew_ack and request.max_records > 0:
        await _acquire(context, caller, request, key, session, answers)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=context.shares.terms_of(key.group).lock_ms, responses=answers.topics()
    )


async def acknowledge(
    context: KafkaContext, caller: Caller, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    """Apply acknowledgements; they are saved when this returns."""
    try:
        key = _key(context, caller, request.group_id, request.member_id)
        if request.share_session_epoch == INITIAL_EPOCH:
            raise _Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        _check_counts(context, request, ())
        session = context.share_sessions.next(key, request.share_session_epoch, caller.peer)
    except _Refused as refused:
        return ShareAcknowledgeResponse(error_code=refused.code, error_message=refused.message, responses=[])
    except SessionProblem as problem:
        return ShareAcknowledgeResponse(error_code=problem.code, error_message=str(problem), responses=[])
    problems = await _acknowledge_all(context, caller, key, _acks(request))
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


async def release(context: KafkaContext, key: SessionKey, session: ShareSession) -> None:
    """Make what the member has acquired here, in the session's partitions, available to others; or else its locks expire."""

    async def release_partition(item: TopicPartition) -> None:
        view = context.streams.catalog.peek_id(item[0])
        if view is None or not 0 <= item[1] < view.partition_count:
            return
        try:
            await context.shares.release(key.group, view.partition(item[1]), key.member, _via(context))
        except BearlakeError:
            metrics.KAFKA_ERRORS.labels("SHARE_FETCH", ErrorCode.KAFKA_STORAGE_ERROR.name).inc()

    items = list(session.partitions)
    for start in range(0, len(items), _AT_ONCE):
        await asyncio.gather(*map(release_partition, items[start : start + _AT_ONCE]))


def disconnected(context: KafkaContext, peer: str) -> list[Coroutine[None, None, None]]:
    """End the sessions of a connection that is closed; returns the work that releases what their members hold."""
    return [release(context, key, session) for key, session in context.share_sessions.disconnected(peer)]


# -- checks ----------------------------------------------------------------------------------------------------------


def _key(context: KafkaContext, caller: Caller, group: str | None, member: str | None) -> SessionKey:
    if context.is_redirecting:
        raise _Refused(ErrorCode.SHARE_SESSION_NOT_FOUND)  # the client opens a session where the metadata sends it
    if not group or not is_name(group, NAME_BYTES_MAX):
        raise _Refused(ErrorCode.INVALID_REQUEST)
    if not may_read(context, caller, group):
        raise _Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not member or not is_member_id(member):
        raise _Refused(ErrorCode.INVALID_REQUEST, "The member id is not a UUID.")
    return SessionKey(group, member)


def _check_counts(
    context: KafkaContext,
    request: ShareFetchRequest | ShareAcknowledgeRequest,
    forgotten: Sequence[ShareFetchRequest.ForgottenTopic],
) -> None:
    """Refuse lists longer than those of any session, before something is done with each item."""
    count_max = context.streams.settings.groups.share.session_partition_count_max
    for topics in (request.topics, forgotten):
        if len(topics) > count_max or sum(len(topic.partitions) for topic in topics) > count_max:
            raise _Refused(ErrorCode.INVALID_REQUEST, f"A request has at most {count_max} topics and partitions.")


def _check_fetch(request: ShareFetchRequest, acks: Mapping[TopicPartition, Batches]) -> None:
    if request.share_session_epoch == INITIAL_EPOCH and acks:
        raise _Refused(ErrorCode.INVALID_REQUEST, "A request that opens a share session has no acknowledgements.")
    if request.is_renew_ack and (request.max_wait_ms or request.min_bytes or request.max_bytes or request.max_records):
        text = "A request with renew acknowledgements must not fetch: its limits must be 0."
        raise _Refused(ErrorCode.INVALID_REQUEST, text)


def _session(context: KafkaContext, caller: Caller, request: ShareFetchRequest, key: SessionKey) -> ShareSession:
    """Raises `SessionProblem`."""
    sessions = context.share_sessions
    if request.share_session_epoch == INITIAL_EPOCH:
        session = sessions.open(key, caller.peer)
    else:
        session = sessions.next(key, request.share_session_epoch, caller.peer)
    if request.share_session_epoch != FINAL_EPOCH:
        sessions.change(
            session,
            [(topic.topic_id, item.partition_index) for topic in request.topics for item in topic.partitions],
            [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions],
        )
    return session


def _via(context: KafkaContext) -> str:
    """Return this server's name for the locks of its members."""
    server = context.streams.server
    return f"{server.node_id}/{server.epoch}"


def _find(context: KafkaContext, caller: Caller, item: TopicPartition) -> PartitionKey | ErrorCode:
    view: StreamView | None = context.streams.catalog.peek_id(item[0])
    if view is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not context.streams.may(caller.who, Operation.READ, view.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not 0 <= item[1] < view.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return view.partition(item[1])


# -- acknowledgements ------------------------------------------------------------------------------------------------


def _acks(request: ShareFetchRequest | ShareAcknowledgeRequest) -> dict[TopicPartition, Batches]:
    return {
        (topic.topic_id, item.partition_index): item.acknowledgement_batches
        for topic in request.topics
        for item in topic.partitions
        if item.acknowledgement_batches
    }


async def _acknowledge_all(
    context: KafkaContext, caller: Caller, key: SessionKey, acks: Mapping[TopicPartition, Batches]
) -> dict[TopicPartition, Problem]:
    found: dict[TopicPartition, Problem] = {}
    part: list[TopicPartition] = []
    count = 0
    for item, batches in acks.items():
        part.append(item)
        count += _size_of(batches)
        if len(part) == _AT_ONCE or count > _ACKS_AT_ONCE:
            found.update(await _acknowledge_some(context, caller, key, part, acks))
            part, count = [], 0
    found.update(await _acknowledge_some(context, caller, key, part, acks))
    return found


async def _acknowledge_some(
    context: KafkaContext,
    caller: Caller,
    key: SessionKey,
    items: Sequence[TopicPartition],
    acks: Mapping[TopicPartition, Batches],
) -> dict[TopicPartition, Problem]:
    problems = await asyncio.gather(*(_acknowledge(context, caller, key, item, acks[item]) for item in items))
    return dict(zip(items, problems, strict=True))


async def _acknowledge(
    context: KafkaContext, caller: Caller, key: SessionKey, item: TopicPartition, batches: Batches
) -> Problem:
    partition = _find(context, caller, item)
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
        code = _code(error)
        metrics.KAFKA_ERRORS.labels("SHARE_ACKNOWLEDGE", code.name).inc()
        return code, str(error)
    return ErrorCode.NONE, None


def _size_of(batches: Batches) -> int:
    """The number of acknowledgement batches and of their types."""
    return len(batches) + sum(len(batch.acknowledge_types) for batch in batches)


# -- records ---------------------------------------------------------------------------------------------------------


class _Answers:
    """The answers by partition, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._answers: dict[TopicPartition, ShareFetchResponse.Partition] = {}

    def of(self, item: TopicPartition) -> ShareFetchResponse.Partition:
        """Return the partition's answer."""
        found = self._answers.get(item)
        if found is None:
            found = self._answers[item] = ShareFetchResponse.Partition(
                partition_index=item[1],
                current_leader=ShareFetchResponse.Leader(leader_id=-1, leader_epoch=-1),
                records=b"",
                acquired_records=[],
            )
        return found

    def topics(self) -> list[ShareFetchResponse.Topic]:
        """Return all answers."""
        topics: dict[bytes, ShareFetchResponse.Topic] = {}
        for (topic_id, _), answer in self._answers.items():
            topic = topics.setdefault(topic_id, ShareFetchResponse.Topic(topic_id=topic_id, partitions=[]))
            topic.partitions.append(answer)
        return list(topics.values())


async def _acquire(
    context: KafkaContext,
    caller: Caller,
    request: ShareFetchRequest,
    key: SessionKey,
    session: ShareSession,
    answers: _Answers,
) -> None:
    asked: dict[PartitionKey, TopicPartition] = {}
    has_errors = False
    turns = Turns()
    for item in session.in_turn():
        if turns.is_over():
            await asyncio.sleep(0)
        partition = _find(context, caller, item)
        if isinstance(partition, ErrorCode):
            answers.of(item).error_code = partition
            has_errors = True
            metrics.KAFKA_ERRORS.labels("SHARE_FETCH", partition.name).inc()
        else:
            asked[partition] = item
    if not asked:
        return
    ask = ShareAsk(
        group=key.group,
        member=key.member,
        partitions=list(asked),
        bytes_max=min(max(request.max_bytes, 0), room(context)),
        record_count_max=request.max_records,
        is_strict=request.share_acquire_mode == _RECORD_LIMIT,
        wait_ms=0 if has_errors else min(max(request.max_wait_ms, 0), context.streams.settings.reader.wait_max_ms),
        via=_via(context),
    )
    for found in await context.shares.acquire(ask):
        _fill(answers, asked[found.partition], found)


def _fill(answers: _Answers, item: TopicPartition, found: ShareAnswer) -> None:
    if found.error is not None:
        answer = answers.of(item)
        code = _code(found.error)
        answer.error_code = code if code in _KNOWN_TO_FETCHERS else ErrorCode.UNKNOWN_SERVER_ERROR
        answer.error_message = str(found.error)
        metrics.KAFKA_ERRORS.labels("SHARE_FETCH", ErrorCode(answer.error_code).name).inc()
    elif found.acquired:
        answer = answers.of(item)
        answer.records = found.views
        answer.acquired_records = [
            ShareFetchResponse.AcquiredRecords(
                first_offset=run.start, last_offset=run.end - 1, delivery_count=run.delivery_count
            )
            for run in found.acquired
        ]
        metrics.FETCH_BYTES.inc(sum(map(len, found.views)))


def _code(error: BearlakeError) -> ErrorCode:
    if isinstance(error, NoState):
        return (
            ErrorCode.UNKNOWN_SERVER_ERROR
        )  # as Kafka for a partition that the group's coordinator has not initialized
    if isinstance(error, InvalidRecordState):
        return ErrorCode.INVALID_RECORD_STATE
    if isinstance(error, NotHolder):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if isinstance(error, Invalid):
        return ErrorCode.INVALID_REQUEST
    if isinstance(error, NotFound):
        return ErrorCode.UNKNOWN_TOPIC_ID
    if isinstance(error, Unavailable | Overloaded):
        return ErrorCode.KAFKA_STORAGE_ERROR  # retriable
    return code_of(error)
