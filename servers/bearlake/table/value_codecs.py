"""Codecs of writer schemas: values to structs and back, and the fields of a schema as a tree (`column_tree.py`).

A codec is kept for further calls, because a file's row groups have the same schemas. Threads may share codecs. A file says with which
limits its schemas were mapped, so that later versions of this program map them in the same way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import pyarrow as pa

from bearlake.errors import Corrupt, Invalid, TooLarge
from bearlake.table.column_tree import JSON_MARK, Column, ColumnType, ListOf, MapOf, StructOf, name_in_schemas
from bearlake.table.typed import codec, descriptors, framing, mapping
from bearlake.table.typed.model import SchemaError, SchemaType, TypedColumns, TypedField, ValueProblem
from bearlake.table.value_plan import COLUMN_BYTES_MAX, WriterSchema

ERROR_LENGTH_MAX: Final = 256
"""Characters of `_error`."""
_CODECS_KEPT_COUNT: Final = 128

SchemaUnusable = SchemaError


@dataclass(frozen=True, slots=True)
class DecodedValues:
    """Values of one schema as a struct, why some have no columns, and which of them the struct gives back byte for byte."""

    struct: pa.StructArray
    errors: pa.StringArray
    is_exact: pa.BooleanArray


class ValueCodec:
    """Decodes and encodes the values of one schema."""

    def __init__(self, columns: TypedColumns, message_prefix: bytes = b"") -> None:
        self._columns = columns
        self.gives_back: bool = columns.schema_type is not SchemaType.JSON
        """Whether the fields of a value can give it back."""
        self.struct: pa.StructType = columns.arrow
        """The type of decoded values."""
        self.fields = _fields(columns.fields)
        """The fields of the schema."""
        self.message_prefix = message_prefix
        """What a framed value has between the schema's id and its own bytes: the message's path (Protobuf)."""

    def decoded(self, values: pa.BinaryArray, *, skip: int, proves: bool) -> DecodedValues:
        """Decode values without their first `skip` bytes. Only with `proves` is any value exact."""
        parts: list[DecodedValues] = []
        self._decode(values, skip, proves, parts)
        if len(parts) == 1:
            return parts[0]
        return DecodedValues(
            pa.concat_arrays([part.struct for part in parts]),
            pa.concat_arrays([part.errors for part in parts]),
            pa.concat_arrays([part.is_exact for part in parts]),
        )

    def encoded(self, struct: pa.StructArray, prefix: bytes) -> pa.BinaryArray:
        """Encode values, each after `prefix`.

        Raises:
            Corrupt: they are not values of the schema.
        """
        try:
            return codec.encode(self._columns, struct, prefix=prefix)
        except Invalid as error:
            raise Corrupt(f"typed columns do not have the values of their schema: {error}") from error

    def _decode(self, values: pa.BinaryArray, skip: int, proves: bool, parts: list[DecodedValues]) -> None:
        """Add the decoded values to `parts`, in halves if they are too large at once."""
        spent = sum(part.struct.nbytes for part in parts)
        count = len(values)
        try:
            if spent >= COLUMN_BYTES_MAX:
                raise TooLarge("the columns of a row group", spent, COLUMN_BYTES_MAX)
            found = codec.decode(
                self._columns, values, skip=skip, is_verified=proves, bytes_max=COLUMN_BYTES_MAX - spent
            )
        except TooLarge:
            if count > 1 and spent < COLUMN_BYTES_MAX:
                self._decode(values.slice(0, count // 2), skip, proves, parts)
                self._decode(values.slice(count // 2), skip, proves, parts)
                return
            errors = pa.array(["TOO_LARGE: its columns"] * count, pa.string())
            parts.append(DecodedValues(pa.nulls(count, self.struct), errors, pa.array([False] * count, pa.bool_())))
            return
        parts.append(DecodedValues(found.struct, _errors(found.problems, count), found.is_exact))


def _errors(problems: Mapping[int, ValueProblem], count: int) -> pa.StringArray:
    if not problems:
        return pa.nulls(count, pa.string())
    texts: list[str | None] = [None] * count
    for row, problem in problems.items():
        texts[row] = f"{problem.outcome.name}: {problem.path}"[:ERROR_LENGTH_MAX]
    return pa.array(texts, pa.string())


def codec_of(schema: WriterSchema) -> ValueCodec:
    """Return the codec of a schema that has columns.

    Raises:
        SchemaUnusable: the schema cannot become columns.
    """
    return _codec(schema._replace(is_framed=False))


def key_fields(fields: Sequence[Column]) -> tuple[Column, ...]:
    """Return a schema's fields as columns of keys: a key that is no record is the column `key`."""
    return tuple(replace(field, name="key") if not name_in_schemas(field.source) else field for field in fields)


def message_of(schema: WriterSchema, indexes: tuple[int, ...]) -> WriterSchema:
    """Return one message of a Protobuf schema with all its messages.

    Raises:
        SchemaUnusable: there is no such message.
    """
    return schema._replace(text=_message_text(schema.text, indexes))


@lru_cache(_CODECS_KEPT_COUNT)
def _message_text(text: str, indexes: tuple[int, ...]) -> str:
    return descriptors.of_message(text, indexes)


@lru_cache(_CODECS_KEPT_COUNT)
def _codec(schema: WriterSchema) -> ValueCodec:
    columns = mapping.columns_of(
        SchemaType(schema.type),
        schema.text,
        schema.references,
        levels_max=schema.levels_max,
        columns_max=schema.columns_max,
    )
    if schema.type != SchemaType.PROTOBUF:
        return ValueCodec(columns)
    _, indexes = descriptors.files_of(schema.text)
    return ValueCodec(columns, framing.written_indexes(indexes or ()))


def _fields(fields: Sequence[TypedField]) -> tuple[Column, ...]:
    return tuple(Column(0, field.name.replace(".", "_"), _source(field), _type(field)) for field in fields)


def _source(field: TypedField) -> str:
    return field.path + JSON_MARK if field.is_json else field.path


def _type(field: TypedField) -> ColumnType:
    if field.type == "struct":
        return StructOf(_fields(field.children))
    if field.type == "list":
        (element,) = field.children
        return ListOf(0, _type(element))
    if field.type == "map":
        key, value = field.children
        return MapOf(0, field_type(key), 0, _type(value))
    return field_type(field)


def field_type(field: TypedField) -> str:
    """Return the type of a primitive field's column. Times of day are `long` (µs): Spark refuses every table that has a `time` column."""
    return "long" if field.type == "time" else field.type.replace(" ", "")
