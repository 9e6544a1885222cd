"""Request handling specific to the schema registry: errors in Confluent's format."""

from aiohttp import hdrs, web
from typing_extensions import override

from bearlake.errors import BearlakeError
from bearlake.protocols.rest import problems
from bearlake.protocols.rest.cors import CorsGuard
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.registry.answers import problem, refused
from bearlake.protocols.rest.registry.requests import BadRequest
from bearlake.protocols.rest.registry.settings import RegistrySettings
from bearlake.serving.http.guard import HttpMeters, InternalError, TimedOut, TooManyRequests
from bearlake.serving.http.login import HttpListenerLogin, LoginRefused
from bearlake.serving.http.origins import ForeignRequest
from bearlake.telemetry import metrics


class RegistryGuard(CorsGuard):
    """The middleware of the schema registry."""

    listener = "registry"

    def __init__(self, settings: RegistrySettings, login: HttpListenerLogin | None = None) -> None:
        meters = HttpMeters(
            requests=metrics.REGISTRY_REQUESTS,
            seconds=metrics.REGISTRY_REQUEST_SECONDS,
            open=metrics.REGISTRY_OPEN_REQUESTS,
            open_max=metrics.REGISTRY_OPEN_REQUESTS_MAX,
        )
        super().__init__(settings, meters, settings, login)

    @override
    def answer(self, request: web.Request, error: Exception) -> web.StreamResponse | None:
        response = _answer(request, error)
        if response is not None and response.status == 413:
            response.force_close()  # the rest of the body is not read
        return response


def _answer(request: web.Request, error: Exception) -> web.Response | None:
    match error:
        case BadRequest():
            return problem(request, 400, 400, str(error))
        case Problem():
            return problem(request, error.status, error.code, str(error))
        case BearlakeError():
            return refused(request, error)
        case ForeignRequest():
            return problem(request, 403, 40301, str(error))
        case LoginRefused():
            response = problem(request, error.status, problems.of_login(error).code, str(error))
            response.headers.update(error.headers)
            return response
        case TooManyRequests():
            return problem(request, 503, 503, str(error))
        case TimedOut():
            return problem(request, 500, 50002, f"Operation timed out: {error}")
        case InternalError():
            return problem(request, 500, 50001, "Error in the registry; the server's log has the details")
        case web.HTTPException():
            response = problem(request, error.status, error.status, str(problems.of_http(request, error)))
            if allowed := error.headers.get(hdrs.ALLOW):
                response.headers[hdrs.ALLOW] = allowed
            return response
    return None
