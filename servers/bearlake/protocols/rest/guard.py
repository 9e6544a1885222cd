"""Request handling specific to the REST APIs: errors in the format of v2 or v3."""

from aiohttp import hdrs, web
from typing_extensions import override

from bearlake.errors import BearlakeError
from bearlake.protocols.rest import problems
from bearlake.protocols.rest.cors import CorsGuard
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.settings import RestSettings
from bearlake.serving.http.guard import HttpMeters, InternalError, TimedOut, TooManyRequests
from bearlake.serving.http.login import HttpListenerLogin, LoginRefused
from bearlake.serving.http.origins import ForeignRequest
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.telemetry import metrics


class RestGuard(CorsGuard):
    """The middleware of the REST server."""

    listener = "rest"

    def __init__(self, settings: RestSettings, login: HttpListenerLogin | None = None) -> None:
        meters = HttpMeters(
            requests=metrics.REST_REQUESTS,
            seconds=metrics.REST_REQUEST_SECONDS,
            open=metrics.REST_OPEN_REQUESTS,
            open_max=metrics.REST_OPEN_REQUESTS_MAX,
        )
        super().__init__(settings, meters, settings, login)

    @override
    async def prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Cross-Origin-Resource-Policy"] = "cross-origin"
        await super().prepare(request, response)

    @override
    def answer(self, request: web.Request, error: Exception) -> web.StreamResponse | None:
        match error:
            case Problem():
                return _answer(request, error)
            case BearlakeError():
                return _answer(request, problems.of_error(error))
            case GroupRefusal():
                return _answer(request, problems.of_refusal(error))
            case ForeignRequest():
                return _answer(request, Problem(403, 40301, str(error)))
            case LoginRefused():
                return _answer(request, problems.of_login(error))
            case TooManyRequests() | TimedOut():
                return _answer(request, Problem(503, 50003, str(error)))
            case InternalError():
                return _answer(request, Problem(500, 50001, str(error)))
            case web.HTTPException():
                return _of_http(request, error)
        return None


def _of_http(request: web.Request, error: web.HTTPException) -> web.Response:
    if error.status < 400:
        raise error
    response = _answer(request, problems.of_http(request, error))
    if allowed := error.headers.get(hdrs.ALLOW):
        response.headers[hdrs.ALLOW] = allowed
    return response


def _answer(request: web.Request, problem: Problem) -> web.Response:
    is_v2 = request.path.startswith(("/topics", "/consumers", "/brokers"))
    response = problems.answer(problem, problems.V2_TYPE if is_v2 else problems.JSON_TYPE)
    if problem.status == 413:
        response.force_close()  # the rest of the body is not read
    return response
