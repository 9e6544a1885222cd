"""The middleware of Pulsar's HTTP API: adds redirects, and errors in Pulsar's format, to the common HTTP guard."""

from aiohttp import hdrs, web
from typing_extensions import override

from bearlake.errors import BearlakeError
from bearlake.protocols.pulsar.context import PulsarContext
from bearlake.protocols.pulsar.http import problems
from bearlake.protocols.pulsar.http.problems import Problem
from bearlake.protocols.pulsar.http.settings import PulsarHttpSettings
from bearlake.serving.http.guard import HttpGuard, HttpMeters, InternalError, TimedOut, TooManyRequests
from bearlake.serving.http.login import HttpListenerLogin, LoginRefused
from bearlake.serving.http.origins import ForeignRequest, Origins
from bearlake.streams.subscriptions.model import NotHolder
from bearlake.telemetry import metrics


class PulsarHttpGuard(HttpGuard):
    """The middleware of Pulsar's HTTP API."""

    listener = "pulsar_http"

    def __init__(
        self, context: PulsarContext, settings: PulsarHttpSettings, login: HttpListenerLogin | None = None
    ) -> None:
        meters = HttpMeters(
            requests=metrics.PULSAR_HTTP_REQUESTS,
            seconds=metrics.PULSAR_HTTP_REQUEST_SECONDS,
            open=metrics.PULSAR_HTTP_OPEN_REQUESTS,
            open_max=metrics.PULSAR_HTTP_OPEN_REQUESTS_MAX,
        )
        super().__init__(
            settings,
            meters,
            connection_count_max=settings.connection_count_max,
            address_connection_count_max=settings.address_connection_count_max,
            first_request_ms=settings.first_request_ms,
            origins=Origins(settings.host_names),
            login=login,
        )
        self._context = context

    @property
    def is_draining(self) -> bool:
        """Follows the protocol server, so that the clients of both servers leave together."""
        return self._context.is_draining

    @override
    def answer(self, request: web.Request, error: Exception) -> web.StreamResponse | None:
        problem = self._problem_of(request, error)
        return problems.answer(problem) if problem is not None else None

    def _problem_of(self, request: web.Request, error: Exception) -> Problem | None:
        match error:
            case Problem():
                return error
            case NotHolder():
                return self._elsewhere(request, error)
            case BearlakeError():
                return problems.of_error(error)
            case ForeignRequest():
                return Problem(403, str(error))
            case LoginRefused():
                return Problem(error.status, str(error), error.headers)
            case TooManyRequests() | TimedOut():
                return Problem(503, str(error))
            case InternalError():
                return Problem(500, str(error))
            case web.HTTPException():
                return _of_http(request, error)
        return None

    def _elsewhere(self, request: web.Request, error: NotHolder) -> Problem:
        """Redirect to the server that dispatches the partition, as Pulsar redirects to the owner of a topic."""
        address = self._context.http_address_of(error.holder)
        if address is None:
            return Problem(503, str(error))
        return Problem(307, str(error), {hdrs.LOCATION: f"{request.scheme}://{address}{request.rel_url.raw_path_qs}"})


def _of_http(request: web.Request, error: web.HTTPException) -> Problem:
    """The problem for a request that matches no route."""
    if error.status == 405 or (error.status == 404 and request.path.startswith(("/admin/", "/lookup/"))):
        return problems.not_served(f"{request.method} {request.path[:200]}")
    return Problem(error.status, f"HTTP {error.status} {error.reason}")
