"""The role of `bearlake serve grpc`, also used by `bearlake up`: bearlake.stream.v1 on top of `streams/`."""

from collections.abc import Mapping

from typing_extensions import override

from bearlake.app.role import OpenListener, Parts, Role
from bearlake.owned_tasks import Tasks
from bearlake.protocols.grpc.login import GrpcListenerLogin
from bearlake.protocols.grpc.server import GrpcServer
from bearlake.serving.authentication.peer import check_openness, login_rules
from bearlake.serving.authentication.presented import require_one_message
from bearlake.serving.membership import RegisteredServer
from bearlake.settings.document import Settings
from bearlake.streams.service import Streams


class GrpcRole(Role):
    """A `Role`. gRPC binds and accepts by itself, so this role opens no `Listener`."""

    def __init__(self) -> None:
        self._server: GrpcServer
        self._streams: Streams
        self._registered: RegisteredServer
        self._login: GrpcListenerLogin | None = None

    @override
    def bind(self, settings: Settings, open_listener: OpenListener) -> Mapping[str, str]:
        check_openness("grpc", settings.listeners.grpc, settings.authentication)
        require_one_message("grpc", settings.listeners.grpc, settings.authentication)
        self._server = GrpcServer(settings.grpc, settings.listeners.grpc)
        return self._server.endpoints

    @override
    def build(self, parts: Parts) -> None:
        self._streams = parts.streams()
        self._registered = parts.registered
        rules = login_rules(parts.settings.listeners.grpc, parts.settings.authentication)
        self._login = GrpcListenerLogin(parts.authenticator(), rules) if rules.is_required else None
        parts.closing.push_async_callback(self._server.close)

    @override
    async def start(self, tasks: Tasks) -> Mapping[str, str]:
        await self._server.start(self._streams, self._registered.live, login=self._login)
        tasks.own("check gRPC connections", self._server.run())
        return self._server.endpoints

    @override
    async def drain(self, deadline_ms: int) -> None:
        await self._server.drain(deadline_ms)
