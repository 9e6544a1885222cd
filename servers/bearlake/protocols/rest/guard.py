"""What happens around every request: limits, the time it may take, CORS, errors in the API's format, and metrics.

A handler that follows a stream is marked with `following`: its time is its own. While the server drains, every answer closes
its connection, so that clients go to another server without losing a request.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiohttp import hdrs, web

from bearlake.errors import BearlakeError
from bearlake.protocols.rest import cors, problems
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.settings import RestSettings
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
F = TypeVar("F", bound=Callable[..., Awaitable[web.StreamResponse]])

_FOLLOWS = "bearlake_follows"


def following(handler: F) -> F:
    """Mark a handler that bounds its time itself."""
    setattr(handler, _FOLLOWS, True)
    return handler


class Guard:
    """The middleware of the REST server."""

    def __init__(self, settings: RestSettings, connection_count: Callable[[], int]) -> None:
        """`connection_count` gives the number of open connections."""
        self._settings = settings
        self._connection_count = connection_count
        self.open_count = 0
        """Requests under way."""
        self.draining = asyncio.Event()
        """Set when the server drains; what follows a stream ends then."""

    @web.middleware
    async def handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer one request."""
        settings = self._settings
        start = time.perf_counter()
        is_full = self.open_count >= settings.request_count_max
        is_crowded = self._connection_count() > settings.connection_count_max
        if is_full or is_crowded:
            response: web.StreamResponse = self._answer(
                request, Problem(503, 50003, "too many requests at once, come back later")
            )
            response.force_close()
        else:
            self.open_count += 1
            try:
                response = await self._answered(request, handler)
            finally:
                self.open_count -= 1
        metrics.REST_REQUESTS.labels(f"{response.status // 100}xx").inc()
        metrics.REST_REQUEST_SECONDS.observe(time.perf_counter() - start)
        return response

    async def prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        """Last touch on every response's head (`on_response_prepare`)."""
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cross-Origin-Resource-Policy"] = "cross-origin"
        cors.allow(request, response, self._settings.cors_origins)
        if self.draining.is_set():
            response.headers[hdrs.CONNECTION] = "close"
            response.force_close()

    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if cors.is_preflight(request):
            return cors.preflight(request)
        try:
            if getattr(request.match_info.handler, _FOLLOWS, False):
                return await handler(request)
            async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                return await handler(request)
        except Problem as problem:
            return self._answer(request, problem)
        except BearlakeError as error:
            return self._answer(request, problems.of_error(error))
        except GroupRefusal as refusal:
            return self._answer(request, problems.of_refusal(refusal))
        except TimeoutError:
            limit = self._settings.request_timeout_ms
            return self._answer(request, Problem(503, 50003, f"the request took more than {limit} ms"))
        except web.HTTPException as error:
            if error.status < 400:
                raise
            http = problems.of_http(request, error)
            response = self._answer(request, http)
            if allowed := error.headers.get(hdrs.ALLOW):
                response.headers[hdrs.ALLOW] = allowed
            return response
        except ConnectionError:
            raise
        except Exception:  # boundary: a connection's task
            log.exception("request failed", extra={"method": request.method, "path": request.path})
            return self._answer(request, Problem(500, 50001, "Internal error; the server's log has the details"))

    def _answer(self, request: web.Request, problem: Problem) -> web.Response:
        is_v2 = request.path.startswith(("/topics", "/consumers", "/brokers"))
        response = problems.answer(problem, problems.V2_TYPE if is_v2 else problems.JSON_TYPE)
        if problem.status == 413:
            response.force_close()  # the rest of the body is not read
        return response
