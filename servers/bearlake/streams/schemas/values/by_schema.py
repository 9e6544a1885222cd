"""The values of a schema, whatever its format."""

from bearlake.streams.schemas.formats.avro import AvroSchema
from bearlake.streams.schemas.formats.json_schema import JsonSchema
from bearlake.streams.schemas.formats.protobuf import ProtobufSchema
from bearlake.streams.schemas.parsing import Parsed
from bearlake.streams.schemas.values.avro_values import AvroValues
from bearlake.streams.schemas.values.json_values import JsonValues
from bearlake.streams.schemas.values.model import Values
from bearlake.streams.schemas.values.protobuf_values import ProtobufValues


def values_of(schema: Parsed) -> Values:
    """The values of a parsed schema."""
    if isinstance(schema, AvroSchema):
        return AvroValues(schema)
    if isinstance(schema, JsonSchema):
        return JsonValues(schema)
    assert isinstance(schema, ProtobufSchema), schema
    return ProtobufValues(schema)
