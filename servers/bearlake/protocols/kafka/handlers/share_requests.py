"""What ShareFetch and ShareAcknowledge have in common: their checks, their errors, and the release of what a member has acquired (KIP-932).

Source: KIP-932; Apache Kafka 4.3 for the order of checks and their texts.
"""

import asyncio
from collections.abc import Coroutine, Sequence

from bearlake.errors import BearlakeError, Invalid, NotFound, Overloaded, Unavailable
from bearlake.metadata.model import PartitionKey
from bearlake.metadata.names import is_name
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode, code_of
from bearlake.protocols.kafka.handlers.coordinated_groups import Refused
from bearlake.protocols.kafka.handlers.group_membership import may_read
from bearlake.protocols.kafka.messages import ShareAcknowledgeRequest, ShareFetchRequest
from bearlake.protocols.kafka.share_sessions import SessionKey, ShareSession, TopicPartition, is_member_id
from bearlake.streams.catalog import StreamView
from bearlake.streams.groups.shares import NAME_BYTES_MAX
from bearlake.streams.principal import Operation
from bearlake.streams.subscriptions.model import NotHolder
from bearlake.streams.subscriptions.share.acknowledgements import InvalidRecordState
from bearlake.streams.subscriptions.share.terms import NoState
from bearlake.telemetry import metrics

AT_ONCE = 64
"""Partitions that are worked on at once."""


def key_of(context: KafkaContext, caller: Caller, group: str | None, member: str | None) -> SessionKey:
    """Return the key of the session that a request belongs to. Raises `Refused`."""
    if context.is_redirecting:
        raise Refused(ErrorCode.SHARE_SESSION_NOT_FOUND)  # the client opens a session where the metadata sends it
    if not group or not is_name(group, NAME_BYTES_MAX):
        raise Refused(ErrorCode.INVALID_REQUEST)
    if not may_read(context, caller, group):
        raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not member or not is_member_id(member):
        raise Refused(ErrorCode.INVALID_REQUEST, "The member id is not a UUID.")
    return SessionKey(group, member)


def check_counts(
    context: KafkaContext,
    request: ShareFetchRequest | ShareAcknowledgeRequest,
    forgotten: Sequence[ShareFetchRequest.ForgottenTopic],
) -> None:
    """Raise `Refused` for lists longer than those of any session, before something is done with each item."""
    count_max = context.streams.settings.groups.share.session_partition_count_max
    for topics in (request.topics, forgotten):
        if len(topics) > count_max or sum(len(topic.partitions) for topic in topics) > count_max:
            raise Refused(ErrorCode.INVALID_REQUEST, f"A request has at most {count_max} topics and partitions.")


def find_partition(context: KafkaContext, caller: Caller, item: TopicPartition) -> PartitionKey | ErrorCode:
    """Return the partition, or why the caller cannot read it."""
    view: StreamView | None = context.streams.catalog.peek_id(item[0])
    if view is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not context.streams.may(caller.who, Operation.READ, view.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not 0 <= item[1] < view.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return view.partition(item[1])


def via_of(context: KafkaContext) -> str:
    """Return this server's name for the locks of its members."""
    server = context.streams.server
    return f"{server.node_id}/{server.epoch}"


def share_code_of(error: BearlakeError) -> ErrorCode:
    """Return the code of an error of one partition."""
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


async def release(context: KafkaContext, key: SessionKey, session: ShareSession) -> None:
    """Make what the member has acquired here, in the session's partitions, available to others; or else its locks expire."""

    async def release_partition(item: TopicPartition) -> None:
        view = context.streams.catalog.peek_id(item[0])
        if view is None or not 0 <= item[1] < view.partition_count:
            return
        try:
            await context.shares.release(key.group, view.partition(item[1]), key.member, via_of(context))
        except BearlakeError:
            metrics.KAFKA_ERRORS.labels("SHARE_FETCH", ErrorCode.KAFKA_STORAGE_ERROR.name).inc()

    items = list(session.partitions)
    for start in range(0, len(items), AT_ONCE):
        await asyncio.gather(*map(release_partition, items[start : start + AT_ONCE]))


def disconnected(context: KafkaContext, peer: str) -> list[Coroutine[None, None, None]]:
    """End the sessions of a connection that is closed; returns the work that releases what their members hold."""
    return [release(context, key, session) for key, session in context.share_sessions.disconnected(peer)]
