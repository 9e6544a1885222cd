"""The admin API's HTTP server: health, the live servers, settings, metrics, and the routes of a process.

It starts before the other services, so that clients can query a process that is still starting or already draining.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from aiohttp import web

from bearlake.errors import Unavailable
from bearlake.late import Late
from bearlake.metadata import CommitLog
from bearlake.metadata.model import Server
from bearlake.serving.admin import operations, problems
from bearlake.serving.admin.auth import METRICS_PATH
from bearlake.serving.admin.guard import AdminGuard
from bearlake.serving.admin.settings import AdminSettings
from bearlake.serving.admin.token import AdminToken
from bearlake.serving.http.login import HttpListenerLogin
from bearlake.serving.http.openapi.routes import DocumentRoutes
from bearlake.serving.http.site import HttpSite
from bearlake.serving.listener import Listener
from bearlake.serving.live_servers import LiveServers
from bearlake.streams.principal import Principal


def admin_endpoint(listener: Listener) -> tuple[str, str]:
    """Return name and address of the admin API among a server's endpoints: `host:port`, or with TLS `https://host:port`.

    Other servers learn from it how to connect, so that TLS can be switched on server by server.
    """
    name, address = listener.endpoint("admin")
    return name, address if listener.tls is None else f"https://{address}"


def _exposition() -> tuple[Callable[[], bytes], str]:
    from bearlake.telemetry import exposition

    return exposition.expose, exposition.CONTENT_TYPE


EXPOSITION = Late(_exposition)
"""Returns the text of all metrics, and its type."""


class Routes(Protocol):
    """Handlers of one resource."""

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
        login: HttpListenerLogin | None = None,
        is_super_user: Callable[[Principal], bool] = lambda _: False,
        metrics_token: AdminToken | None = None,
        write_problem: Callable[[], str] = str,
    ) -> None:
        """`login`: how super users log in, besides the token; None: they cannot. `is_super_user` says which of them may use the API.

        `routes` are the routes of this kind of process, besides health and metrics; `token` None: no token is required; `config`
        returns the content of `/v1/config`, without secrets. `metrics_token` reads only metrics; None: there is none. `write_problem`
        returns why the stores take no writes; empty: as far as known, they do.
        """
        self._listener = listener
        self._log = commit_log
        self._live_servers = servers
        self._routes = routes
        self._settings = settings
        self._config = config
        self._guard = AdminGuard(settings, token, login, is_super_user, metrics_token)
        self._write_problem = write_problem
        self._site = HttpSite(self.name, [listener], self._guard, idle_ms=settings.request_timeout_ms)
        self.is_ready = False
        """The result of `/readyz`; the process sets it when all services accept, and clears it when the drain begins."""

    @property
    def endpoints(self) -> Mapping[str, str]:
        """Return the address under `admin`, as `admin_endpoint`."""
        return dict([admin_endpoint(self._listener)])

    async def start(self) -> None:
        """Accept connections when this returns."""
        app = self._guard.application(request_bytes_max=self._settings.request_bytes_max)
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get(METRICS_PATH, self._metrics)
        app.router.add_get("/v1/servers", self._servers)
        app.router.add_get("/v1/config", self._show_config)
        for routes in self._routes:
            routes.add_to(app.router)
        DocumentRoutes(operations.DESCRIPTION).add_to(app)
        await self._site.start(app)

    async def drain(self, deadline_ms: int) -> None:
        """Return at once: the admin API answers until it is closed."""
        self.is_ready = False

    async def close(self) -> None:
        """Stop accepting; running requests get a second to end."""
        self.is_ready = False
        await self._site.close()

    async def _livez(self, request: web.Request) -> web.Response:
        """Check that the event loop runs, the only fault that a restart cures."""
        return web.json_response({"status": "alive"})

    async def _healthz(self, request: web.Request) -> web.Response:
        """Check that the metadata store and the event loop answer, and that the stores take writes."""
        start = time.perf_counter()
        try:
            async with asyncio.timeout(self._settings.health_timeout_ms / 1000):
                position = await self._log.head()
        except (TimeoutError, Unavailable) as error:
            reason = str(error) or f"no answer within {self._settings.health_timeout_ms} ms"
            return problems.answer(problems.problem(503, "Metadata store does not answer", reason))
        if problem := self._write_problem():
            return problems.answer(problems.problem(503, "Stores take no writes", problem))
        milliseconds = (time.perf_counter() - start) * 1000
        return web.json_response({"status": "ok", "log_position": position, "metadata_ms": round(milliseconds, 3)})

    async def _readyz(self, request: web.Request) -> web.Response:
        """Check that the server accepts work."""
        if not self.is_ready:
            return problems.answer(problems.problem(503, "Not ready", "the server is starting or draining"))
        return web.json_response({"status": "ready"})

    async def _metrics(self, request: web.Request) -> web.Response:
        """Get metrics in Prometheus' text format."""
        expose, content_type = await EXPOSITION.get()
        return web.Response(body=expose(), headers={"Content-Type": content_type})

    async def _servers(self, request: web.Request) -> web.Response:
        """List the live servers."""
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
        """List all settings with unit, source and meaning, without secrets."""
        return web.json_response({"settings": self._config()})
