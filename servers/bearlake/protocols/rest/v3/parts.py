"""A record's key or value in a v3 request: bytes, or JSON with the requested schema.

    {"type": "BINARY" | "JSON" | "STRING", "data": …}
    {"type": "AVRO" | "JSONSCHEMA" | "PROTOBUF", "schema": "…", "data": …}
    {"schema_id": 1, "data": …}    {"schema_version": 2, "data": …}    {"data": …}: the subject's latest version

With schemas, `subject` gives the subject, or `subject_name_strategy` derives it: TOPIC_NAME (`{topic}-key`, `{topic}-value`,
the default), RECORD_NAME or TOPIC_RECORD_NAME. If `type` is given as well, it is checked.

Source: Confluent, "REST Proxy API Reference v3", Produce Records.
"""

from typing import Any, NamedTuple

from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.proxy import formats
from bearlake.protocols.rest.v3 import models
from bearlake.streams.schemas import names
from bearlake.streams.schemas.model import SchemaType
from bearlake.streams.schemas.payloads import Choice, Naming

_SCHEMA_TYPES = {"AVRO": SchemaType.AVRO, "JSONSCHEMA": SchemaType.JSON, "PROTOBUF": SchemaType.PROTOBUF}
TYPE_NAMES = {type_: name for name, type_ in _SCHEMA_TYPES.items()}
"""Names of the schema formats in this API."""
_PLAIN_TYPES = ("BINARY", "JSON", "STRING")
_SCHEMA_FIELDS = ("schema", "schema_id", "schema_version", "subject", "subject_name_strategy")


class Part(NamedTuple):
    """A key or value: its type (None: absent) and bytes, or (with a choice of schema) its JSON."""

    type: str | None = None
    octets: bytes | None = None
    choice: Choice | None = None
    data: Any = None


def part(found: models.Part | None, name: str) -> Part:
    """Parse a record's key or value; messages call it `name`. Raises `Problem` (400, 422)."""
    if found is None:
        return Part()
    kind, data = found.type, found.data
    given = [field for field in _SCHEMA_FIELDS if getattr(found, field) is not None]
    if kind in _PLAIN_TYPES:
        if given:
            raise Problem(400, 400, f"{name}.{given[0]}: type {kind} takes no schema")
        return Part(kind, _plain(kind, data, f"{name}.data"))
    if kind is None and data is None and not given:
        return Part()
    return Part(kind, None, _choice(found, name), data)


def _plain(kind: str | None, data: Any, place: str) -> bytes | None:
    if kind == "BINARY":
        return formats.base64_in(data, place)
    if kind == "JSON":
        return formats.json_in(data, place)
    if data is not None and not isinstance(data, str):
        raise Problem(422, 422, f"{place}: expected text")
    try:
        return None if data is None else data.encode()
    except UnicodeEncodeError as error:
        raise Problem(422, 422, f"{place}: the text has an unpaired surrogate, which UTF-8 cannot encode") from error


def _choice(found: models.Part, name: str) -> Choice:
    if found.subject_name_strategy is not None and found.subject is not None:
        raise Problem(400, 400, f"{name}: only one of subject and subject_name_strategy may be given")
    if sum(field is not None for field in (found.schema, found.schema_id, found.schema_version)) > 1:
        raise Problem(400, 400, f"{name}: only one of schema, schema_id and schema_version may be given")
    if found.schema is not None and found.type is None:
        raise Problem(400, 400, f"{name}.type: a schema requires a type: expected one of {', '.join(_SCHEMA_TYPES)}")
    return Choice(
        type=None if found.type is None else _SCHEMA_TYPES[found.type],
        text=found.schema,
        id=found.schema_id,
        version=_version(found, name),
        subject=found.subject,
        naming=Naming[found.subject_name_strategy or "TOPIC_NAME"],
    )


def _version(found: models.Part, name: str) -> int | None:
    """Return the version number; None for `latest` or -1."""
    version = found.schema_version
    if version == "latest" or version == -1:
        return names.LATEST
    if version is not None and version < 1:
        raise Problem(400, 400, f"{name}.schema_version: expected a number from 1, -1 or latest, found {version}")
    return version
