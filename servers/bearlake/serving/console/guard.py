"""The console's own handling of requests: which names it has, and errors as problem documents.

The console asks nobody to log in: each API does. On loopback it can be reached by this machine only, and so can the APIs behind it; a
request must then name the machine itself (CWE-350: a web page whose own name resolves to 127.0.0.1).
"""

from aiohttp import hdrs, web
from typing_extensions import override

from bearlake.errors import BearlakeError
from bearlake.serving.admin import problems
from bearlake.serving.admin.auth import is_own_name
from bearlake.serving.console.settings import ConsoleSettings
from bearlake.serving.http.guard import HttpGuard, HttpMeters, InternalError, TimedOut, TooManyRequests
from bearlake.serving.http.login import LoginRefused
from bearlake.serving.http.origins import ForeignRequest, Origins
from bearlake.serving.listener import is_loopback
from bearlake.telemetry import metrics


class ConsoleGuard(HttpGuard):
    """The middleware of the console."""

    listener = "console"

    def __init__(self, settings: ConsoleSettings) -> None:
        super().__init__(
            settings,
            HttpMeters(requests=metrics.CONSOLE_REQUESTS),
            connection_count_max=settings.connection_count_max,
            address_connection_count_max=settings.address_connection_count_max,
            first_request_ms=settings.first_request_ms,
            origins=Origins(settings.host_names),
        )
        self._must_name_machine = is_loopback(settings.host) and not settings.host_names

    @override
    async def admit(self, request: web.Request) -> float | None:
        if self._must_name_machine and not is_own_name(request.headers.get(hdrs.HOST)):
            raise LoginRefused(403, "open the console as 127.0.0.1 or localhost", {})
        return await super().admit(request)

    @override
    def answer(self, request: web.Request, error: Exception) -> web.StreamResponse | None:
        match error:
            case LoginRefused() | ForeignRequest():
                return problems.answer(problems.problem(403, "Not allowed", str(error)))
            case BearlakeError():
                return problems.answer(problems.of_error(error))
            case TooManyRequests():
                return problems.answer(problems.problem(503, "Overloaded", str(error)))
            case TimedOut():
                return problems.answer(problems.problem(503, "Timed out", str(error)))
            case InternalError():
                return problems.answer(problems.problem(500, "Internal error", "the console's log has the details"))
            case web.HTTPException():
                return problems.answer(problems.problem(error.status, error.reason, error.text or error.reason))
        return None
