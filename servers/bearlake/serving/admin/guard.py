"""The admin API's own rules for requests: access (`access.py`), and errors as problem documents."""

from aiohttp import web
from typing_extensions import override

from bearlake.errors import BearlakeError
from bearlake.serving.admin import problems
from bearlake.serving.admin.auth import OPEN_PATHS, AdminSettings, is_own_name
from bearlake.serving.admin.token import AdminToken
from bearlake.serving.http.guard import HttpGuard, HttpMeters, InternalError, TimedOut, TooManyRequests
from bearlake.serving.http.origins import ForeignRequest, Origins
from bearlake.telemetry import metrics


class AdminGuard(HttpGuard):
    """The middleware of the admin API."""

    def __init__(self, settings: AdminSettings, token: AdminToken | None) -> None:
        """`token` None: only this machine can reach the API, without a token."""
        super().__init__(
            settings,
            HttpMeters(requests=metrics.ADMIN_REQUESTS),
            connection_count_max=settings.connection_count_max,
            address_connection_count_max=settings.address_connection_count_max,
            first_request_ms=settings.first_request_ms,
            origins=Origins(settings.host_names),
        )
        self._token = token

    @property
    def is_draining(self) -> bool:
        """False: the admin API answers until it is closed."""
        return False

    def intercept(self, request: web.Request) -> web.StreamResponse | None:
        """Refuse a request without the token, or, if there is no token, a request that names another host."""
        if request.path in OPEN_PATHS:
            return None
        if self._token is not None:
            if self._token.is_in(request.headers.get("Authorization")):
                return None
            return problems.answer(problems.problem(401, "Token needed", "send Authorization: Bearer <admin token>"))
        if is_own_name(request.headers.get("Host")):
            return None
        return problems.answer(problems.problem(403, "Not allowed", "ask for this server as 127.0.0.1 or localhost"))

    @override
    def answer(self, request: web.Request, error: Exception) -> web.StreamResponse | None:
        match error:
            case BearlakeError():
                return problems.answer(problems.of_error(error))
            case ForeignRequest():
                return problems.answer(problems.problem(403, "Not allowed", str(error)))
            case TooManyRequests():
                return problems.answer(problems.problem(503, "Overloaded", str(error)))
            case TimedOut():
                return problems.answer(problems.problem(503, "Timed out", str(error)))
            case InternalError():
                return problems.answer(problems.problem(500, "Internal error", "the server's log has the details"))
            case web.HTTPException():
                return problems.answer(problems.problem(error.status, error.reason, error.text or error.reason))
        return None
