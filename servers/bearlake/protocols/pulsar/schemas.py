"""Schemas of topics.

None are kept yet: topics carry bytes, and a client that brings a schema is told so.
"""

from bearlake.protocols.pulsar.errors import Refused
from bearlake.protocols.pulsar.proto.commands_pb2 import (
    CommandGetOrCreateSchema,
    CommandGetOrCreateSchemaResponse,
    CommandGetSchema,
    CommandGetSchemaResponse,
    Schema,
)
from bearlake.protocols.pulsar.topics import Topic
from bearlake.streams.principal import Principal

NO_VERSION = b""
"""The schema version of a topic without a schema."""


class Schemas:
    """Schemas of all topics, as this server sees them."""

    async def for_producer(self, topic: Topic, schema: Schema | None) -> bytes:
        """Version of a producer's schema, registered if it is new. Raises `Refused` (IncompatibleSchema)."""
        return _version(schema)

    async def for_consumer(self, topic: Topic, schema: Schema | None) -> None:
        """See that a consumer with this schema may read the topic. Raises `Refused` (IncompatibleSchema)."""
        _version(schema)

    async def get(self, who: Principal, request: CommandGetSchema) -> CommandGetSchemaResponse:
        """GET_SCHEMA. Raises `Refused`."""
        raise Refused("TopicNotFound", f"topic {request.topic} has no schema")

    async def get_or_create(
        self, who: Principal, request: CommandGetOrCreateSchema
    ) -> CommandGetOrCreateSchemaResponse:
        """GET_OR_CREATE_SCHEMA. Raises `Refused`."""
        version = _version(request.schema)
        return CommandGetOrCreateSchemaResponse(request_id=request.request_id, schema_version=version)


def _version(schema: Schema | None) -> bytes:
    if schema is None or schema.type == Schema.NoSchema:
        return NO_VERSION
    raise Refused("NotAllowedError", f"schema {schema.name!r}: schemas of topics are not served yet, use bytes")
