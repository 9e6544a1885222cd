"""Compiles schema texts and compares compiled schemas in this process. Servers do both in child processes (`confined/pool.py`).

Each module of `formats/` has the same two functions, `parsed` and `incompatibilities`.
"""

from collections.abc import Mapping

from bearlake.streams.schemas.compiled import Compiled
from bearlake.streams.schemas.formats import avro, json_schema, protobuf
from bearlake.streams.schemas.model import SchemaType
from bearlake.streams.schemas.problems import SchemaTooLarge


def compiled(type_: SchemaType, text: str, references: Mapping[str, str]) -> Compiled:
    """Compile `text`. `references` has the texts of referenced schemas by name; each comes after the schemas that it references.

    Raises:
        InvalidSchema: the text or a reference is invalid; the message says why.
    """
    exports: dict[str, str] = {}
    files: tuple[bytes, ...] = ()
    schema: avro.AvroSchema | json_schema.JsonSchema | protobuf.ProtobufSchema
    if type_ is SchemaType.AVRO:
        schema = avro.parsed(text, references)
        exports["resolved"] = schema.resolved
    elif type_ is SchemaType.JSON:
        schema = json_schema.parsed(text, references)
    else:
        schema = protobuf.parsed(text, references)
        exports["serialized"] = schema.serialized
        files = tuple(file.SerializeToString() for file in schema.files)
    return Compiled(
        type=type_.value,
        record_name=schema.record_name,
        text=schema.text,
        canonical=schema.canonical,
        normalized=schema.normalized,
        exports=exports,
        references=references,
        files=files,
    )


def incompatibilities(reader: Compiled, writer: Compiled) -> list[str]:
    """Return why `reader` cannot read data written with `writer`, one sentence per reason; empty: compatible.

    Raises:
        SchemaTooLarge: the two cannot be compared in bounded time and depth.
    """
    try:
        return _compared(reader, writer)
    except RecursionError as error:
        raise SchemaTooLarge("The schemas are nested too deeply to be compared") from error


def _compared(reader: Compiled, writer: Compiled) -> list[str]:
    if reader.type != writer.type:
        return [
            "{errorType:'SCHEMA_TYPE_CHANGED', description:'the reader and the writer schema are of different types'}"
        ]
    if reader.type == SchemaType.AVRO.value:
        return avro.incompatibilities(*(avro.parsed(side.text, side.references) for side in (reader, writer)))
    if reader.type == SchemaType.JSON.value:
        return json_schema.incompatibilities(
            *(json_schema.parsed(side.text, side.references) for side in (reader, writer))
        )
    return protobuf.incompatibilities(*(protobuf.restored(side.files, side.references) for side in (reader, writer)))
