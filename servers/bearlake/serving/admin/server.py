"""The admin API's HTTP server: limits and access around every request, health, and the routes.

It starts before the other services, so that a process that is still starting or already draining can be asked how it is.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from aiohttp import web

from bearlake.errors import BearlakeError, Unavailable
from bearlake.metadata import CommitLog
from bearlake.metadata.model import Server
from bearlake.serving.admin import problems
from bearlake.serving.admin.access import OPEN_PATHS, AdminSettings, is_own_name
from bearlake.serving.admin.limits import has_own_limits
from bearlake.serving.admin.token import AdminToken
from bearlake.serving.listener import Listener
from bearlake.serving.live_servers import LiveServers
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Routes(Protocol):
    """Handlers of one noun."""

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""


class AdminServer:
    """A `Service` (see `bearlake.serving`)."""

    name = "admin"

    def __init__(
        self,
        listener: Listener,
        commit_log: CommitLog,
        servers: LiveServers,
        settings: AdminSettings,
        *,
        routes: Sequence[Routes] = (),
        token: AdminToken | None = None,
        config: Callable[[], object] = dict,
    ) -> None:
        """`routes` are what this kind of process offers beside health and metrics; `token` None: none is asked for; `config` gives
        what `/v1/config` shows, without secrets.
        """
        self._listener = listener
        self._log = commit_log
        self._live_servers = servers
        self._routes = routes
        self._settings = settings
        self._token = token
        self._config = config
        self._open_count = 0
        self._runner: web.AppRunner | None = None
        self.is_ready = False
        """What `/readyz` says; set by the process when all services accept, unset when it drains."""

    @property
    def endpoints(self) -> Mapping[str, str]:
        """`host:port` under `admin`."""
        return {"admin": self._listener.address}

    async def start(self) -> None:
        """Accept connections when this returns."""
        app = web.Application(middlewares=[self._guarded], client_max_size=self._settings.request_bytes_max)
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/servers", self._servers)
        app.router.add_get("/v1/config", self._show_config)
        for routes in self._routes:
            routes.add_to(app.router)
        timeout_s = self._settings.request_timeout_ms / 1000
        self._runner = web.AppRunner(app, access_log=None, keepalive_timeout=timeout_s, shutdown_timeout=1)
        await self._runner.setup()
        await web.SockSite(self._runner, self._listener.socket, ssl_context=self._listener.tls).start()

    async def drain(self, deadline_ms: int) -> None:
        """Nothing to finish: the admin API answers until it is closed."""
        self.is_ready = False

    async def close(self) -> None:
        """Stop accepting; requests under way get a second to end."""
        self.is_ready = False
        if self._runner is not None:
            await self._runner.cleanup()
        self._listener.socket.close()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        counts = not has_own_limits(request)
        if counts and self._open_count >= self._settings.request_count_max:
            return problems.answer(problems.problem(503, "Overloaded", "too many requests at once, come back later"))
        self._open_count += counts
        try:
            response = self._refused(request) or await self._answered(request, handler)
        finally:
            self._open_count -= counts
        metrics.ADMIN_REQUESTS.labels(f"{response.status // 100}xx").inc()
        return response

    def _refused(self, request: web.Request) -> web.Response | None:
        if request.path in OPEN_PATHS:
            return None
        if self._token is not None:
            if self._token.is_in(request.headers.get("Authorization")):
                return None
            return problems.answer(problems.problem(401, "Token needed", "send Authorization: Bearer <admin token>"))
        if is_own_name(request.headers.get("Host")):
            return None
        return problems.answer(problems.problem(403, "Not allowed", "ask for this server as 127.0.0.1 or localhost"))

    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        limit_s = None if has_own_limits(request) else self._settings.request_timeout_ms / 1000
        try:
            async with asyncio.timeout(limit_s):
                return await handler(request)
        except BearlakeError as error:
            return problems.answer(problems.of_error(error))
        except TimeoutError:
            limit = self._settings.request_timeout_ms
            return problems.answer(problems.problem(503, "Timed out", f"the request took more than {limit} ms"))
        except web.HTTPException as error:
            return problems.answer(problems.problem(error.status, error.reason, error.text or error.reason))
        except Exception:  # boundary: a connection's task
            log.exception("admin request failed", extra={"method": request.method, "path": request.path})
            return problems.answer(problems.problem(500, "Internal error", "the server's log has the details"))

    async def _livez(self, request: web.Request) -> web.Response:
        """The process turns its loop: all that a restart could mend."""
        return web.json_response({"status": "alive"})

    async def _healthz(self, request: web.Request) -> web.Response:
        start = time.perf_counter()
        try:
            async with asyncio.timeout(self._settings.health_timeout_ms / 1000):
                position = await self._log.head()
        except (TimeoutError, Unavailable) as error:
            reason = str(error) or f"no answer within {self._settings.health_timeout_ms} ms"
            return problems.answer(problems.problem(503, "Metadata store does not answer", reason))
        milliseconds = (time.perf_counter() - start) * 1000
        return web.json_response({"status": "ok", "log_position": position, "metadata_ms": round(milliseconds, 3)})

    async def _readyz(self, request: web.Request) -> web.Response:
        if not self.is_ready:
            return problems.answer(problems.problem(503, "Not ready", "the server is starting or draining"))
        return web.json_response({"status": "ready"})

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=metrics.expose(), headers={"Content-Type": metrics.CONTENT_TYPE})

    async def _servers(self, request: web.Request) -> web.Response:
        return web.json_response({"servers": [self._shown(server) for server in self._live_servers.live()]})

    def _shown(self, server: Server) -> dict[str, object]:
        return {
            "node_id": server.ref.node_id,
            "epoch": server.ref.epoch,
            "name": server.name,
            "zone": server.zone,
            "endpoints": dict(server.endpoints),
            "version": server.version,
            "is_draining": server.is_draining,
            "heartbeat_age_ms": self._live_servers.heartbeat_age_ms(server.ref),
        }

    async def _show_config(self, request: web.Request) -> web.Response:
        return web.json_response({"settings": self._config()})
