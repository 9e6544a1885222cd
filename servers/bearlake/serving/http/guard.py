"""The middleware around every HTTP request: limits, the time limit, errors in the API's format, metrics.

Each API's guard defines the format of its errors (`answer`), and may answer a request without its handler (`intercept`). While the server
drains, every response closes its connection, so that clients connect to another server without losing a request.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from aiohttp import hdrs, web

from bearlake.errors import Throttled
from bearlake.serving.addresses import AddressCounts
from bearlake.serving.http.handlers import ConnectionGate, GatedHandler
from bearlake.serving.http.limits import has_changes, has_own_limits, has_own_time
from bearlake.serving.http.login import (
    HttpListenerLogin,
    LoginRefused,
    client_address,
    note_anonymous,
    principal_of,
    retry_after,
)
from bearlake.serving.http.origins import ForeignRequest, Origins
from bearlake.serving.slow_readers import SlowReaders
from bearlake.streams.quotas.control import QuotaControl
from bearlake.streams.quotas.timing import charged
from bearlake.telemetry.meters import Counter, Family, Gauge, Histogram
from bearlake.telemetry.watchdog import begin

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_AIOHTTP_BODY_BYTES_MAX = 1024**2
"""aiohttp's own default, which bounds `request.read` only."""

_REQUEST_LENGTH_MAX = 100
"""Characters of a request's kind."""

_HAS_BEGUN = web.RequestKey("has_begun", bool)
"""Mark of a request whose answer has begun."""

_SAFE_METHODS = frozenset({hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS})
"""Methods that change nothing."""


class TooManyRequests(Exception):
    """The server has reached its limit of requests or connections."""

    def __init__(self) -> None:
        super().__init__("too many concurrent requests; retry later")


class TimedOut(Exception):
    """The request exceeded its time limit."""

    def __init__(self, limit_ms: int) -> None:
        super().__init__(f"the request took more than {limit_ms} ms")


class InternalError(Exception):
    """A bug; the log has the error."""

    def __init__(self) -> None:
        super().__init__("Internal error; the server's log has the details")


class HttpLimits(Protocol):
    """Settings that bound requests."""

    @property
    def request_count_max(self) -> int:
        """Maximum number of concurrent requests."""

    @property
    def address_request_count_max(self) -> int:
        """Maximum number of concurrent requests of one client address; 0: no limit."""

    @property
    def request_timeout_ms(self) -> int:
        """Time limit of one request."""

    @property
    def unread_bytes_max(self) -> int:
        """Maximum of the bytes of answers that all clients have not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpMeters:
    """Metrics of an HTTP server's requests."""

    requests: Family[Counter]
    """By status class."""
    seconds: Histogram | None = None
    open: Gauge | None = None
    open_max: Gauge | None = None


