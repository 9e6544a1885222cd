"""Schemas as Pulsar's clients write them, and as the registry keeps them; each is made from the other.

    AVRO                      Avro, as it is
    JSON, PROTOBUF            Avro too: clients describe such values by an Avro schema
    STRING, INT32, DATE …     the Avro type of the same values
    KEY_VALUE                 an Avro record of both schemas (`key_values.py`), with what the client sent in the attribute `pulsar.data`
    PROTOBUF_NATIVE           bytes, with that attribute; as by Pulsar, any successor with the same root message is compatible

The metadata's property `bearlake.encoding` is the type's name, but for AVRO, so that the registry takes no version of another type. Behind
it stands, in parentheses, what must not change either: the types of key and value, or the root message. A client's own properties are
there as `pulsar.property.…`. A schema that the registry was given by others is AVRO to Pulsar's clients if
it is Avro, and none for them if it is JSON Schema or Protobuf: they have no type for those.

Source: Pulsar, "Understand schema" (types); PIP-43 (KEY_VALUE), PIP-87 (PROTOBUF_NATIVE); `ProtobufNativeSchemaCompatibilityCheck`.
"""

import base64
import json
from typing import Any

from bearlake.protocols.pulsar import key_values
from bearlake.protocols.pulsar.errors import Refused
from bearlake.protocols.pulsar.proto.commands_pb2 import Schema
from bearlake.protocols.pulsar.proto.metadata_pb2 import KeyValue
from bearlake.streams.schemas import model
from bearlake.streams.schemas.model import ENCODING, Draft, SchemaType

_PROPERTY = "pulsar.property."
_CONTENT = "pulsar.data"
_AVRO_TEXT: dict[int, str] = {Schema.Avro: "AVRO", Schema.Json: "JSON", Schema.Protobuf: "PROTOBUF"}
_OPAQUE: dict[int, str] = {Schema.KeyValue: "KEY_VALUE", Schema.ProtobufNative: "PROTOBUF_NATIVE"}
_PRIMITIVES: dict[int, tuple[str, str]] = {
    Schema.String: ("STRING", "string"),
    Schema.Bool: ("BOOLEAN", "boolean"),
    Schema.Int8: ("INT8", "int"),
    Schema.Int16: ("INT16", "int"),
    Schema.Int32: ("INT32", "int"),
    Schema.Int64: ("INT64", "long"),
    Schema.Float: ("FLOAT", "float"),
    Schema.Double: ("DOUBLE", "double"),
    Schema.Date: ("DATE", "long"),
    Schema.Time: ("TIME", "long"),
    Schema.Timestamp: ("TIMESTAMP", "long"),
    Schema.Instant: ("INSTANT", "bytes"),
    Schema.LocalDate: ("LOCAL_DATE", "long"),
    Schema.LocalTime: ("LOCAL_TIME", "long"),
    Schema.LocalDateTime: ("LOCAL_DATE_TIME", "bytes"),
}
NAMES: dict[int, str] = {**_AVRO_TEXT, **_OPAQUE, **{number: name for number, (name, _) in _PRIMITIVES.items()}}
"""Names of types, as the HTTP API writes them, by their numbers."""
NUMBERS = {name: number for number, name in NAMES.items()}
_AVRO_TYPES = dict(_PRIMITIVES.values()) | {"BYTES": "bytes", "NONE": "bytes"}
"""Avro types of the primitive ones, by name."""


def draft_of(schema: Schema) -> Draft:
    """The schema as the registry takes it. Raises `Refused` (IncompatibleSchema): it has no type, or is not text."""
    if schema.type not in NAMES:
        raise Refused("IncompatibleSchema", f"a schema of type {schema.type} cannot be registered")
    encoding = _encoding(schema)
    properties = {_PROPERTY + one.key: one.value for one in schema.properties}
    if encoding != "AVRO":
        properties[ENCODING] = encoding
    try:
        return Draft(text=_text_of(schema), metadata={"properties": properties})
    except RecursionError as error:
        raise Refused("IncompatibleSchema", "a schema that is nested too deeply") from error


def type_of(schema: model.Schema) -> int | None:
    """Number of the type that a kept schema is to Pulsar's clients; None: they have none for it."""
    return NUMBERS.get(_kept_encoding(schema).partition("(")[0]) if schema.type is SchemaType.AVRO else None


def has_type_of(schema: model.Schema, given: Schema) -> bool:
    """Whether a kept schema is of the same type as the one that a client gave, with what belongs to the type."""
    return schema.type is SchemaType.AVRO and _kept_encoding(schema) == _encoding(given)


def schema_of(schema: model.Schema, name: str) -> Schema | None:
    """A kept schema as clients read it, `name` being the topic's; None as for `type_of`."""
    number = type_of(schema)
    if number is None:
        return None
    if number in _AVRO_TEXT:
        content = schema.text.encode()
    elif number in _OPAQUE:
        content = base64.b64decode(json.loads(schema.text)[_CONTENT])
    else:
        content = b""
    own = {key[len(_PROPERTY) :]: value for key, value in _properties(schema).items() if key.startswith(_PROPERTY)}
    return Schema(
        name=name,
        schema_data=content,
        type=number,  # type: ignore[arg-type]  # its number
        properties=[KeyValue(key=key, value=value) for key, value in sorted(own.items())],
    )


def _encoding(schema: Schema) -> str:
    """What must stay the same from version to version: the type's name, and what Pulsar compares beside it."""
    name = NAMES[schema.type]
    if schema.type == Schema.KeyValue:
        return f"{name}({','.join(key_values.types_of(_given(schema)))})"
    if schema.type == Schema.ProtobufNative:
        try:
            root = json.loads(schema.schema_data)["rootMessageTypeName"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Refused("IncompatibleSchema", "a PROTOBUF_NATIVE schema without a rootMessageTypeName") from error
        return f"{name}({root})"
    return name


def _kept_encoding(schema: model.Schema) -> str:
    return str(_properties(schema).get(ENCODING, "AVRO"))


def _given(schema: Schema) -> dict[str, str]:
    return {one.key: one.value for one in schema.properties}


def _text_of(schema: Schema) -> str:
    if schema.type in _PRIMITIVES:
        return json.dumps(_PRIMITIVES[schema.type][1])
    if schema.type in _OPAQUE:
        record = None
        if schema.type == Schema.KeyValue:
            record = key_values.record_of(schema.schema_data, _given(schema), _AVRO_TYPES)
        return json.dumps({**(record or {"type": "bytes"}), _CONTENT: base64.b64encode(schema.schema_data).decode()})
    try:
        return schema.schema_data.decode()
    except UnicodeDecodeError as error:
        raise Refused("IncompatibleSchema", f"schema {schema.name!r} is not UTF-8: {error.reason}") from error


def _properties(schema: model.Schema) -> dict[str, Any]:
    return (schema.metadata or {}).get("properties") or {}
