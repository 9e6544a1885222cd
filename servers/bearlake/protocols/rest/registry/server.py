"""The schema registry as a service: its HTTP application on one or more listeners, and its drain.

To drain, it keeps accepting while every answer closes its connection, so that clients connect elsewhere and no request fails.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from aiohttp import web

from bearlake.protocols.rest.registry.application import Guard, guarded_application
from bearlake.protocols.rest.registry.settings import RegistrySettings
from bearlake.serving.listener import Listener
from bearlake.streams.schemas.service import Schemas

log = logging.getLogger(__name__)

DRAIN_POLL_MS = 20


class RegistryServer:
    """A `serving.Service`."""

    name = "registry"

    def __init__(
        self, schemas: Schemas, settings: RegistrySettings, listeners: Sequence[Listener], *, cluster_id: str = ""
    ) -> None:
        """`listeners` (at least one) are bound already; they belong to the server then, `schemas` to the caller."""
        self._schemas = schemas
        self._settings = settings
        self._listeners = list(listeners)
        self._cluster_id = cluster_id
        self._guard = Guard(settings)
        self._runner: web.AppRunner | None = None

    @property
    def endpoints(self) -> Mapping[str, str]:
        """Advertised `host:port` by listener."""
        return dict(listener.endpoint(self.name) for listener in self._listeners)

    async def start(self) -> None:
        """Accept connections when this returns."""
        app = guarded_application(self._schemas, self._guard, self._cluster_id)
        timeout_s = self._settings.idle_ms / 1000
        self._guard.connection_count = lambda: self._connection_count
        self._runner = web.AppRunner(
            app, access_log=None, auto_decompress=False, keepalive_timeout=timeout_s, shutdown_timeout=1
        )
        await self._runner.setup()
        for listener in self._listeners:
            await web.SockSite(self._runner, listener.socket, ssl_context=listener.tls).start()

    async def drain(self, deadline_ms: int) -> None:
        """See the module's docstring; returns within `deadline_ms`."""
        self._guard.is_draining = True
        loop = asyncio.get_running_loop()
        idle_until = loop.time() + min(self._settings.drain_idle_ms, deadline_ms / 2) / 1000
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                while self._guard.open_count or (self._connection_count and loop.time() < idle_until):  # noqa: ASYNC110
                    await asyncio.sleep(DRAIN_POLL_MS / 1000)
        except TimeoutError:
            log.warning("draining took too long", extra={"requests": self._guard.open_count})

    async def close(self) -> None:
        """Close listeners and connections; requests under way get a second to end. Safe to repeat and without `start`."""
        self._guard.is_draining = True
        if self._runner is not None:
            await self._runner.cleanup()
        for listener in self._listeners:
            listener.socket.close()

    @property
    def _connection_count(self) -> int:
        server = self._runner.server if self._runner is not None else None
        return len(server.connections) if server is not None else 0
