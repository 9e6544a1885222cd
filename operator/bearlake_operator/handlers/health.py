"""Probes and metrics over HTTP: whether the workers turn and the lease is held, not merely whether a port answers."""

import time
from collections.abc import Sequence

from aiohttp import web

from bearlake_operator import metrics
from bearlake_operator.handlers.loop import Loop

STALL_S = 300.0
"""A worker that has not turned for this long is stuck (a round may wait for slow servers, each request with its own limit)."""


class Health:
    """The operator's HTTP server."""

    def __init__(self, loops: Sequence[Loop], host: str, port: int) -> None:
        self._loops = loops
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None
        self.is_ready = False
        """Whether this process leads and has listed everything."""

    async def start(self) -> int:
        """Accept connections; returns the port."""
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        await site.start()
        address = self._runner.addresses[0]
        return int(address[1])

    async def close(self) -> None:
        """Stop accepting."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _livez(self, request: web.Request) -> web.Response:
        if self.is_ready:  # a process that stands by does not turn
            now = time.monotonic()
            limits = {loop.name: loop.wait_s + STALL_S for loop in self._loops}
            stuck = [loop.name for loop in self._loops if now - loop.last_turn > limits[loop.name]]
            if stuck:
                return web.json_response({"status": "stuck", "workers": stuck}, status=503)
        return web.json_response({"status": "alive"})

    async def _readyz(self, request: web.Request) -> web.Response:
        if not self.is_ready:
            return web.json_response({"status": "standing by"}, status=503)
        return web.json_response({"status": "ready"})

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=metrics.expose(), headers={"Content-Type": metrics.CONTENT_TYPE})
