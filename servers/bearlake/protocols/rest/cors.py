"""CORS: which web pages a browser lets call a server. Source: WHATWG Fetch, "CORS protocol"."""

from collections.abc import Collection
from typing import Protocol

from aiohttp import hdrs, web
from typing_extensions import override

from bearlake.serving.http.guard import HttpGuard, HttpLimits, HttpMeters
from bearlake.serving.http.login import HttpListenerLogin
from bearlake.serving.http.origins import Origins

_AGE_S = "600"
"""Seconds that a browser may cache a preflight."""
_EXPOSED_HEADERS = "*"


def allow(request: web.Request, response: web.StreamResponse, origins: Collection[str]) -> None:
    """Allow the page to read the answer, if its origin is in `origins` (`*`: any origin)."""
    origin = request.headers.get(hdrs.ORIGIN)
    if origin and ("*" in origins or origin in origins):
        response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
        response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = _EXPOSED_HEADERS
        response.headers.add(hdrs.VARY, hdrs.ORIGIN)


def is_preflight(request: web.Request) -> bool:
    """Return whether the request is a browser's CORS preflight."""
    return request.method == hdrs.METH_OPTIONS and hdrs.ACCESS_CONTROL_REQUEST_METHOD in request.headers


def preflight(request: web.Request) -> web.Response:
    """Build the answer to a preflight; `allow` adds the permission for the origin."""
    headers = {
        hdrs.ACCESS_CONTROL_ALLOW_METHODS: request.headers[hdrs.ACCESS_CONTROL_REQUEST_METHOD],
        hdrs.ACCESS_CONTROL_ALLOW_HEADERS: request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, "*"),
        hdrs.ACCESS_CONTROL_MAX_AGE: _AGE_S,
    }
    return web.Response(status=204, headers=headers)


class CorsSettings(Protocol):
    """Settings of an API that web pages may call."""

    @property
    def connection_count_max(self) -> int:
        """Maximum number of open connections."""

    @property
    def address_connection_count_max(self) -> int:
        """Maximum number of open connections of one address; 0: no limit."""

    @property
    def first_request_ms(self) -> int:
        """Time in which the head of a connection's first request must arrive."""

    @property
    def host_names(self) -> Collection[str]:
        """Further names of the server."""

    @property
    def cors_origins(self) -> Collection[str]:
        """Allowed origins of pages."""


class CorsGuard(HttpGuard):
    """Guard of an API that web pages may call; `answer` formats the API's errors."""

    def __init__(
        self, limits: HttpLimits, meters: HttpMeters, settings: CorsSettings, login: HttpListenerLogin | None = None
    ) -> None:
        """`login`: how clients log in; None: they need not. `settings.cors_origins` are the allowed origins of pages; `*` allows all."""
        super().__init__(
            limits,
            meters,
            connection_count_max=settings.connection_count_max,
            address_connection_count_max=settings.address_connection_count_max,
            first_request_ms=settings.first_request_ms,
            origins=Origins(settings.host_names, settings.cors_origins),
            login=login,
        )
        self._cors_origins = settings.cors_origins

    def intercept(self, request: web.Request) -> web.StreamResponse | None:
        """Answer preflights, for every route."""
        return preflight(request) if is_preflight(request) else None

    @override
    async def prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers["X-Content-Type-Options"] = "nosniff"
        allow(request, response, self._cors_origins)
        await super().prepare(request, response)
