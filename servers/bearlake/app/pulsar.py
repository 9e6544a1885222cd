"""The role of `bearlake serve pulsar`, also in `bearlake up`: Pulsar listeners on the waist."""

from collections.abc import Mapping, Sequence

from bearlake.app.process import OpenListener, Parts
from bearlake.protocols.pulsar.server import PulsarServer
from bearlake.serving.admin.server import Routes
from bearlake.serving.listener import Listener
from bearlake.serving.tasks import Tasks
from bearlake.settings.document import Settings


class PulsarRole:
    """A `Role`."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._server: PulsarServer

    def bind(self, settings: Settings, open_listener: OpenListener) -> Mapping[str, str]:
        """See `Role.bind`."""
        wanted = (settings.listeners.pulsar, *settings.listeners.pulsar_more)
        self._listeners = [open_listener(one, "pulsar") for one in wanted]
        return dict(listener.endpoint("pulsar") for listener in self._listeners)

    def build(self, parts: Parts) -> Sequence[Routes]:
        """See `Role.build`."""
        self._server = PulsarServer(
            parts.streams(), parts.schemas(), parts.member, parts.settings.pulsar, self._listeners
        )
        parts.closing.push_async_callback(self._server.close)
        return []

    async def start(self, tasks: Tasks) -> Mapping[str, str]:
        """See `Role.start`."""
        await self._server.start()
        return self._server.endpoints

    async def drain(self, deadline_ms: int) -> None:
        """See `Role.drain`."""
        await self._server.drain(deadline_ms)
