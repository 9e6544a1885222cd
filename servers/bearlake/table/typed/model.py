"""Typed columns of a schema: fields, types and limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from bearlake.errors import Unsupported
from bearlake.kernel import ProtoWire, TypedNode, TypedOutcome

LEVELS_MAX = 16
"""Default limit of nested structs, lists and maps in typed columns."""

COLUMNS_MAX = 1_000
"""Default limit of the typed columns of a schema (columns of Parquet: leaves)."""


class SchemaType(StrEnum):
    """The type of a schema, as the registry calls it."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"
    COLUMNS = "COLUMNS"
    """Not of the registry: the declared columns of a stream (`table/declared.py`)."""


class SchemaError(Unsupported):
    """The schema has no typed columns. The message says why, `path` where."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedField:
    """A field of the typed columns, at any level."""

    name: str
    """Unique in its struct, also if case is ignored. The child of a list is `element`, those of a map are `key` and `value`."""
    path: str
    """The names in the source from the top to this field, joined by dots: unique, and independent of `name`."""
    type: str
    """Iceberg's type: `int`, `decimal(10, 2)`, `fixed[4]`, `struct`, `list`, `map`, …"""
    arrow: pa.DataType
    is_nullable: bool
    """Whether the schema has a null here, or values that may not fit the column. The column is optional in any case."""
    children: "tuple[TypedField, ...]" = ()
    aliases: tuple[str, ...] = ()
    """Former names in the source (Avro)."""
    number: int | None = None
    """The number in the source (Protobuf)."""
    is_json: bool = False
    """Whether the column has texts in JSON, or is a list or map of them (JSON Schema)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedColumns:
    """The typed columns of one schema."""

    schema_type: SchemaType
    fields: tuple[TypedField, ...]
    """The columns of the top level. If the schema is not a record, there is one, `value`, whose path is empty."""
    nodes: tuple[TypedNode, ...]
    """The schema as the kernel reads it."""
    paths: tuple[str, ...]
    """The path of each node, for errors."""
    wires: tuple[ProtoWire, ...] = ()
    """How each node is written (Protobuf); else empty."""
    arrow: pa.StructType = field(init=False)
    """The struct that `codec.decode` returns; its fields are `fields`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrow", pa.struct([pa.field(column.name, column.arrow) for column in self.fields]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueProblem:
    """Why a value cannot be decoded."""

    outcome: TypedOutcome
    path: str
    """The field where the decoder stopped; empty: the value as a whole."""

    def __str__(self) -> str:
        return f"{self.outcome.name} at {self.path}" if self.path else self.outcome.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Values as typed columns, one row each, in order."""

    struct: pa.StructArray
    """Of the type `TypedColumns.arrow`. A row is null if its value is null or cannot be decoded."""
    is_exact: pa.BooleanArray
    """Whether encoding the row gives the bytes of its value. Never null; false for null values."""
    problems: Mapping[int, ValueProblem]
    """Rows whose values cannot be decoded."""
    statuses: pa.Int32Array
    """The kernel's statuses: `node << OUTCOME_BITS | TypedOutcome`, for counts of what keeps values."""
