"""The role of `bearlake serve pulsar`, also used by `bearlake up`: Pulsar listeners on top of `streams/`, and Pulsar's HTTP API."""

import asyncio
from collections.abc import Mapping

from typing_extensions import override

from bearlake.app.role import OpenListener, Parts, Role
from bearlake.owned_tasks import Tasks
from bearlake.protocols.pulsar.http.server import PulsarHttpServer
from bearlake.protocols.pulsar.server import PulsarServer
from bearlake.protocols.pulsar.session import PulsarListenerLogin
from bearlake.serving.authentication.peer import login_rules
from bearlake.serving.listener import Listener
from bearlake.settings.document import Settings


class PulsarRole(Role):
    """A `Role`."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._http_listener: Listener
        self._server: PulsarServer
        self._http: PulsarHttpServer

    @override
    def bind(self, settings: Settings, open_listener: OpenListener) -> Mapping[str, str]:
        listener_settings = (settings.listeners.pulsar, *settings.listeners.pulsar_more)
        self._listeners = [open_listener(listener, "pulsar") for listener in listener_settings]
        self._http_listener = open_listener(settings.listeners.pulsar_http, "pulsar_http")
        endpoints = [listener.endpoint("pulsar") for listener in self._listeners]
        return dict([*endpoints, self._http_listener.endpoint("pulsar_http")])

    @override
    def build(self, parts: Parts) -> None:
        self._server = PulsarServer(
            parts.streams(),
            parts.schemas(),
            parts.registered,
            parts.settings.pulsar,
            self._listeners,
            self._logins(parts),
        )
        login = parts.http_login(parts.settings.listeners.pulsar_http)
        self._http = PulsarHttpServer(self._server.context, parts.settings.pulsar_http, self._http_listener, login)
        parts.closing.push_async_callback(self._server.close)
        parts.closing.push_async_callback(self._http.close)

    def _logins(self, parts: Parts) -> Mapping[str, PulsarListenerLogin]:
        """Return how the clients of each endpoint log in."""
        declared = (parts.settings.listeners.pulsar, *parts.settings.listeners.pulsar_more)
        rules = {
            listener.endpoint("pulsar")[0]: login_rules(listener_settings, parts.settings.authentication)
            for listener_settings, listener in zip(declared, self._listeners, strict=True)
        }
        return {
            endpoint: PulsarListenerLogin(parts.authenticator(), found)
            for endpoint, found in rules.items()
            if found.is_required
        }

    @override
    async def start(self, tasks: Tasks) -> Mapping[str, str]:
        await self._server.start()
        tasks.own("check Pulsar connections", self._server.run())
        await self._http.start()
        return {**self._server.endpoints, **self._http.endpoints}

    @override
    async def drain(self, deadline_ms: int) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._server.drain(deadline_ms))
            group.create_task(self._http.drain(deadline_ms))
