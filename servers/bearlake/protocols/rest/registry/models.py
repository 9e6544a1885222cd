"""Bodies of the schema registry, as models: they check the bodies, and describe them in the OpenAPI document.

null counts as absent in a schema, and unsets a field of a config. What metadata and rules hold is checked by `streams.schemas.rules`.

Source: Confluent, "Schema Registry API Reference" (public documentation).
"""

from enum import Enum
from typing import Annotated, Any

from bearlake.serving.http.models import UNSET, Meta, Model, OpenModel, Reader, UnsetType
from bearlake.serving.http.queries import Query
from bearlake.streams.schemas.model import Level, Mode, SchemaType

INT32_MAX = 2**31 - 1
_PAGE_MAX = 10**10 - 1
"""Larger than any list; a number above 2^31 - 1 counts as that."""


class _Spelled(Enum):
    """Names that clients may write in lower case."""

    @classmethod
    def _missing_(cls, value: object) -> "_Spelled | None":
        return cls.__members__.get(value.upper()) if isinstance(value, str) else None


class TypeName(_Spelled):
    """Formats of schemas."""

    AVRO = SchemaType.AVRO.value
    JSON = SchemaType.JSON.value
    PROTOBUF = SchemaType.PROTOBUF.value


class LevelName(_Spelled):
    """Compatibility levels."""

    NONE = Level.NONE.value
    BACKWARD = Level.BACKWARD.value
    BACKWARD_TRANSITIVE = Level.BACKWARD_TRANSITIVE.value
    FORWARD = Level.FORWARD.value
    FORWARD_TRANSITIVE = Level.FORWARD_TRANSITIVE.value
    FULL = Level.FULL.value
    FULL_TRANSITIVE = Level.FULL_TRANSITIVE.value


class ModeName(_Spelled):
    """Modes."""

    READWRITE = Mode.READWRITE.value
    READONLY = Mode.READONLY.value
    READONLY_OVERRIDE = Mode.READONLY_OVERRIDE.value
    IMPORT = Mode.IMPORT.value


def _any_of(names: type[_Spelled]) -> str:
    return ", ".join(names.__members__)


Compatibility = Annotated[LevelName, Meta(description=_any_of(LevelName).lower())]

Number = Annotated[int, Meta(ge=-(2**31), le=INT32_MAX, description="a number from 1, or 0 or -1 for none")]


class Reference(OpenModel):
    """A reference from one schema to another: a version of a subject, -1 for the latest."""

    name: str
    subject: str
    version: Annotated[int, Meta(description="a version's number, or -1 for the latest")]


class Draft(OpenModel, rename="camel"):
    """A schema to register, to look up or to compare."""

    schema: str | None = None
    schema_type: Annotated[TypeName | None, Meta(description=_any_of(TypeName))] = None
    references: list[Reference] | None = None
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    id: Number | None = None
    version: Number | None = None


class Config(Model, rename="camel"):
    """Fields of a config to set; null unsets a field."""

    compatibility: Compatibility | UnsetType = UNSET
    compatibility_level: Compatibility | UnsetType = UNSET
    alias: str | UnsetType | None = UNSET
    compatibility_group: str | UnsetType | None = UNSET
    compatibility_policy: str | UnsetType | None = UNSET
    normalize: bool | UnsetType | None = UNSET
    validate_fields: bool | UnsetType | None = UNSET
    validate_rules: bool | UnsetType | None = UNSET
    default_metadata: dict[str, Any] | UnsetType | None = UNSET
    override_metadata: dict[str, Any] | UnsetType | None = UNSET
    default_rule_set: dict[str, Any] | UnsetType | None = UNSET
    override_rule_set: dict[str, Any] | UnsetType | None = UNSET


class ModeBody(OpenModel):
    """A mode to set."""

    mode: Annotated[ModeName, Meta(description=_any_of(ModeName))]


class Page(OpenModel):
    """Query parameters of a list."""

    offset: Annotated[int, Meta(ge=0, le=_PAGE_MAX)] = 0
    limit: Annotated[int, Meta(ge=-_PAGE_MAX, le=_PAGE_MAX)] = -1
    """A negative number means no limit."""


PAGE = Query(Page, is_empty_absent=True)
DRAFT = Reader[Draft](Draft)
CONFIG = Reader[Config](Config)
MODE = Reader[ModeBody](ModeBody)
