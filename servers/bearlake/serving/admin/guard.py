"""The admin API's own handling of requests: who may use it (`auth.py`), and errors as problem documents."""

import re
from collections.abc import Callable

from aiohttp import hdrs, web
from typing_extensions import override

from bearlake.errors import BearlakeError, Denied
from bearlake.serving.admin import problems
from bearlake.serving.admin.auth import METRICS_PATH, OPEN_PATHS, has_access
from bearlake.serving.admin.settings import AdminSettings
from bearlake.serving.admin.token import AdminToken
from bearlake.serving.http.guard import HttpGuard, HttpMeters, InternalError, TimedOut, TooManyRequests
from bearlake.serving.http.login import HttpListenerLogin, LoginRefused, client_address, note_principal, principal_of
from bearlake.serving.http.origins import ForeignRequest, Origins
from bearlake.streams.principal import SERVER, Principal, at_host
from bearlake.telemetry import metrics

ADMIN = Principal(SERVER, "admin-api")
"""The principal of requests that are admitted by the token of the API, or by their machine. No user can have it."""

METRICS = Principal(SERVER, "metrics")
"""The principal of requests that are admitted by the metrics token. No user can have it."""

_LOGIN = re.compile(r"basic .|bearer [\w-]+\.[\w-]+\.[\w-]+\s*$", re.IGNORECASE)
"""A password, or a JSON Web Token."""


class AdminGuard(HttpGuard):
    """The middleware of the admin API."""

    listener = "admin"

    def __init__(
        self,
        settings: AdminSettings,
        token: AdminToken | None,
        login: HttpListenerLogin | None = None,
        is_super_user: Callable[[Principal], bool] = lambda _: False,
        metrics_token: AdminToken | None = None,
    ) -> None:
        """`token` None: only this machine can reach the API, without a token. `metrics_token` reads only metrics; None: there is none.

        `login`: how super users log in; None: they cannot. `is_super_user` says which of them may use the API.
        """
        super().__init__(
            settings,
            HttpMeters(requests=metrics.ADMIN_REQUESTS),
            connection_count_max=settings.connection_count_max,
            address_connection_count_max=settings.address_connection_count_max,
            first_request_ms=settings.first_request_ms,
            origins=Origins(settings.host_names),
            login=login,
        )
        self._token = token
        self._metrics_token = metrics_token
        self._is_super_user = is_super_user

    @property
    def is_draining(self) -> bool:
        """False: the admin API answers until it is closed."""
        return False

    @override
    async def admit(self, request: web.Request) -> float | None:
        if request.path in OPEN_PATHS:
            return None
        authorization = request.headers.get(hdrs.AUTHORIZATION)
        if has_access(authorization, request.headers.get(hdrs.HOST), self._token):
            note_principal(request, at_host(ADMIN, client_address(request), self.listener))
            return None
        if self._metrics_token is not None and self._metrics_token.is_in(authorization):
            note_principal(request, at_host(METRICS, client_address(request), self.listener))
            if request.path != METRICS_PATH:
                raise Denied(f"this token may read only {METRICS_PATH}")
            return None
        return await self._admit_super_user(request, authorization or "")

    async def _admit_super_user(self, request: web.Request, authorization: str) -> float | None:
        """Admit a super user by login.

        A token of another form is an admin token that this server does not know. It does not count as a failed login, because tokens
        change while servers and clients run.
        """
        if self.login is None or not self._is_login(self.login, request, authorization):
            raise LoginRefused(401, "send Authorization: Bearer <admin token>", {})
        left_s = await super().admit(request)
        who = principal_of(request)
        if not self._is_super_user(who):
            raise Denied(f"{who} is not one of access.super_users")
        return left_s

    def _is_login(self, login: HttpListenerLogin, request: web.Request, authorization: str) -> bool:
        has_mechanisms = bool(login.rules.mechanisms)
        return login.is_by_certificate(request) or (has_mechanisms and _LOGIN.match(authorization) is not None)

    @override
    def answer(self, request: web.Request, error: Exception) -> web.StreamResponse | None:
        match error:
            case LoginRefused():
                titles = {401: "Token needed", 403: "Not allowed", 429: "Too many failed logins"}
                title = titles.get(error.status, "Login refused")
                return problems.answer(problems.problem(error.status, title, str(error)), error.headers)
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
            case web.HTTPNotFound():
                detail = f"there is no route {request.path[:200]}; docs/reference/http.md lists them"
                return problems.answer(problems.problem(404, "Not found", detail))
            case web.HTTPException():
                return problems.answer(problems.problem(error.status, error.reason, error.text or error.reason))
        return None
