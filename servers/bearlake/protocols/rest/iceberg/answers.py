"""Reads requests of Iceberg's REST specification, and answers them."""

import hashlib
import json
from collections.abc import Sequence

from aiohttp import hdrs, web

from bearlake.streams.turns import in_turns
from bearlake.table.warehouse.model import NAME_LENGTH_MAX, Answer, Name, Namespace, invalid, is_plain_name

_SEPARATOR = "\x1f"
"""Separates the parts of a namespace in a path."""
_AT_ONCE = 2_000
"""Elements of a list that are written in one turn of the event loop: about 5 ms."""
REPORT_BYTES_MAX = 1024 * 1024
"""Largest report of an engine about a scan or commit, which is read and not looked at."""
_EXPECTED = f"expected at most {NAME_LENGTH_MAX} printable characters"


def json_answer(value: object) -> web.Response:
    """Answer with JSON."""
    return web.Response(body=json.dumps(value).encode(), content_type="application/json")


async def list_answer(name: str, values: Sequence[object]) -> web.Response:
    """Answer with an object that has only this list, which may be long: other tasks run in between."""
    parts = [json.dumps(part)[1:-1] async for part in in_turns(values, _AT_ONCE)]
    body = f'{{"{name}": [{", ".join(parts)}]}}'
    return web.Response(body=body.encode(), content_type="application/json")


async def tables_answer(tables: Sequence[Name]) -> web.Response:
    """Answer with a list of tables."""
    return await list_answer("identifiers", [{"namespace": name[:-1], "name": name[-1]} for name in tables])


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
    """Return the namespace whose children a request lists; `()`: the top ones. Raises `Refused`."""
    parent = request.query.get("parent")
    return namespace_in(parent.split(_SEPARATOR)) if parent else ()


def namespace_of(request: web.Request) -> Namespace:
    """Return the namespace in a request's path. Raises `Refused`."""
    return namespace_in(request.match_info["namespace"].split(_SEPARATOR))


def name_of(request: web.Request) -> Name:
    """Return the table in a request's path. Raises `Refused`."""
    return table_in(namespace_of(request), request.match_info["table"])


def namespace_in(parts: object) -> Namespace:
    """Return the namespace in a body. Raises `Refused`."""
    if not isinstance(parts, list) or not parts or not all(isinstance(part, str) and part for part in parts):
        raise invalid("expected a namespace: a list of names")
    if not all(map(is_plain_name, parts)) or len(".".join(parts)) > NAME_LENGTH_MAX:
        raise invalid(f"the name of a namespace: {_EXPECTED}")
    return tuple(parts)


def table_in(namespace: Namespace, name: object) -> Name:
    """Return the table with the name in a path or body. Raises `Refused`."""
    if not isinstance(name, str) or not name:
        raise invalid("expected the name of a table")
    if not is_plain_name(name):
        raise invalid(f"the name of a table: {_EXPECTED}")
    return (*namespace, name)


def identifier_in(value: object) -> Name:
    """Return the table in a body. Raises `Refused`."""
    if not isinstance(value, dict):
        raise invalid("expected a table: its namespace and name")
    return table_in(namespace_in(value.get("namespace")), value.get("name"))


def texts_in(value: object) -> dict[str, str]:
    """Return the properties in a body. Raises `Refused`."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise invalid("expected properties: an object of texts")
    return value


def names_in(value: object) -> list[str]:
    """Return the names in a body. Raises `Refused`."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise invalid("expected a list of names")
    return value
