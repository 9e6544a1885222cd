"""What a description of a route is made of: statuses, models of bodies, parameters; and shorthands for the schemas of parameters."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

Schema = Mapping[str, Any]
"""A JSON schema (Any: as it stands in the document)."""


ANYTHING: Schema = {}
"""The schema of any JSON value."""


class Operation(NamedTuple):
    """A route's statuses, bodies by content type, and parameters beside those of the path."""

    done: tuple[int, ...]
    failed: tuple[int, ...]
    answers: tuple[str, ...] = ()
    body: Mapping[str, Any] | None = None
    """By content type, a model or a schema (Any: models are types, and unions of types)."""
    is_body_required: bool = True
    parameters: tuple[Schema, ...] = ()
    answer: Any = ANYTHING
    """The model or schema of what is answered with 200, 201 or 207."""


class Description(NamedTuple):
    """What a document says about an application, besides the docstrings of its handlers."""

    title: str
    operations: Mapping[tuple[str, str], Operation]
    """By method and path."""
    parameters: Mapping[str, Schema]
    """Schemas of path parameters; a parameter without one is any text."""
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
    """A parameter of the query."""
    return {"name": name, "in": "query", "required": False, "schema": schema}


def header(name: str) -> Schema:
    """A header."""
    return {"name": name, "in": "header", "required": False, "schema": TEXT}
