"""The schema registry as a service: its HTTP application on one or more listeners, and its drain.

To drain, the server keeps accepting while every answer closes its connection, so that clients connect elsewhere and no request fails.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from bearlake.protocols.rest.registry.application import guarded_application
from bearlake.protocols.rest.registry.guard import RegistryGuard
from bearlake.protocols.rest.registry.settings import RegistrySettings
from bearlake.serving.draining import until
from bearlake.serving.http.login import HttpListenerLogin
from bearlake.serving.http.site import HttpSite
from bearlake.serving.listener import Listener
from bearlake.streams.quotas.control import QuotaControl
from bearlake.streams.schemas.service import Schemas
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)


class RegistryServer:
    """A `serving.Service`."""

    name = "registry"

    def __init__(
        self,
        schemas: Schemas,
        settings: RegistrySettings,
        listeners: Sequence[Listener],
        *,
        cluster_id: str = "",
        login: HttpListenerLogin | None = None,
        quotas: QuotaControl | None = None,
    ) -> None:
        """`login`: how clients log in; None: they need not. `quotas`: how much they may use; None: they have no quotas.

        `listeners` (at least one) are already bound; the server takes ownership of them. The caller keeps ownership of `schemas`."""
        self._schemas = schemas
        self._settings = settings
        self._cluster_id = cluster_id
        self._guard = RegistryGuard(settings, login)
        if quotas is not None:
            self._guard.limit_by(quotas)
        self._site = HttpSite(self.name, listeners, self._guard, idle_ms=settings.idle_ms, auto_decompress=False)
        metrics.REGISTRY_CONNECTIONS.set_function(lambda: self._site.connection_count)

    @property
    def endpoints(self) -> Mapping[str, str]:
        """Advertised `host:port` by listener."""
        return self._site.endpoints

    async def start(self) -> None:
        """Accept connections when this returns."""
        await self._site.start(guarded_application(self._schemas, self._guard, self._settings, self._cluster_id))

    async def drain(self, deadline_ms: int) -> None:
        """Drain as the module docstring describes; return within `deadline_ms`."""
        self._guard.draining.set()
        loop = asyncio.get_running_loop()
        idle_until = loop.time() + min(self._settings.drain_idle_ms, deadline_ms / 2) / 1000
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                await until(
                    lambda: (
                        not self._guard.open_count and (not self._site.connection_count or loop.time() >= idle_until)
                    )
                )
        except TimeoutError:
            log.warning("draining exceeded its deadline", extra={"requests": self._guard.open_count})

    async def close(self) -> None:
        """Close listeners and connections; open requests get one second to finish. Idempotent, and safe without `start`."""
        await self._site.close()
