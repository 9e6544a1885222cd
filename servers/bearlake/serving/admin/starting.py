"""The admin API of a process that still waits for its stores: it reports the process as alive and not ready, and nothing else.

It uses a duplicate of the admin listener's socket, so that the listener stays open when `AdminServer` takes over. A client that
connects in between waits in the backlog for a moment.
"""

from collections.abc import Callable

from aiohttp import web

from bearlake.serving.admin import problems
from bearlake.serving.listener import BACKLOG_COUNT, Listener


class StartingServer:
    """Answers until it is closed. It only reveals what the process waits for, so it requires no token."""

    def __init__(self, listener: Listener, waiting_for: Callable[[], str]) -> None:
        """`waiting_for` returns what the process waits for now; empty: nothing."""
        self._listener = listener
        self._waiting_for = waiting_for
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Accept connections when this returns."""
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_route("*", "/{path:.*}", self._not_ready)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        listening = self._listener.socket.dup()
        await web.SockSite(self._runner, listening, ssl_context=self._listener.tls, backlog=BACKLOG_COUNT).start()

    async def close(self) -> None:
        """Close all connections; the listener stays open. Safe to repeat."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _livez(self, request: web.Request) -> web.Response:
        """Check that the process runs."""
        return web.json_response({"status": "alive"})

    async def _not_ready(self, request: web.Request) -> web.Response:
        what = self._waiting_for()
        detail = f"the server is starting and waits for {what}" if what else "the server is starting"
        return problems.answer(problems.problem(503, "Not ready", detail))
