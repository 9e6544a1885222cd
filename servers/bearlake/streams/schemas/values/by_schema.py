"""Creates the `Values` of a schema, for any format.

Only child processes do so (`confined/`): they parse Avro and JSON Schema texts again, and evaluate the schema for each value.
"""

from bearlake.streams.schemas.compiled import Compiled
from bearlake.streams.schemas.formats import avro, json_schema
from bearlake.streams.schemas.model import SchemaType
from bearlake.streams.schemas.values.avro_values import AvroValues
from bearlake.streams.schemas.values.json_values import JsonValues
from bearlake.streams.schemas.values.model import Values
from bearlake.streams.schemas.values.protobuf_values import ProtobufValues


def values_of(schema: Compiled) -> Values:
    """Return the `Values` of a compiled schema."""
    if schema.type == SchemaType.AVRO.value:
        return AvroValues(avro.parsed(schema.text, schema.references))
    if schema.type == SchemaType.JSON.value:
        return JsonValues(json_schema.parsed(schema.text, schema.references))
    return ProtobufValues(schema.files)
