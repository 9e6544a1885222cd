"""The role of `bearlake serve rest`, also in `bearlake up`: REST listeners on the waist."""

from collections.abc import Mapping

from bearlake.app.process import OpenListener, Parts
from bearlake.protocols.rest.server import RestServer
from bearlake.serving.listener import Listener
from bearlake.serving.tasks import Tasks
from bearlake.settings.document import Settings


class RestRole:
    """A `Role`."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._server: RestServer

    def bind(self, settings: Settings, open_listener: OpenListener) -> Mapping[str, str]:
        """See `Role.bind`."""
        self._listeners = [open_listener(settings.listeners.rest, "rest")]
        return dict(listener.endpoint("rest") for listener in self._listeners)

    def build(self, parts: Parts) -> None:
        """See `Role.build`."""
        self._server = RestServer(parts.streams(), parts.schemas(), parts.member, parts.settings.rest, self._listeners)
        parts.closing.push_async_callback(self._server.close)

    async def start(self, tasks: Tasks) -> Mapping[str, str]:
        """See `Role.start`."""
        await self._server.start()
        tasks.own("REST consumers", self._server.run())
        return self._server.endpoints

    async def drain(self, deadline_ms: int) -> None:
        """See `Role.drain`."""
        await self._server.drain(deadline_ms)
