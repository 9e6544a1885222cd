"""The role of `bearlake serve kafka`, also used by `bearlake up`: Kafka listeners on top of `streams/`."""

from collections.abc import Mapping

from typing_extensions import override

from bearlake.app.role import OpenListener, Parts, Role, SharesOnDemand
from bearlake.owned_tasks import Tasks
from bearlake.protocols.kafka.login import KafkaListenerLogin
from bearlake.protocols.kafka.server import KafkaServer
from bearlake.serving.authentication.peer import LoginRules, login_rules
from bearlake.serving.listener import Listener
from bearlake.settings.document import Settings


class KafkaRole(Role):
    """A `Role`."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._server: KafkaServer

    @override
    def bind(self, settings: Settings, open_listener: OpenListener) -> Mapping[str, str]:
        listener_settings = (settings.listeners.kafka, *settings.listeners.kafka_more)
        self._listeners = [open_listener(listener, "kafka") for listener in listener_settings]
        return dict(listener.endpoint("kafka") for listener in self._listeners)

    @override
    def build(self, parts: Parts) -> None:
        streams = parts.streams()
        self._server = KafkaServer(
            streams,
            parts.registered,
            parts.settings.kafka,
            self._listeners,
            logins={
                endpoint: KafkaListenerLogin(parts.authenticator(), rules)
                for endpoint, rules in self._rules(parts.settings).items()
                if rules.is_required
            },
            share_reach=SharesOnDemand(parts.share_peers),
        )
        parts.closing.push_async_callback(self._server.close)

    def _rules(self, settings: Settings) -> Mapping[str, LoginRules]:
        """Return how the clients of each endpoint log in."""
        declared = (settings.listeners.kafka, *settings.listeners.kafka_more)
        return {
            listener.endpoint("kafka")[0]: login_rules(listener_settings, settings.authentication)
            for listener_settings, listener in zip(declared, self._listeners, strict=True)
        }

    @override
    async def start(self, tasks: Tasks) -> Mapping[str, str]:
        await self._server.start()
        tasks.own("check Kafka connections", self._server.run())
        return self._server.endpoints

    @override
    async def drain(self, deadline_ms: int) -> None:
        await self._server.drain(deadline_ms)
