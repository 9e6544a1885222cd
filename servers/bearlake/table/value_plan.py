"""What a worker tells its executors about a stream's typed values and keys. No third-party types, so that it can be sent as JSON."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from bearlake.table.column_book import ColumnBook, MessageKey
from bearlake.table.column_tree import null_bytes

COLUMN_BYTES_MAX: Final = 512 * 1024 * 1024
"""Memory of the columns of one row group. A few bytes can stand for many nulls; values beyond this get no columns."""


LACKS_GUIDS: Final = -1
"""Stands among the ids that an item asks for: it needs the GUIDs of the known schemas, which records name in headers."""


class WriterSchema(NamedTuple):
    """A schema that values were written with. `is_framed`: its values begin with byte 0 and the schema's id (Confluent's wire format).

    `text`: of Protobuf, that of compiled descriptors (`typed/descriptors.py`), and the schema is one of their messages. `references`: texts
    of the schemas to which it refers, each after those to which it refers itself. The limits decide which columns the schema has, so they
    belong to it.
    """

    type: str
    """`AVRO`, `PROTOBUF`, `JSON`, or `COLUMNS` with the text of declared columns."""
    text: str
    references: tuple[str, ...]
    is_framed: bool
    levels_max: int
    columns_max: int


def encode_schemas(schemas: Mapping[int, WriterSchema]) -> dict[str, list[object]]:
    """Return schemas by id as types of JSON."""
    return {str(id_): list(schema) for id_, schema in schemas.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileColumns:
    """The typed columns of data files, and the schemas of their values and keys by id.

    Of a Protobuf schema: the first message that was used. Only values and keys of this message are left out.
    """

    book: ColumnBook
    schemas: Mapping[int, WriterSchema]
    key_schemas: Mapping[int, WriterSchema] = field(default_factory=dict)

    @property
    def null_bytes(self) -> int:
        """Memory (bytes) of the columns of a row without values."""
        return null_bytes(self.book.all_columns)

    def row_bytes(self, row_group_bytes: int) -> int:
        """Return what a row adds to a row group of at most `row_group_bytes`, so that the columns take at most `COLUMN_BYTES_MAX`."""
        return -(-self.null_bytes * row_group_bytes // COLUMN_BYTES_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPlan:
    """How the values, or the keys, of a work item become columns.

    `elides`: values that their columns give back byte for byte are left out. `schema_id`: the schema of all values, which have no header;
    None: each value names its schema. `known`: the ids that values may name. `refused`: those of them that cannot become columns, and why.
    An item with a value whose schema is known, but neither refused nor in the plan's columns, ends and asks for it.
    `protobuf`: schemas with all their messages, of which each value names one; an item asks for a message whose fields have no columns yet.
    `refused_messages`: messages that cannot become columns, and why. `guids`: the known ids by GUID (hex); None: the plan does not have
    them, and an item whose records name GUIDs asks for them.
    """

    elides: bool
    known: Collection[int]
    refused: Mapping[int, str]
    schema_id: int | None = None
    protobuf: Mapping[int, WriterSchema] = field(default_factory=dict)
    refused_messages: Mapping[MessageKey, str] = field(default_factory=dict)
    guids: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuePlan(PartPlan):
    """How the values and keys of a work item become columns. The inherited fields are about values.

    `types_values`: False: values stay bytes, and only keys become columns. `key`: how keys do; None: they stay bytes.
    """

    columns: FileColumns
    types_values: bool = True
    key: PartPlan | None = None
