"""Converts schemas between the form of Pulsar clients and the form of the registry.

    AVRO                      Avro, unchanged
    JSON, PROTOBUF            Avro: clients describe such values by an Avro schema
    STRING, INT32, DATE …     the Avro type of the same values
    NONE                      bytes: what Go's client calls a schema of bytes
    KEY_VALUE                 an Avro record of both schemas (`key_values.py`); the attribute `pulsar.data` holds what the client sent
    PROTOBUF_NATIVE           bytes, with the same attribute; as in Pulsar, any new version with the same root message is compatible

Except for AVRO, the metadata property `bearlake.encoding` holds the name of the type, so that the registry rejects versions of another
type. The parts that must not change either follow in parentheses: the types of key and value, or the root message. The client's own
properties are stored as `pulsar.property.…`. For Pulsar clients, an Avro schema that another client registered has type AVRO. They do not
see JSON Schema and Protobuf schemas, because Pulsar has no types for them.

Source: Pulsar, "Understand schema" (types); PIP-43 (KEY_VALUE), PIP-87 (PROTOBUF_NATIVE); `ProtobufNativeSchemaCompatibilityCheck`.
"""

import base64
import json
from typing import Any

from bearlake.protocols.pulsar import key_values
from bearlake.protocols.pulsar.errors import Refused
from bearlake.protocols.pulsar.proto.commands_pb2 import Schema
from bearlake.protocols.pulsar.proto.metadata_pb2 import KeyValue
from bearlake.records.json_values import TooManyValues, check_values, loads
from bearlake.streams.schemas import model
from bearlake.streams.schemas.model import ENCODING, Draft, SchemaType

_PROPERTY = "pulsar.property."
_CONTENT = "pulsar.data"
_AVRO_TEXT: dict[int, str] = {Schema.Avro: "AVRO", Schema.Json: "JSON", Schema.Protobuf: "PROTOBUF"}
_OPAQUE: dict[int, str] = {Schema.KeyValue: "KEY_VALUE", Schema.ProtobufNative: "PROTOBUF_NATIVE"}
_PRIMITIVES: dict[int, tuple[str, str]] = {
    Schema.NoSchema: ("NONE", "bytes"),
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
"""The names of types in the HTTP API, by number."""
NUMBERS = {name: number for number, name in NAMES.items()}
VALUE_COUNT_MAX = 20_000
"""JSON values of a schema of type KEY_VALUE or PROTOBUF_NATIVE: 1,000 fields have some 7,000. Schemas of other types are texts here."""
_AVRO_TYPES = dict(_PRIMITIVES.values()) | {"BYTES": "bytes"}
"""The Avro types of primitive types, by name."""


def draft_of(schema: Schema) -> Draft:
    """The schema in the registry's form. Raises `Refused` (IncompatibleSchema): the type is unknown, or the schema is malformed."""
    if schema.type not in NAMES:
        raise Refused("IncompatibleSchema", f"a schema of type {schema.type} cannot be registered")
    if schema.type in _OPAQUE:
        _check_count(schema)
    encoding = _encoding(schema)
    properties = {_PROPERTY + pair.key: pair.value for pair in schema.properties}
    if encoding != "AVRO":
        properties[ENCODING] = encoding
    try:
        return Draft(text=_text_of(schema), metadata={"properties": properties})
    except RecursionError as error:
        raise Refused("IncompatibleSchema", "the schema is nested too deeply") from error


def _check_count(schema: Schema) -> None:
    """Refuse a schema whose parts would hold the event loop, which parses them."""
    try:
        for part in _parts(schema):
            check_values("the schema", part, VALUE_COUNT_MAX)
    except TooManyValues as error:
        raise Refused("IncompatibleSchema", str(error)) from error


def type_of(schema: model.Schema) -> int | None:
    """The number of the Pulsar type of a stored schema; None if Pulsar has no type for it."""
    return NUMBERS.get(_stored_encoding(schema).partition("(")[0]) if schema.type is SchemaType.AVRO else None


def has_type_of(schema: model.Schema, given: Schema) -> bool:
    """Whether a stored schema has the type of a client's schema, including the parts in parentheses."""
    return schema.type is SchemaType.AVRO and _stored_encoding(schema) == _encoding(given)


def schema_of(schema: model.Schema, name: str) -> Schema | None:
    """A stored schema in the form of clients, with the topic's `name`; None as in `type_of`."""
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


def _parts(schema: Schema) -> tuple[bytes, ...]:
    """The texts that are parsed. Of a KEY_VALUE schema, these are key and value alone: an octet of a size may equal a quote."""
    if schema.type != Schema.KeyValue:
        return (schema.schema_data,)
    try:
        return key_values.split(schema.schema_data)
    except Refused:
        return ()  # nobody parses it: it stays as it is, or is refused where its types are known


def _encoding(schema: Schema) -> str:
    """The part that must be the same in all versions: the name of the type, and what else Pulsar compares."""
    name = NAMES[schema.type]
    if schema.type == Schema.KeyValue:
        return f"{name}({','.join(key_values.types_of(_given(schema)))})"
    if schema.type == Schema.ProtobufNative:
        try:
            root = loads(schema.schema_data)["rootMessageTypeName"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Refused("IncompatibleSchema", "the PROTOBUF_NATIVE schema has no rootMessageTypeName") from error
        return f"{name}({root})"
    return name


def _stored_encoding(schema: model.Schema) -> str:
    return str(_properties(schema).get(ENCODING, "AVRO"))


def _given(schema: Schema) -> dict[str, str]:
    return {pair.key: pair.value for pair in schema.properties}


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
