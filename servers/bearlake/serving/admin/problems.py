"""Errors as problem documents: one table from error kinds to HTTP, for the whole admin API.

Source: RFC 9457 (Problem Details for HTTP APIs).
"""

import json
from collections.abc import Mapping

from aiohttp import web

from bearlake import errors

CONTENT_TYPE = "application/problem+json"
_STATUS: tuple[tuple[type[errors.BearlakeError], int, str], ...] = (
    (errors.TooLarge, 413, "Too large"),
    (errors.Invalid, 400, "Invalid request"),
    (errors.NotFound, 404, "Not found"),
    (errors.AlreadyExists, 409, "Already exists"),
    (errors.Conflict, 409, "Conflict"),
    (errors.OutOfRange, 400, "Out of range"),
    (errors.Denied, 403, "Not allowed"),
    (errors.Throttled, 429, "Quota used up"),
    (errors.Overloaded, 503, "Overloaded"),
    (errors.Fenced, 503, "Server is stopping"),
    (errors.Unavailable, 503, "Temporarily unavailable"),
)


def problem(status: int, title: str, detail: str) -> dict[str, object]:
    """Return a problem document."""
    return {"type": "about:blank", "title": title, "status": status, "detail": detail}


def of_error(error: errors.BearlakeError) -> dict[str, object]:
    """Return the problem document of an error."""
    for kind, status, title in _STATUS:
        if isinstance(error, kind):
            return problem(status, title, str(error))
    return problem(500, "Internal error", str(error))


def answer(document: dict[str, object], headers: Mapping[str, str] | None = None) -> web.Response:
    """Return the HTTP response that carries a problem document, with further headers."""
    status = document["status"]
    assert isinstance(status, int)
    own = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    if status == 503:
        own["Retry-After"] = "1"
    return web.Response(
        status=status, text=json.dumps(document), content_type=CONTENT_TYPE, headers={**own, **(headers or {})}
    )
