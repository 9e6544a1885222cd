"""Values of the registry: drafts from clients, stored schemas, compatibility levels and modes."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any
from uuid import UUID

from bearlake.metadata.schemas import SubjectKey, VersionKey

Document = Mapping[str, Any]
"""A JSON object that is stored and returned unchanged (metadata, rule sets, configs). Any: any JSON value."""

ENCODING = "bearlake.encoding"
"""Metadata property: the encoding of values, if it is not the format's default. All versions of a subject keep the same encoding."""


class SchemaType(Enum):
    """Schema formats."""

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
        """Whether the level compares with all earlier versions, not only the latest."""
        return self.value.endswith("_TRANSITIVE")

    @property
    def needs_backward(self) -> bool:
        """Whether the new schema must read data written with earlier schemas."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def needs_forward(self) -> bool:
        """Whether earlier schemas must read data written with the new schema."""
        return self.value.startswith(("FORWARD", "FULL"))


class Mode(Enum):
    """Operations allowed on a subject. Source: Confluent, "Schema Registry API Reference", mode."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    """Read-only for all subjects, whatever their own mode."""
    IMPORT = "IMPORT"
    """Clients register schemas with given ids; the registry does not check compatibility."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Maps a name in a schema (an Avro type, a JSON Schema URL, a Protobuf file) to a version of another subject."""

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
    """Only in IMPORT mode, unless it equals the number of the next version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A stored schema; immutable."""

    context: str
    id: int
    guid: UUID
    """Equal for equal schemas, in every context and registry."""
    type: SchemaType
    text: str
    references: tuple[Reference, ...]
    metadata: Document | None
    rule_set: Document | None
    body: bytes
    """Fingerprint of type, text and references."""
    size_bytes: int
    """Size in the store, metadata and rules included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """A version of a subject, with its schema."""

    subject: SubjectKey
    number: int
    is_deleted: bool
    schema: Schema
