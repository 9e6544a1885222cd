"""What a worker tells its executors about a stream's typed values. No third-party types, so that it can be sent as JSON."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bearlake.table.column_book import ColumnBook


class WriterSchema(NamedTuple):
    """A schema that values were written with. `is_framed`: its values begin with byte 0 and the schema's id (Confluent's wire format).

    `references`: texts of the schemas to which it refers, each after those to which it refers itself. The limits decide which columns the
    schema has, so they belong to it.
    """

    type: str
    """`AVRO`, `PROTOBUF` or `JSON`."""
    text: str
    references: tuple[str, ...]
    is_framed: bool
    levels_max: int
    columns_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileColumns:
    """The typed columns of data files, and the schemas of their values by id."""

    book: ColumnBook
    schemas: Mapping[int, WriterSchema]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuePlan:
    """How the values of a work item become columns.

    `elides`: values that their columns give back byte for byte are left out. `schema_id`: the schema of all values, which have no header;
    None: each value names its schema. `known`: the ids that values may name. `refused`: those of them that cannot become columns, and why.
    An item with a value whose schema is known, but neither refused nor in `columns.schemas`, ends and asks for it.
    """

    elides: bool
    columns: FileColumns
    known: Collection[int]
    refused: Mapping[int, str]
    schema_id: int | None = None
