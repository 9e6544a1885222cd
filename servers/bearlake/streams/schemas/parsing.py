"""A schema's text as a value of its format: parse, canonical form, comparison.

The modules of `formats/` have the same two functions, which `parsed` and `incompatibilities` pick by type.
"""

from collections.abc import Mapping
from typing import Protocol

from bearlake.streams.schemas.formats import avro, json_schema, protobuf
from bearlake.streams.schemas.model import SchemaType
from bearlake.streams.schemas.problems import SchemaTooLarge


class Parsed(Protocol):
    """A schema that was understood."""

    @property
    def text(self) -> str:
        """What is kept and given back to clients."""

    @property
    def canonical(self) -> str:
        """The same for texts that mean the same but for spelling: what makes two schemas one."""

    @property
    def normalized(self) -> str:
        """The text to keep when a client asks for normalization."""


def parsed(type_: SchemaType, text: str, references: Mapping[str, str]) -> Parsed:
    """Parse `text`; `references` are the texts of what it names, by name, what they name themselves before them.

    Raises:
        InvalidSchema: with what is wrong.
    """
    if type_ is SchemaType.AVRO:
        return avro.parsed(text, references)
    if type_ is SchemaType.JSON:
        return json_schema.parsed(text, references)
    return protobuf.parsed(text, references)


def incompatibilities(reader: Parsed, writer: Parsed) -> list[str]:
    """What keeps `reader` from reading what was written with `writer`, one sentence each; empty: nothing.

    Raises:
        SchemaTooLarge: the two cannot be compared in bounded time and depth.
    """
    try:
        return _compared(reader, writer)
    except RecursionError as error:
        raise SchemaTooLarge("The schemas are nested too deeply to be compared") from error


def _compared(reader: Parsed, writer: Parsed) -> list[str]:
    if isinstance(reader, avro.AvroSchema) and isinstance(writer, avro.AvroSchema):
        return avro.incompatibilities(reader, writer)
    if isinstance(reader, json_schema.JsonSchema) and isinstance(writer, json_schema.JsonSchema):
        return json_schema.incompatibilities(reader, writer)
    if isinstance(reader, protobuf.ProtobufSchema) and isinstance(writer, protobuf.ProtobufSchema):
        return protobuf.incompatibilities(reader, writer)
    return ["{errorType:'SCHEMA_TYPE_CHANGED', description:'the reader and the writer schema are of different types'}"]
