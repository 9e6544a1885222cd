"""Which schemas the keys and values of a stream must have: the parsed form of the configs `schema.*`."""

from dataclasses import dataclass
from enum import Enum


class Validation(Enum):
    """What a server checks of a key or value before it stores the record. Null is always good."""

    NONE = "none"
    """Nothing."""
    ID = "id"
    """It begins with the id of a schema of the subjects (Confluent's wire format)."""
    VALUE = "value"
    """It is also a value of that schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRules:
    """What is checked of all keys, or of all values; `validation` is not NONE. Streams with equal rules share what a server knows.

    `subjects` (at least one, all of one context) have the schemas. With a `schema_id`, everything has that schema, and no id before it.
    With `columns`, that schema is the stream's declared columns (`table.columns`) and not one of the registry.
    """

    validation: Validation
    subjects: tuple[str, ...]
    schema_id: int | None = None
    columns: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRules:
    """The rules for keys and for values; None: they are not checked."""

    key: PartRules | None
    value: PartRules | None
