"""Copies the schemas of Pulsar topics: each version of the source becomes a version of the registry's subject `<stream>-value`.

Messages name the version of their schema. If a version has another number here, because the source has deleted earlier ones, messages get
the number that it has here. A version that appears while an import follows is copied before the first message that names it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bearlake.errors import BearlakeError, NotFound, Overloaded, Unavailable
from bearlake.importing.pulsar.cluster import PulsarCluster, PulsarTopic
from bearlake.protocols.pulsar import schema_types
from bearlake.protocols.pulsar.proto.commands_pb2 import Schema
from bearlake.protocols.pulsar.schemas import written
from bearlake.streams.principal import INTERNAL
from bearlake.streams.schemas.model import Draft, Level, SchemaVersion
from bearlake.streams.schemas.problems import Incompatible, SchemaNotFound, SubjectNotFound

if TYPE_CHECKING:
    from bearlake.streams.schemas.service import Schemas as Registry

_VERSION_BYTES = 8
_UNKNOWN_COUNT_MAX = 10_000
"""Versions of a topic that the source does not have, and that are not looked for again until the next `copy`."""


@dataclass(slots=True)
class _Known:
    """What is known of a topic's versions, as messages have them."""

    here: dict[bytes, bytes] = field(default_factory=dict)
    """The version here, by that of the source."""
    unknown: set[bytes] = field(default_factory=set)
    """Versions that messages name and the source does not have, or that the registry refuses."""


class SourceSchemas:
    """The schemas of one import."""

    def __init__(self, cluster: PulsarCluster, registry: "Callable[[], Registry]") -> None:
        """`registry` is called when there is a schema; its owner closes it."""
        self._cluster = cluster
        self._open = registry
        self._registry: Registry | None = None
        self._known: dict[str, _Known] = {}
        self.copied: dict[str, int] = {}
        """Versions that this run has found, by topic."""
        self.refused: dict[str, str] = {}
        """Versions that could not be registered, as `TOPIC version N`, with the reason."""
        self.loosened: set[str] = set()
        """Subjects whose level of compatibility is NONE now, because their versions are not compatible at the source either."""

    async def copy(self, topic: PulsarTopic) -> None:
        """Copy the versions that are new at the source. Raises `Denied`, `Unavailable`, `Overloaded`."""
        self._known.setdefault(topic.name, _Known()).unknown.clear()
        await self._look(topic)

    async def _look(self, topic: PulsarTopic) -> None:
        known = self._known.setdefault(topic.name, _Known())
        numbers = await self._cluster.schema_versions(topic.topic)
        missing = [number for number in numbers if _bytes(number) not in known.here]
        if missing:
            async with await self._cluster.connect(topic.leaders[0]) as connection:
                for number in missing:
                    schema = await self._cluster.schema(connection, topic.topic, number)
                    await self._copy(topic, number, schema, known)
        self.copied[topic.name] = len(known.here)

    async def versions(self, topic: PulsarTopic, version: bytes) -> Mapping[bytes, bytes]:
        """Return the versions here by those of the source; first looks for one that is not known. Raises as `copy`."""
        known = self._known.setdefault(topic.name, _Known())
        if len(version) == _VERSION_BYTES and version not in known.here and version not in known.unknown:
            try:
                await self._look(topic)
            except NotFound as error:
                raise Unavailable(f"the source has no schemas of topic {topic.topic} now: {error}") from error
            if version not in known.here:
                if len(known.unknown) >= _UNKNOWN_COUNT_MAX:
                    known.unknown.clear()
                known.unknown.add(version)
        return known.here

    async def _copy(self, topic: PulsarTopic, number: int, schema: Schema, known: _Known) -> None:
        try:
            found = await self._register(f"{topic.name}-value", schema)
        except (Overloaded, Unavailable):
            raise
        except BearlakeError as error:
            self.refused[f"{topic.name} version {number}"] = str(error)
        else:
            known.here[_bytes(number)] = written(found)

    async def _register(self, subject: str, schema: Schema) -> SchemaVersion:
        if self._registry is None:
            self._registry = self._open()
        draft = schema_types.draft_of(schema)
        plain: Draft = replace(draft, metadata=None)
        try:
            found = await self._registry.lookup(INTERNAL, subject, plain)
            if schema_types.has_type_of(found.schema, schema):
                return found
        except (SubjectNotFound, SchemaNotFound):
            pass
        try:
            return await self._registry.register(INTERNAL, subject, draft)
        except Incompatible:
            self.loosened.add(subject)
            await self._registry.set_config(INTERNAL, subject, {"compatibility": Level.NONE.value})
            return await self._registry.register(INTERNAL, subject, draft)


def _bytes(number: int) -> bytes:
    return number.to_bytes(_VERSION_BYTES, "big")
