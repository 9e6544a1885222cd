"""The role of the schema registry: runs beside REST in `bearlake serve rest`, and in `bearlake up`."""

from collections.abc import Mapping

from typing_extensions import override

from bearlake.app.role import OpenListener, Parts, Role
from bearlake.owned_tasks import Tasks
from bearlake.protocols.rest.registry.server import RegistryServer
from bearlake.serving.listener import Listener
from bearlake.settings.document import Settings


class RegistryRole(Role):
    """A `Role`."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._server: RegistryServer

    @override
    def bind(self, settings: Settings, open_listener: OpenListener) -> Mapping[str, str]:
        self._listeners = [open_listener(settings.listeners.registry, "registry")]
        return dict(listener.endpoint("registry") for listener in self._listeners)

    @override
    def build(self, parts: Parts) -> None:
        cluster_id = parts.registered.cluster_id
        self._server = RegistryServer(
            parts.schemas(),
            parts.settings.registry,
            self._listeners,
            cluster_id=cluster_id,
            login=parts.http_login(parts.settings.listeners.registry),
            quotas=parts.streams().quotas,
        )
        parts.closing.push_async_callback(self._server.close)

    @override
    async def start(self, tasks: Tasks) -> Mapping[str, str]:
        await self._server.start()
        return self._server.endpoints

    @override
    async def drain(self, deadline_ms: int) -> None:
        await self._server.drain(deadline_ms)
