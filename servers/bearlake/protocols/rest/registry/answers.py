"""Answers and errors of the schema registry: JSON in the content type that the client accepts.

Source: Confluent, "Schema Registry API Reference", content types and errors.
"""

import json
from typing import Any

from aiohttp import web

from bearlake import errors
from bearlake.metadata.schemas import VersionKey
from bearlake.streams.schemas import names
from bearlake.streams.schemas.model import Reference, Schema, SchemaType, SchemaVersion
from bearlake.streams.schemas.problems import Refusal
from bearlake.telemetry import metrics

OWN_TYPE = "application/vnd.schemaregistry.v1+json"
TYPES = (OWN_TYPE, "application/vnd.schemaregistry+json", "application/json")
ACCEPTED_TYPES = (*TYPES, "application/octet-stream")
"""Content types of request bodies. A body without a content type counts as `application/octet-stream`."""

_CODES: tuple[tuple[type[errors.BearlakeError], int, int], ...] = (
    (errors.TooLarge, 413, 413),
    (errors.Invalid, 422, 422),
    (errors.NotFound, 404, 404),
    (errors.Denied, 403, 40301),
    (errors.Throttled, 429, 429),
    (errors.Overloaded, 503, 503),
    (errors.Unavailable, 500, 50001),
    (errors.Conflict, 409, 409),
)
"""Status and error code of error kinds without a code of their own."""


def answer(request: web.Request, value: object, status: int = 200) -> web.Response:
    """Build a JSON answer."""
    return web.Response(
        status=status, body=json.dumps(value).encode(), headers={"Content-Type": _accepted_type(request)}
    )


def text_answer(request: web.Request, text: str) -> web.Response:
    """Build an answer from text that is sent unchanged, such as a schema."""
    return web.Response(body=text.encode(), headers={"Content-Type": _accepted_type(request)})


def problem(request: web.Request, status: int, code: int, message: str) -> web.Response:
    """Build an error answer."""
    metrics.REGISTRY_ERRORS.labels(str(code)).inc()
    response = answer(request, {"error_code": code, "message": message}, status)
    if status == 503:
        response.headers["Retry-After"] = "1"
    return response


def refused(request: web.Request, error: errors.BearlakeError) -> web.Response:
    """Build the answer for an error kind."""
    if isinstance(error, Refusal):
        return problem(request, int(str(error.code)[:3]), error.code, str(error))
    for kind, status, code in _CODES:
        if isinstance(error, kind):
            return problem(request, status, code, str(error))
    return problem(request, 500, 50001, str(error))


def shown_schema(schema: Schema, text: str | None = None) -> dict[str, Any]:
    """Return a schema's own fields, with `text` in place of the stored text. Omits the type of Avro, which is the default."""
    shown: dict[str, Any] = {"guid": str(schema.guid)}
    if schema.type is not SchemaType.AVRO:
        shown["schemaType"] = schema.type.value
    if schema.references:
        shown["references"] = [_reference(reference, schema.context) for reference in schema.references]
    if schema.metadata is not None:
        shown["metadata"] = schema.metadata
    if schema.rule_set is not None:
        shown["ruleSet"] = schema.rule_set
    return shown | {"schema": schema.text if text is None else text}


def shown_version(version: SchemaVersion, text: str | None = None) -> dict[str, Any]:
    """Return a version with its schema."""
    head = {"subject": names.shown(version.subject), "version": version.number, "id": version.schema.id}
    deleted = {"deleted": True} if version.is_deleted else {}
    return head | shown_schema(version.schema, text) | deleted


def _reference(reference: Reference, context: str) -> dict[str, Any]:
    """Return a reference as written inside `context`."""
    subject, number = VersionKey(*reference.version)
    name = subject.name if subject.context == context else names.shown(subject)
    return {"name": reference.name, "subject": name, "version": number}


def _accepted_type(request: web.Request) -> str:
    accepted = request.headers.get("Accept", "")
    positions = {kind: accepted.find(kind) for kind in TYPES if kind in accepted}
    return min(positions, key=lambda kind: positions[kind]) if positions else OWN_TYPE
