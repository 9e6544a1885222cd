"""ShareFetch: members of share groups acquire records (KIP-932).

Any server answers for any partition (decision 185). Acknowledgements in a ShareFetch are applied before records are acquired. Errors are
per partition, for acknowledgements and records apart.

Source: KIP-932, KIP-1206 (acquire mode), KIP-1222 (renew); Apache Kafka 4.3 for the order of checks and their texts.
"""

import asyncio
from collections.abc import Mapping

from bearlake.metadata.model import PartitionKey
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers.coordinated_groups import Refused
from bearlake.protocols.kafka.handlers.fetch import room
from bearlake.protocols.kafka.handlers.share_acknowledge import Batches, acks_of, apply_all
from bearlake.protocols.kafka.handlers.share_requests import (
    check_counts,
    find_partition,
    key_of,
    release,
    share_code_of,
    via_of,
)
from bearlake.protocols.kafka.messages import ShareFetchRequest, ShareFetchResponse
from bearlake.protocols.kafka.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SessionKey,
    SessionProblem,
    ShareSession,
    TopicPartition,
)
from bearlake.streams.subscriptions.share.terms import ShareAnswer, ShareAsk
from bearlake.streams.turns import Turns
from bearlake.telemetry import metrics

_RECORD_LIMIT = 1
"""Acquire mode: never more records than asked for."""

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


async def fetch(context: KafkaContext, caller: Caller, request: ShareFetchRequest) -> ShareFetchResponse:
    """Acknowledge, then acquire records of the session's partitions; waits for the first one, at most `max_wait_ms`."""
    try:
        key = key_of(context, caller, request.group_id, request.member_id)
        check_counts(context, request, request.forgotten_topics_data)
        acks = acks_of(request)
        _check_fetch(request, acks)
        session = _session(context, caller, request, key)
    except Refused as refused:
        return ShareFetchResponse(error_code=refused.code, error_message=refused.message, responses=[])
    except SessionProblem as problem:
        return ShareFetchResponse(error_code=problem.code, error_message=str(problem), responses=[])
    answers = _Answers()
    for item, (code, message) in (await apply_all(context, caller, key, acks)).items():
        answer = answers.of(item)
        answer.acknowledge_error_code, answer.acknowledge_error_message = code, message
    if request.share_session_epoch == FINAL_EPOCH:
        context.share_sessions.close(key)
        await release(context, key, session)
    elif not request.is_renew_ack and request.max_records > 0 and request.max_bytes > 0:
        try:
            await _acquire(context, caller, request, key, session, answers)
        except SessionProblem as problem:
            return ShareFetchResponse(error_code=problem.code, error_message=str(problem), responses=[])
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=context.shares.terms_of(key.group).lock_ms, responses=answers.topics()
    )


def _check_fetch(request: ShareFetchRequest, acks: Mapping[TopicPartition, Batches]) -> None:
    if request.share_session_epoch == INITIAL_EPOCH and acks:
        raise Refused(ErrorCode.INVALID_REQUEST, "A request that opens a share session has no acknowledgements.")
    if request.is_renew_ack and (request.max_wait_ms or request.min_bytes or request.max_bytes or request.max_records):
        text = "A request with renew acknowledgements must not fetch: its limits must be 0."
        raise Refused(ErrorCode.INVALID_REQUEST, text)


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
    """Acquire records, and fill in the answers. Raises `SessionProblem` if the session ends meanwhile: then the member gets none."""
    asked: dict[PartitionKey, TopicPartition] = {}
    has_errors = False
    turns = Turns()
    for item in session.in_turn():
        if turns.is_over():
            await asyncio.sleep(0)
        partition = find_partition(context, caller, item)
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
        via=via_of(context),
    )
    acquired = await context.shares.acquire(ask)
    if not context.share_sessions.has(key, session):  # what its member held is released already
        await context.shares.give_back(ask, acquired)
        raise SessionProblem(ErrorCode.SHARE_SESSION_NOT_FOUND, "The share session has ended.")
    for found in acquired:
        _fill(answers, asked[found.partition], found)


def _fill(answers: _Answers, item: TopicPartition, found: ShareAnswer) -> None:
    if found.error is not None:
        answer = answers.of(item)
        code = share_code_of(found.error)
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
