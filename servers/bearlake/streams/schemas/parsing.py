"""A schema's text compiled, and two compiled schemas compared, in this process. Servers do both in children (`confined/pool.py`).

The modules of `formats/` have the same two functions, `parsed` and `incompatibilities`.
"""

from collections.abc import Mapping

from bearlake.streams.schemas.compiled import Compiled
from bearlake.streams.schemas.formats import avro, json_schema, protobuf
from bearlake.streams.schemas.model import SchemaType
from bearlake.streams.schemas.problems import SchemaTooLarge


def compiled(type_: SchemaType, text: str, references: Mapping[str, str]) -> Compiled:
    """Compile `text`; `references` are the texts of what it names, by name, what they name themselves before them.

    Raises:
        InvalidSchema: with what is wrong.
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
        text=schema.text,
        canonical=schema.canonical,
        normalized=schema.normalized,
        exports=exports,
        references=references,
        files=files,
    )


def incompatibilities(reader: Compiled, writer: Compiled) -> list[str]:
    """What keeps `reader` from reading what was written with `writer`, one sentence each; empty: nothing.

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
        return avro.incompatibilities(*(avro.parsed(one.text, one.references) for one in (reader, writer)))
    if reader.type == SchemaType.JSON.value:
        return json_schema.incompatibilities(
            *(json_schema.parsed(one.text, one.references) for one in (reader, writer))
        )
    return protobuf.incompatibilities(*(protobuf.restored(one.files, one.references) for one in (reader, writer)))
