"""Topics: create, delete, add partitions, delete records.

A topic is a stream, or one of Kafka's internal topics, which nobody can change. The object store replicates the data, so any positive
replication factor is accepted and 1 is returned.
Source: KIP-4, KIP-107 (DeleteRecords), KIP-195 (CreatePartitions), KIP-516 (topic ids), KIP-525.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import TypeVar

from bearlake.errors import AlreadyExists, BearlakeError, Denied, Invalid, NotFound, OutOfRange
from bearlake.protocols.kafka.codec import UUID_ZERO
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode, code_of
from bearlake.protocols.kafka.handlers.absence import Absence
from bearlake.protocols.kafka.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from bearlake.streams import config_changes
from bearlake.streams import configs as stream_configs
from bearlake.streams.catalog import StreamView, check_name
from bearlake.streams.config import Config
from bearlake.streams.internal_topics import InternalTopic, is_internal, is_reserved
from bearlake.streams.principal import Operation, Resource, require
from bearlake.streams.turns import Turns, in_turns

USE_DEFAULT = -1
HIGH_WATERMARK = -1
SOURCE_TOPIC = 1
SOURCE_DEFAULT = 5
_TOPIC_IDS_FROM = 6
"""Version of DeleteTopics."""
_TRIMS_AT_ONCE = 100
"""Partitions whose start offsets one request moves at the same time: bounds its tasks, and its share of the metadata store."""

T = TypeVar("T", CreateTopicsRequest.Topic, CreatePartitionsRequest.Topic)


class Refused(Exception):
    """The request fails for one topic, with this code and message."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


