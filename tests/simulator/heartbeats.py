"""Heartbeats of a simulated process, and its watch over the other processes, with the product's `Member`."""

import asyncio

from bearlake import __version__
from bearlake.metadata import Membership
from bearlake.metadata.formats import registered_version
from bearlake.metadata.model import Registration, Server
from bearlake.serving.membership import RegisteredServer, ServerSettings
from bearlake.streams.tenure import Tenure


class Heartbeats:
    """The membership of a process that has already registered with `tenure`. Times are the loop's."""

    def __init__(self, servers: Membership, tenure: Tenure, interval_ms: int, timeout_ms: int) -> None:
        """`timeout_ms` is the timeout of the registration."""
        own = Server(
            ref=tenure.server,
            name="",
            zone=None,
            endpoints={},
            version=registered_version(__version__),
            is_draining=False,
            heartbeat_count=0,
            timeout_ms=timeout_ms,
        )
        settings = ServerSettings(heartbeat_ms=interval_ms, timeout_ms=timeout_ms)
        registration = Registration(server=tenure.server, cluster_id="")
        self._interval_ms = interval_ms
        self._member = RegisteredServer(servers, registration, settings, own, lambda: None, tenure)

    async def run(self) -> None:
        """Send one heartbeat and check the other processes once per interval. Raises `Fenced`; a process then logs an error and stops."""
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            await self._member.beat()
