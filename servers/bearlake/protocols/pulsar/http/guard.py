"""What happens around every request: limits, the time it may take, redirects, errors in Pulsar's format, metrics."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from aiohttp import hdrs, web

from bearlake.errors import BearlakeError
from bearlake.protocols.pulsar.context import PulsarContext
from bearlake.protocols.pulsar.http import problems
from bearlake.protocols.pulsar.http.problems import Problem
from bearlake.protocols.pulsar.http.settings import PulsarHttpSettings
from bearlake.streams.subscriptions.model import NotHolder
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Guard:
    """The middleware of Pulsar's HTTP API."""

    def __init__(
        self, context: PulsarContext, settings: PulsarHttpSettings, connection_count: Callable[[], int]
    ) -> None:
        """`connection_count` gives the number of open connections."""
        self._context = context
        self._settings = settings
        self._connection_count = connection_count
        self.open_count = 0
        """Requests under way."""

    @web.middleware
    async def handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer one request."""
        start = time.perf_counter()
        settings = self._settings
        is_full = self.open_count >= settings.request_count_max
        if is_full or self._connection_count() > settings.connection_count_max:
            response: web.StreamResponse = problems.answer(Problem(503, "too many requests at once, come back later"))
            response.force_close()
        else:
            self.open_count += 1
            try:
                response = await self._answered(request, handler)
            finally:
                self.open_count -= 1
        if self._context.is_draining:
            response.headers[hdrs.CONNECTION] = "close"
            response.force_close()
        metrics.PULSAR_HTTP_REQUESTS.labels(f"{response.status // 100}xx").inc()
        metrics.PULSAR_HTTP_REQUEST_SECONDS.observe(time.perf_counter() - start)
        return response

    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                return await handler(request)
        except Problem as problem:
            return problems.answer(problem)
        except NotHolder as error:
            return problems.answer(self._elsewhere(request, error))
        except BearlakeError as error:
            return problems.answer(problems.of_error(error))
        except TimeoutError:
            return problems.answer(Problem(503, f"the request took more than {self._settings.request_timeout_ms} ms"))
        except web.HTTPException as error:
            return problems.answer(_of_http(request, error))
        except ConnectionError:
            raise
        except Exception:  # boundary: a connection's task
            log.exception("request failed", extra={"method": request.method, "path": request.path})
            return problems.answer(Problem(500, "Internal error; the server's log has the details"))

    def _elsewhere(self, request: web.Request, error: NotHolder) -> Problem:
        """Redirect to the server that dispatches the partition, as Pulsar redirects to a topic's owner."""
        address = self._context.http_address_of(error.holder)
        if address is None:
            return Problem(503, str(error))
        return Problem(307, str(error), {hdrs.LOCATION: f"{request.scheme}://{address}{request.rel_url.raw_path_qs}"})


def _of_http(request: web.Request, error: web.HTTPException) -> Problem:
    """The problem that a request has which no route takes."""
    if error.status == 405 or (error.status == 404 and request.path.startswith(("/admin/", "/lookup/"))):
        return problems.not_served(f"{request.method} {request.path[:200]}")
    return Problem(error.status, f"HTTP {error.status} {error.reason}")
