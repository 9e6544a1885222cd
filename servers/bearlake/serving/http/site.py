"""An HTTP application on listeners: start, stop accepting, count connections, close."""

from collections.abc import Mapping, Sequence

from aiohttp import web

from bearlake.serving.http.guard import HttpGuard
from bearlake.serving.listener import Listener

SHUTDOWN_S = 1
"""Time (s) that running requests have when the site closes."""


class HttpSite:
    """The listeners of one HTTP server, and its application."""

    def __init__(
        self,
        name: str,
        listeners: Sequence[Listener],
        guard: HttpGuard,
        *,
        idle_ms: int,
        auto_decompress: bool = True,
        handler_cancellation: bool = False,
    ) -> None:
        """`name` names the endpoints. `listeners` are already bound, and this object owns them from now on.

        With `auto_decompress` False, handlers read bodies as they were sent. With `handler_cancellation`, a request ends when its client
        disconnects.
        """
        self._name = name
        self._listeners = list(listeners)
        self._guard = guard
        self._idle_s = idle_ms / 1000
        self._auto_decompress = auto_decompress
        self._handler_cancellation = handler_cancellation
        self._runner: web.AppRunner | None = None
        self._sites: list[web.SockSite] = []
        guard.connection_count = lambda: self.connection_count

    @property
    def endpoints(self) -> Mapping[str, str]:
        """Advertised `host:port` by listener."""
        return dict(listener.endpoint(self._name) for listener in self._listeners)

    @property
    def connection_count(self) -> int:
        """Open connections."""
        server = self._runner.server if self._runner is not None else None
        return len(server.connections) if server is not None else 0

    async def start(self, app: web.Application) -> None:
        """Accept connections when this returns."""
        self._runner = web.AppRunner(
            app,
            access_log=None,
            auto_decompress=self._auto_decompress,
            handler_cancellation=self._handler_cancellation,
            keepalive_timeout=self._idle_s,
            shutdown_timeout=SHUTDOWN_S,
        )
        await self._runner.setup()
        for listener in self._listeners:
            site = web.SockSite(self._runner, listener.socket, ssl_context=listener.tls)
            await site.start()
            self._sites.append(site)

    async def stop_accepting(self) -> None:
        """Accept no more connections; open connections stay open."""
        for site in self._sites:
            await site.stop()

    async def close(self) -> None:
        """Close listeners and connections; running requests get a second to end. Safe to repeat and without `start`."""
        self._guard.draining.set()
        if self._runner is not None:
            await self._runner.cleanup()
        for listener in self._listeners:
            listener.socket.close()
