"""Probes and metrics over HTTP. The probes report whether control loops run and the Lease is held, not merely whether a port answers."""

import time
from collections.abc import Sequence

from aiohttp import web

from bearlake_operator import metrics
from bearlake_operator.controllers.reconcile_loop import ReconcileLoop

STALL_S = 300.0
"""A control loop is stuck if it is overdue for this long. (A run may wait for slow servers; each request has a timeout of its own.)"""


class Health:
    """The operator's HTTP server."""

    def __init__(self, loops: Sequence[ReconcileLoop], host: str, port: int) -> None:
        self._loops = loops
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None
        self.is_ready = False
        """Whether this process leads and has listed all resources."""

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
        """Stop accepting connections."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _livez(self, request: web.Request) -> web.Response:
        if self.is_ready:  # the loops of a process that stands by do not run
            now = time.monotonic()
            stuck = [loop.name for loop in self._loops if now - loop.last_run_at > loop.requeue_after_s + STALL_S]
            if stuck:
                return web.json_response({"status": "stuck", "controllers": stuck}, status=503)
        return web.json_response({"status": "alive"})

    async def _readyz(self, request: web.Request) -> web.Response:
        if not self.is_ready:
            return web.json_response({"status": "standing by"}, status=503)
        return web.json_response({"status": "ready"})

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=metrics.expose(), headers={"Content-Type": metrics.CONTENT_TYPE})