class HttpGuard(ABC):
    """The middleware of an HTTP server."""

    listener = ""
    """The name of the server's listeners, for the audit log."""

    def __init__(
        self,
        limits: HttpLimits,
        meters: HttpMeters,
        *,
        connection_count_max: int | None = None,
        address_connection_count_max: int = 0,
        first_request_ms: int = 10_000,
        origins: Origins | None = None,
        login: HttpListenerLogin | None = None,
    ) -> None:
        """`login`: how clients log in; None: they need not.

        `origins` None: requests must name this server by an address or a private name, and no foreign page may change anything.

        The other limits are those of `ConnectionGate`.
        """
        self.login = login
        """How clients log in; None: they need not."""
        self.origins = origins or Origins()
        """Names of this server and allowed pages."""
        slow_readers = SlowReaders(limits.unread_bytes_max)
        self.gate = ConnectionGate(connection_count_max, address_connection_count_max, first_request_ms, slow_readers)
        """Limits of connections."""
        self.open_count = 0
        """Number of running requests."""
        self._addresses = AddressCounts(limits.address_request_count_max)
        self.connection_count: Callable[[], int] = lambda: 0
        """Returns the number of open connections."""
        self.draining = asyncio.Event()
        """Set when the server drains."""
        self.quotas: QuotaControl | None = None
        """The quotas of the clients; None: they have none."""
        self._limits = limits
        self._meters = meters
        self._connection_count_max = connection_count_max
        if meters.open is not None and meters.open_max is not None:
            meters.open.set_function(lambda: self.open_count)
            meters.open_max.set(limits.request_count_max)

    @abstractmethod
    def answer(self, request: web.Request, error: Exception) -> web.StreamResponse | None:
        """Return the API's response to an error that a handler or this guard raised; None for an error that only a bug can raise.

        It handles `TooManyRequests`, `TimedOut`, `ForeignRequest`, `LoginRefused`, `InternalError` and `web.HTTPException`.
        """

    async def admit(self, request: web.Request) -> float | None:
        """Note who sends the request; returns the time (s) until the login ends, None for no end.

        Raises what `answer` handles: `LoginRefused`, `ForeignRequest`, or an error kind.
        """
        if self.login is None:
            note_anonymous(request, self.listener)
            return None
        who = await self.login.admit(request, self.listener)
        self.origins.check_ambient(request)
        return self.login.left_s(who, _age_s(request) if self._is_by_certificate(request) else 0.0)

    def limit_by(self, quotas: QuotaControl) -> None:
        """Apply these quotas from now on."""
        self.quotas = quotas
        self.gate.quotas = quotas

    def intercept(self, request: web.Request) -> web.StreamResponse | None:
        """Return a response that needs no handler: a refusal, or one to a browser's preflight. None: call the handler."""
        return None

    def application(self, *, request_bytes_max: int | None = None) -> web.Application:
        """Return an application behind this guard, without routes yet; `request_bytes_max` None: its handlers limit bodies themselves."""
        limit = _AIOHTTP_BODY_BYTES_MAX if request_bytes_max is None else request_bytes_max
        app = web.Application(middlewares=[self.handle], client_max_size=limit)
        app.on_response_prepare.append(self.prepare)
        return app

    @property
    def is_draining(self) -> bool:
        """Whether responses close their connections."""
        return self.draining.is_set()

    @web.middleware
    async def handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer one request; raises `ConnectionResetError` instead if it would change something and its client has gone (decision 110)."""
        if isinstance(request.protocol, GatedHandler):
            request.protocol.record_request()
            if request.method not in _SAFE_METHODS and request.protocol.has_hung_up:
                raise ConnectionResetError("the client has gone without its answer")
        begin(_kind_of(request))
        start = time.perf_counter()
        is_counted = not has_own_limits(request)
        address = client_address(request)
        if is_counted and (self._is_full() or not self._addresses.enter(address)):
            response = self._certain_answer(request, TooManyRequests())
            response.force_close()
        else:
            self.open_count += is_counted
            try:
                response = await self._answered(request, handler)
            finally:
                self.open_count -= is_counted
                if is_counted:
                    self._addresses.leave(address)
        self._meters.requests.labels(f"{response.status // 100}xx").inc()
        if self._meters.seconds is not None:
            self._meters.seconds.observe(time.perf_counter() - start)
        return response

    async def prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        """Complete the head of a response (`on_response_prepare`)."""
        request[_HAS_BEGUN] = True
        if self.is_draining or self._is_outdated(request):
            response.headers[hdrs.CONNECTION] = "close"
            response.force_close()

    def _is_outdated(self, request: web.Request) -> bool:
        """Whether the connection's login has ended, so that its next answer closes it."""
        return self.login is not None and self.login.must_reconnect(_age_s(request))

    def _is_full(self) -> bool:
        most = self._connection_count_max
        return self.open_count >= self._limits.request_count_max or (
            most is not None and self.connection_count() > most
        )

    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self.origins.check(request, is_safe=request.method in _SAFE_METHODS and not has_changes(request))
        except ForeignRequest as error:
            return self._certain_answer(request, error)
        intercepted = self.intercept(request)
        if intercepted is not None:
            return intercepted
        limit_ms = self._limits.request_timeout_ms
        left_s: float | None = None
        try:
            async with asyncio.timeout(limit_ms / 1000):
                left_s = await self.admit(request)
            async with asyncio.timeout(self._time_s(request, left_s)):
                return await charged(self.quotas, principal_of(request), lambda: handler(request))
        except TimeoutError:
            if left_s is not None and has_own_time(request):
                return self._ended(request)
            return self._certain_answer(request, TimedOut(limit_ms))
        except ConnectionError:
            raise
        except web.RequestPayloadError:  # damaged chunks, or a body that is not compressed as its header says
            refusal = self._certain_answer(request, web.HTTPBadRequest())
            refusal.force_close()
            return refusal
        except Exception as error:  # boundary: a connection's task
            answer = self.answer(request, error)
            if answer is not None:
                if isinstance(error, Throttled):
                    answer.headers[hdrs.RETRY_AFTER] = retry_after(error.wait_s)
                return answer
            log.exception("request failed", extra={"method": request.method, "path": request.path})
            return self._certain_answer(request, InternalError())

    def _time_s(self, request: web.Request, left_s: float | None) -> float | None:
        """Return how long (s) the handler may take, when the login ends in `left_s`; None: as long as it likes.

        The last request of a connection by certificate has the time of any other request, so that only long answers are cut off.
        """
        limit_s = self._limits.request_timeout_ms / 1000
        if not has_own_time(request):
            return limit_s
        return max(left_s, limit_s) if left_s is not None and self._is_by_certificate(request) else left_s

    def _is_by_certificate(self, request: web.Request) -> bool:
        return self.login is not None and self.login.is_by_certificate(request)

    def _ended(self, request: web.Request) -> web.StreamResponse:
        """End a request whose login has ended: an answer that has begun is cut off, so that its client does not take it for complete.

        A client that logs in by certificate does so again only by a new connection.
        """
        if self._is_by_certificate(request) or request.get(_HAS_BEGUN, False):
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError("the login has ended")
        return self._certain_answer(
            request, LoginRefused(401, "the login has ended", {hdrs.WWW_AUTHENTICATE: "Bearer"})
        )

    def _certain_answer(self, request: web.Request, error: Exception) -> web.StreamResponse:
        answer = self.answer(request, error)
        assert answer is not None, error
        return answer


def _age_s(request: web.Request) -> float:
    """Return the age (s) of the request's connection."""
    return request.protocol.age_s if isinstance(request.protocol, GatedHandler) else 0.0


def _kind_of(request: web.Request) -> str:
    """Return the request's method and route: one of a bounded number of texts, whatever method the client made up."""
    method = request.method if request.method in hdrs.METH_ALL else "other"
    resource = request.match_info.route.resource
    return f"{method} {resource.canonical if resource is not None else 'unknown'}"[:_REQUEST_LENGTH_MAX]
