"""The parts of a route's description: statuses, models of bodies, parameters; and shorthands for the schemas of parameters."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

Schema = Mapping[str, Any]
"""A JSON schema (Any: as it is in the document)."""


ANYTHING: Schema = {}
"""The schema of any JSON value."""


class Operation(NamedTuple):
    """A route's statuses, bodies by content type, and parameters other than those of the path."""

    done: tuple[int, ...]
    failed: tuple[int, ...]
    answers: tuple[str, ...] = ()
    body: Mapping[str, Any] | None = None
    """Model or schema by content type (Any: models are types, and unions of types)."""
    is_body_required: bool = True
    parameters: tuple[Schema, ...] = ()
    answer: Any = ANYTHING
    """The model or schema of responses with 200, 201 or 207."""


class Description(NamedTuple):
    """The parts of an application's document that do not come from docstrings of handlers."""

    title: str
    operations: Mapping[tuple[str, str], Operation]
    """By method and path."""
    parameters: Mapping[str, Schema]
    """Schemas of path parameters; a parameter without a schema is any text."""
    error_types: tuple[str, ...]
    """Content types of errors."""
    error: Any
    """The model of errors."""


CODES = {status.value: status.phrase for status in HTTPStatus}
"""Descriptions of statuses."""
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
INDEX: Schema = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}


def query(name: str, schema: Schema) -> Schema:
    """Return a query parameter."""
    return {"name": name, "in": "query", "required": False, "schema": schema}


def header(name: str) -> Schema:
    """Return a header."""
    return {"name": name, "in": "header", "required": False, "schema": TEXT}
