"""Errors of a request in the format of its API: status, code and message.

Handlers raise `Problem` or let an error kind of the stream layer pass; `of_error` is the only table from kinds to codes.

    v2, v3              {"error_code": 40401, "message": "…"}
    /v1/stream          the same document; the code is the status

Source: Confluent, "REST Proxy API Reference" (public documentation): a code is the status, or the status plus two digits.
"""

import json
from collections.abc import Mapping

from aiohttp import web

from bearlake import errors
from bearlake.serving.http.login import LoginRefused
from bearlake.serving.http.models import Model
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.groups.problems import Problem as GroupProblem

V2_TYPE = "application/vnd.kafka.v2+json"
JSON_TYPE = "application/json"


class Error(Model):
    """The body of an error answer."""

    error_code: int
    message: str


class Problem(Exception):
    """Ends a request with this HTTP status, API code, message and headers."""

    def __init__(self, status: int, code: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers or {}


_KINDS: tuple[tuple[type[errors.BearlakeError], int, int], ...] = (
    (errors.TooLarge, 413, 413),
    (errors.OutOfRange, 404, 40402),
    (errors.Invalid, 422, 422),
    (errors.NotFound, 404, 40402),
    (errors.AlreadyExists, 409, 40902),
    (errors.Conflict, 409, 409),
    (errors.Denied, 403, 40301),
    (errors.Throttled, 429, 429),
    (errors.Overloaded, 503, 50003),
    (errors.Unavailable, 503, 50003),
    (errors.Fenced, 503, 50003),
)
_LOGIN_CODES = {401: 40101, 403: 40301}
_GROUP_STATUS: dict[GroupProblem, tuple[int, int]] = {
    GroupProblem.INVALID_GROUP_ID: (422, 42204),
    GroupProblem.INVALID_SESSION_TIMEOUT: (422, 42204),
    GroupProblem.INCONSISTENT_PROTOCOL: (409, 40903),
    GroupProblem.NOT_FOUND: (404, 404),
    GroupProblem.NON_EMPTY: (409, 409),
}


def of_error(error: errors.BearlakeError) -> Problem:
    """Translate an error kind."""
    for kind, status, code in _KINDS:
        if isinstance(error, kind):
            return Problem(status, code, str(error))
    return Problem(500, 50002, str(error))


def of_refusal(refusal: GroupRefusal) -> Problem:
    """Translate a refusal of a group coordinator; most refusals are temporary (50003)."""
    status, code = _GROUP_STATUS.get(refusal.problem, (503, 50003))
    return Problem(status, code, f"Kafka error: {refusal}")


def of_login(error: LoginRefused) -> Problem:
    """Translate a request whose client is not logged in."""
    return Problem(error.status, _LOGIN_CODES.get(error.status, error.status), str(error), error.headers)


def of_http(request: web.Request, error: web.HTTPException) -> Problem:
    """Translate aiohttp's error for a request that matches no route."""
    allowed = error.headers.get("Allow")
    if error.status == 404:
        hint = f": no route {request.path[:100]}; /openapi.json lists all routes"
    else:
        hint = f": {request.method} {request.path[:100]}: expected {allowed}" if allowed else ""
    return Problem(error.status, error.status, f"HTTP {error.status} {error.reason}{hint}")


def topic_not_found(name: str) -> Problem:
    """Error 40401."""
    return Problem(404, 40401, f"Topic not found: {name[:249]}")


def partition_not_found(name: str, index: int) -> Problem:
    """Error 40402."""
    return Problem(404, 40402, f"Partition not found: topic {name[:249]} has no partition {index}")


def consumer_not_found() -> Problem:
    """Error 40403."""
    return Problem(404, 40403, "Consumer instance not found: it never existed, was deleted or expired; create it again")


def answer(problem: Problem, content_type: str = JSON_TYPE) -> web.Response:
    """Build the HTTP response."""
    document = {"error_code": problem.code, "message": str(problem)}
    response = web.Response(
        status=problem.status, text=json.dumps(document), content_type=content_type, headers=problem.headers
    )
    if problem.status in (429, 503):
        response.headers.setdefault("Retry-After", "1")
    return response
