"""Embedded formats of the v2 API: the JSON form of keys and values, selected by the content type of the request or answer.

    application/vnd.kafka.binary.v2+json       base64 text           any bytes
    application/vnd.kafka.json.v2+json         a JSON value          its compact text, UTF-8
    application/vnd.kafka.avro.v2+json         Avro's JSON encoding  schema id, then Avro's binary encoding
    application/vnd.kafka.jsonschema.v2+json   a JSON value          schema id, then the same as json
    application/vnd.kafka.protobuf.v2+json     Protobuf's JSON       schema id and message path, then the message

null means no key or no value. `embedded.py` converts keys and values with schemas.
"""

import base64
import binascii
import json
from enum import Enum
from typing import Any

from aiohttp import web

from bearlake.protocols.rest.problems import Problem
from bearlake.serving.http.models import Malformed, Mismatch, Raw, Reader
from bearlake.streams.schemas.model import SchemaType
from bearlake.streams.schemas.values.model import Unfit

V2 = "application/vnd.kafka.v2+json"
_GENERIC = ("application/vnd.kafka+json", "application/json", "application/octet-stream", "*/*", "application/*")

_PARSED_BYTES_MAX = 64 * 1024
"""Values up to this size are parsed: that takes up to 10 ms."""
_ANY_TEXT = Reader[Raw](Raw)
"""Checks the grammar of a JSON text."""
_compact = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
"""Encodes compact JSON. A single encoder, because `json.dumps` would build one per value."""


class Format(Enum):
    """An embedded format."""

    BINARY = "binary"
    JSON = "json"
    AVRO = "avro"
    JSONSCHEMA = "jsonschema"
    PROTOBUF = "protobuf"

    @property
    def schema_type(self) -> SchemaType | None:
        """The schema type of the format, or None."""
        return _SCHEMA_TYPES.get(self)

    @property
    def content_type(self) -> str:
        """The content type of the format."""
        return f"application/vnd.kafka.{self.value}.v2+json"


_SCHEMA_TYPES = {
    Format.AVRO: SchemaType.AVRO,
    Format.JSONSCHEMA: SchemaType.JSON,
    Format.PROTOBUF: SchemaType.PROTOBUF,
}
_BY_TYPE = {form.content_type: form for form in Format} | {
    f"application/vnd.kafka.{form.value}+json": form for form in Format
}


def of_body(request: web.Request) -> Format:
    """Return the format of a produce request's body. Raises `Problem` (415)."""
    content_type = request.content_type
    if content_type in _GENERIC or content_type == V2:
        return Format.BINARY
    form = _BY_TYPE.get(content_type)
    if form is None:
        expected = ", ".join(form.content_type for form in Format)
        raise Problem(415, 415, f"HTTP 415 Unsupported Media Type: {content_type[:100]!r}: expected one of {expected}")
    return form


def check_v2(request: web.Request) -> None:
    """Check the content type of a request body without records. Raises `Problem` (415)."""
    if request.content_type not in (V2, *_GENERIC, *_BY_TYPE):
        raise Problem(415, 415, f"HTTP 415 Unsupported Media Type: {request.content_type[:100]!r}: expected {V2}")


def negotiate(request: web.Request, own: Format) -> Format:
    """Return the format for an answer with records; the consumer's own format is `own`.

    Raises:
        Problem: 406 if the client accepts only other formats.
    """
    accept = request.headers.get("Accept", "*/*")
    offered = [part.split(";")[0].strip().lower() for part in accept.split(",")]
    if any(
        content_type == own.content_type
        or _BY_TYPE.get(content_type) is own
        or content_type in _GENERIC
        or content_type == V2
        for content_type in offered
    ):
        return own
    if any(content_type in _BY_TYPE for content_type in offered):
        raise Problem(
            406,
            40601,
            "The requested embedded data format does not match the deserializer for this consumer instance: "
            f"it was created with format {own.value}",
        )
    raise Problem(406, 406, f"HTTP 406 Not Acceptable: {accept[:100]!r}: expected {own.content_type}")


def base64_in(value: Any, what: str) -> bytes | None:
    """Decode a key or value given as base64 text (Any: a JSON value). Raises `Problem` (422)."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise Problem(422, 422, f"{what}: expected base64 text")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Problem(422, 422, f"{what}: not base64: {error}") from error


def json_in(value: Any, what: str) -> bytes | None:
    """Encode a key or value given as a JSON value (Any). Raises `Problem` (422)."""
    if value is None:
        return None
    try:
        return _compact(value).encode()
    except RecursionError as error:
        raise Problem(422, 422, f"{what}: nested too deeply") from error
    except UnicodeEncodeError as error:
        raise Problem(422, 422, f"{what}: the text has an unpaired surrogate, which UTF-8 cannot encode") from error
    except ValueError as error:
        raise Problem(422, 422, f"{what}: a number is too large for JSON") from error


def encode(form: Format, value: bytes | None) -> bytes | None:
    """Convert bytes to a JSON text for an answer, in a format without schemas. Raises `Unfit` if bytes are not JSON.

    A long text is not parsed, which would hold the interpreter's lock: its grammar is checked, and it stays as it is.
    """
    if value is None:
        return None
    if form is Format.BINARY:
        return b'"' + base64.b64encode(value) + b'"'
    try:
        if len(value) > _PARSED_BYTES_MAX:
            octets = bytes(value)
            octets.decode()
            return bytes(_ANY_TEXT.read(octets))
        return json.dumps(json.loads(value, parse_constant=_refuse), allow_nan=False).encode("ascii")
    except (ValueError, RecursionError, Malformed, Mismatch) as error:
        raise Unfit(f"not valid JSON: {error}") from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
