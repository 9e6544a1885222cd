"""The rights that each method needs. A table for readers: documentation is generated from it, and a test compares it with the handlers."""

from collections.abc import Mapping
from typing import Any

from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.methods import Method
from bearlake.streams.access.rights import Right, on
from bearlake.streams.principal import Operation, Resource

NEEDED: Mapping[Method[Any, Any], tuple[Right, ...]] = {
    methods.CREATE_STREAM: on(Resource.STREAM, Operation.CREATE),
    methods.DESCRIBE_STREAM: on(Resource.STREAM, Operation.DESCRIBE),
    methods.LIST_STREAMS: on(Resource.STREAM, Operation.DESCRIBE),
    methods.DELETE_STREAM: on(Resource.STREAM, Operation.DELETE),
    methods.INIT_PRODUCER: on(Resource.STREAM, Operation.WRITE),
    methods.PRODUCE: on(Resource.STREAM, Operation.WRITE),
    methods.PRODUCE_STREAM: on(Resource.STREAM, Operation.WRITE),
    methods.FETCH: on(Resource.STREAM, Operation.READ),
    methods.CONSUME: on(Resource.GROUP, Operation.READ) + on(Resource.STREAM, Operation.READ),
}
"""All of these rights, for the streams and the group that the request names."""