async def create(context: KafkaContext, caller: Caller, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create each topic independently of the others; rejects a name that occurs twice in the request."""
    answers = []
    turns = Turns()
    topics, repeated = await _by_name(request.topics)
    for topic in topics:
        if turns.is_over(1 + len(topic.assignments) + len(topic.configs)):
            await asyncio.sleep(0)
        try:
            if topic.name in repeated:
                raise Refused(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is given more than once in the request")
            answers.append(await _create(context, caller, topic, request.validate_only))
        except Refused as refused:
            answers.append(
                CreateTopicsResponse.Topic(
                    name=topic.name,
                    error_code=refused.code,
                    error_message=str(refused),
                    num_partitions=-1,
                    replication_factor=-1,
                    configs=None,
                )
            )
    return CreateTopicsResponse(topics=answers)


async def _by_name(topics: Sequence[T]) -> tuple[Collection[T], Collection[str]]:
    """Return the topics of a request, the last of each name, and the names that are given more than once."""
    found: dict[str, T] = {}
    repeated: set[str] = set()
    async for part in in_turns(topics):
        for topic in part:
            if topic.name in found:
                repeated.add(topic.name)
            found[topic.name] = topic
    return found.values(), repeated


async def create_one(context: KafkaContext, caller: Caller, topic: CreateTopicsRequest.Topic) -> None:
    """Create one topic. Raises `Refused`."""
    await _create(context, caller, topic, False)


async def _create(
    context: KafkaContext, caller: Caller, topic: CreateTopicsRequest.Topic, validate_only: bool
) -> CreateTopicsResponse.Topic:
    count = _partition_count(context, topic)
    try:
        stream_configs.check_count(len(topic.configs))
    except Invalid as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from error
    configs = {config.name: config.value for config in topic.configs if config.value is not None}
    if len(configs) < len(topic.configs):
        raise Refused(ErrorCode.INVALID_CONFIG, "a config has no value or is given more than once")
    try:
        check_name(topic.name)
    except Invalid as error:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from error
    try:
        stream_configs.check(configs)
        config_changes.check_consistent(configs)
    except Invalid as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from error
    topic_id = UUID_ZERO
    try:
        is_taken = is_reserved(context.streams.catalog, topic.name)
        if validate_only or is_taken:
            if not context.streams.may_create(caller.who, topic.name):
                raise Denied(f"{caller.who} may not create stream {topic.name!r}")
            if is_taken:
                raise AlreadyExists(f"{topic.name} is an internal topic")
            context.streams.catalog.check_new(topic.name, count, configs)
            await _check_absent(context, topic.name)
        else:
            topic_id = (await context.streams.create(caller.who, topic.name, count, configs)).id_bytes
    except AlreadyExists as error:
        raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.") from error
    except Denied as error:
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, str(error)) from error
    except Invalid as error:
        raise Refused(ErrorCode.INVALID_PARTITIONS, str(error)) from error
    except BearlakeError as error:
        raise Refused(code_of(error), str(error)) from error
    return CreateTopicsResponse.Topic(
        name=topic.name,
        topic_id=topic_id,
        num_partitions=count,
        replication_factor=1,
        configs=[_config(config, configs) for config in stream_configs.ALL],
    )


async def _check_absent(context: KafkaContext, name: str) -> None:
    try:
        await context.streams.catalog.find(name)
    except NotFound:
        return
    raise AlreadyExists(f"stream {name!r} exists")


def _partition_count(context: KafkaContext, topic: CreateTopicsRequest.Topic) -> int:
    if topic.assignments:
        if topic.num_partitions != USE_DEFAULT or topic.replication_factor != USE_DEFAULT:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "Both numPartitions or replicationFactor and replicasAssignments were set: expected one of the two",
            )
        count = len(topic.assignments)
        try:
            context.streams.catalog.check_partitions(count, 0)  # before the sort
        except Invalid as error:
            raise Refused(ErrorCode.INVALID_PARTITIONS, str(error)) from error
        if sorted(item.partition_index for item in topic.assignments) != list(range(count)):
            raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0 without gaps")
        return count
    if topic.replication_factor != USE_DEFAULT and topic.replication_factor < 1:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {topic.replication_factor}: expected at least 1, or -1 for the default",
        )
    if topic.num_partitions == USE_DEFAULT:
        return context.settings.default_partition_count
    if topic.num_partitions < 1:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"partition count {topic.num_partitions}: expected at least 1, or -1 for the default",
        )
    return topic.num_partitions


def _config(config: Config, configs: dict[str, str]) -> CreateTopicsResponse.Config:
    return CreateTopicsResponse.Config(
        name=config.name,
        value=configs.get(config.name, config.default),
        read_only=False,
        config_source=SOURCE_TOPIC if config.name in configs else SOURCE_DEFAULT,
        is_sensitive=False,
    )


async def delete(context: KafkaContext, caller: Caller, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete topics by name, or from version 6 on by id."""
    if caller.version >= _TOPIC_IDS_FROM:
        topics = request.topics
    else:
        topics = [_named(name) async for part in in_turns(request.topic_names) for name in part]
    absence = Absence(context.topics)
    answers = [await _delete(context, caller, topic, absence) async for part in in_turns(topics) for topic in part]
    return DeleteTopicsResponse(responses=answers)


def _named(name: str) -> DeleteTopicsRequest.Topic:
    return DeleteTopicsRequest.Topic(name=name, topic_id=UUID_ZERO)


async def _delete(
    context: KafkaContext, caller: Caller, topic: DeleteTopicsRequest.Topic, absence: Absence
) -> DeleteTopicsResponse.Topic:
    name, topic_id = topic.name, topic.topic_id
    view: StreamView | None = None
    answer = DeleteTopicsResponse.Topic(name=name, topic_id=topic_id)
    if name is None:
        found = await absence.by_id(topic_id)
        if isinstance(found, ErrorCode):
            answer.error_code = found
            return answer
        if not context.streams.may(caller.who, Operation.DESCRIBE, found.name):
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            return answer
        view = found
        name = answer.name = view.name
    elif topic_id != UUID_ZERO:
        answer.error_code, answer.error_message = ErrorCode.INVALID_REQUEST, "both a name and a topic id were given"
        return answer
    try:
        if view is None or is_internal(view):
            view = await changeable(context, caller, Operation.DELETE, name)
        answer.topic_id = (await context.streams.delete(caller.who, view.stream)).id.bytes
    except BearlakeError as error:
        answer.error_code, answer.error_message = code_of(error), str(error)
    return answer


async def changeable(context: KafkaContext, caller: Caller, operation: Operation, name: str) -> StreamView:
    """Read the stream with this name from the store, for a request that changes it.

    Raises `Denied`, `NotFound`, `InternalTopic`, `Unavailable`.
    """
    try:
        return await context.streams.resolve(caller.who, operation, name)
    except NotFound:
        if is_reserved(context.streams.catalog, name):
            raise InternalTopic(name) from None
        raise


async def create_partitions(
    context: KafkaContext, caller: Caller, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions to each topic, independently of the others."""
    results = []
    turns = Turns()
    topics, repeated = await _by_name(request.topics)
    for topic in topics:
        if turns.is_over():
            await asyncio.sleep(0)
        answer = CreatePartitionsResponse.Topic(name=topic.name, error_code=0, error_message=None)
        results.append(answer)
        try:
            if topic.name in repeated:
                raise Refused(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is given more than once in the request")
            await _grow(context, caller, topic, request.validate_only)
        except Refused as refused:
            answer.error_code, answer.error_message = refused.code, str(refused)
        except BearlakeError as error:
            answer.error_code, answer.error_message = code_of(error), str(error)
    return CreatePartitionsResponse(results=results)


async def _grow(
    context: KafkaContext, caller: Caller, topic: CreatePartitionsRequest.Topic, validate_only: bool
) -> None:
    view = await changeable(context, caller, Operation.ALTER, topic.name)
    if topic.count <= view.partition_count:
        message = (
            f"Topic currently has {view.partition_count} partitions, which is higher than the requested {topic.count}."
        )
        if topic.count == view.partition_count:
            message = f"Topic already has {view.partition_count} partitions."
        raise Refused(ErrorCode.INVALID_PARTITIONS, message)
    if topic.assignments is not None and len(topic.assignments) != topic.count - view.partition_count:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{len(topic.assignments)} assignments for {topic.count - view.partition_count} new partitions",
        )
    try:
        if validate_only:
            context.streams.catalog.check_growth(view.stream, topic.count)
        else:
            await context.streams.add_partitions(caller.who, view.stream, topic.count)
    except Invalid as error:
        raise Refused(ErrorCode.INVALID_PARTITIONS, str(error)) from error


async def delete_records(context: KafkaContext, caller: Caller, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Move start offsets forward; -1 means the end offset."""
    topics = []
    for topic in request.topics:
        partitions: list[DeleteRecordsResponse.Partition] = []
        topics.append(DeleteRecordsResponse.Topic(name=topic.name, partitions=partitions))
        async for part in in_turns(topic.partitions, _TRIMS_AT_ONCE):
            partitions += await asyncio.gather(
                *(_delete_records(context, caller, topic.name, partition) for partition in part)
            )
    return DeleteRecordsResponse(topics=topics)


async def _delete_records(
    context: KafkaContext, caller: Caller, name: str, partition: DeleteRecordsRequest.Partition
) -> DeleteRecordsResponse.Partition:
    index, offset = partition.partition_index, partition.offset
    answer = DeleteRecordsResponse.Partition(partition_index=index, low_watermark=-1)
    try:
        require(context.streams.authorizer, caller.who, Operation.DELETE, Resource.STREAM, name)
        if is_reserved(context.streams.catalog, name):
            raise InternalTopic(name)
        if offset == HIGH_WATERMARK:
            key = (await context.streams.catalog.find(name)).partition(index)
            offset = (await context.streams.bounds([key]))[key].end
        elif offset < 0:
            raise OutOfRange(f"offset {offset}: expected at least 0, or -1 for the end", start=-1, end=-1)
        answer.low_watermark = (await context.streams.trim(caller.who, name, index, offset)).start
    except KeyError:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except BearlakeError as error:
        answer.error_code = code_of(error)
    return answer
