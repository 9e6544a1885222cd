"""The OpenAPI document: one operation per route. The handler's docstring is the summary; a `Description` gives statuses and bodies.

A route without an entry there cannot be described; a test finds such routes. Source: OpenAPI Specification 3.1.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from aiohttp import web

from bearlake import __version__
from bearlake.serving.http import models
from bearlake.serving.http.openapi.model import CODES, TEXT, Description, Operation

_NAME = {**TEXT, "minLength": 1}
_PARAMETER = re.compile(r"\{(\w+)\}")


class Route(NamedTuple):
    """A route: its method and path, and its handler's docstring."""

    method: str
    path: str
    summary: str


def routes_of(app: web.Application) -> list[Route]:
    """Return the application's routes, by path and method."""
    found = set()
    for route in app.router.routes():
        resource = route.resource
        if resource is not None and route.method != "*":
            found.add(Route(route.method, resource.canonical, (route.handler.__doc__ or "").strip()))
    return sorted(found, key=lambda route: (route.path, route.method))


def build(description: Description, routes: Sequence[Route]) -> dict[str, Any]:
    """Return the document. Raises `KeyError` for a route that the description does not have."""
    schemas = _Schemas(description)
    paths: dict[str, dict[str, Any]] = {}
    described = {(route.method, route.path) for route in routes}
    for method, path, summary in routes:
        if method == "HEAD" and ("HEAD", path) not in description.operations and ("GET", path) in described:
            continue  # a GET handler also answers HEAD
        paths.setdefault(path, {})[method.lower()] = _operation(description, schemas, method, path, summary)
    return {
        "openapi": "3.1.0",
        "info": {"title": description.title, "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas.named},
    }


class _Schemas:
    """Schemas of all bodies and responses of a description: `of` refers to those in `named`."""

    def __init__(self, description: Description) -> None:
        operations = description.operations.values()
        found = [body for operation in operations for body in (operation.body or {}).values()]
        found += [operation.answer for operation in operations]
        needed: dict[int, Any] = {id(model): model for model in (*found, description.error) if not _is_schema(model)}
        made, self.named = models.components([*needed.values()])
        self._made = dict(zip(needed, made, strict=True))

    def of(self, body: Any) -> Mapping[str, Any]:
        """Return the schema of a model, or the schema itself (Any: either)."""
        return body if _is_schema(body) else self._made[id(body)]


def _is_schema(body: object) -> bool:
    return isinstance(body, Mapping)


def _operation(description: Description, schemas: _Schemas, method: str, path: str, summary: str) -> dict[str, Any]:
    operation = description.operations[method, path]
    shown: dict[str, Any] = {
        "summary": summary.split("\n")[0],
        "operationId": f"{method.lower()}{re.sub('[^A-Za-z0-9]+', '_', path)}",
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": description.parameters.get(name, _NAME)}
            for name in _PARAMETER.findall(path)
        ]
        + [dict(parameter) for parameter in operation.parameters],
        "responses": {
            str(status): _response(description, schemas, operation, status)
            for status in (*operation.done, *operation.failed)
        },
    }
    if operation.body is not None:
        content = {kind: {"schema": schemas.of(body)} for kind, body in operation.body.items()}
        shown["requestBody"] = {"required": operation.is_body_required, "content": content}
    return shown


def _response(description: Description, schemas: _Schemas, operation: Operation, status: int) -> dict[str, Any]:
    shown: dict[str, Any] = {"description": CODES[status]}
    if status in operation.failed and status != 304:
        error = {"schema": schemas.of(description.error)}
        shown["content"] = dict.fromkeys(description.error_types, error)
    elif status in (200, 201, 207) and operation.answers:
        schema = schemas.of(operation.answer)
        shown["content"] = {kind: {"schema": schema} if schema else {} for kind in operation.answers}
    return shown
