"""Schemas of topics: versions of the registry's subject `<stream>-value`, which Confluent's clients use too.

A producer's schema becomes a version if the subject's compatibility level permits. A consumer's schema must be a version or compatible.
Pulsar counts versions from 0 and encodes them as 8 bytes, big-endian: version 1 of the subject is 0. The registry keeps the level of the
subject (default BACKWARD), which applies to clients of all protocols.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from bearlake.errors import Conflict, Invalid
from bearlake.metadata.schemas import Deletion
from bearlake.protocols.pulsar import schema_types
from bearlake.protocols.pulsar.errors import Refused
from bearlake.protocols.pulsar.proto.commands_pb2 import (
    CommandGetOrCreateSchema,
    CommandGetOrCreateSchemaResponse,
    CommandGetSchema,
    CommandGetSchemaResponse,
    Schema,
)
from bearlake.protocols.pulsar.topics import Topic, Topics
from bearlake.streams.principal import Operation, Principal
from bearlake.streams.schemas import names
from bearlake.streams.schemas.model import Draft, Level, SchemaVersion
from bearlake.streams.schemas.problems import (
    ConfigNotFound,
    Refusal,
    SchemaNotFound,
    SubjectNotFound,
    SubjectSoftDeleted,
    VersionNotFound,
)
from bearlake.streams.schemas.rules import LEVEL

if TYPE_CHECKING:
    from bearlake.streams.schemas.service import Schemas as Registry

NO_VERSION = b""
"""The schema version of a topic without a schema."""
_VERSION_BYTES = 8
_NO_SCHEMA = (Schema.NoSchema, Schema.AutoConsume)


class Schemas:
    """The schemas of all topics. Every method may raise `Denied`, `Overloaded`, `Unavailable`."""

    def __init__(self, registry: "Registry", topics: Topics) -> None:
        """The caller owns `registry`."""
        self._registry = registry
        self._topics = topics

    async def for_producer(self, who: Principal, topic: Topic, schema: Schema | None) -> bytes:
        """The version of a producer's schema, registered if it is new. Raises `Refused` (IncompatibleSchema).

        As in Pulsar, a schema of type NONE (bytes) is a version like others; a request without a schema, or without its type, is not.
        """
        if schema is None or not schema.HasField("type") or schema.type == Schema.AutoConsume:
            return NO_VERSION
        return written(await self.register(who, topic, schema))

    async def for_consumer(self, who: Principal, topic: Topic, schema: Schema | None) -> None:
        """Check that a consumer with this schema may read the topic; registers the schema if the topic has none.

        Raises `Refused` (IncompatibleSchema).
        """
        if schema is None or schema.type in _NO_SCHEMA:
            return
        if await self.version(who, topic) is None:
            await self.register(who, topic, schema)
            return
        messages = await self.incompatibilities(who, topic, schema)
        if messages:
            raise Refused("IncompatibleSchema", f"topic {topic.name}: {', '.join(messages)}")

    async def get(self, who: Principal, request: CommandGetSchema) -> CommandGetSchemaResponse:
        """GET_SCHEMA: return the schema of a version, or the newest schema. Raises `Refused` (TopicNotFound)."""
        topic = await self._topic(who, request.topic, Operation.DESCRIBE)
        number = read_version(request.schema_version)
        found = await self.version(who, topic, number)
        schema = None if found is None else schema_types.schema_of(found.schema, schema_name(topic))
        if found is None or schema is None:
            what = "schema" if number == names.LATEST else f"schema of version {number - 1}"
            raise Refused("TopicNotFound", f"topic {topic.name} has no {what}")
        return CommandGetSchemaResponse(request_id=request.request_id, schema=schema, schema_version=written(found))

    async def get_or_create(
        self, who: Principal, request: CommandGetOrCreateSchema
    ) -> CommandGetOrCreateSchemaResponse:
        """GET_OR_CREATE_SCHEMA; as in Pulsar, the type NONE stands for no schema here. Raises `Refused`."""
        topic = await self._topic(who, request.topic, Operation.WRITE)
        schema = None if request.schema.type in _NO_SCHEMA else request.schema
        version = await self.for_producer(who, topic, schema)
        return CommandGetOrCreateSchemaResponse(request_id=request.request_id, schema_version=version)

    # -- also for the HTTP API -----------------------------------------------------------------------------------

    async def register(self, who: Principal, topic: Topic, schema: Schema) -> SchemaVersion:
        """The version with this schema, created if missing. Raises `Refused` (IncompatibleSchema)."""
        draft = schema_types.draft_of(schema)
        try:
            known = await self.known(who, topic, schema)
            return known or await self._registry.register(who, subject_of(topic), draft)
        except Refusal as error:
            raise _refused(topic, error) from error

    async def known(self, who: Principal, topic: Topic, schema: Schema) -> SchemaVersion | None:
        """The version with this schema, ignoring the schema's properties; None if there is none. Raises `Refusal`, `Refused`."""
        plain: Draft = replace(schema_types.draft_of(schema), metadata=None)
        try:
            found = await self._registry.lookup(who, subject_of(topic), plain)
        except (SubjectNotFound, SchemaNotFound):
            return None
        return found if schema_types.has_type_of(found.schema, schema) else None

    async def incompatibilities(self, who: Principal, topic: Topic, schema: Schema) -> list[str]:
        """The incompatibilities of a schema under the topic's level; empty for a known version. Raises `Refused` (IncompatibleSchema)."""
        draft = schema_types.draft_of(schema)
        try:
            if await self.known(who, topic, schema) is not None:
                return []
            return await self._registry.check(who, subject_of(topic), draft)
        except Refusal as error:
            raise _refused(topic, error) from error

    async def version(self, who: Principal, topic: Topic, number: int = names.LATEST) -> SchemaVersion | None:
        """A version of the topic's schema, by its number in the registry; None if it is missing or deleted."""
        try:
            return await self._registry.version(who, subject_of(topic), number)
        except (SubjectNotFound, VersionNotFound, SchemaNotFound):
            return None

    async def versions(self, who: Principal, topic: Topic) -> list[SchemaVersion]:
        """All versions of the topic's schema that are not deleted, oldest first."""
        subject = subject_of(topic)
        try:
            numbers = await self._registry.versions(who, subject, Deletion.LIVE)
            return [await self._registry.version(who, subject, number) for number in numbers]
        except (SubjectNotFound, VersionNotFound):  # no versions, or deleted meanwhile
            return []

    async def level(self, who: Principal, topic: Topic | None) -> Level:
        """The compatibility level that applies to a topic; for None, the level of topics without their own."""
        config = await self._registry.config(who, "" if topic is None else subject_of(topic), is_in_scope=True)
        return Level(config[LEVEL])

    async def own_level(self, who: Principal, topic: Topic) -> Level | None:
        """The level that was set for the topic itself; None if none was set."""
        try:
            level = (await self._registry.config(who, subject_of(topic))).get(LEVEL)
        except ConfigNotFound:
            return None
        return None if level is None else Level(level)

    async def set_level(self, who: Principal, topic: Topic, level: Level) -> None:
        """Set the topic's own level."""
        await self._registry.set_config(who, subject_of(topic), {LEVEL: level.value})

    async def unset_level(self, who: Principal, topic: Topic) -> None:
        """Remove the topic's own level, so that the global level applies; keeps the other parts of the topic's config."""
        subject = subject_of(topic)
        try:
            before = await self._registry.unset_config(who, subject)
        except ConfigNotFound:
            return
        others = {key: value for key, value in before.items() if key != LEVEL}
        if others:
            await self._registry.set_config(who, subject, others)

    async def delete(self, who: Principal, topic: Topic, *, is_permanent: bool = False) -> int:
        """Delete all versions, softly or permanently; returns the number of the last version in the registry.

        Raises `Refused` (TopicNotFound): there is no version; `Refusal`: the registry rejects the deletion.
        """
        subject = subject_of(topic)
        try:
            numbers = await self._registry.delete_subject(who, subject)
        except SubjectSoftDeleted:
            numbers = []
        except SubjectNotFound as error:
            raise Refused("TopicNotFound", f"topic {topic.name} has no schema") from error
        if is_permanent:
            numbers = await self._registry.delete_subject(who, subject, is_permanent=True)
        if not numbers:
            raise Refused("TopicNotFound", f"topic {topic.name} has no schema")
        return max(numbers)

    async def _topic(self, who: Principal, text: str, operation: Operation) -> Topic:
        topic = await self._topics.find(who, text, operation)
        if topic is None:
            raise Refused("TopicNotFound", f"topic {text} does not exist")
        return topic


def subject_of(topic: Topic) -> str:
    """The registry's subject for the topic's schemas; all partitions share it."""
    return f"{topic.view.name}-value"


def schema_name(topic: Topic) -> str:
    """The name of a topic's schemas for clients: `tenant/namespace/topic`, without the partition."""
    split = topic.name.split_partition() if topic.is_partitioned else None
    name = topic.name if split is None else split[0]
    return f"{name.namespace}/{name.local}"


def written(version: SchemaVersion) -> bytes:
    """A version as clients encode it."""
    return (version.number - 1).to_bytes(_VERSION_BYTES, "big")


def read_version(version: bytes) -> int:
    """The registry's number for a version from a client; `names.LATEST` if it is empty. Raises `Refused` (TopicNotFound)."""
    if not version:
        return names.LATEST
    number = int.from_bytes(version, "big") + 1
    if len(version) != _VERSION_BYTES or number > names.VERSION_MAX:
        raise Refused("TopicNotFound", f"no schema has the version {version[:16].hex()}")
    return number


def _refused(topic: Topic, error: Refusal) -> Refused:
    is_final = isinstance(error, Invalid | Conflict)
    return Refused("IncompatibleSchema" if is_final else "UnknownError", f"topic {topic.name}: {error}")
