"""Heartbeats of a simulated process, and its watch over the others: what `serving/membership.py` does in a real one."""

import asyncio

from bearlake.errors import Overloaded, Unavailable
from bearlake.metadata import Membership
from bearlake.serving.watching import Watcher
from bearlake.streams.tenure import Tenure


class Beats:
    """One process's heartbeats. Times are the loop's."""

    def __init__(self, servers: Membership, tenure: Tenure, interval_ms: int) -> None:
        self._servers = servers
        self._tenure = tenure
        self._interval_ms = interval_ms
        self._watcher = Watcher(tenure.server, interval_ms)

    async def run(self) -> None:
        """One heartbeat and one look at the others per interval. Raises `Fenced`."""
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            try:
                await self._tenure.beat()
                await self._look()
            except (Unavailable, Overloaded):
                continue

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        started_ms = loop.time() * 1000
        servers = await self._servers.live()
        for server in self._watcher.saw(started_ms, loop.time() * 1000, servers):
            await self._servers.lapse(server.ref, server.heartbeat_count)
