"""A record's key or value in a v3 request: its bytes, or its JSON with the schema that it wants.

    {"type": "BINARY" | "JSON" | "STRING", "data": …}
    {"type": "AVRO" | "JSONSCHEMA" | "PROTOBUF", "schema": "…", "data": …}
    {"schema_id": 1, "data": …}    {"schema_version": 2, "data": …}    {"data": …}: the subject's latest version

With schemas, `subject` names the subject, or `subject_name_strategy` says how it is named: TOPIC_NAME (`{topic}-key`, `{topic}-value`,
the default), RECORD_NAME or TOPIC_RECORD_NAME. `type` may stand beside all of them; it is checked then.

Source: Confluent, "REST Proxy API Reference v3", Produce Records.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.proxy import formats
from bearlake.protocols.rest.proxy.formats import Format
from bearlake.streams.schemas import names
from bearlake.streams.schemas.model import SchemaType
from bearlake.streams.schemas.payloads import Choice, Naming

_SCHEMA_TYPES = {"AVRO": SchemaType.AVRO, "JSONSCHEMA": SchemaType.JSON, "PROTOBUF": SchemaType.PROTOBUF}
TYPE_NAMES = {type_: name for name, type_ in _SCHEMA_TYPES.items()}
"""How this API calls the formats of schemas."""
_PLAIN_TYPES = ("BINARY", "JSON", "STRING")
_SCHEMA_FIELDS = ("schema", "schema_id", "schema_version", "subject", "subject_name_strategy")
_NUMBER_MAX = 2**31 - 1


class Part(NamedTuple):
    """A key or value: its type (None: there is none) and bytes, or (with a choice) what it is made of."""

    type: str | None = None
    octets: bytes | None = None
    choice: Choice | None = None
    data: Any = None


def part(item: Mapping[str, Any], name: str) -> Part:
    """The part of a record. Raises `Problem` (400, 422)."""
    found = item.get(name)
    if found is None:
        return Part()
    if not isinstance(found, dict):
        raise Problem(400, 400, f"{name}: expected an object with type and data")
    kind, data = found.get("type"), found.get("data")
    given = [field for field in _SCHEMA_FIELDS if found.get(field) is not None]
    if kind in _PLAIN_TYPES:
        if given:
            raise Problem(400, 400, f"{name}.{given[0]}: type {kind} has no schema")
        return Part(kind, _plain(kind, data, f"{name}.data"))
    if kind is None and data is None and not given:
        return Part()
    if kind is not None and kind not in _SCHEMA_TYPES:
        expected = ", ".join((*_PLAIN_TYPES, *_SCHEMA_TYPES))
        raise Problem(422, 422, f"{name}.type: {str(kind)[:40]!r}: expected one of {expected}")
    return Part(kind, None, _choice(found, name, kind), data)


def _plain(kind: str, data: Any, place: str) -> bytes | None:
    if kind == "BINARY":
        return formats.decode(Format.BINARY, data, place)
    if kind == "JSON":
        return formats.decode(Format.JSON, data, place)
    if data is not None and not isinstance(data, str):
        raise Problem(422, 422, f"{place}: expected text")
    try:
        return None if data is None else data.encode()
    except UnicodeEncodeError as error:
        raise Problem(422, 422, f"{place}: text with a half surrogate pair has no UTF-8") from error


def _choice(found: Mapping[str, Any], name: str, kind: str | None) -> Choice:
    text, subject = (_text(found, name, field) for field in ("schema", "subject"))
    naming = _text(found, name, "subject_name_strategy")
    if naming is not None and naming not in Naming.__members__:
        expected = ", ".join(Naming.__members__)
        raise Problem(400, 400, f"{name}.subject_name_strategy: {naming[:40]!r}: expected one of {expected}")
    if naming is not None and subject is not None:
        raise Problem(400, 400, f"{name}: only one of subject and subject_name_strategy may be given")
    schema_id, version = _number(found, name, "schema_id"), _version(found, name)
    if sum(one is not None for one in (text, schema_id, version)) > 1:
        raise Problem(400, 400, f"{name}: only one of schema, schema_id and schema_version may be given")
    if text is not None and kind is None:
        raise Problem(400, 400, f"{name}.type: a schema needs its type: expected one of {', '.join(_SCHEMA_TYPES)}")
    return Choice(
        type=None if kind is None else _SCHEMA_TYPES[kind],
        text=text,
        id=schema_id,
        version=version,
        subject=subject,
        naming=Naming.TOPIC_NAME if naming is None else Naming[naming],
    )


def _text(found: Mapping[str, Any], name: str, field: str) -> str | None:
    value = found.get(field)
    if value is not None and not isinstance(value, str):
        raise Problem(400, 400, f"{name}.{field}: expected text")
    return value


def _number(found: Mapping[str, Any], name: str, field: str) -> int | None:
    value = found.get(field)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _NUMBER_MAX:
        raise Problem(400, 400, f"{name}.{field}: expected a number from 1")
    return value


def _version(found: Mapping[str, Any], name: str) -> int | None:
    """A version's number; `latest`, or -1, is said by name."""
    if found.get("schema_version") in ("latest", -1):
        return names.LATEST
    return _number(found, name, "schema_version")
