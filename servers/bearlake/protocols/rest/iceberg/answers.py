"""Reads requests of Iceberg's REST specification, and answers them."""

import hashlib
import json

from aiohttp import hdrs, web

from bearlake.table.warehouse.model import Answer, Name, Namespace, invalid

_SEPARATOR = "\x1f"
"""Separates the parts of a namespace in a path."""


def json_answer(value: object) -> web.Response:
    """Answer with JSON."""
    return web.Response(body=json.dumps(value).encode(), content_type="application/json")


def loaded_answer(request: web.Request, answer: Answer) -> web.Response:
    """Answer with a table; 304 if the client has this version."""
    given = request.headers.get(hdrs.IF_NONE_MATCH, "").split(",")
    if _tag(answer) in [tag.strip().removeprefix("W/") for tag in given]:
        return web.Response(status=304, headers={hdrs.ETAG: _tag(answer)})
    return table_answer(answer)


def table_answer(answer: Answer) -> web.Response:
    """Answer with a table."""
    headers = {hdrs.ETAG: _tag(answer)} if answer.version else {}
    return web.Response(body=answer.body, content_type="application/json", headers=headers)


def _tag(answer: Answer) -> str:
    return f'"{hashlib.sha256(answer.version.encode()).hexdigest()[:32]}"'


def parent_of(request: web.Request) -> Namespace:
    """Return the namespace whose children a request lists; `()`: the top ones."""
    parent = request.query.get("parent")
    return tuple(parent.split(_SEPARATOR)) if parent else ()


def namespace_of(request: web.Request) -> Namespace:
    """Return the namespace in a request's path. Raises `Refused`."""
    return namespace_in(request.match_info["namespace"].split(_SEPARATOR))


def name_of(request: web.Request) -> Name:
    """Return the table in a request's path. Raises `Refused`."""
    return (*namespace_of(request), request.match_info["table"])


def namespace_in(parts: object) -> Namespace:
    """Return the namespace in a body. Raises `Refused`."""
    if not isinstance(parts, list) or not parts or not all(isinstance(part, str) and part for part in parts):
        raise invalid("expected a namespace: a list of names")
    return tuple(parts)


def identifier_in(value: object) -> Name:
    """Return the table in a body. Raises `Refused`."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        raise invalid("expected a table: its namespace and name")
    return (*namespace_in(value.get("namespace")), value["name"])


def texts_in(value: object) -> dict[str, str]:
    """Return the properties in a body. Raises `Refused`."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise invalid("expected properties: an object of texts")
    return value
