"""Errors of requests: HTTP status and `{"reason": "…"}`, as Pulsar's clients expect.

Handlers raise `Problem`, or let an error kind propagate; `of_error` is the only mapping from error kinds to statuses.
"""

import json
from collections.abc import Mapping

from aiohttp import web

from bearlake import errors
from bearlake.protocols.pulsar.errors import Refused
from bearlake.protocols.pulsar.proto.commands_pb2 import ServerError
from bearlake.streams.subscriptions.model import Busy


class Problem(Exception):
    """The request is answered with this status, reason and headers."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = headers or {}


_REFUSALS = {
    "InvalidTopicName": 412,
    "TopicNotFound": 404,
    "IncompatibleSchema": 409,
    "NotAllowedError": 405,
    "ServiceNotReady": 503,
}
_KINDS: tuple[tuple[type[errors.BearlakeError], int], ...] = (
    (Busy, 412),
    (errors.TooLarge, 413),
    (errors.OutOfRange, 412),
    (errors.Invalid, 412),
    (errors.NotFound, 404),
    (errors.AlreadyExists, 409),
    (errors.Denied, 403),
    (errors.Throttled, 429),
    (errors.Overloaded, 503),
    (errors.Fenced, 503),
    (errors.Conflict, 409),
    (errors.Unavailable, 503),
)
"""The first matching kind applies."""


def of_error(error: errors.BearlakeError) -> Problem:
    """The problem for an error kind."""
    if isinstance(error, Refused):
        return Problem(_REFUSALS.get(ServerError.Name(error.error), 500), str(error))
    return Problem(next((status for kind, status in _KINDS if isinstance(error, kind)), 500), str(error))


def not_served(what: str, reason: str = "") -> Problem:
    """A problem with status 501; `reason` says why, and what to do instead."""
    return Problem(501, f"{what}: not supported" + (f"; {reason}" if reason else ""))


def answer(problem: Problem) -> web.Response:
    """The HTTP response for a problem."""
    response = web.Response(
        status=problem.status,
        text=json.dumps({"reason": str(problem)}),
        content_type="application/json",
        headers=problem.headers,
    )
    if problem.status == 503:
        response.headers["Retry-After"] = "1"
    return response
