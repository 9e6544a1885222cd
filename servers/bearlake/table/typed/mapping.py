"""Schemas of all types as typed columns."""

from collections.abc import Sequence

from bearlake.table.typed import avro, declared, descriptors, json_schema, protobuf
from bearlake.table.typed.model import COLUMNS_MAX, LEVELS_MAX, SchemaError, SchemaType, TypedColumns


def columns_of(
    schema_type: SchemaType,
    text: str,
    references: Sequence[str] = (),
    *,
    levels_max: int = LEVELS_MAX,
    columns_max: int = COLUMNS_MAX,
) -> TypedColumns:
    """Return the typed columns of a schema.

    `references` are the texts of the schemas that it refers to, each after those that it refers to itself. The text of a Protobuf schema is
    that of one message's compiled descriptors (`descriptors.of_message`), which has all references; the references of a JSON schema are
    those of `json_documents.reference_texts`. Declared columns have the text of `table/declared.py`, and limits of their own. Structs,
    lists and maps below `levels_max` levels are binary columns, of a JSON schema texts;
    if there are more than `columns_max` columns, fewer levels are columns. The result depends only on the arguments.

    Raises:
        SchemaError: the schema has no typed columns: it is malformed or too wide.
    """
    if schema_type == SchemaType.AVRO:
        return avro.columns_of(text, references, levels_max=levels_max, columns_max=columns_max)
    if schema_type == SchemaType.PROTOBUF:
        files, message = descriptors.files_of(text)
        if message is None:
            raise SchemaError("the descriptors are those of no message")
        return protobuf.columns_of(files, message, levels_max=levels_max, columns_max=columns_max)
    if schema_type == SchemaType.COLUMNS:
        return declared.columns_of(text)
    return json_schema.columns_of(text, references, levels_max=levels_max, columns_max=columns_max)
