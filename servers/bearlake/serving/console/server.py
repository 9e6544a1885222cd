"""The console's HTTP server."""

from collections.abc import Mapping

from aiohttp import web

from bearlake import __version__
from bearlake.serving.console.forwarding import ForwardingRoutes
from bearlake.serving.console.guard import ConsoleGuard
from bearlake.serving.console.pages import PageRoutes
from bearlake.serving.console.routes import APIS, OPTIONAL, check_exposure, check_url
from bearlake.serving.console.settings import ConsoleSettings
from bearlake.serving.http.site import HttpSite
from bearlake.serving.listener import Listener, is_loopback

URLS = {
    "admin": "http://127.0.0.1:9644",
    "rest": "http://127.0.0.1:8082",
    "registry": "http://127.0.0.1:8081",
    "pulsar": "http://127.0.0.1:8080",
    "catalog": "http://127.0.0.1:8181",
}
"""Where the APIs listen by default."""


class ConsoleServer:
    """A `Service` (see `bearlake.serving`)."""

    name = "console"

    def __init__(self, listener: Listener, settings: ConsoleSettings, own_urls: Mapping[str, str]) -> None:
        """`own_urls` are those of this process's APIs; the settings have precedence. The server owns the listener from now on.

        Raises:
            Invalid: a URL cannot be used, or the console would expose an API on loopback (`check_exposure`).
        """
        chosen = {api: getattr(settings, f"{api}_url") or own_urls.get(api) or _default(api, settings) for api in APIS}
        self.urls: Mapping[str, str] = {api: check_url(api, url) for api, url in chosen.items() if url}
        """The URL of each API that there is."""
        check_exposure(settings.host, self.urls)
        self._settings = settings
        self._guard = ConsoleGuard(settings)
        self._site = HttpSite(self.name, [listener], self._guard, idle_ms=settings.idle_ms, handler_cancellation=True)
        self._scheme = "http" if listener.tls is None else "https"
        self._forwarding = ForwardingRoutes(self.urls, settings)

    @property
    def endpoints(self) -> Mapping[str, str]:
        """Return the address under `console`; with TLS it names its scheme."""
        return {
            name: f"https://{address}" if self._scheme == "https" else address
            for name, address in self._site.endpoints.items()
        }

    async def start(self) -> None:
        """Accept connections when this returns."""
        app = self._guard.application(request_bytes_max=self._settings.request_bytes_max)
        app.router.add_get("/api/console", self._console)
        self._forwarding.add_to(app.router)
        PageRoutes().add_to(app.router)
        await self._site.start(app)

    async def drain(self, deadline_ms: int) -> None:
        """Return at once: answers close their connections from now on, and the page tries again."""
        self._guard.draining.set()

    async def close(self) -> None:
        """Close listeners and connections. Safe to repeat."""
        await self._site.close()
        await self._forwarding.close()

    async def _console(self, request: web.Request) -> web.Response:
        """Get the version, and the URLs of the APIs, for the commands that the page shows."""
        defaults = {api: self.urls.get(api) == url for api, url in URLS.items()}
        return web.json_response(
            {"version": __version__, "urls": dict(self.urls), "is_default": defaults},
            headers={"Cache-Control": "no-store"},
        )


def _default(api: str, settings: ConsoleSettings) -> str:
    """Return where an API is that no setting names; empty: the console has no page for it (`OPTIONAL`)."""
    return URLS[api] if api not in OPTIONAL or is_loopback(settings.host) else ""
