"""The Admin service: create, describe, list and delete streams."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from bearlake.protocols.grpc.call import Node
from bearlake.protocols.grpc.errors import BadField
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import Operation, Principal, Resource, require
from bearlake.streams.turns import in_turns

PAGE_SIZE_MAX = 1000
_LAST = chr(0x10FFFF)
"""Sorts after every character of a name."""


async def create(node: Node, who: Principal, request: pb.CreateStreamRequest) -> pb.Stream:
    """Create a stream. Raises `Denied`, `Invalid`, `AlreadyExists`, `Unavailable`."""
    return _stream(await node.streams.create(who, request.name, request.partition_count, dict(request.configs)))


async def describe(node: Node, who: Principal, request: pb.DescribeStreamRequest) -> pb.StreamDescription:
    """Describe a stream, with the current bounds read from the metadata store. Raises `Denied`, `NotFound`, `Unavailable`."""
    require(node.streams.authorizer, who, Operation.DESCRIBE, Resource.STREAM, request.name)
    view = await node.streams.catalog.find(request.name)
    keys = view.partitions()
    found = await node.streams.bounds(keys)
    bounds = [
        pb.PartitionBounds(
            partition=index,
            start_offset=found[key].start,
            end_offset=found[key].end,
            stable_end_offset=found[key].last_stable,
        )
        for index, key in enumerate(keys)
        if key in found
    ]
    return pb.StreamDescription(stream=_stream(view), partitions=bounds)


async def list_streams(node: Node, who: Principal, request: pb.ListStreamsRequest) -> pb.ListStreamsResponse:
    """Return one page of the streams that the caller may see. Raises `BadField`."""
    if not 0 <= request.page_size <= PAGE_SIZE_MAX:
        raise BadField("page_size", f"expected 0 to {PAGE_SIZE_MAX}")
    size = request.page_size or PAGE_SIZE_MAX
    names: list[str] = []
    sorted_names = node.streams.catalog.names()
    async for part in in_turns(_candidates(sorted_names, request)):
        candidates = [sorted_names[at] for at in part]
        names += [name for name in candidates if node.streams.sees(who, Operation.DESCRIBE, name)]
        if len(names) > size:
            break
    page = [view for name in names[:size] if (view := node.streams.catalog.peek(name)) is not None]
    token = names[size - 1] if len(names) > size else ""
    return pb.ListStreamsResponse(streams=[_stream(view) for view in page], next_page_token=token)


def _candidates(names: Sequence[str], request: pb.ListStreamsRequest) -> range:
    """The places of the names in the sorted list that start with the prefix and follow the page before."""
    first = max(bisect_left(names, request.prefix), bisect_right(names, request.page_token))
    return range(first, bisect_left(names, request.prefix + _LAST))


async def delete(node: Node, who: Principal, request: pb.DeleteStreamRequest) -> pb.DeleteStreamResponse:
    """Delete a stream. Raises `Denied`, `NotFound`, `Unavailable`."""
    view = await node.streams.resolve(who, Operation.DELETE, request.name)
    await node.streams.delete(who, view.stream)
    return pb.DeleteStreamResponse()


def _stream(view: StreamView) -> pb.Stream:
    return pb.Stream(
        name=view.name, id=view.id_bytes, partition_count=view.partition_count, configs=dict(view.stream.configs)
    )
