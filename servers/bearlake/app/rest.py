"""The role of `bearlake serve rest`, also used by `bearlake up`: REST listeners on top of `streams/`."""

from collections.abc import Mapping

from typing_extensions import override

from bearlake.app.role import OpenListener, Parts, Role
from bearlake.owned_tasks import Tasks
from bearlake.protocols.rest.server import RestServer
from bearlake.serving.listener import Listener
from bearlake.settings.document import Settings


class RestRole(Role):
    """A `Role`."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._server: RestServer

    @override
    def bind(self, settings: Settings, open_listener: OpenListener) -> Mapping[str, str]:
        self._listeners = [open_listener(settings.listeners.rest, "rest")]
        return dict(listener.endpoint("rest") for listener in self._listeners)

    @override
    def build(self, parts: Parts) -> None:
        streams = parts.streams()
        self._server = RestServer(
            streams,
            parts.schemas(),
            parts.registered,
            parts.settings.rest,
            self._listeners,
            parts.http_login(parts.settings.listeners.rest),
            share_reach=parts.share_peers(),
        )
        parts.closing.push_async_callback(self._server.close)

    @override
    async def start(self, tasks: Tasks) -> Mapping[str, str]:
        await self._server.start()
        tasks.own("REST consumers", self._server.run())
        return self._server.endpoints

    @override
    async def drain(self, deadline_ms: int) -> None:
        await self._server.drain(deadline_ms)
