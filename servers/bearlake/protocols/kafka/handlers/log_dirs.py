"""DescribeLogDirs: the object store as one "directory", with the size of each partition.

Source: KIP-113; Kafka protocol guide (DescribeLogDirs).
"""

from collections.abc import Mapping, Sequence

from bearlake.errors import BearlakeError
from bearlake.metadata.model import PartitionKey, PartitionUsage
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.messages import DescribeLogDirsRequest, DescribeLogDirsResponse
from bearlake.protocols.kafka.rendered import Rendered, render
from bearlake.protocols.kafka.rights import on_cluster
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import Operation
from bearlake.streams.turns import in_turns


async def describe(
    context: KafkaContext, caller: Caller, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse | Rendered:
    """Return one "directory", the object store, with the size in bytes of each partition."""
    if not on_cluster(context, caller, Operation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[])
    catalog, topics = context.streams.catalog, request.topics
    size = None if topics is None else sum(len(topic.partitions) for topic in topics)
    async with catalog.listing_partitions(caller.who) if size is None else catalog.listing(caller.who, size):
        return await _log_dirs(context, caller, request)


async def _log_dirs(
    context: KafkaContext, caller: Caller, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse | Rendered:
    requested = await _requested(context, caller, request)
    keys: list[PartitionKey] = []
    for view, indexes in requested:
        async for part in in_turns(indexes):
            keys += [view.partition(index) for index in part]
    answer = DescribeLogDirsResponse.LogDir(log_dir="object-store", topics=[], total_bytes=-1, usable_bytes=-1)
    try:
        usage = await context.streams.metadata.log.usage(keys)
    except BearlakeError:
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return DescribeLogDirsResponse(results=[answer])

    def response() -> DescribeLogDirsResponse:
        answer.topics = [_sizes(view, indexes, usage) for view, indexes in requested]
        return DescribeLogDirsResponse(results=[answer])

    return await render(context.workers, codec.ApiKey.DESCRIBE_LOG_DIRS, caller.version, len(keys), response)


async def _requested(
    context: KafkaContext, caller: Caller, request: DescribeLogDirsRequest
) -> list[tuple[StreamView, Sequence[int]]]:
    """The requested partitions, by stream; a right on the cluster shows no topic that the caller may not describe."""
    found: list[tuple[StreamView, Sequence[int]]] = []
    names: Sequence[tuple[str, Sequence[int] | None]]
    if request.topics is None:
        names = [(name, None) for name in context.topics.names()]
    else:
        names = [(topic.topic, topic.partitions) for topic in request.topics]
    async for part in in_turns(names):
        for name, chosen in part:
            view = context.topics.peek(name)
            if view is not None and context.streams.sees(caller.who, Operation.DESCRIBE, name):
                indexes = range(view.partition_count)
                found.append((view, indexes if chosen is None else await _among(indexes, chosen)))
    return found


async def _among(indexes: range, chosen: Sequence[int]) -> Sequence[int]:
    """The chosen partitions that exist, each once."""
    found: set[int] = set()
    async for part in in_turns(chosen):
        found.update(index for index in part if index in indexes)
    return sorted(found)


def _sizes(
    view: StreamView, indexes: Sequence[int], usage: Mapping[PartitionKey, PartitionUsage]
) -> DescribeLogDirsResponse.Topic:
    partitions = [
        DescribeLogDirsResponse.Partition(
            partition_index=index,
            partition_size=usage[key].size_bytes if (key := view.partition(index)) in usage else 0,
            offset_lag=0,
            is_future_key=False,
        )
        for index in indexes
    ]
    return DescribeLogDirsResponse.Topic(name=view.name, partitions=partitions)
