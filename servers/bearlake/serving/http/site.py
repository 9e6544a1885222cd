"""An HTTP application on listeners: start, stop accepting, count connections, close."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from aiohttp import web
from typing_extensions import override

from bearlake.serving.handshakes import TlsAcceptor
from bearlake.serving.http.guard import HttpGuard
from bearlake.serving.http.handlers import ConnectionGate, GatedHandler
from bearlake.serving.http.handshakes import HttpHandshakes
from bearlake.serving.listener import BACKLOG_COUNT, Listener

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
        self._sites: list[web.BaseSite] = []
        self._handshakes = HttpHandshakes(name, guard.gate.first_request_s)
        for listener in listeners:
            guard.origins.add_name(listener.advertised_host)
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
            site = _GatedSite(self._runner, listener.socket, ssl_context=listener.tls, backlog=BACKLOG_COUNT)
            site.gate, site.handshakes = self._guard.gate, self._handshakes
            await site.start()
            self._sites.append(site)

    async def stop_accepting(self) -> None:
        """Accept no more connections; open connections stay open."""
        sites, self._sites = self._sites, []
        for site in sites:
            await site.stop()

    async def close(self) -> None:
        """Close listeners and connections; running requests get a second to end. Safe to repeat and without `start`."""
        self._guard.draining.set()
        await self.stop_accepting()
        await self._handshakes.close()
        if self._runner is not None:
            await self._runner.cleanup()
        for listener in self._listeners:
            listener.socket.close()


class _GatedSite(web.SockSite):
    """A site whose connections pass a gate."""

    gate: ConnectionGate
    handshakes: HttpHandshakes
    _acceptor: TlsAcceptor | None = None

    @override
    async def start(self) -> None:
        await web.BaseSite.start(self)
        server = self._runner.server
        assert server is not None
        loop = asyncio.get_running_loop()
        accept = partial(GatedHandler, self.gate, server, loop=loop, **server._kwargs)
        tls = self._ssl_context
        if tls is None:
            self._server = await loop.create_server(accept, sock=self._sock, backlog=self._backlog)
        else:
            self._acceptor = TlsAcceptor(self._sock, partial(self.handshakes.accept, tls, accept))

    @override
    async def stop(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
        await super().stop()
