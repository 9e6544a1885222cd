"""Rights as values: protocols have tables of what their requests need, from which documentation and tests are generated."""

from typing import NamedTuple

from bearlake.streams.principal import Operation, Resource


class Right(NamedTuple):
    """An operation on resources of a kind: those that the request names."""

    operation: Operation
    resource: Resource


def on(resource: Resource, *operations: Operation) -> tuple[Right, ...]:
    """Return the rights to do these operations to resources of the kind."""
    return tuple(Right(operation, resource) for operation in operations)


CREATE_STREAM = on(Resource.STREAM, Operation.CREATE)
DELETE_STREAM = on(Resource.STREAM, Operation.DELETE)
DESCRIBE_STREAM = on(Resource.STREAM, Operation.DESCRIBE)
READ_STREAM = on(Resource.STREAM, Operation.READ)
WRITE_STREAM = on(Resource.STREAM, Operation.WRITE)
ALTER_STREAM = on(Resource.STREAM, Operation.ALTER)
