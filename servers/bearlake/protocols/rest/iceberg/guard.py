"""Request handling specific to the Iceberg REST catalog: errors in the specification's format.

{"error": {"message": "…", "type": "NoSuchTableException", "code": 404}}
"""

import json

from aiohttp import hdrs, web
from typing_extensions import override

from bearlake import errors
from bearlake.protocols.rest.cors import CorsGuard
from bearlake.protocols.rest.iceberg.rights import is_read
from bearlake.protocols.rest.iceberg.settings import CatalogSettings
from bearlake.protocols.rest.problems import Problem
from bearlake.serving.http.guard import HttpMeters, InternalError, TimedOut, TooManyRequests
from bearlake.serving.http.login import HttpListenerLogin, LoginRefused
from bearlake.serving.http.origins import ForeignRequest
from bearlake.table.warehouse.model import Refused
from bearlake.telemetry import catalog_metrics as metrics

_BAD, _FORBIDDEN, _CONFLICT = "BadRequestException", "ForbiddenException", "CommitFailedException"
_UNKNOWN, _BUSY, _FAILED = "CommitStateUnknownException", "ServiceUnavailableException", "ServiceFailureException"
_KINDS: tuple[tuple[type[errors.BearlakeError], int, str], ...] = (
    (errors.TooLarge, 413, _BAD),
    (errors.Unsupported, 406, "UnsupportedOperationException"),
    (errors.Invalid, 400, _BAD),
    (errors.NotFound, 404, "NotFoundException"),
    (errors.Denied, 403, _FORBIDDEN),
    (errors.Throttled, 429, "TooManyRequestsException"),
    (errors.Overloaded, 503, _BUSY),
    (errors.Conflict, 409, _CONFLICT),
)
_LOGIN_KINDS = {401: "NotAuthorizedException", 403: _FORBIDDEN, 429: "TooManyRequestsException"}


class CatalogGuard(CorsGuard):
    """The middleware of the Iceberg REST catalog."""

    listener = "catalog"

    def __init__(self, settings: CatalogSettings, login: HttpListenerLogin | None = None) -> None:
        meters = HttpMeters(
            requests=metrics.CATALOG_REQUESTS,
            seconds=metrics.CATALOG_REQUEST_SECONDS,
            open=metrics.CATALOG_OPEN_REQUESTS,
            open_max=metrics.CATALOG_OPEN_REQUESTS_MAX,
        )
        super().__init__(settings, meters, settings, login)

    @override
    def answer(self, request: web.Request, error: Exception) -> web.StreamResponse | None:
        response = _answer(request, error)
        if response is not None and response.status == 413:
            response.force_close()  # the rest of the body is not read
        return response


def problem(request: web.Request, status: int, kind: str, message: str) -> web.Response:
    """Build an error answer; one to HEAD has no body."""
    metrics.CATALOG_ERRORS.labels(kind).inc()
    body = json.dumps({"error": {"message": message, "type": kind, "code": status}}).encode()
    response = web.Response(
        status=status, body=None if request.method == hdrs.METH_HEAD else body, content_type="application/json"
    )
    if status == 503:
        response.headers[hdrs.RETRY_AFTER] = "1"
    return response


def _answer(request: web.Request, error: Exception) -> web.Response | None:
    match error:
        case Refused():
            return problem(request, error.status, error.kind, str(error))
        case Problem():
            return problem(request, error.status, _BAD, str(error))
        case errors.BearlakeError():
            return _of_kind(request, error)
        case ForeignRequest():
            return problem(request, 403, _FORBIDDEN, str(error))
        case LoginRefused():
            response = problem(request, error.status, _LOGIN_KINDS.get(error.status, _BAD), str(error))
            response.headers.update(error.headers)
            return response
        case TooManyRequests():
            return problem(request, 503, _BUSY, str(error))
        case TimedOut():
            return _unanswered(request, str(error))
        case InternalError():
            return problem(request, 500, _FAILED, "Error in the catalog; the server's log has the details")
        case web.HTTPException():
            return _of_http(request, error)
    return None


def _of_kind(request: web.Request, error: errors.BearlakeError) -> web.Response:
    for kind, status, name in _KINDS:
        if isinstance(error, kind):
            return problem(request, status, name, str(error))
    return _unanswered(request, str(error))


def _unanswered(request: web.Request, message: str) -> web.Response:
    """A change whose outcome is unknown must not be repeated blindly: Iceberg's clients take 503 for nothing done, and 504 for unknown."""
    resource = request.match_info.route.resource
    if is_read(request.method, "" if resource is None else resource.canonical):
        return problem(request, 503, _BUSY, message)
    return problem(request, 504, _UNKNOWN, message)


def _of_http(request: web.Request, error: web.HTTPException) -> web.Response:
    if error.status in (404, 405):
        return problem(
            request,
            406,
            "UnsupportedOperationException",
            f"The server does not support this operation: {request.method} {request.path[:100]}",
        )
    return problem(request, error.status, _BAD, error.reason)
