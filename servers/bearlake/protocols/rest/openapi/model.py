"""What a description of a route is made of: statuses, bodies, parameters; and shorthands for the schemas in it."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

Schema = Mapping[str, Any]
"""A JSON schema (Any: as it stands in the document)."""


class Operation(NamedTuple):
    """A route's statuses, bodies by content type, and parameters beside those of the path."""

    done: tuple[int, ...]
    failed: tuple[int, ...]
    answers: tuple[str, ...] = ()
    body: Mapping[str, Schema] | None = None
    is_body_required: bool = True
    parameters: tuple[Schema, ...] = ()


class Description(NamedTuple):
    """All that a document says of an application, beside what its routes say themselves."""

    title: str
    operations: Mapping[tuple[str, str], Operation]
    """By method and path."""
    parameters: Mapping[str, Schema]
    """Path parameters that are not any text."""
    error_types: tuple[str, ...]
    """Content types of errors."""


CODES = {status.value: status.phrase for status in HTTPStatus}
"""Descriptions of statuses."""
TEXT: Schema = {"type": "string"}
NULLABLE_TEXT: Schema = {"type": ["string", "null"]}
FLAG: Schema = {"type": "boolean"}
INDEX: Schema = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
ID: Schema = {"type": "integer", "minimum": 1, "maximum": 2**31 - 1}


def object_of(*required: str, **properties: Schema) -> Schema:
    """An object with these properties."""
    return {"type": "object", "required": list(required), "properties": properties}


def list_of(items: Schema) -> Schema:
    """A list."""
    return {"type": "array", "items": items}


def query(name: str, schema: Schema) -> Schema:
    """A parameter of the query."""
    return {"name": name, "in": "query", "required": False, "schema": schema}


def header(name: str) -> Schema:
    """A header."""
    return {"name": name, "in": "header", "required": False, "schema": TEXT}
