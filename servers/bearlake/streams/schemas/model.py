"""Values of the registry: schemas as clients write them, schemas as they are kept, levels and modes."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any
from uuid import UUID

from bearlake.metadata.schemas import SubjectKey, VersionKey

Document = Mapping[str, Any]
"""A JSON object that is kept and given back as it is (metadata, rule sets, configs). Any: whatever JSON can say."""

ENCODING = "bearlake.encoding"
"""Property of a schema's metadata: how values are written, where that is not the format's own way; versions do not change it."""


class SchemaType(Enum):
    """The formats of schemas."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class Level(Enum):
    """Compatibility levels. Source: Confluent, "Schema Evolution and Compatibility"."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """Whether all earlier versions count, not only the latest."""
        return self.value.endswith("_TRANSITIVE")

    @property
    def needs_backward(self) -> bool:
        """Whether the new schema must read what earlier ones wrote."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def needs_forward(self) -> bool:
        """Whether earlier schemas must read what the new one writes."""
        return self.value.startswith(("FORWARD", "FULL"))


class Mode(Enum):
    """What may be done to a subject. Source: Confluent, "Schema Registry API Reference", mode."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    """Read-only for all, whatever their subjects say."""
    IMPORT = "IMPORT"
    """Schemas come with their ids, and are not compared with earlier ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What a schema calls `name` (an Avro type, a JSON Schema's URL, a Protobuf file) is this version of another subject."""

    name: str
    version: VersionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A schema as a client sends it."""

    type: SchemaType = SchemaType.AVRO
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Document | None = None
    rule_set: Document | None = None
    id: int | None = None
    """Only in IMPORT mode."""
    version: int | None = None
    """Only in IMPORT mode, or the number that the next version has anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A schema as it is kept; it never changes."""

    context: str
    id: int
    guid: UUID
    """The same for the same schema in every context and registry."""
    type: SchemaType
    text: str
    references: tuple[Reference, ...]
    metadata: Document | None
    rule_set: Document | None
    body: bytes
    """Fingerprint of type, text and references."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """A version of a subject, with its schema."""

    subject: SubjectKey
    number: int
    is_deleted: bool
    schema: Schema
